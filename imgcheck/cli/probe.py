"""`imgcheck probe`: what this host offers, or a host described by options."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from imgcheck.cli import OK, note, options
from imgcheck.cli.files import write
from imgcheck.documents import HostProfile, encode
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge

_EXAMPLES = """
imgcheck probe                                  show this host
imgcheck probe -o node1.json                    keep it
srun imgcheck probe -o hosts/%h.json            keep that of every node, by its short name
imgcheck probe --cpu haswell --gpu "Tesla M60" --driver 396.44 --glibc 2.17 --kernel 3.10 -o old.json
imgcheck probe --cpu x86-64-v3 --gpu none       a node without a GPU
"""

_DESCRIBING = ("arch", "cpu", "driver", "cuda", "glibc", "kernel")


def run(arguments: Sequence[str]) -> int:
    parsed = _parser().parse_args(arguments)
    knowledge = Knowledge(tuple(parsed.rules))
    described = {name: getattr(parsed, name) for name in _DESCRIBING}
    for name, value in described.items():
        # An unset shell variable: this machine must not be taken for the one that was meant.
        if value == "":
            raise UsageError(f"--{name} is empty", "leave the option away where it is not known")
    if parsed.gpu or any(described.values()):
        from imgcheck.host.describe import describe_host

        host = describe_host(knowledge, gpus=tuple(parsed.gpu), **described)
        _remark(host, knowledge)
    else:
        from imgcheck.host.probe import probe_host

        host = probe_host(knowledge=knowledge)
    _emit(host, parsed.output)
    return OK


def _remark(host: HostProfile, knowledge: Knowledge) -> None:
    from imgcheck.knowledge.cpus import remark

    said = remark(knowledge, host.cpu.microarchitecture.value or "")
    # Who names the product has that one.
    if said and (host.cpu.microarchitecture.value or "") == (host.cpu.model.value or "").strip().lower():
        note(said)


def _emit(host: HostProfile, output: Path | None) -> None:
    if output is None:
        from imgcheck.report.host import host_table

        sys.stdout.write(host_table(host))
    elif str(output) == "-":
        sys.stdout.buffer.write(encode(host))
    else:
        write(_expanded(output), encode(host))


def _expanded(output: Path) -> Path:
    """`output` with `%h` as this machine's short name, and `%%` as a percent sign."""
    import platform

    # A name is the machine's own to choose, but it shall not choose the directory.
    short = platform.node().partition(".")[0].replace("/", "_") or "localhost"
    return Path(re.sub("%[h%]", lambda found: short if found[0] == "%h" else "%", str(output)))


def _parser() -> argparse.ArgumentParser:
    parser = options.parser(
        "probe",
        "Shows or keeps what this host offers. Any describing option turns probing off: what is not named is unknown, "
        "`none` says that it is absent.",
        _EXAMPLES,
    )
    parser.add_argument("--arch", metavar="A", help="x86_64, aarch64, ppc64le")
    parser.add_argument("--cpu", metavar="NAME", help="haswell, skylake-avx512, x86-64-v3, power8, a product name")
    parser.add_argument(
        "--gpu", metavar="NAME", action="append", default=[], help='of NVIDIA: "Tesla M60", 8.0, none; repeatable'
    )
    parser.add_argument("--driver", metavar="VER", help="NVIDIA driver: 396.44, none")
    parser.add_argument("--cuda", metavar="VER", help="the driver's CUDA version; derived from --driver if not given")
    parser.add_argument("--glibc", metavar="VER", help="2.17, none")
    parser.add_argument("--kernel", metavar="VER", help="3.10")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=options.document,
        help="write the document there (`-`: stdout; %%h: this machine's short name)",
    )
    options.add_rules_option(parser)
    return parser
