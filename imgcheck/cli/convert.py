"""`imgcheck convert`: an image as a tree or file that a runtime starts at once."""

from collections.abc import Sequence
from pathlib import Path

from imgcheck.cli import OK, options
from imgcheck.cli.progress import progress
from imgcheck.report.text import safe

_EXAMPLES = """
imgcheck convert qnib/cv-nccl92-tf-dev --to sandbox ./tf
imgcheck convert app.tar --to udocker ~/.udocker --name app
imgcheck convert oci:build:latest --to rootfs ./root
"""


def run(arguments: Sequence[str]) -> int:
    from imgcheck.convert.run import ConvertOptions, convert
    from imgcheck.convert.targets import TARGETS
    from imgcheck.sources.open import open_image

    parser = options.parser("convert", "Turns an image into something that a runtime starts at once.", _EXAMPLES)
    parser.add_argument("reference", metavar="REF", help="as for `imgcheck image`")
    kinds = "; ".join(f"{name}: {what}" for name, what in TARGETS.items())
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help=kinds)
    parser.add_argument("destination", metavar="DEST", type=Path, help="what to write; must not exist")
    parser.add_argument("--force", action="store_true", help="replace DEST if it exists")
    parser.add_argument("--name", default="", help="udocker: name of the container")
    options.add_source_options(parser)
    options.add_quiet_option(parser)
    parsed = parser.parse_args(arguments)
    with (
        progress(parsed.quiet) as shown,
        open_image(parsed.reference, options.source_options(parsed), shown) as image,
    ):
        wanted = ConvertOptions(force=parsed.force, name=parsed.name)
        converted = convert(image, parsed.to, parsed.destination, wanted, shown)
    for note in converted.notes:
        print(f"note: {safe(note)}")
    print(f"run it with: {safe(converted.command)}")
    return OK
