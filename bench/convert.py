"""Conversion beside the tools used today: `rootfs` and `umoci unpack`, `sif` and `mksquashfs` of the same tree.

`python -m bench.convert [ROUNDS]` writes bench/convert.md. The image is that of docs/real-image.md, 1 GB in its layers.
mksquashfs starts from a tree that lies unpacked, with the options that `sif` gives to sqfstar; `sif` starts from the
compressed layers, verifies their digests, and flushes what it wrote to the disk. Each run is printed as it ends, and
what the machine did besides is told by its load: on a busy one the processor time is what compares.
"""

import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.tf112 import Measured, measure
from imgcheck import __version__
from tests.end_to_end.real_image import tensorflow_layout
from tests.tools import need, run

TARGET = Path(__file__).resolve().with_suffix(".md")

Command = Callable[[Path], tuple[str | Path, ...]]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    reference = tensorflow_layout("1.12.0")
    rows: list[str] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        tree = Path(work, "tree")
        run(*_convert(reference, "rootfs")(tree))
        pairs = {
            "rootfs": ("umoci unpack", _umoci(reference)),
            "sif": ("mksquashfs", _mksquashfs(tree)),
        }
        for target, (name, theirs) in pairs.items():
            mine, other = _measure(target, (_convert(reference, target), theirs), Path(work), rounds)
            rows += [_row(f"`imgcheck convert --to {target}`", mine, mine), _row(f"`{name}`", other, mine)]
    TARGET.write_text(_page(rows, rounds))
    print(TARGET.read_text())


def _measure(target: str, commands: tuple[Command, Command], work: Path, rounds: int) -> tuple[Measured, Measured]:
    """Medians of both, measured in turns, so that what else the machine does troubles both alike."""
    found: tuple[list[Measured], list[Measured]] = ([], [])
    for number in range(rounds):
        for command, results in zip(commands, found, strict=True):
            destination = work / "made"
            # What the run before wrote would else be written back to the disk during this one.
            os.sync()
            words = command(destination)
            results.append(measure(*words))
            print(f"{target} {number + 1}/{rounds} {Path(words[0]).name}: {_figures(results[-1])}", flush=True)
            shutil.rmtree(destination) if destination.is_dir() else destination.unlink()
    return _median(found[0]), _median(found[1])


def _figures(measured: Measured) -> str:
    return f"{measured.seconds:.1f} s, processor {measured.processor:.1f} s, load {os.getloadavg()[0]:.1f}"


def _median(results: list[Measured]) -> Measured:
    return Measured(*(statistics.median(values) for values in zip(*results, strict=True)))


def _convert(reference: str, target: str) -> Command:
    return lambda made: (sys.executable, "-m", "imgcheck", "convert", "--quiet", reference, "--to", target, made)


def _umoci(reference: str) -> Command:
    return lambda made: (need("umoci"), "unpack", "--rootless", "--image", reference.removeprefix("oci:"), made)


def _mksquashfs(tree: Path) -> Command:
    options = ("-noappend", "-all-root", "-comp", "gzip", "-quiet", "-no-progress")
    return lambda made: (need("mksquashfs"), tree, made, *options)


def _row(name: str, measured: Measured, ours: Measured) -> str:
    wall, processor = measured.seconds / ours.seconds, measured.processor / ours.processor
    times = f"{measured.seconds:.1f} s | {wall:.2f} | {measured.processor:.1f} s | {processor:.2f}"
    return f"| {name} | {times} | {measured.megabytes:.0f} MB |"


def _page(rows: list[str], rounds: int) -> str:
    return "\n".join(
        (
            "# Conversion of an image of 1 GB",
            "",
            f"Written by `python -m bench.convert`. imgcheck {__version__}, Python {platform.python_version()}, "
            f"{os.cpu_count()} processors; medians of {rounds}, load of the machine at the end "
            f"{os.getloadavg()[1]:.1f}. Ratios are to imgcheck's figure in the row above.",
            "",
            "| | wall time | ratio | user and system | ratio | peak memory |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        )
    )


if __name__ == "__main__":
    main()
