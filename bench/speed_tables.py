"""The tables of docs/performance.md, from what bench.speed has measured."""

import os
import platform
from collections.abc import Callable, Sequence

import msgspec

from imgcheck import __version__
from tests.tools import CHECKOUT

TARGET = CHECKOUT / "docs" / "performance.md"
MARK = "<!-- What follows is made by `python -m bench.speed`. -->"
GROWTH = "growth"

COLD = "imgcheck, cold"
WARM = "imgcheck, in the store"
REGISTRY = "imgcheck, from a registry"
ATTACHED = "imgcheck, attached profile"
GZIP = "gzip -dc"
IGZIP = "igzip -dc"
TAR = "tar -t of the unpacked layers"
SKOPEO = "skopeo copy from the registry"
UMOCI = "umoci unpack"
OBJDUMP = "objdump -d"
READELF = "readelf -dVn"
CUOBJDUMP = "cuobjdump"
_TODAY = (UMOCI, OBJDUMP, READELF, CUOBJDUMP)


class Row(msgspec.Struct, frozen=True):
    """One command on one image."""

    name: str
    seconds: float
    processor: float
    megabytes: float
    stopped: int = 0
    """Seconds after which it was stopped; 0 where it ended."""


class Result(msgspec.Struct, frozen=True):
    """One image."""

    name: str
    code: str
    """Digest of the imgcheck that was measured."""
    taken: str
    load: float
    """Of the machine over the last five minutes, ours included."""
    layers: int
    packed: int
    unpacked: int
    profile: int
    """Bytes of the profile as JSON."""
    rows: list[Row]

    def seconds(self, *names: str) -> float:
        """The sum of these rows' wall time."""
        return sum(row.seconds for row in self.rows if row.name in names)


class Point(msgspec.Struct, frozen=True):
    """One image of a growth curve."""

    code: int
    """Bytes of files with code."""
    files: int
    layers: int
    seconds: float
    processor: float
    profile: int


class Growth(msgspec.Struct, frozen=True):
    code: str
    taken: str
    load: float
    code_size: list[Point]
    files: list[Point]
    layers: list[Point]


def image(result: Result) -> str:
    """The section of one image."""
    lines = [
        f"## {result.name}",
        "",
        f"{result.layers} layers of {result.packed / 1e6:.0f} MB, {result.unpacked / 1e6:.0f} MB unpacked; profile "
        f"{result.profile / 1e3:.0f} KB. Measured {result.taken}, load of the machine {result.load:.1f}.",
        "",
        "| | wall, s | of `gzip -dc` | processor, s | peak, MB |",
        "|---|---|---|---|---|",
    ]
    floor = result.seconds(GZIP)
    for row in result.rows:
        stopped = f", stopped after {row.stopped} s" if row.stopped else ""
        peak = f"{row.megabytes:.0f}" if row.megabytes else "too short"
        costs = f"{row.seconds:.2f} | {row.seconds / floor:.2f} | {row.processor:.2f} | {peak}"
        lines.append(f"| {row.name}{stopped} | {costs} |")
    return "\n".join(lines) + "\n"


def summary(results: Sequence[Result]) -> str:
    """The ratios that decide whether imgcheck is worth its name, an image a line."""
    lines = [
        "| | cold / `gzip -dc` | cold / `igzip -dc` | cold / `tar -t` | today's tools / cold | from a registry / "
        "larger of `skopeo copy` and cold | in the store, s | attached, s | peak, MB | profile, KB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        cold = result.seconds(COLD)
        peak = next(row.megabytes for row in result.rows if row.name == COLD)
        over = ">" if any(row.stopped for row in result.rows if row.name in _TODAY) else ""
        tools = f"{over}{result.seconds(SKOPEO, *_TODAY) / cold:.1f}" if result.seconds(*_TODAY) else "no code"
        lines.append(
            f"| {result.name} | {cold / result.seconds(GZIP):.2f} | {cold / result.seconds(IGZIP):.2f} | "
            f"{cold / result.seconds(TAR):.1f} | {tools} | "
            f"{result.seconds(REGISTRY) / max(result.seconds(SKOPEO), cold):.2f} | {result.seconds(WARM):.2f} | "
            f"{result.seconds(ATTACHED):.2f} | {peak:.0f} | {result.profile / 1e3:.0f} |"
        )
    return "\n".join(lines) + "\n"


def growth(found: Growth) -> str:
    """The curves, one table each."""
    return "\n".join([
        "## Growth",
        "",
        "Cold, one image a line, the better of two runs where they take less than five seconds. "
        f"Measured {found.taken}, load {found.load:.1f}. The "
        "first curve takes the ELF files of the TensorFlow and PyTorch wheels, smallest first; its last line has all.",
        "",
        _curve("MB of code", found.code_size, lambda point: point.code / 1e6, "per 100 MB", 100),
        _curve("files", found.files, lambda point: point.files, "per 10,000 files", 10_000),
        _curve("layers of 1,000 files", found.layers, lambda point: point.layers, "per layer", 1),
    ])  # fmt: skip


def _curve(what: str, points: list[Point], size: Callable[[Point], float], unit: str, units: int) -> str:
    lines = [
        f"| {what} | wall, s | processor, s | processor {unit}, s | profile, KB |",
        "|---|---|---|---|---|",
    ]
    for point in points:
        each = point.processor / size(point) * units
        lines.append(
            f"| {size(point):.0f} | {point.seconds:.2f} | {point.processor:.2f} | {each:.3f} | "
            f"{point.profile / 1e3:.0f} |"
        )
    return "\n".join(lines) + "\n"


def write(found: Sequence[Result | Growth]) -> None:
    """Put all tables behind the mark in docs/performance.md."""
    results = [each for each in found if isinstance(each, Result)]
    parts = [
        f"imgcheck {__version__}, Python {platform.python_version()}, {os.cpu_count()} CPUs of {platform.machine()}. "
        "Medians of one to three runs in turn after one that is not timed (it tells the peak memory); a single run "
        "where a command takes the place of many. Today's tools are `skopeo copy` and the last four rows.\n",
        summary(results),
        *(image(each) for each in results),
        *(growth(each) for each in found if isinstance(each, Growth)),
    ]
    text = "\n".join(parts)
    TARGET.write_text(f"{TARGET.read_text().partition(MARK)[0]}{MARK}\n\n{text}")
    print(text)
