"""Which code outside of unwind entries is reached, in files without symbols: by branches, by going on, by its address.

Compilers write no unwind entries where they are told not to, and neither does assembly; the C library that such code
is linked with has some.
"""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.layout import distinct
from imgcheck.binaries.isa.queries import resolvers

if TYPE_CHECKING:
    from imgcheck.binaries.isa.words.code import Code

_ROUNDS = 1 << 12
"""Steps from branch to branch; where code takes more, all of it counts as reached."""
_PADDING = 3
"""Words between two functions at most."""
_NOWHERE = 1 << 62


class Reached:
    """The code of one file as runs of words, each up to one that never goes on to the next."""

    def __init__(self, code: "Code") -> None:
        self.code, self.layout = code, code.layout
        self.ends = distinct(np.concatenate([code.ends, code.no_instructions, code.last, [_NOWHERE]]))

    def holds(self, at: np.ndarray) -> np.ndarray:
        """Which of these addresses outside of unwind entries are reached."""
        return at >= self._lowest[np.searchsorted(self.ends, at)]

    @cached_property
    def starts(self) -> np.ndarray:
        """Functions: what reached code calls, takes the address of, or jumps to past the start of another function."""
        sites, targets = self._of_known(*self._branches)
        calls = self.code.word_at(sites) & np.uint32(self.code.links) != 0
        sites_of_taken, taken = self._of_known(*self._taken)
        kept = np.concatenate([taken[~self._leads_a_jump(sites_of_taken)], self._pointed])
        kept = kept[self._follows_a_function(kept)]
        found = np.concatenate([self._roots, self.code.beginning(targets[calls]), kept])
        starts = distinct(np.concatenate([self.layout.unwind[0], found]))
        passes = np.not_equal(*(np.searchsorted(starts, each, side="right") for each in (sites, targets)))
        return np.concatenate([found, self.code.beginning(targets[passes])])

    def _of_known(self, sites: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of some instructions that are surely code."""
        known = self.layout.is_unwound(sites) | self.holds(sites)
        return sites[known], targets[known]

    @cached_property
    def _roots(self) -> np.ndarray:
        """What the loader calls, main, and what the file exports."""
        entry = np.array([min(self.layout.elf.entry, _NOWHERE)], np.int64)
        called = entry, self.code.main, self.layout.initialisers, resolvers(self.layout, self.code.irelative)
        addresses = np.concatenate([*called, self.layout.exports])
        return addresses[self._is_outside(addresses)]

    @cached_property
    def _branches(self) -> tuple[np.ndarray, np.ndarray]:
        sites, targets = self.code.branches
        outside = self._is_outside(targets)
        return sites[outside], targets[outside]

    @cached_property
    def _taken(self) -> tuple[np.ndarray, np.ndarray]:
        """Where addresses of what looks like code are made."""
        sites, targets = self.code.addresses
        outside = self._is_outside(targets) & self.code.makes(self.code.word_at(sites))
        sites, targets = sites[outside], targets[outside]
        looks = self._looks_like_code(targets)
        return sites[looks], targets[looks]

    @cached_property
    def _pointed(self) -> np.ndarray:
        """Addresses of what looks like code in data."""
        targets = self.layout.pointers.target
        targets = targets[self._is_outside(targets)]
        return targets[self._looks_like_code(targets)]

    def _is_outside(self, addresses: np.ndarray) -> np.ndarray:
        return self.layout.in_code(addresses) & (addresses & 3 == 0) & ~self.layout.is_unwound(addresses)

    def _looks_like_code(self, addresses: np.ndarray) -> np.ndarray:
        """Tables among the code hold what is no instruction before anything that ends a run."""
        end = self.ends[np.searchsorted(self.ends, addresses)]
        return ~np.isin(end, self.code.no_instructions)

    def _follows_a_function(self, addresses: np.ndarray) -> np.ndarray:
        """Whether what stands before each address, but for padding, never goes on to it.

        Jumps by a register stand before blocks whose addresses are kept too: those of a table of labels.
        """
        before = addresses - 4
        for _ in range(_PADDING):
            before = np.where(np.isin(self.code.word_at(before), self.code.padding), before - 4, before)
        return np.isin(before, self.ends) & ~self.code.jumps_anywhere(self.code.word_at(before))

    def _leads_a_jump(self, sites: np.ndarray) -> np.ndarray:
        """Whether the run of each instruction ends in a jump by a register, to a block whose address it may make."""
        end = self.ends[np.searchsorted(self.ends, sites)]
        return self.code.jumps_anywhere(self.code.word_at(end))

    @cached_property
    def _lowest(self) -> np.ndarray:
        """The lowest address of each run that is reached."""
        kinds = self._branches, self.code.conditional, self._taken
        sites, targets = (np.concatenate(each) for each in zip(*kinds, strict=True))
        order = np.argsort(sites, kind="stable")
        sites, targets = sites[order], targets[order]
        known = targets[self.layout.is_unwound(sites)]
        frontier = distinct(np.concatenate([self._roots, self._pointed, known]))
        lowest = self.ends + 1
        for _ in range(_ROUNDS):
            run = np.searchsorted(self.ends, frontier)
            fresh = frontier < lowest[run]
            frontier, run = frontier[fresh], run[fresh]
            if not len(frontier):
                return lowest
            first = np.append(True, run[1:] != run[:-1])
            frontier, run = frontier[first], run[first]
            passed = _among(sites, frontier, lowest[run])
            lowest[run] = frontier
            frontier = distinct(targets[passed])
        return np.zeros(len(self.ends), np.int64)


def _among(ordered: np.ndarray, first: np.ndarray, until: np.ndarray) -> np.ndarray:
    """The numbers of those of some sorted addresses that lie in one of some stretches."""
    start, end = np.searchsorted(ordered, first), np.searchsorted(ordered, until)
    size = end - start
    return np.repeat(start - (np.cumsum(size) - size), size) + np.arange(size.sum())
