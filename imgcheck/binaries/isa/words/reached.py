"""Which code outside of unwind entries is reached, in files without symbols: by branches, by going on, by its address.

Compilers write no unwind entries where they are told not to, and neither does assembly; the C library that such code
is linked with has some.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.ordered import distinct
from imgcheck.binaries.isa.queries import resolvers

if TYPE_CHECKING:
    from imgcheck.binaries.isa.words.code import Code

_ROUNDS = 1 << 12
"""Steps from branch to branch; where code takes more, all of it counts as reached."""
_PADDING = 3
"""Words between two functions at most."""
_NEAR = 12
"""Words from an address that is made to the jump to it, at most."""
_NOWHERE = 1 << 62
Places = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of words, each up to one that never goes on to the next, and what is reached of them."""

    ends: np.ndarray
    lowest: np.ndarray
    """The lowest address of each that is reached."""

    def holds(self, at: np.ndarray) -> np.ndarray:
        """Which addresses are reached."""
        return at >= self.lowest[np.searchsorted(self.ends, at)]


class Reached:
    """The code outside of unwind entries as runs of words, each up to one that never goes on to the next."""

    def __init__(self, code: "Code") -> None:
        self.code, self.layout = code, code.layout
        self.at, self.words = code.outside
        stops = np.diff(self.at, append=_NOWHERE) != 4
        ends = stops | code.is_end(self.words) | code.is_no_instruction(self.words)
        self.ends = np.append(self.at[ends], _NOWHERE)
        self._is_proper = np.append(~code.is_no_instruction(self.words[ends]), False)

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
        passes |= ~self._is_outside(sites)
        return np.concatenate([found, self.code.beginning(targets[passes])])

    def _of_known(self, sites: np.ndarray, targets: np.ndarray) -> Places:
        """Those of some instructions that are surely code."""
        known = ~self._is_outside(sites) | self.runs.holds(sites)
        return sites[known], targets[known]

    @cached_property
    def _roots(self) -> np.ndarray:
        """What the loader calls, main, and what the file exports."""
        entry = np.array([min(self.layout.elf.entry, _NOWHERE)], np.int64)
        called = entry, self.code.main, self.layout.called_by_loader, resolvers(self.layout, self.code.irelative)
        addresses = np.concatenate([*called, self.layout.exports])
        return addresses[self._is_outside(addresses)]

    @cached_property
    def _branches(self) -> Places:
        """Calls and jumps to code outside of unwind entries."""
        return self._leading_outside(*self.code.branches)

    @cached_property
    def _taken(self) -> Places:
        """Where addresses of what looks like code are made."""
        sites, targets = self._leading_outside(*self.code.addresses)
        taken = self.code.makes(self.code.word_at(sites)) & self._looks_like_code(targets)
        return sites[taken], targets[taken]

    @cached_property
    def _pointed(self) -> np.ndarray:
        """Addresses of what looks like code in data."""
        targets = self.layout.pointers.target
        targets = targets[self._is_outside(targets)]
        return targets[self._looks_like_code(targets)]

    def _leading_outside(self, sites: np.ndarray, targets: np.ndarray) -> Places:
        outside = self._is_outside(targets)
        return sites[outside], targets[outside]

    def _is_outside(self, addresses: np.ndarray) -> np.ndarray:
        return self.code.is_outside(addresses) & (addresses & 3 == 0)

    def _looks_like_code(self, addresses: np.ndarray) -> np.ndarray:
        """Tables among the code hold what is no instruction before anything that ends a run."""
        return self._is_proper[np.searchsorted(self.ends, addresses)]

    def _follows_a_function(self, addresses: np.ndarray) -> np.ndarray:
        """Whether what stands before each address, but for padding, never goes on to it.

        Jumps by a register stand before blocks whose addresses are kept too: those of a table of labels.
        """
        before = addresses - 4
        for _ in range(_PADDING):
            before = np.where(np.isin(self.code.word_at(before), self.code.padding), before - 4, before)
        words = self.code.word_at(before)
        ended = self.code.is_end(words) & ~self.code.jumps_anywhere(words)
        return ended | self.code.is_no_instruction(words) | ~self._is_outside(before)

    def _leads_a_jump(self, sites: np.ndarray) -> np.ndarray:
        """Whether a jump by a register soon follows each instruction, to a block whose address it may make."""
        found, ended = np.zeros(len(sites), bool), np.zeros(len(sites), bool)
        for step in range(1, _NEAR):
            words = self.code.word_at(sites + 4 * step)
            found |= self.code.jumps_anywhere(words) & ~ended
            ended |= self.code.is_end(words)
        return found

    @cached_property
    def runs(self) -> Runs:
        """What is reached of the code outside of unwind entries."""
        conditional, distances = self.code.conditional(self.words)
        sites = self.at[conditional]
        kinds = self._branches, self._leading_outside(sites, sites + distances), self._taken
        sites, targets = (np.concatenate(each) for each in zip(*kinds, strict=True))
        known = targets[~self._is_outside(sites)]
        order = np.argsort(sites, kind="stable")
        sites, targets = sites[order], targets[order]
        frontier = distinct(np.concatenate([self._roots, self._pointed, known]))
        lowest = self.ends + 1
        for _ in range(_ROUNDS):
            run = np.searchsorted(self.ends, frontier)
            fresh = frontier < lowest[run]
            frontier, run = frontier[fresh], run[fresh]
            if not len(frontier):
                return Runs(self.ends, lowest)
            first = np.append(True, run[1:] != run[:-1])
            frontier, run = frontier[first], run[first]
            passed = _among(sites, frontier, lowest[run])
            lowest[run] = frontier
            frontier = distinct(targets[passed])
        return Runs(self.ends, np.zeros(len(self.ends), np.int64))


def _among(ordered: np.ndarray, first: np.ndarray, until: np.ndarray) -> np.ndarray:
    """The numbers of those of some sorted addresses that lie in one of some stretches."""
    start, end = np.searchsorted(ordered, first), np.searchsorted(ordered, until)
    size = end - start
    return np.repeat(start - (np.cumsum(size) - size), size) + np.arange(size.sum())
