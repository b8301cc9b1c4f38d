"""What is necessary for the calls and uses in functions with tests of the CPU to happen."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from imgcheck.binaries.isa.conditions import Condition
from imgcheck.binaries.isa.guarded import Guarded, Pieces
from imgcheck.binaries.isa.ordered import distinct, spread_out
from imgcheck.binaries.isa.x86.dominance import merged
from imgcheck.binaries.isa.x86.handed import Flow


@dataclass(frozen=True, slots=True)
class Conditioned:
    """Those of many rows whose addresses are reached under a condition: most code is far from any test."""

    row: np.ndarray
    """Their numbers, and"""
    number: np.ndarray
    """those of their conditions, which are other than always."""

    def under(self, chosen: np.ndarray) -> np.ndarray:
        """The rows whose conditions `chosen` marks by number."""
        return self.row[chosen.take(self.number)]

    def of_all(self, count: int) -> np.ndarray:
        """The number of each row's condition, of all `count` rows."""
        numbers = np.zeros(count, np.int32)
        numbers[self.row] = self.number
        return numbers


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
        """The number of the condition under which each address is reached, as `conditioned` gets them."""
        return self.conditioned(functions, addresses).of_all(len(addresses))

    def conditioned(self, functions: np.ndarray, addresses: np.ndarray) -> Conditioned:
        """Those addresses, each inside the function of the same row, that are not reached always.

        They are sorted, and far more than what is known of them.
        """
        pieces = self._pieces
        # Numbers of another type would have all addresses copied into theirs.
        bounds = (column.astype(addresses.dtype) for column in (pieces.start, pieces.end))
        tested, piece = spread_out(*(np.searchsorted(addresses, column) for column in bounds))
        skipped = np.array(sorted(self.skipped), functions.dtype)
        doubted, _ = spread_out(*(np.searchsorted(functions, skipped, side) for side in ("left", "right")))
        row = np.concatenate([tested, doubted])
        number = np.concatenate([pieces.number[piece], np.ones(len(doubted), np.int64)])
        # The last word on each row counts.
        order = np.argsort(row, kind="stable")
        last = np.diff(row[order], append=len(addresses)) != 0
        return Conditioned(row[order][last], number[order][last])

    def known(self, functions: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """The functions that hold addresses of whose conditions something is known, as `conditioned` gets them."""
        return distinct(functions[self.conditioned(functions, addresses).row])

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
