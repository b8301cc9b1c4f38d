"""`imgcheck profile`: what an image needs, as a document to keep."""

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from imgcheck.check.needs import with_minimum
from imgcheck.cli import OK, note, options
from imgcheck.cli.files import refuse_unwritable, write
from imgcheck.cli.reference import profile_of
from imgcheck.documents import ImageProfile, encode
from imgcheck.knowledge import Knowledge
from imgcheck.loader.kept import with_loads
from imgcheck.preflight.belonging import file_identity
from imgcheck.sources.reference import parse

_EXAMPLES = """
imgcheck profile qnib/cv-nccl92-tf-dev -o tf.json
imgcheck image ./tf.json --host-probe
imgcheck profile qnib/cv-nccl92-tf-dev --export nfd -o spec.yaml
"""


def run(arguments: Sequence[str]) -> int:
    parser = options.parser("profile", "Writes an image's profile: every later check reads it at once.", _EXAMPLES)
    parser.add_argument("reference", metavar="REF", help="as for `imgcheck image`")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=options.document, help="write it there instead of standard output"
    )
    parser.add_argument("--export", choices=("nfd",), help="write a spec for `nfd compat validate-node` instead")
    options.add_source_options(parser)
    options.add_cache_options(parser)
    options.add_attached_options(parser)
    options.add_rules_option(parser)
    options.add_quiet_option(parser)
    parsed = parser.parse_args(arguments)
    if parsed.output:
        refuse_unwritable(f"-o {parsed.output}", parsed.output)
    knowledge = Knowledge(tuple(parsed.rules))
    profile = _identified(profile_of(parsed, knowledge), parsed.reference)
    data = _nfd(profile, knowledge) if parsed.export else encode(with_loads(with_minimum(profile, knowledge)))
    if parsed.output:
        write(parsed.output, data)
    else:
        sys.stdout.buffer.write(data)
    return OK


def _identified(profile: ImageProfile, reference: str) -> ImageProfile:
    """With what tells the image's file from others, so that a preflight believes the profile beside that file alone."""
    place = parse(reference)
    if not place.path or place.kind == "profile":
        return profile
    return replace(profile, file_identity=file_identity(place.path, place.tag))


def _nfd(profile: ImageProfile, knowledge: Knowledge) -> bytes:
    """The spec; what it cannot say goes to stderr."""
    from imgcheck.attach import nfd

    spec = nfd.spec_of(profile, knowledge)
    for limit in spec.limits:
        note(limit)
    return nfd.encode(spec)
