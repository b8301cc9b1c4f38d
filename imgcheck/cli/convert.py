"""`imgcheck convert`: an image as a tree or file that a runtime starts at once."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from imgcheck.cli import OK, note, options
from imgcheck.cli.host_files import load_hosts, split_host_probe
from imgcheck.cli.progress import progress
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge
from imgcheck.progress import Progress
from imgcheck.report.text import safe, safe_command
from imgcheck.sources.reference import parse

if TYPE_CHECKING:
    from imgcheck.convert.model import Converted
    from imgcheck.documents import HostProfile, ImageProfile
    from imgcheck.profile.store import Store
    from imgcheck.sources.model import Image

_EXAMPLES = """
imgcheck convert qnib/cv-nccl92-tf-dev --to sandbox ./tf
imgcheck convert app.tar --to udocker ~/.udocker --name app
imgcheck convert oci:build:latest --to rootfs ./root
imgcheck convert app:1.2 --to sif app.sif --host-probe node.json
"""
_NAME_HELP = "udocker: name of the container; oci, docker-archive: name:tag of the image; made from REF without it"


def run(arguments: Sequence[str]) -> int:
    """Convert one image, and hold it against hosts where any are named; returns the exit status."""
    from imgcheck.convert.run import check_name
    from imgcheck.host.kinds import named_apart
    from imgcheck.sources.open import open_image

    parsed = _parser().parse_args(split_host_probe(arguments))
    _refuse_inside(parsed.reference, parsed.destination)
    check_name(parsed.to, parsed.name)
    knowledge = Knowledge(tuple(parsed.rules))
    hosts = named_apart(load_hosts(parsed.host_probe, knowledge))
    if hosts:
        from imgcheck.cli.reference import choose_platform

        choose_platform(parsed, hosts)
    store = options.store(parsed)
    with (
        progress(parsed.quiet) as shown,
        open_image(parsed.reference, options.source_options(parsed, knowledge, store, read_all=True), shown) as image,
    ):
        converted, profile = _work(parsed, image, store, knowledge if hosts else None, shown)
    for text in image.notes:
        note(text)
    for text in (*converted.notes, *((store.trouble,) if store and store.trouble else ())):
        print(f"note: {safe(text)}")
    status = _check(parsed, profile, hosts, knowledge) if profile else OK
    print(f"run it with: {safe_command(converted.command)}")
    return status


def _refuse_inside(reference: str, destination: Path) -> None:
    """A directory that is converted would hold what is written below it, as far as that is there by then."""
    found = parse(reference)
    if found.kind != "dir":
        return
    place = destination.absolute().parent.resolve() / destination.name
    if place.is_relative_to(Path(found.path).resolve()):
        raise UsageError(f"{destination} lies in {found.path}, which is converted", "choose a destination outside")


def _work(
    parsed: argparse.Namespace, image: "Image", store: "Store | None", judging: Knowledge | None, shown: Progress
) -> "tuple[Converted, ImageProfile | None]":
    """Convert, after making the profile where one is wanted and not kept; remote layers are fetched once for both.

    One is wanted where the image shall be held against hosts, by `judging`.
    """
    from imgcheck.convert.run import ConvertOptions, convert

    wanted = ConvertOptions(force=parsed.force, name=parsed.name)
    if judging is None:
        return convert(image, parsed.to, parsed.destination, wanted, shown), None
    from imgcheck.convert.held import adds_to, read_once
    from imgcheck.convert.stage import refuse_existing
    from imgcheck.profile.build import build_profile, kept_profile

    if not adds_to(parsed.to, parsed.destination):
        refuse_existing(parsed.destination, parsed.force)
    profile = kept_profile(image, store, judging)
    with nullcontext(image) if profile else read_once(image, parsed.to, parsed.destination) as readable:
        profile = profile or build_profile(readable, shown, store, judging)
        return convert(readable, parsed.to, parsed.destination, wanted, shown), profile


def _check(
    parsed: argparse.Namespace, profile: "ImageProfile", hosts: "list[HostProfile]", knowledge: Knowledge
) -> int:
    """Print what the runtimes of the target will meet on the hosts."""
    from imgcheck.check.run import Request, check
    from imgcheck.cli.gate import exit_status
    from imgcheck.convert.held import Mended, runtimes_of
    from imgcheck.report.terminal import terminal_report

    request = Request(runtimes=runtimes_of(parsed.to, hosts, knowledge), review=Mended(parsed.to))
    # What it was before has no say in which runtimes take what it is now.
    report = check(msgspec.structs.replace(profile, family=""), hosts, request, knowledge)
    sys.stdout.write(terminal_report(report, terminal=True))
    return exit_status(report, "fail", False)


def _parser() -> argparse.ArgumentParser:
    from imgcheck.convert.targets import TARGETS

    parser = options.parser("convert", "Turns an image into something that a runtime starts at once.", _EXAMPLES)
    parser.add_argument("reference", metavar="REF", help="as for `imgcheck image`")
    kinds = "; ".join(f"{name}: {what}" for name, what in TARGETS.items())
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help=kinds)
    parser.add_argument("destination", metavar="DEST", type=options.path, help="what to write; must not exist")
    parser.add_argument("--force", action="store_true", help="replace DEST if it exists")
    parser.add_argument("--name", default="", help=_NAME_HELP)
    options.add_host_option(
        parser, "say as well whether it will work on these hosts, or on this machine where no file follows"
    )
    options.add_source_options(parser)
    options.add_cache_options(parser)
    options.add_rules_option(parser)
    options.add_quiet_option(parser)
    return parser
