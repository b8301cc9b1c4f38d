"""Whether a file was compiled for an extension as a whole: what its ordinary code looks like where it was.

The limits below stand between files whose compiler options are known, on the half of the corpora that is for tuning
(docs/cpu.md); files for AVX hold legacy SSE, too, where libraries or assembly for any CPU are linked into them.
"""

from dataclasses import dataclass

import numpy as np

from imgcheck.binaries.isa.conditions import implied
from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.ordered import within
from imgcheck.binaries.isa.x86.exposure import Exposure
from imgcheck.binaries.isa.x86.findings import Findings

WIDE = (
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512vl",
    "avx512bw",
    "avx512dq",
    "avx512cd",
    "bmi1",
    "bmi2",
    "movbe",
)
"""What compilers emit by themselves once -march allows it; the rest is written on purpose or rare."""
LEGACY = ("sse3", "ssse3", "sse4_1", "sse4_2", "popcnt")
_SCALAR = ("bmi1", "bmi2", "movbe")
MANY = 8
"""Functions with vector code from which a share of them means anything,"""
_SOME = 3
"""and those that are enough where next to no legacy SSE is left, or among what is exported."""
_NEXT_TO_NONE, _LITTLE, MIXED = 0.05, 0.12, 0.25
"""Shares of legacy SSE below which few vector functions speak for AVX, many do, and many that are mostly exported."""
PART = 5
"""Functions or callers of code for more than the rest that are no accident."""
_OF_VECTOR_CODE, _OF_ALL_CODE = 0.02, 0.01
"""The same as shares, of the functions with VEX code and of all with vectors: an extension that the compiler may use
shows in more of them."""
EXPORTED, _FREE = 0.25, 0.4
"""Shares of the users of an older extension that are exported past tests, and that have callers past tests, from which
on ordinary code is compiled for it."""
_INSERTS, _UNPACKS = 5, 20
"""Pairs of registers made a vector in the way of SSE4.1, and in the older way, from which on these tell."""
_HARDLY = 20
"""One function in so many with vector code is less than compilers make where they may."""


@dataclass(frozen=True, slots=True)
class Density:
    """Functions with VEX/EVEX vector code against functions with legacy SSE alone."""

    vector: int
    legacy: int

    @property
    def share(self) -> float:
        """That of legacy SSE."""
        return self.legacy / max(self.legacy + self.vector, 1)


@dataclass(frozen=True, slots=True)
class Ordinary:
    """A file's functions that are no clones, and no assembly if it has others; each set as marks of all functions."""

    vector: np.ndarray
    legacy: np.ndarray
    density: Density
    """How much of them there is."""

    @classmethod
    def of(cls, found: Findings, vector: np.ndarray) -> "Ordinary":
        """Those of a file; `vector` marks what uses VEX or EVEX for vectors."""
        ordinary = found.functions.unwind if found.functions.unwind.any() else np.ones(len(found.functions), bool)
        ordinary = ordinary & ~found.named
        vector, legacy = vector & ordinary, found.legacy & ordinary
        return cls(vector, legacy, Density(int(vector.sum()), int(legacy.sum())))


class Baseline:
    """What one file was compiled for, by its findings and by what is open to use."""

    def __init__(self, found: Findings, open: Exposure, ordinary: Ordinary) -> None:
        self._found, self._open = found, open
        self._vector, self._legacy, self._density = ordinary.vector, ordinary.legacy, ordinary.density

    def has(self, feature: str, users: np.ndarray) -> bool:
        """Whether the whole file was compiled for a feature, which `users` use."""
        if self._found.recorded and feature not in self._found.recorded.somewhere:
            return False
        return self.is_recorded(feature) or self._seems(feature, users)

    def is_recorded(self, feature: str) -> bool:
        """Whether all of the file was compiled for it, and code uses it that no test, name or choice tells apart."""
        found, open = self._found, self._open
        if not found.recorded or feature not in found.recorded.everywhere:
            return False
        return bool((open.users(feature) & found.functions.unwind & ~found.clones(feature) & ~open.chosen).any())

    def _seems(self, feature: str, users: np.ndarray, asked: frozenset[str] = frozenset()) -> bool:
        """Whether the code looks as if the whole file was compiled for it; `asked` are those that wait for the answer.

        Levels of AVX-512 imply each other.
        """
        if feature == "avx":
            return self._seems_vex()
        if feature in LEGACY:
            return self._seems_legacy(feature, users)
        if feature not in WIDE or self._density.share >= _LITTLE:
            return False
        ordinary = users & (self._vector | (feature in _SCALAR)) & ~self._found.clones(feature)
        free, guarded = self._open.callers(feature, self._open.users(feature) & ordinary)
        # Who calls code behind a test does not count as free itself; but one or two callers may be entered unseen.
        enough = free >= max(guarded, 1) or (free >= PART and 2 * free >= guarded)
        if int(ordinary.sum()) < max(PART, _OF_VECTOR_CODE * self._density.vector) or not enough:
            return False
        # What calls it may be code for what it implies, which no more is the baseline.
        asked = asked | {feature}
        others = {other: self._found.using(other) for other in implied(feature).intersection(WIDE) - asked}
        together = {other: using for other, using in others.items() if not (users & ~using).any()}
        return all(self._seems(other, using, asked) for other, using in together.items())

    def _seems_vex(self) -> bool:
        """Whether the code looks as if its vectors were made for AVX as a whole."""
        load, exports = (self._open.reached(start, "avx") for start in ("load", "exports"))
        # What only pointers lead to may be versions of one function in a table, of which a query picks one.
        known = self._found.called | load | exports
        density = Density(int((self._vector & known).sum()), self._density.legacy)
        from_load = Density(int((self._vector & load).sum()), int((self._legacy & load).sum()))
        exported = Density(int((self._vector & exports).sum()), int((self._legacy & exports).sum()))
        if density.vector >= MANY and density.share < _LITTLE:
            return True
        if from_load.vector >= max(from_load.legacy, 1):
            return True
        if density.vector >= _SOME and density.share < _NEXT_TO_NONE and exported.vector:
            return True
        mostly = exported.vector >= _SOME and exported.vector > exported.legacy
        return density.vector >= MANY and density.share < MIXED and mostly

    def _seems_legacy(self, feature: str, users: np.ndarray) -> bool:
        """Whether ordinary code was compiled for SSE3, SSSE3, SSE4 or POPCNT."""
        found = self._found
        open_users = self._open.users(feature) & ~found.clones(feature) & found.functions.unwind
        if feature != "popcnt":  # Go's compiler makes no vectors: what has some is Go's assembly
            open_users &= ~within(found.functions.start, found.layout.go.start)
        # Pairs of registers become a vector in one instruction from SSE4.1 on: compilers then hardly write the other.
        insert, unpack = found.pairing
        if insert >= _INSERTS and 3 * insert >= unpack:
            return self._open.callers(feature, open_users)[0] > 0
        if feature != "sse3" and unpack >= _UNPACKS and 10 * insert < unpack:
            return False
        vector = self._density.vector + self._density.legacy
        # Compilers that make next to no vectors, as of 32-bit code for any CPU, did not make the few for SSSE3 either.
        by_hand = found.bits == 32 and feature != "popcnt" and _HARDLY * vector < found.functions.unwind.sum()
        if by_hand or open_users.sum() < max(PART, _OF_ALL_CODE * vector):
            return False
        if (open_users & self._open.reached("exports", feature)).sum() >= EXPORTED * users.sum():
            return True
        free, guarded = self._open.callers(feature, open_users)
        return free > guarded and free >= _FREE * users.sum()


def level(required: set[str], bits: int) -> str:
    """The name of what a file was compiled for that requires some features.

    Of 64-bit code the microarchitecture level, as rules/analysis/isa.toml tells them apart, of other code and between
    the levels a feature; empty where that is not above the architecture's own.
    """
    for baseline in analysis()["x86"]["baselines"]:
        found = [feature for feature in baseline["signs"] if feature in required]
        if found:
            return baseline.get("level", found[0]) if bits == 64 else found[0]
    return "x86-64" if bits == 64 else ""
