"""Conversion beside the tools used today: `rootfs` and `umoci unpack`, `sif` and `mksquashfs` of the same tree.

`python -m bench.convert [ROUNDS]` writes bench/convert.md. The image is that of docs/real-image.md, 1 GB in its layers.
mksquashfs starts from a tree that lies unpacked; `sif` starts from the compressed layers, and verifies their digests.
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
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        tree = Path(work, "tree")
        run(*_convert(reference, "rootfs")(tree))
        pairs = {
            "rootfs": (_convert(reference, "rootfs"), _umoci(reference)),
            "sif": (_convert(reference, "sif"), _mksquashfs(tree)),
        }
        rows = []
        for target, (ours, theirs) in pairs.items():
            name = "umoci unpack" if target == "rootfs" else "mksquashfs"
            mine, other = _measure(ours, theirs, Path(work), rounds)
            rows += [_row(f"`imgcheck convert --to {target}`", mine, mine), _row(f"`{name}`", other, mine)]
    TARGET.write_text(_page(rows, rounds))
    print(TARGET.read_text())


def _measure(ours: Command, theirs: Command, work: Path, rounds: int) -> tuple[Measured, Measured]:
    """Medians of both, measured in turns, so that what else the machine does troubles both alike."""
    found: tuple[list[Measured], list[Measured]] = ([], [])
    for _ in range(rounds):
        for command, results in zip((ours, theirs), found, strict=True):
            destination = work / "made"
            results.append(measure(*command(destination)))
            shutil.rmtree(destination) if destination.is_dir() else destination.unlink()
    return _median(found[0]), _median(found[1])


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
    times = f"{measured.seconds / ours.seconds:.2f}"
    return f"| {name} | {measured.seconds:.1f} s | {times} | {measured.processor:.1f} s | {measured.megabytes:.0f} MB |"


def _page(rows: list[str], rounds: int) -> str:
    return "\n".join(
        (
            "# Conversion of an image of 1 GB",
            "",
            f"Written by `python -m bench.convert`. imgcheck {__version__}, Python {platform.python_version()}, "
            f"{os.cpu_count()} processors; medians of {rounds}, load of the machine at the end "
            f"{os.getloadavg()[1]:.1f}. The ratio is to imgcheck's wall time.",
            "",
            "| | wall time | ratio | user and system | peak memory |",
            "|---|---|---|---|---|",
            *rows,
            "",
        )
    )


if __name__ == "__main__":
    main()
