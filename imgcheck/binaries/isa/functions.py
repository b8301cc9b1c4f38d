"""Where the functions of a file begin and end.

Starts come from tables for unwinding stacks (unwind.py, pclntab.py), from symbols and from the starts of areas, and
where none of these covers the code, as of hand-written assembly, from what calls and pointers lead to; ends from the
tables, or the next start.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from imgcheck.binaries.elf import ADDRESS_LIMIT
from imgcheck.binaries.isa.layout import STT_NOTYPE, Layout
from imgcheck.binaries.isa.ordered import distinct, within
from imgcheck.binaries.kernels.arrays import holding

ALIGNMENT = 16
"""Of functions, as compilers and assembly have it."""
_ASSEMBLY_GAP = 24
"""Code of at least this many bytes between two unwind entries is taken for a function of its own: hand-written."""
_ENDS = (0x00, 0x90, 0xD6)
"""Last bytes of padding, and of RET and zeros on AArch64."""
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Functions:
    """Boundaries of functions, sorted by start. `unwind` tells that an unwind entry gives them."""

    start: np.ndarray
    end: np.ndarray
    unwind: np.ndarray

    def __len__(self) -> int:
        return len(self.start)

    def holding(self, addresses: np.ndarray) -> np.ndarray:
        """Index of the function that holds each address, or -1."""
        return holding(self.start, self.end, addresses)


def unwound(layout: Layout) -> Functions:
    """The functions that unwind entries bound, and no others."""
    start, end = layout.unwind
    last = np.append(start[1:] != start[:-1], True)[: len(start)]
    start, end = start[last], end[last]
    following = np.append(start[1:], ADDRESS_LIMIT)[: len(start)]
    return Functions(start, np.minimum(end, following), np.ones(len(start), bool))


class Boundaries:
    """The functions of one file as far as they are told by what an engine knows of its code."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def outside(self, addresses: np.ndarray) -> np.ndarray:
        """Those that lie in code, but in no unwind entry; sorted."""
        return self._not_unwound(np.sort(addresses))  # so that each is found near the one before

    def functions(
        self, called: np.ndarray = _NONE, certain: np.ndarray = _NONE, entered: np.ndarray = _NONE
    ) -> Functions:
        """Each is a column of addresses: what calls in the code lead to and what it takes the addresses of, as often as
        they do, of what is `outside`; what the loader or the C library calls; and where others without unwind entries
        begin for certain.
        """
        start = self._starts(called, certain, distinct(entered))
        areas = self._layout.areas
        limits = np.array(sorted([area.address for area in areas] + [area.end for area in areas]), np.int64)
        end = np.append(start[1:], ADDRESS_LIMIT)
        if len(start):
            end = np.minimum(end, limits[np.searchsorted(limits, start, side="right")])
        unwind = np.zeros(len(start), bool)
        unwind_start, unwind_end = self._layout.unwind
        at = np.searchsorted(start, unwind_start)
        known = (at < len(start)) & (start[np.minimum(at, len(start) - 1)] == unwind_start) if len(start) else at < 0
        unwind[at[known]] = True
        end[at[known]] = np.minimum(end[at[known]], np.maximum(unwind_end[known], unwind_start[known] + 1))
        return Functions(start, end, unwind)

    def _starts(self, called: np.ndarray, certain: np.ndarray, entered: np.ndarray) -> np.ndarray:
        symbols = self._layout.code_symbols
        unwind_start, unwind_end = self._layout.unwind
        gaps = unwind_end[:-1][unwind_start[1:] - unwind_end[:-1] >= _ASSEMBLY_GAP] if len(unwind_end) else unwind_end
        padded = -(-gaps // ALIGNMENT) * ALIGNMENT
        padded = padded[np.searchsorted(entered, gaps) == np.searchsorted(entered, padded)]
        # A size of 0 on an untyped symbol marks a label inside a function; typed ones are functions.
        named = symbols.value[(symbols.type != STT_NOTYPE) | (symbols.size > 0) | (symbols.bind == 1)]
        areas = np.array([area.address for area in self._layout.areas], np.int64)
        parts = [unwind_start, named, padded, areas, self._uncovered(called), certain, entered]
        parts.append(self._behind_initialisers(certain))
        start = distinct(np.concatenate(parts), in_runs=True)
        return start[self._layout.in_code(start)]

    def _behind_initialisers(self, certain: np.ndarray) -> np.ndarray:
        """Aligned labels next to code that surely runs first, which has no unwind entry where the compiler brings it.

        What an assembler file puts behind it would else seem to run with it (frame_dummy before kernels of gemm).
        """
        labels = self._layout.code_symbols.value
        first = certain[~within(certain, self._layout.unwind[0])]
        at = np.searchsorted(labels, first, side="right")
        behind = labels[at[at < len(labels)]]
        return behind[behind % ALIGNMENT == 0]

    def _uncovered(self, called: np.ndarray) -> np.ndarray:
        """Targets of calls and pointers that lie in code without unwind entries: hand-written assembly."""
        layout, pointed = self._layout, self._pointed
        target, count = np.unique(called[called % ALIGNMENT == 0], return_counts=True)
        named = pointed[pointed % ALIGNMENT == 0]
        # A single call may be bytes of an operand: a function's end or padding before its target has to confirm it.
        ended = np.isin(layout.bytes_before(target), _ENDS) | layout.is_behind_end(target, padded=False)
        ended |= layout.is_landing_pad(target)
        unaligned = self._unaligned(called[called % ALIGNMENT > 0], pointed[pointed % ALIGNMENT > 0])
        return np.concatenate([target[(count > 1) | ended], named, unaligned])

    @cached_property
    def _pointed(self) -> np.ndarray:
        return self._not_unwound(self._layout.pointers.target)

    def _not_unwound(self, addresses: np.ndarray) -> np.ndarray:
        """Those that lie in code, but in no unwind entry."""
        starts, ends = self._layout.unwind
        # Where entries overlap, the later one covers what the earlier has left.
        outside = addresses[holding(starts, np.maximum.accumulate(ends), addresses) < 0]
        return outside[self._layout.in_code(outside)]

    def _unaligned(self, called: np.ndarray, pointed: np.ndarray) -> np.ndarray:
        """Targets of calls and pointers at other addresses, where most of those called stand behind a function's end.

        So compilers lay out code for size, and what they do not optimise. They write no unwind entries where they are
        told not to, or where it aborts instead (Rust).
        """
        ended = self._layout.is_behind_end(called)
        if 2 * np.count_nonzero(ended) <= len(called):
            return called[:0]
        return distinct(np.concatenate([called[ended], pointed]))
