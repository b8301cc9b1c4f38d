"""The whole check of an image of 1 GB beside `gzip -dc` of its layers: wall time and peak memory, cold.

`python -m bench.tf112` writes bench/tf112.md. The image is that of docs/real-image.md: Debian with TensorFlow GPU
1.12.0, whose largest ELF file has 837 MB. Cold: no store, and the page cache holds the layers for both alike.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.measure import AS_INSTALLED
from imgcheck import __version__
from tests.end_to_end.hosts import describe
from tests.end_to_end.real_image import tensorflow_layout

ROUNDS = 7
TARGET = Path(__file__).resolve().with_suffix(".md")


class Measured(NamedTuple):
    seconds: float
    """Wall time."""
    processor: float
    """User and system time of the process and its children, seconds."""
    megabytes: float
    """Peak resident memory of the process."""


def measure(*command: str | Path, statuses: Sequence[int] = (0,)) -> Measured:
    """Run a command with its output thrown away; a status that is none of `statuses` raises."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, **AS_INSTALLED, "XDG_CACHE_HOME": empty}
        start = time.perf_counter()
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in statuses:
        raise AssertionError(f"{command}: exit status {os.waitstatus_to_exitcode(status)}")
    return Measured(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def layer_blobs(reference: str) -> list[Path]:
    """The compressed layers of an OCI layout's image."""
    directory, _, tag = reference.removeprefix("oci:").rpartition(":")
    layout = Path(directory)
    index = json.loads((layout / "index.json").read_bytes())["manifests"]
    (entry,) = (m for m in index if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag)
    manifest = json.loads(_blob(layout, entry["digest"]).read_bytes())
    return [_blob(layout, layer["digest"]) for layer in manifest["layers"]]


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def main() -> None:
    """Measure both in turn and write the table."""
    reference = tensorflow_layout("1.12.0")
    blobs = layer_blobs(reference)
    with tempfile.TemporaryDirectory() as directory:
        host = describe(Path(directory))["v100"]
        runs = _rounds({
            f"imgcheck image {_short(reference)} --host-probe v100.json": lambda: measure(
                sys.executable, "-m", "imgcheck", "image", reference, "--host-probe", host, statuses=(0, 1)
            ),
            "gzip -dc LAYERS > /dev/null": lambda: measure("gzip", "-dc", *blobs),
        })  # fmt: skip
    text = _table(runs, blobs)
    TARGET.write_text(text)
    print(text)


def _rounds(contenders: dict[str, Callable[[], Measured]]) -> dict[str, list[Measured]]:
    """Each contender ROUNDS times, in turn, so that a busy moment hits both."""
    runs: dict[str, list[Measured]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender()
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            runs[name].append(contender())
    return runs


def _short(reference: str) -> str:
    return f"oci:{Path(reference.removeprefix('oci:')).name}"


def _table(runs: dict[str, list[Measured]], blobs: list[Path]) -> str:
    size = sum(blob.stat().st_size for blob in blobs) / 1e6
    lines = [
        "# The whole check beside gunzip",
        "",
        f"imgcheck {__version__}, Python {platform.python_version()}, {os.cpu_count()} CPUs, {len(blobs)} layers of "
        f"{size:.0f} MB. Median of {ROUNDS} runs in turn after one that fills the page cache; no store.",
        f"Load of the machine at the end: {os.getloadavg()[0]:.1f}.",
        "",
        "| command | wall s | from least to most | CPU s | peak memory MB |",
        "|---|---|---|---|---|",
    ]
    for name, measured in runs.items():
        wall, processor, memory = (statistics.median(values) for values in zip(*measured, strict=True))
        ordered = sorted(each.seconds for each in measured)
        extent = f"{ordered[0]:.2f} to {ordered[-1]:.2f}"
        lines.append(f"| `{name}` | {wall:.2f} | {extent} | {processor:.1f} | {memory:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
