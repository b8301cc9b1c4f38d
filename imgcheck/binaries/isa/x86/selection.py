"""Chooses the functions that are decoded: all that matter, or as many of them as is affordable."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from imgcheck.binaries.isa.layout import numbers
from imgcheck.binaries.isa.reach import reach
from imgcheck.binaries.isa.x86.encodings import BASELINE, QUERIES, VECTOR, Encodings
from imgcheck.binaries.isa.x86.graph import Graph
from imgcheck.binaries.isa.x86.screen import Candidates

_SAMPLE = 4_000
"""Functions that say how dense an extension is in a file too large to decode."""
_BUDGET = 6 << 20
_BUDGET_SHARE = 12
"""Code decoded for what is above the baseline: all that may hold it up to 6 MiB, of larger files a twelfth."""
_PIECE = 1 << 18
"""Candidates looked at together: what is worked out for each on the way stays small."""
_START_SHARE = 4
"""Of that budget, for what the start of the file leads to."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The functions that are decoded, and what they stand for."""

    functions: np.ndarray
    candidates: Candidates
    """Those in these functions."""
    population: np.ndarray
    """Functions by which the file is weighed: all that seem to hold vector code of any kind, or an even sample."""
    vector_holders: int
    """How many functions seem to hold vector code of any kind."""
    sampled: bool
    """Not every function with a candidate of interest is decoded."""


def select(graph: Graph, table: Encodings, candidates: Candidates) -> Selected:
    """What to decode of the functions that hold `candidates`."""
    return _Selection(graph, table, candidates).result()


class _Selection:
    def __init__(self, graph: Graph, table: Encodings, candidates: Candidates) -> None:
        self._graph, self._table, self._candidates = graph, table, candidates
        self._functions = graph.functions
        self._size = self._functions.end - self._functions.start
        self._budget = max(_BUDGET, graph.layout.code_bytes // _BUDGET_SHARE)

    def result(self) -> Selected:
        chosen = np.append(self._decoded, False)
        inside = self._candidates.take(np.flatnonzero(chosen[self._held]))
        return Selected(np.flatnonzero(chosen), inside, self._population, len(self._vector_holders), self._sampled)

    @cached_property
    def _held(self) -> np.ndarray:
        """The function that holds each candidate, or -1."""
        return self._functions.holding(self._candidates.address)

    @cached_property
    def _interesting(self) -> np.ndarray:
        """Sets that are more than the baseline of x86-64. 32-bit code starts from less, so SSE counts there."""
        baseline = self._table.holding(*BASELINE) if self._graph.bits == 64 else np.zeros(len(self._table.sets), bool)
        wanted = ~baseline
        wanted[0] = False
        return wanted

    @property
    def _decoded(self) -> np.ndarray:
        """Which functions are decoded: all that weigh the file or may ask, of the others as many as is affordable."""
        size = self._size
        chosen = np.zeros(len(self._functions), bool)
        chosen[self._population] = True
        left = self._budget
        if self._sampled:
            left = max(left - int(size[chosen].sum()), left // 2)
            chosen[self._near_the_start] = True
        chosen[self._askers_at_first_sight] = True
        for holders in self._holders_by_rarity():
            holders = holders[~chosen[holders]]
            if int(size[holders].sum()) > left:
                holders = _spread(holders, size, left)
            chosen[holders] = True
            left -= int(size[holders].sum())
        return chosen

    @property
    def _askers_at_first_sight(self) -> np.ndarray:
        """Functions that seem to hold a query: one of them overlooked would make the file one that never asks."""
        held = self._held[self._table.holding(*QUERIES)[self._candidates.set]]
        return held[held >= 0]

    @property
    def _near_the_start(self) -> np.ndarray:
        """Functions that loading or starting the file leads to, the smallest first, for a part of the budget."""
        held, calls = self._interesting_holders, self._graph.calls
        held = held[reach(calls, self._graph.load_roots)[0][held]]
        size = self._size[held]
        order = np.argsort(size, kind="stable")
        return held[order][np.cumsum(size[order]) <= self._budget // _START_SHARE]

    @cached_property
    def _population(self) -> np.ndarray:
        holders = self._vector_holders
        return holders[:: len(holders) // _SAMPLE + 1] if self._sampled else holders

    @cached_property
    def _vector_holders(self) -> np.ndarray:
        wanted = self._table.holding(*VECTOR, *BASELINE)[self._candidates.set]
        return numbers(self._held[wanted], len(self._functions))

    @cached_property
    def _sampled(self) -> bool:
        return int(self._size[self._interesting_holders].sum()) > self._budget

    @cached_property
    def _interesting_holders(self) -> np.ndarray:
        """Functions with a candidate of interest."""
        return numbers(self._held[self._interesting[self._candidates.set]], len(self._functions))

    def _holders_by_rarity(self) -> list[np.ndarray]:
        """Functions with a candidate of interest, by the set that it needs, the sets that fewest need first."""
        count = max(len(self._functions), 1)
        marks = np.zeros(len(self._table.sets) * count, bool)
        for at in range(0, len(self._held), _PIECE):
            held, sets = self._held[at : at + _PIECE], self._candidates.set[at : at + _PIECE]
            wanted = self._interesting[sets] & (held >= 0)
            marks[sets[wanted].astype(np.int64) * count + held[wanted]] = True
        number, holders = np.divmod(np.flatnonzero(marks), count)
        return sorted(np.split(holders, np.flatnonzero(number[1:] != number[:-1]) + 1), key=len)


def _spread(holders: np.ndarray, size: np.ndarray, budget: int) -> np.ndarray:
    """An evenly spread part of `holders` that costs about `budget` bytes to decode."""
    total = int(size[holders].sum())
    if budget <= 0 or total <= 0:
        return holders[:0]
    step = max(total // budget + 1, 2)
    return holders[::step]
