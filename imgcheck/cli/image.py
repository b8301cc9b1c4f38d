"""`imgcheck image`: an image held against hosts, or what it needs where no host is named."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from imgcheck.cli import OK, nearest, note, options
from imgcheck.cli.gate import Gate, add_policy_options, exit_status
from imgcheck.cli.host_files import split_host_probe
from imgcheck.cli.reference import profile_of
from imgcheck.documents import HostProfile, ImageProfile, Report
from imgcheck.documents.codec import as_text
from imgcheck.documents.report import FAIL_ON
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge
from imgcheck.sources.reference import parse

if TYPE_CHECKING:
    from imgcheck.report.history import Origins

_FORMATS = options.REPORT_FORMATS

_OF_A_HOST = ("runtime", "entry", "require_gpu", "dockerfile")
"""Options that ask for nothing where what the image needs is shown: that is of its own command under any runtime."""

_EXAMPLES = """
imgcheck image qnib/cv-nccl92-tf-dev --host-probe
imgcheck image oci:build:latest --host-probe node1.json node2.json
imgcheck image app.tar --host-probe gpu.json --runtime apptainer-nv -- python train.py
imgcheck image docker://localhost:5000/app:1.2 -o json=needs.json
imgcheck image app.tar                                  the hosts that imgcheck.toml requires
imgcheck image app.tar --write-baseline baseline.json   what is found now may stay
"""


def run(arguments: Sequence[str]) -> int:
    """Check or describe one image; returns the exit status."""
    own, command = _split_command(arguments)
    parsed = _parser().parse_args(split_host_probe(own))
    knowledge = Knowledge(tuple(parsed.rules))
    runtimes = tuple(_known(name, knowledge) for name in parsed.runtime)
    gate = Gate.of(parsed, knowledge)
    if not gate.hosts:
        return _describe(parsed, command, knowledge)
    from imgcheck.check.run import Request, not_installed
    from imgcheck.report.dockerfile import read_dockerfile
    from imgcheck.report.formats import FORMATS, Rendering
    from imgcheck.report.history import origins

    outputs = options.outputs(parsed.output, tuple(FORMATS), parsed.write_baseline)
    request = Request(
        runtimes=runtimes,
        command=command,
        entries=tuple(map(as_text, parsed.entry)),
        require_gpu=parsed.require_gpu,
    )
    dockerfile = read_dockerfile(parsed.dockerfile) if parsed.dockerfile else None
    images = _images(parsed, gate.hosts, knowledge)
    for image, hosts in images:
        for host in hosts:
            told = not_installed(image, host, gate.asked(request), knowledge)
            if told:
                note(told)
    report = gate.check(images, request, knowledge)
    located = origins(dockerfile, [image.layers for image, _ in images]) if dockerfile else None
    if located:
        _tell_unplaced(report, located)
    for output in outputs:
        rendering = Rendering(
            knowledge, located, terminal=output.file is None, verbose=parsed.verbose, fail_on=gate.fail_on
        )
        options.emit(output, FORMATS[output.format](report, rendering))
    return exit_status(report, gate.fail_on, gate.allow_unknown)


def _tell_unplaced(report: Report, located: "Origins") -> None:
    from imgcheck.report.location import unplaced

    missing = unplaced(report, located)
    if missing:
        lines = "1 history line" if missing == 1 else f"{missing} history lines"
        note(
            f"{lines} with findings not found in {located.path}: of the base image, or of another Dockerfile; these "
            "findings stand at the file in the image"
        )


def _images(
    parsed: argparse.Namespace, hosts: Sequence[HostProfile], knowledge: Knowledge
) -> list[tuple[ImageProfile, list[HostProfile]]]:
    """The image for each architecture among `hosts`: an index holds another one for each."""
    groups: dict[str | None, list[HostProfile]] = {}
    for host in hosts:
        groups.setdefault(host.cpu.architecture.value, []).append(host)
    if parsed.platform:
        return [(profile_of(parsed, knowledge, hosts), list(hosts))]
    if len(groups) > 1:
        _refuse_stream(parsed.reference)
    images = []
    for group in groups.values():
        images.append((profile_of(parsed, knowledge, group), group))
        parsed.platform = None  # that of this group must not decide for the next
    return images


def _refuse_stream(reference: str) -> None:
    """UsageError where the image can be read but once: its platform for the first host would be that for all."""
    path = parse(reference).path
    if path == "-" or Path(path).is_fifo():
        raise UsageError(
            f"{reference}: a stream is read once, for one platform, and the hosts have several architectures",
            "save it to a file first, check each architecture by itself, or say which it is: --platform OS/ARCH",
        )


def _describe(parsed: argparse.Namespace, command: tuple[str, ...] | None, knowledge: Knowledge) -> int:
    from imgcheck.report.needs import FORMATS

    unmet = [f"-o {value}" for value in parsed.output if value.partition("=")[0] in set(_FORMATS) - set(FORMATS)]
    unmet += [f"--{name.replace('_', '-')}" for name in _OF_A_HOST if getattr(parsed, name)]
    unmet += ["a command behind `--`"] if command else []
    if unmet:
        raise UsageError(
            f"{unmet[0]}: this is for an image held against a host, and none is named",
            "--host-probe: this machine; --host-probe HOST.json: that one; or [[host]] in imgcheck.toml",
        )
    outputs = options.outputs(parsed.output, tuple(FORMATS))
    image: ImageProfile = profile_of(parsed, knowledge)
    for output in outputs:
        options.emit(output, FORMATS[output.format](image, knowledge, output.file is None))
    return OK


def _known(name: str, knowledge: Knowledge) -> str:
    if name not in knowledge.runtimes:
        near = nearest(name, knowledge.runtimes)
        raise UsageError(f"--runtime {name}: unknown runtime", f"{near}runtimes are {', '.join(knowledge.runtimes)}")
    return name


def _split_command(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    if "--" not in arguments:
        return list(arguments), None
    at = list(arguments).index("--")
    command = tuple(map(as_text, arguments[at + 1 :]))
    if not command:
        raise UsageError("nothing follows `--`", "put the command that will run in the container there")
    return list(arguments[:at]), command


def _parser() -> argparse.ArgumentParser:
    parser = options.parser(
        "image",
        "Says whether an image will work on hosts, and what would go wrong: those of --host-probe, else those that "
        "imgcheck.toml requires. Without any it shows what the image needs.",
        _EXAMPLES,
    )
    parser.add_argument("reference", metavar="REF", help="NAME[:TAG], oci:DIR, docker-archive:FILE, dir:ROOT, a path")
    options.add_host_option(parser, "hold it against these hosts, or against this machine where no file follows")
    options.add_runtime_option(parser)
    parser.add_argument("--entry", metavar="PATH", action="append", default=[], help="this file of the image is run")
    parser.add_argument("--require-gpu", action="store_true", help="no usable GPU is a failure")
    options.add_output_option(parser, _FORMATS)
    parser.add_argument("--dockerfile", metavar="FILE", type=options.path, help="locate findings at its lines")
    parser.add_argument("--fail-on", choices=FAIL_ON, help="exit with 1 from this level on; `fail` if nothing says so")
    parser.add_argument("--allow-unknown", action="store_true", help="exit with 0, not 3, where it is undecided")
    add_policy_options(parser)
    options.add_source_options(parser)
    options.add_cache_options(parser)
    options.add_attached_options(parser)
    options.add_rules_option(parser)
    options.add_quiet_option(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="the table shortens nothing")
    options.add_command(parser)
    return parser
