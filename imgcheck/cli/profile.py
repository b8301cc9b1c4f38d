"""`imgcheck profile`: what an image needs, as a document to keep."""

import sys
from collections.abc import Sequence
from pathlib import Path

from imgcheck.cli import OK, options
from imgcheck.cli.files import write
from imgcheck.cli.reference import profile_of
from imgcheck.documents import encode

_EXAMPLES = """
imgcheck profile qnib/cv-nccl92-tf-dev -o tf.json
imgcheck image ./tf.json --host-probe
"""


def run(arguments: Sequence[str]) -> int:
    parser = options.parser("profile", "Writes an image's profile: every later check reads it at once.", _EXAMPLES)
    parser.add_argument("reference", metavar="REF", help="as for `imgcheck image`")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it there instead of standard output")
    options.add_source_options(parser)
    options.add_store_options(parser)
    options.add_quiet_option(parser)
    parsed = parser.parse_args(arguments)
    data = encode(profile_of(parsed))
    if parsed.output:
        write(parsed.output, data)
    else:
        sys.stdout.buffer.write(data)
    return OK
