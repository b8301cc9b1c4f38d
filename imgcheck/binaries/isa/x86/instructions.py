"""The instructions of interest in one file, by the functions that hold them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from imgcheck.binaries.isa.columns import Columns
from imgcheck.binaries.isa.functions import Functions
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.decode import NONE, Confirmed, confirm
from imgcheck.binaries.isa.x86.encodings import Encodings
from imgcheck.binaries.isa.x86.screen import Candidates
from imgcheck.binaries.kernels.arrays import first_of_kinds

_SPILL = ((2, 0xFF, 0x29), (1, 0xFF, 0xF8), (0, 0xFF, 0xC5), (3, 0x38, 0))
"""Bytes of VMOVAPS from XMM0 to memory, that of its opcode first, which few others have: distance, mask and value."""
_WITHOUT_FLOATS = (((-4, 0x84), (-3, 0xC0), (-2, 0x74)), -1), (((-8, 0x84), (-7, 0xC0), (-6, 0x0F), (-5, 0x84)), -4)
"""Bytes of TEST AL, AL and a short or a long JE before that, and where the lowest byte of its displacement is."""
_PIECE = 1 << 18
"""Instructions counted together: numpy makes eight bytes of each."""


@dataclass(frozen=True, slots=True)
class Instructions(Columns):
    """Instructions that really begin where they stand, by address."""

    address: np.ndarray
    set: np.ndarray
    """What each needs: a number of Encodings.sets."""
    function: np.ndarray
    """Which one holds it."""
    of_floats: np.ndarray
    """It stores a vector register for va_arg, where floating-point numbers were handed over and nowhere else."""

    def needing(self, sets: np.ndarray) -> np.ndarray:
        """Indices of those that need one of the marked sets; those of floats count where there are no others."""
        needing = sets.take(self.set)
        usual = np.flatnonzero(needing & ~self.of_floats)
        return usual if len(usual) else np.flatnonzero(needing)

    def firsts(self) -> np.ndarray:
        """Indices of the first of its kind in each function."""
        kinds = self.set.astype(np.uint16) * 2 + self.of_floats
        return first_of_kinds(self.function, kinds, 2 << 8)

    def counts(self) -> np.ndarray:
        """How many need each set: in two rows, of which the second has those of floats."""
        found = np.zeros((2, 256), np.int64)
        for at in range(0, len(self.set), _PIECE):
            part, of_floats = self.set[at : at + _PIECE], self.of_floats[at : at + _PIECE]
            found[0] += np.bincount(part[~of_floats], minlength=256)
            found[1] += np.bincount(part[of_floats], minlength=256)
        return found


def instructions_in(
    layout: Layout, functions: Functions, table: Encodings, screened: Iterable[Candidates]
) -> Instructions:
    """Those of candidates that are real.

    Of the baseline of x86-64, which tells nothing but which functions hold it, most are left out.
    """
    parts = chain([NONE], confirm(layout, functions, table, screened))
    found = Instructions.joined(_kept(layout, part, table) for part in parts)
    return replace(found, of_floats=_of_floats(layout, found.address, table.holding("avx").take(found.set)))


def _kept(layout: Layout, found: Confirmed, table: Encodings) -> Instructions:
    """Those of one piece; which of them are of floats is told once all are there."""
    kept = ~table.baseline_alone.take(found.set)
    kept[first_of_kinds(found.function, found.set, 256)] = True
    address = found.address[kept].astype(layout.address_type)
    return Instructions(address, found.set[kept], found.function[kept], np.zeros(len(address), bool))


def _of_floats(layout: Layout, address: np.ndarray, avx: np.ndarray) -> np.ndarray:
    """Marks what stands behind `test al, al` and JE, and begins with `vmovaps [..], xmm0`; `avx` marks where that may.

    AL tells how many vector registers a caller has filled (System V ABI, 3.5.7): for calls without floating-point
    numbers none.
    """
    marks = np.zeros(len(address), bool)
    spills = np.flatnonzero(avx)
    for distance, mask, value in _SPILL:
        spills = spills[(layout.bytes_behind(address[spills], distance) & mask) == value]
    for before, displacement in _WITHOUT_FLOATS:
        first = spills
        for distance, value in before:
            first = first[layout.bytes_behind(address[first], distance) == value]
        end = address[first] + layout.bytes_behind(address[first], displacement)
        for begin, behind in zip(first.tolist(), np.searchsorted(address, end).tolist(), strict=True):
            marks[begin:behind] = True  # no more than the byte of a distance can tell
    return marks
