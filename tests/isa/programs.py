"""Programs that use vector code in the ways that programs do, and a CPU that tells whether a build of them runs.

qemu-user executes a program on a chosen CPU model and raises SIGILL where that CPU would.
"""

import subprocess
from pathlib import Path

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.documents.facts import Isa, IsaUse, Refusal
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.cpus import baseline, level_features
from imgcheck.knowledge.cpus import features as features_of
from tests.tools import need

_CONROE = {"sse3", "ssse3", "lahf_lm"}
_NEHALEM = _CONROE | {"cx16", "sse4_1", "sse4_2", "popcnt"}
_SANDYBRIDGE = _NEHALEM | {"aes", "pclmulqdq", "avx", "xsave", "xsaveopt"}
_HASWELL = _SANDYBRIDGE | {"avx2", "fma", "f16c", "bmi1", "bmi2", "lzcnt", "movbe", "rdrand", "fsgsbase"}
_SKYLAKE = _HASWELL | {"adx", "clflushopt", "clwb", "xsavec"}
MODELS = {
    "Conroe": _CONROE,
    "Nehalem": _NEHALEM,
    "SandyBridge": _SANDYBRIDGE,
    "Haswell": _HASWELL,
    "Skylake-Server": _SKYLAKE,
}
"""QEMU's name of a CPU model -> what QEMU 7.2 gives it above x86-64's baseline: no AVX-512 to anyone, no RDSEED."""


def analyse(path: Path) -> Isa:
    found = analyse_isa(Elf(path.read_bytes()))
    assert found is not None
    return found


def answers(path: Path) -> dict[str, str]:
    return {use.feature: use.answer for use in analyse(path).uses}


def predicted(found: Isa, features: set[str]) -> str:
    """`dies` (or refuses to start), `runs` or `unknown` on a CPU with `features`."""
    if found.refusal and not _demanded(found.refusal) <= features:
        return "dies"
    table = features_of(Knowledge(), "x86_64")
    missing = (use for use in found.uses if use.feature not in features and applies(use, features))
    lacking = {use.answer for use in missing if use.feature not in table or table[use.feature].without == "trap"}
    return "dies" if "required" in lacking else "unknown" if "unknown" in lacking else "runs"


def _demanded(refusal: Refusal) -> frozenset[str]:
    demanded = frozenset(refusal.features) or level_features(Knowledge(), refusal.level)
    return demanded - baseline(Knowledge(), "x86_64")


def applies(use: IsaUse, features: set[str]) -> bool:
    """Whether the answer holds on a CPU with `features`."""
    kinds = [[(name.lstrip("!") in features) != name.startswith("!") for name in kind] for kind in use.given]
    return not kinds or any(all(kind) for kind in kinds)


_LIBRARIES = {
    "qemu-aarch64": "/usr/aarch64-linux-gnu",
    "qemu-i386": "/usr/i686-linux-gnu",
    "qemu-ppc64le": "/usr/powerpc64le-linux-gnu",
}
"""Where Debian's cross compilers have the C library."""


def observed(path: Path, emulator: str, model: str) -> str:
    """`dies` (by SIGILL, or by itself with words and a status other than 0) or `runs` on a CPU model."""
    command = [need(emulator), "-cpu", model, "-L", _LIBRARIES.get(emulator, "/"), str(path)]
    # Variables such as GLIBC_TUNABLES choose code whatever the CPU is.
    done = subprocess.run(command, capture_output=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
    assert b"Could not open" not in done.stderr  # it was not started
    words = [line for line in done.stderr.splitlines() if not line.startswith(b"qemu")]
    return "dies" if done.returncode in (-4, 132) or (done.returncode and words) else "runs"


PROGRAMS = {path.name: path.read_text() for path in sorted(Path(__file__).parent.joinpath("sources").iterdir())}
"""File name of a program -> its C or C++ source."""
SOURCES = {name.removesuffix(".c"): text for name, text in PROGRAMS.items() if name.endswith(".c")}
"""Name of a program -> its C source."""
