"""Runs a command and tells what it cost: wall time, processor time, peak memory."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.tools import CHECKOUT

AS_INSTALLED = {"PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": ""}
"""Environment in which the checkout runs as an installation does: its modules are compiled once, not in every run."""
_LOOKS_A_SECOND = 5
_PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)."""


class Measured(NamedTuple):
    """The cost of one run of a command with all processes that it starts."""

    seconds: float
    """Wall time."""
    processor: float
    """User and system time, seconds."""
    megabytes: float = 0.0
    """Largest sum of proportional set sizes (shared pages counted once) that was seen; 0 where nobody looked."""


def measure(command: str, watch_memory: bool = False) -> Measured:
    """Run a shell command with its output thrown away; AssertionError where it fails.

    Looking at memory makes a process with gigabytes slower, so the runs whose time counts go unwatched.
    """
    _adopt_orphans()
    others = set(_children(os.getpid()))
    start = time.perf_counter()
    process = subprocess.Popen(
        ["sh", "-c", command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **AS_INSTALLED, "NO_PROXY": "*"},
        start_new_session=True,
    )
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    if watch_memory:
        watcher.start()
    try:
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if watch_memory:
        watcher.join()
    processor = usage.ru_utime + usage.ru_stime + _reap(set(_children(os.getpid())) - others)
    if process.returncode not in (0, STOPPED):
        raise AssertionError(f"{command}: exit status {process.returncode}\n{said.decode(errors='replace')[-2000:]}")
    return Measured(seconds, processor, peak[0])


STOPPED = 124
"""Exit status of `timeout` where it stopped the command."""


def _adopt_orphans() -> None:
    """Become the parent of processes that outlive the one that began them, so that their time is counted too."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap(pids: set[int]) -> float:
    """Wait for these children; the processor time that they took."""
    return sum(usage.ru_utime + usage.ru_stime for usage in (os.wait4(pid, 0)[2] for pid in pids))


def _children(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _watch(process: subprocess.Popen, peak: list[float]) -> None:
    while process.returncode is None:
        peak[0] = max(peak[0], sum(_megabytes(pid) for pid in _descendants(process.pid)))
        time.sleep(1 / _LOOKS_A_SECOND)


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        found += _children(parent)
    return found


def _megabytes(pid: int) -> float:
    with suppress(OSError, IndexError, ValueError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0
