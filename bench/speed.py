"""imgcheck beside the tools that do the same work today, image by image: wall time, processor time, peak memory.

`python -m bench.speed [IMAGE]...` writes the tables of docs/performance.md. Every command runs on the same machine in
the same minutes, in turn; the page cache holds the layers for all of them alike. Peak memory is the largest sum, over
a command's processes, of proportional set sizes (shared pages counted once), looked at ten times a second.
"""

import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.images import IMAGES
from bench.tf112 import layer_blobs
from imgcheck import __version__
from tests.debian_nonfree import cuobjdump
from tests.tools import CHECKOUT, cache_directory, need

ROUNDS = 3
PATIENCE = 300
"""Seconds after which a command that is run once is stopped."""
TARGET = CHECKOUT / "docs" / "performance.md"
MARK = "<!-- What follows is made by `python -m bench.speed`. -->"
_ELF = r"""find ROOT -type f -size +3c -print0 | xargs -0 sh -c \
  'for f; do case "$(head -c4 "$f" | od -An -c | tr -d " ")" in 177ELF) printf "%s\n" "$f";; esac; done' _"""


class Measured(NamedTuple):
    seconds: float
    """Wall time."""
    processor: float
    """User and system time of all its processes, seconds."""
    megabytes: float


class Contender(NamedTuple):
    name: str
    command: str
    """For sh, with nothing but absolute paths."""
    rounds: int = ROUNDS


def contenders(reference: str, work: Path) -> list[Contender]:
    """What is measured for the image; `work` is a directory for what the commands write."""
    blobs = " ".join(shlex.quote(str(blob)) for blob in layer_blobs(reference))
    imgcheck = f"{sys.executable} -m imgcheck image {reference} -o json={work}/needs.json"
    tars, root, files = work / "layers.tar", work / "root", work / "elf-files"
    each = f"xargs -d '\\n' -a {files}"
    gpu = f"{each} grep -lsaF __nv_relfatbin | xargs -r -n1 {cuobjdump()} --list-elf"
    listing = _ELF.replace("ROOT", str(root))
    return [
        Contender("imgcheck, cold", f"{imgcheck} --no-store"),
        Contender("imgcheck, in the store", f"{imgcheck} --store {work}/store"),
        Contender("gzip -dc", f"gzip -dc {blobs}"),
        Contender("igzip -dc", f"{need('igzip')} -dc {blobs}"),
        Contender("tar -t of the unpacked layers", f"tar -tif {tars}"),
        Contender(
            "skopeo copy + umoci unpack",
            f"rm -rf {root} {work}/copy && {need('skopeo')} --insecure-policy copy -q {reference} oci:{work}/copy:a && "
            f"{need('umoci')} unpack --image {work}/copy:a {root} && {listing} > {files}",
            rounds=1,
        ),
        Contender("objdump -d", f"{each} -n1 {need('objdump')} -d", rounds=1),
        Contender("readelf -dVn", f"{each} -n50 {need('readelf')} -W -d -V -n", rounds=1),
        Contender("cuobjdump", gpu, rounds=1),
    ]


def measure(command: str) -> Measured:
    """Run a shell command with its output thrown away."""
    start = time.perf_counter()
    process = subprocess.Popen(
        ["sh", "-c", command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        start_new_session=True,
    )
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watcher.start()
    _, _, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = 0
    watcher.join()
    return Measured(seconds, usage.ru_utime + usage.ru_stime, peak[0])


def _watch(process: subprocess.Popen, peak: list[float]) -> None:
    while process.returncode is None:
        peak[0] = max(peak[0], sum(_megabytes(pid) for pid in _descendants(process.pid)))
        time.sleep(0.1)


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _megabytes(pid: int) -> float:
    with suppress(OSError, IndexError, ValueError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0


def main(chosen: list[str]) -> None:
    """Measure the images named, or all, and write the tables."""
    parts = [_head()]
    for name in chosen or list(IMAGES):
        with tempfile.TemporaryDirectory(dir=cache_directory("bench")) as directory:
            parts.append(_part(name, IMAGES[name](), Path(directory)))
    tables = "\n".join([*parts, _tail()])
    TARGET.write_text(f"{TARGET.read_text().partition(MARK)[0]}{MARK}\n\n{tables}")
    print(tables)


def _part(name: str, reference: str, work: Path) -> str:
    blobs = layer_blobs(reference)
    with (work / "layers.tar").open("wb") as tar:
        subprocess.run(["gzip", "-dc", *map(str, blobs)], stdout=tar, check=True)
    compared = contenders(reference, work)
    runs: dict[str, list[Measured]] = {contender.name: [] for contender in compared}
    measure(compared[1].command)  # fills the store
    for number in range(ROUNDS):
        for contender in compared:
            if contender.rounds == ROUNDS or number == ROUNDS - 1:
                runs[contender.name].append(measure(f"timeout {PATIENCE} sh -c {shlex.quote(contender.command)}"))
    size = sum(blob.stat().st_size for blob in blobs) / 1e6
    unpacked = (work / "layers.tar").stat().st_size / 1e6
    profile = (work / "needs.json").stat().st_size / 1e3
    rows = [
        f"## {name}",
        "",
        f"{len(blobs)} layers of {size:.0f} MB, {unpacked:.0f} MB unpacked; profile {profile:.0f} KB.",
        "",
        "| | wall, s | of `gzip -dc` | processor, s | of `gzip -dc` | peak, MB |",
        "|---|---|---|---|---|---|",
    ]
    floor = _median(runs["gzip -dc"])
    for contender in compared:
        mine = _median(runs[contender.name])
        stopped = f", stopped after {PATIENCE} s" if mine.seconds > PATIENCE else ""
        rows.append(
            f"| {contender.name}{stopped} | {mine.seconds:.2f} | {mine.seconds / floor.seconds:.2f} | "
            f"{mine.processor:.2f} | {mine.processor / floor.processor:.2f} | {mine.megabytes:.0f} |"
        )
    return "\n".join(rows) + "\n"


def _median(runs: list[Measured]) -> Measured:
    return Measured(*(statistics.median(values) for values in zip(*runs, strict=True)))


def _head() -> str:
    return (
        f"imgcheck {__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} CPUs of {platform.machine()}; medians of {ROUNDS} runs in turn (of one where a command "
        "takes the place of many). The pipeline of today is the sum of the last four rows.\n"
    )


def _tail() -> str:
    load = os.getloadavg()[0]
    return f"Load of the machine at the end: {load:.1f}; processor time is the steadier figure where it is high.\n"


if __name__ == "__main__":
    main(sys.argv[1:])
