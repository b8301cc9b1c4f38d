"""The header walk of GPU code beside cuobjdump's listing of the same files: time and peak memory.

    python -m bench.gpu [--runs N]

The wheels are those that the tests compare, and two larger ones; they are taken from PyPI when missing. Each reader is
a process of its own, and the file is in the page cache. cuobjdump is 11.8, which reads all three files; it takes two
calls, one for each kind.
"""

import argparse
import mmap
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests import debian_nonfree
from tests.gpu_wheels import libraries, member, wheel_of

_FILES = (
    ("tensorflow-gpu==1.12.0", "_pywrap_tensorflow_internal.so"),
    ("torch==2.5.1", "libtorch_cuda.so"),
    ("nvidia-cublas-cu12==12.8.4.1", "libcublasLt.so.12"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, median of {runs} walks and one listing")
    for requirement, name in _FILES:
        wheel = wheel_of(requirement)
        (inside,) = (each for each in libraries(wheel) if each.rpartition("/")[2] == name)
        with member(wheel, inside) as path:
            print(_measured(path, runs))


def _measured(path: Path, runs: int) -> str:
    _warm(path)
    walks = [_child(lambda: _walk(path)) for _ in range(runs)]
    wall, memory = statistics.median(walk[0] for walk in walks), max(walk[1] for walk in walks)
    listings = [_child(lambda option=option: _listing(path, option)) for option in ("-lelf", "-lptx")]
    theirs, their_memory = sum(each[0] for each in listings), max(each[1] for each in listings)
    return (
        f"{path.name}: {path.stat().st_size / 1e6:.0f} MB; walk {wall:.3f} s, {memory:.0f} MB; "
        f"cuobjdump {theirs:.1f} s, {their_memory:.0f} MB; {theirs / wall:.0f} times"
    )


def _warm(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def _child(work: Callable[[], float]) -> tuple[float, float]:
    """Seconds that `work` measures in a process of its own, and that process's peak memory in MB."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        seconds = work()
        os.write(writer, f"{seconds} {_peak()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    seconds, memory = os.read(reader, 100).split()
    os.close(reader)
    os.close(writer)
    return float(seconds), float(memory)


def _peak() -> float:
    """Peak of the children where there were any, else of this process, in MB."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (children or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1e3


def _walk(path: Path) -> float:
    from imgcheck.binaries.elf import Elf
    from imgcheck.binaries.gpu import engine, fatbin

    begin = time.perf_counter()
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        entries = sum(
            len(container.entries)
            for areas in engine.areas(Elf(view))
            for area in areas
            for container in fatbin.containers(area)
        )
    assert entries
    return time.perf_counter() - begin


def _listing(path: Path, option: str) -> float:
    begin = time.perf_counter()
    subprocess.run([debian_nonfree.cuobjdump(), "-all", option, path], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)  # fmt: skip
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
