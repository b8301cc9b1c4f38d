"""The x86 engine beside the disassemblers used today: MB of code per second of one core, and memory.

`python -m bench.isa_speed` measures TensorFlow GPU 1.12, TensorFlow CPU 2.21 and PyTorch and writes bench/isa_speed.md;
with `--part MIB` the disassemblers decode only that much of each file, spread evenly, and their times are scaled up.
Each contender has a process of its own, with the file mapped and everything imported before the clock starts; that of
the engine is set up as those that imgcheck starts for it.
"""

import argparse
import ctypes
import gc
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from imgcheck.binaries.elf import Elf
from imgcheck.profile.worker import environment, spare_collections
from tests.gpu_wheels import member, wheel_of
from tests.tools import cache_directory, need, pypi_directory

ROUNDS = 3
CHUNK = 1 << 16
"""Code that capstone gets at a time: it returns 240 bytes for each instruction, more with details."""
_OLD = "tensorflow_gpu-1.12.0.data/purelib/tensorflow/python/_pywrap_tensorflow_internal.so"
TARGET = Path(__file__).with_suffix(".md")
ENGINE, LINES = "imgcheck, whole answer", "objdump -d"
CONTENDERS = {
    ENGINE: "engine", "capstone, cs_disasm from C": "plain", "capstone, cs_disasm with details": "details",
    "capstone, disasm_lite from Python": "lite", LINES: "objdump",
}  # fmt: skip


def files() -> Iterator[tuple[str, Path]]:
    """The libraries and what they are; installed or unpacked for as long as they are looked at."""
    with member(wheel_of("tensorflow-gpu==1.12.0"), _OLD) as path:
        yield "TensorFlow GPU 1.12", path
    yield "TensorFlow CPU 2.21", _installed("tensorflow-cpu", "==2.21.0") / "tensorflow/libtensorflow_cc.so.2"
    yield "PyTorch 2.13", _installed("torch", "==2.13.0") / "torch/lib/libtorch_cpu.so"


def _installed(name: str, version: str) -> Path:
    kept = cache_directory("oracle") / name
    return kept if kept.exists() else pypi_directory(name + version)


def _areas(elf: Elf, part: int) -> Iterator[tuple[int, memoryview]]:
    """Address and bytes of the executable sections in chunks, of which every so-manieth is taken for `part` bytes."""
    total = sum(section.size for section in elf.code)
    step = max(total // part, 1) if part else 1
    count = 0
    for section in elf.code:
        for at in range(0, section.size, CHUNK):
            count += 1
            if count % step == 0:
                size = min(CHUNK, section.size - at)
                yield section.addr + at, elf.slice(section.offset + at, size)


def _capstone(mode: str) -> Callable[[Elf, int], int]:
    """Decodes the code with capstone; returns how many bytes it was given."""
    import capstone

    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail, engine.skipdata = mode == "details", True
    library = capstone._cs

    def run(elf: Elf, part: int) -> int:
        given = 0
        for address, code in _areas(elf, part):
            data = bytes(code)
            given += len(data)
            if mode == "lite":
                for _ in engine.disasm_lite(data, address):
                    pass
                continue
            found = ctypes.POINTER(capstone._cs_insn)()
            count = library.cs_disasm(engine.csh, data, len(data), address, 0, ctypes.byref(found))
            library.cs_free(found, count)
        return given

    return run


def _engine() -> Callable[[Elf, int], int]:
    from imgcheck.binaries.isa.engine import analyse_isa
    from imgcheck.binaries.isa.x86.encodings import encodings

    encodings(64)
    spare_collections()

    def run(elf: Elf, part: int) -> int:
        found = analyse_isa(elf)
        return found.code_bytes if found else 0

    return run


def _objdump(elf: Elf, part: int, path: Path) -> int:
    subprocess.run([need("objdump"), "-d", str(path)], stdout=subprocess.DEVNULL, check=True)
    return sum(section.size for section in elf.code)


def child(mode: str, path: Path, part: int) -> dict[str, float]:
    """One measurement, in this process: bytes of code, seconds of user and system time, peak of private memory."""
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        elf = Elf(memoryview(mapped))
        run = _engine() if mode == "engine" else _capstone(mode) if mode != "objdump" else None
        peak, done = [0], threading.Event()
        watcher = threading.Thread(target=_watch, args=(peak, done))
        watcher.start()
        gc.collect()
        began, wall = _processor(), time.perf_counter()
        given = run(elf, part) if run else _objdump(elf, part, path)
        seconds, wall = _processor() - began, time.perf_counter() - wall
        done.set()
        watcher.join()
        print(json.dumps({"bytes": given, "seconds": seconds, "wall": wall, "memory": peak[0]}), flush=True)
        os._exit(0)  # the mapping is still exported to numpy


def _processor() -> float:
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def _watch(peak: list[int], done: threading.Event) -> None:
    """Private memory (RssAnon): the mapped file itself is the page cache's."""
    first = _private()
    while not done.wait(0.02):
        peak[0] = max(peak[0], _private() - first)


def _private() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) * 1024


def measured(mode: str, path: Path, part: int, rounds: int) -> dict[str, float]:
    """The median of some measurements by seconds."""
    command = [sys.executable, "-m", "bench.isa_speed", "--child", mode, str(path), "--part", str(part)]
    own = environment() if mode == "engine" else None
    runs = [json.loads(subprocess.check_output(command, env=own, text=True)) for _ in range(rounds)]
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def table(name: str, path: Path, part: int) -> Iterator[str]:
    """The rows of one library."""
    found = {}
    for title, mode in CONTENDERS.items():
        # The slow ones take minutes; their times vary little against what they are compared with.
        found[title] = measured(mode, path, 0 if title in (ENGINE, LINES) else part, ROUNDS if title == ENGINE else 1)
        print(name, title, found[title], file=sys.stderr, flush=True)
    code = found[ENGINE]["bytes"]
    ours = found[ENGINE]["bytes"] / found[ENGINE]["seconds"]
    yield f"| {name}, `{path.name}`, {code / 1e6:.0f} MB of code | CPU, s | MB/s | imgcheck is faster by | memory, MB |"
    yield "|---|---:|---:|---:|---:|"
    for title, run in found.items():
        speed = run["bytes"] / run["seconds"]
        ratio = "" if title == ENGINE else f"{ours / speed:.1f}"
        memory = f"{run['memory'] / 1e6:.0f}" if title == ENGINE else ""
        yield f"| {title} | {code / speed:.1f} | {speed / 1e6:.1f} | {ratio} | {memory} |"
    yield ""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", type=int, default=0, help="MiB that the disassemblers decode of each file")
    options.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options.add_argument("names", nargs="*")
    chosen = options.parse_args()
    if chosen.child:
        child(chosen.child[0], Path(chosen.child[1]), chosen.part << 20)
    lines = []
    for name, path in files():
        if not chosen.names or any(word in name for word in chosen.names):
            lines += table(name, path, chosen.part)
    print(*lines, sep="\n")
    if not chosen.names:
        TARGET.write_text("\n".join([f"# {__doc__.splitlines()[0]}", "", *lines]), encoding="utf-8")


if __name__ == "__main__":
    main()
