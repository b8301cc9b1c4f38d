"""Ranges of code that run only behind a test of the CPU, of all functions of a file, as arrays."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from imgcheck.binaries.isa.conditions import ALWAYS, UNTOLD, Condition, shielded, understood_wholly

Guarded = tuple[int, int, Condition]
"""A range of addresses, and what is necessary for it to run."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Guarded ranges, by address, with the number of each one's condition: 0 stands for always, 1 for untold."""

    start: np.ndarray
    end: np.ndarray
    number: np.ndarray
    conditions: list[Condition]
    """What the numbers stand for."""
    _exposing: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, guarded: Iterable[Guarded]) -> "Pieces":
        """The pieces of all functions, in any order."""
        number = {condition: i for i, condition in enumerate((ALWAYS, UNTOLD))}
        ordered = sorted(guarded, key=lambda piece: piece[:2])
        rows = [(first, end, number.setdefault(told, len(number))) for first, end, told in ordered]
        table = np.array(rows, np.int64).reshape(-1, 3)
        return cls(table[:, 0], table[:, 1], table[:, 2], list(number))

    @property
    def understood(self) -> np.ndarray:
        """Which conditions, by number, tell of features and of nothing else."""
        return np.array([understood_wholly(condition) for condition in self.conditions])

    def exposing(self, feature: str) -> np.ndarray:
        """Which conditions, by number, do not shield `feature`."""
        if feature not in self._exposing:
            self._exposing[feature] = np.array([not shielded(condition, feature) for condition in self.conditions])
        return self._exposing[feature]
