"""What is necessary for the calls and uses in functions with tests of the CPU to happen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from imgcheck.binaries.isa.conditions import Condition
from imgcheck.binaries.isa.guarded import Guarded, Pieces
from imgcheck.binaries.isa.x86.dominance import merged
from imgcheck.binaries.isa.x86.handed import Flow


@dataclass
class Guards:
    """Per function: `asks` (asks or tests), and what is necessary for its calls and uses to happen."""

    flows: dict[int, Flow] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    """Functions that ask but were too long to follow: all they do counts as behind a test."""
    put_off: set[int] = field(default_factory=set)
    """Functions that may know what the CPU told, and would have been followed had bytes been left for that."""
    narrowed: dict[int, list[Guarded]] = field(default_factory=dict)
    """What is known of functions that closer looks have shown more of than their flows tell."""

    def asks(self, count: int) -> np.ndarray:
        marks = np.zeros(count, bool)
        marks[[*self.flows, *self.narrowed]] = True
        marks[list(self.skipped)] = True
        return marks

    def tests(self, count: int) -> np.ndarray:
        """Which functions do something behind a test, or may."""
        marks = np.zeros(count, bool)
        marks[[function for function, pieces in self._guarded.items() if pieces]] = True
        marks[list(self.skipped)] = True
        return marks

    @property
    def conditions(self) -> list[Condition]:
        """What the numbers of `at` stand for."""
        return self._pieces.conditions

    def at(self, functions: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """The number of the condition under which each address, inside the function of the same row, is reached.

        The addresses are sorted, and far more than what is known of them.
        """
        out = np.zeros(len(addresses), np.int32)
        for rows, number in self._inside(addresses):
            out[rows] = number
        if self.skipped:
            out[np.isin(functions, np.array(list(self.skipped), functions.dtype))] = 1
        return out

    def known(self, functions: np.ndarray, addresses: np.ndarray, count: int) -> np.ndarray:
        """Which of all functions hold addresses of whose conditions something is known, as `at` gets them."""
        marks = np.zeros(count, bool)
        for rows, _ in self._inside(addresses):
            marks[functions[rows]] = True
        marks[list(self.skipped)] = True
        return marks

    def _inside(self, addresses: np.ndarray) -> Iterator[tuple[slice, int]]:
        """Which of the sorted addresses each piece holds that holds any, and the number of its condition."""
        pieces = self._pieces
        # Numbers of another type would have all addresses copied into theirs.
        bounds = (column.astype(addresses.dtype) for column in (pieces.start, pieces.end))
        first, last = (np.searchsorted(addresses, column) for column in bounds)
        for at in np.flatnonzero(first < last).tolist():
            yield slice(first[at], last[at]), pieces.number[at]

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces.of(piece for pieces in self._guarded.values() for piece in pieces)

    @property
    def _guarded(self) -> dict[int, list[Guarded]]:
        return {function: flow.guarded for function, flow in self.flows.items()} | self.narrowed

    @property
    def understood(self) -> np.ndarray:
        """Which conditions, by number, tell of features and of nothing else."""
        return self._pieces.understood

    def exposing(self, feature: str) -> np.ndarray:
        """Which conditions, by number, do not shield `feature`."""
        return self._pieces.exposing(feature)

    def restore(self, narrowed: dict[int, list[Guarded]]) -> None:
        """Forget what closer looks have shown since `narrowed` was copied."""
        self.narrowed = narrowed
        self.__dict__.pop("_pieces", None)

    def narrow(self, function: int, more: list[Guarded]) -> bool:
        """Adds what a closer look at a function shows; whether anything is new."""
        known = self.narrowed.get(function)
        if known is None:
            known = self.flows[function].guarded if function in self.flows else []
        together = merged(known, more)
        if together == known:
            return False
        self.narrowed[function] = together
        self.__dict__.pop("_pieces", None)
        return True
