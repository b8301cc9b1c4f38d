"""How a run of a case ends on a CPU: under QEMU's model of it, or on this machine. Answers are kept between calls."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from functools import cache

from bench.oracle.corpus import Case
from imgcheck.host.probe import probe_host
from tests.isa.programs import MODELS
from tests.tools import cache_directory, need, run

NATIVE = "this machine"
_ILLEGAL = (-4, 132)
_TIMEOUT = 3600
_KEPT_WORDS = 400


@dataclass(frozen=True)
class End:
    """`runs`, `dies` (SIGILL), `refuses` (ends by itself with a status other than 0) or `no verdict`."""

    kind: str
    words: str = ""
    """The last of what it wrote to stderr, and the status."""


@cache
def models() -> dict[str, set[str]]:
    """Features of each CPU: QEMU's models, and this machine, which alone may have AVX-512."""
    return MODELS | {NATIVE: set(probe_host().cpu.features.value or ())}


def end(case: Case, model: str) -> End:
    """How the case ends on `model`; looked up where the same command on the same files has run before."""
    kept = cache_directory("oracle", "runs") / f"{_key(case, model)}.json"
    if kept.exists():
        return End(**json.loads(kept.read_text()))
    found = _end(case, model)
    if found.kind != "no verdict":
        kept.write_text(json.dumps({"kind": found.kind, "words": found.words}))
    return found


def _key(case: Case, model: str) -> str:
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in case.files]
    told = repr((model, _emulator(), case.command, sorted(case.environment.items()), files))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


@cache
def _emulator() -> str:
    return run(need("qemu-x86_64"), "--version").stdout


def _end(case: Case, model: str) -> End:
    emulator = () if model == NATIVE else (need("qemu-x86_64"), "-cpu", model)
    try:
        done = subprocess.run([*emulator, *case.command], capture_output=True, timeout=_TIMEOUT, env=case.environment)
    except subprocess.TimeoutExpired:
        return End("no verdict", "timeout")
    status = done.returncode
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if not line.startswith("qemu")]
    words = f"status {status}: {' / '.join(lines)[-_KEPT_WORDS:]}"
    if status == 0:
        return End("runs")
    if status in _ILLEGAL:
        return End("dies", words)
    # Other signals are QEMU's own trouble or a lack of memory.
    return End("refuses" if 0 < status < 126 else "no verdict", words)
