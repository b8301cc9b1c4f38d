"""Sorted arrays of numbers without doubles, and what stands in them."""

import numpy as np

from imgcheck.binaries.kernels.arrays import Sorted

_FEW = 1000
"""Values for which a table costs more than it spares."""
_SPARSE = 64
"""A sort of one number costs about as much as a look at so many marks."""


def distinct(values: np.ndarray, in_runs: bool = False) -> np.ndarray:
    """The sorted distinct values; numpy's own unique hashes integers, which costs many times a sort of small arrays.

    `in_runs` tells that they are few sorted runs, which the stable sort merges.
    """
    ordered = np.sort(values, kind="stable" if in_runs else None)
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def within(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which of the values stand in a sorted array; numpy's own isin would hash all of that."""
    if not len(ordered) or len(values) > max(_FEW, len(ordered)):
        return Sorted(ordered).at(values) >= 0
    at = np.searchsorted(ordered, values)
    return ordered[np.minimum(at, len(ordered) - 1)] == values


def numbers(values: np.ndarray, count: int) -> np.ndarray:
    """The sorted distinct ones of `values` from 0 to `count` - 1; -1 may stand among them."""
    if len(values) < count // _SPARSE:
        return distinct(values[values >= 0])
    marks = np.zeros(count + 1, bool)
    marks[values] = True
    return np.flatnonzero(marks[:-1])


def spread_out(first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers in each of some ranges, one behind the other, and which range each is from."""
    size = end - first
    behind = np.cumsum(size)
    which = np.repeat(np.arange(len(size)), size)
    return np.arange(len(which)) + (first - (behind - size)).take(which), which
