"""Columns of addresses against sorted ranges, bytes in code, and what is reached in a call graph."""

import ctypes
from collections.abc import Sequence

import numpy as np

from imgcheck.binaries.kernels.library import N, P, address, by_width, declared

_holding = by_width("holding", P, P, N, P, N, P)
_not_below = by_width("not_below", P, N, P, N, P)
_bytes_at = by_width("bytes_at", P, P, N, N, P)
_find_bytes = declared("find_bytes", N, P, N, ctypes.c_uint8, ctypes.c_uint8, P)
_find_texts = declared("find_texts", N, P, N, N, *[P] * 8)
_first_of_kinds = declared("first_of_kinds", N, P, P, N, P, P)
_marked = declared("marked", N, P, N, P, N, P)
_reach = declared("reach", None, P, P, P, P, P, P, P, N)
_sorted_by = declared("sorted_by", None, P, N, P, P)


def holding(starts: np.ndarray, ends: np.ndarray, addresses: np.ndarray) -> np.ndarray:
    """Index of the one of some sorted ranges that holds each address, or -1."""
    starts, ends = _wide(starts), _wide(ends)
    if len(starts) != len(ends):
        raise ValueError("ranges need as many ends as starts")
    column, found = column_of(addresses), np.empty(len(addresses), np.int32)
    _holding[column.itemsize](address(starts), address(ends), len(starts), address(column), len(column), address(found))
    return found


class Ranges(ctypes.Structure):
    """Sorted ranges of addresses, the bytes of each of which stand in `data` from an offset on."""

    _fields_ = [("data", P), ("starts", P), ("ends", P), ("offsets", P), ("count", N)]

    def __init__(self, data: np.ndarray, ranges: list[tuple[int, int, int]]) -> None:
        """`ranges`: start, end and offset of each."""
        if any(offset < 0 or offset + end - start > len(data) for start, end, offset in ranges):
            raise ValueError("ranges lie outside of the data")
        self.columns = np.array(ranges, np.int64).reshape(-1, 3).T.copy()
        self._kept = data
        super().__init__(address(data), *map(address, self.columns), len(ranges))

    def holding(self, addresses: np.ndarray) -> np.ndarray:
        """Index of the range that holds each address, or -1."""
        column, found = column_of(addresses), np.empty(len(addresses), np.int32)
        _holding[column.itemsize](self.starts, self.ends, self.count, address(column), len(column), address(found))
        return found

    def bytes_at(self, addresses: np.ndarray, distance: int = 0) -> np.ndarray:
        """The byte so far behind each address; 0 outside of the ranges."""
        column, values = column_of(addresses), np.empty(len(addresses), np.uint8)
        _bytes_at[column.itemsize](ctypes.addressof(self), address(column), len(column), distance, address(values))
        return values


class Sorted(ctypes.Structure):
    """Sorted numbers, as starts of functions, of which those at or close behind others are looked up.

    Several times faster than a binary search: most branches lead to a stretch of code where no function starts.
    """

    _STRETCHES = 4
    """For each of the numbers, about: those that a search has to go through are few, wherever they gather."""

    _fields_ = [("sorted", P), ("count", N), ("shift", N), ("stretches", P)]

    def __init__(self, numbers: np.ndarray) -> None:
        """`numbers` of less than 63 bits."""
        self._numbers = _wide(numbers)
        first, last = (int(self._numbers[0]), int(self._numbers[-1])) if len(numbers) else (0, -1)
        shift = ((last - first) // (self._STRETCHES * max(len(numbers), 1))).bit_length()
        stretches = (self._numbers - first) >> shift
        steps = np.diff(stretches, prepend=-1, append=((last - first) >> shift) + 1)
        self._firsts = np.repeat(np.arange(len(numbers) + 1, dtype=np.int32), steps)
        super().__init__(address(self._numbers), len(numbers), shift, address(self._firsts))

    def at(self, values: np.ndarray, reach: int = 1) -> np.ndarray:
        """Index of the first number that is not below each value; -1 where it is `reach` or more away."""
        column, found = column_of(values), np.empty(len(values), np.int32)
        _not_below[column.itemsize](ctypes.addressof(self), reach, address(column), len(column), address(found))
        return found


def find_bytes(data: np.ndarray, mask: int, value: int) -> np.ndarray:
    """Positions of the bytes that are `value` under `mask`."""
    found = np.empty(len(data), np.int64)  # only what is written of it takes memory
    count = _find_bytes(address(data), len(data), mask, value, address(found))
    return found[:count].copy()


def words_at(data: np.ndarray, positions: np.ndarray, order: str = "<") -> np.ndarray:
    """Signed 32-bit words at any alignment; four bytes from each position on must lie inside."""
    overlapping = np.ndarray((max(len(data) - 3, 0),), order + "i4", data, strides=(1,))
    return overlapping[positions].astype(np.int64)


class Texts:
    """Texts of three or more bytes that are looked for together, in one pass over what may hold them."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        if any(len(text) < 3 for text in texts):
            raise ValueError("texts to be found have three bytes or more")
        self._order = sorted(range(len(texts)), key=texts.__getitem__)
        ordered = [texts[number] for number in self._order]
        self._texts = np.array(bytearray(b"".join(ordered)), np.uint8)
        self._begins = np.concatenate([[0], np.cumsum([len(text) for text in ordered], dtype=np.int64)])
        leads = np.array([text[:1] for text in ordered], "S1").view(np.uint8)
        self._by_byte = np.searchsorted(leads, np.arange(257)).astype(np.int32)
        self._step = min(map(len, texts), default=3) - 1
        self._pairs, self._leading = _pairs(ordered, self._step), _pairs(ordered, 1)

    def find(self, data: np.ndarray, most: int) -> list[np.ndarray]:
        """Where each text begins in `data`, in order: the first `most` places of it."""
        count = len(self._order)
        left = np.full(count, most, np.int32)
        room = min(most, len(data)) * count  # only what is written of it takes memory
        positions, numbers = np.empty(room, np.int64), np.empty(room, np.int32)
        found = _find_texts(
            address(data), len(data), self._step, address(self._texts), address(self._begins), address(self._by_byte),
            address(self._pairs), address(self._leading), address(left), address(positions), address(numbers),
        )  # fmt: skip
        order = sorted_by(numbers[:found], count)
        ends = np.cumsum(np.bincount(numbers[:found], minlength=count))
        places = np.split(positions[:found][order], ends)[:-1]
        return [place for _, place in sorted(zip(self._order, places, strict=True), key=lambda each: each[0])]


def _pairs(texts: Sequence[bytes], count: int) -> np.ndarray:
    """A bit for each two bytes: whether any of the texts has them as one of its first `count` pairs."""
    pairs = np.zeros(1 << 16, np.uint8)
    pairs[[int.from_bytes(text[k : k + 2], "little") for text in texts for k in range(count)]] = 1
    return np.packbits(pairs, bitorder="little")


def first_of_kinds(owners: np.ndarray, kinds: np.ndarray, count: int) -> np.ndarray:
    """Indices of the first of each kind, a number below `count`, among those that an owner has side by side."""
    owners, kinds = np.ascontiguousarray(owners, np.int32), np.ascontiguousarray(kinds, np.uint16)
    if len(owners) != len(kinds) or (len(kinds) and int(kinds.max()) >= count):
        raise ValueError("a kind is too large, or one has no owner")
    last, found = np.full(count, -1, np.int32), np.empty(len(kinds), np.int32)
    return found[: _first_of_kinds(address(owners), address(kinds), len(kinds), address(last), address(found))].copy()


def marked(numbers: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Positions of the numbers that are marked: `marks` has one for each number from 0 on."""
    numbers, found = np.ascontiguousarray(numbers, np.int32), np.empty(len(numbers), np.int64)
    count = _marked(address(numbers), len(numbers), _marks(marks, len(marks)), len(marks), address(found))
    return found[:count].copy()


class Network:
    """Nodes and edges between them, ordered by where they come from."""

    def __init__(self, source: np.ndarray, target: np.ndarray, count: int) -> None:
        """`source` and `target` of each edge are numbers below `count`, that of the nodes."""
        self._target = np.ascontiguousarray(target, np.int32)
        if len(source) != len(target) or any(len(a) and not 0 <= a.min() <= a.max() < count for a in (source, target)):
            raise ValueError("edges lead to no node")
        self.first = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=count))])
        """For each node, and one behind the last, the number of its first edge."""

    def reach(
        self,
        roots: np.ndarray,
        over: np.ndarray | None = None,
        closed: np.ndarray | None = None,
        known: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is reached from `roots`, and for each node the one that it was reached from (-1 for roots).

        `over` says which edges count, if not all, and `closed` which nodes lead nowhere. From what is `known` to be
        reached the search does not go on, unless it is among `roots`.
        """
        count = len(self.first) - 1
        seen, parent, queue = np.zeros(count, bool), np.full(count, -1, np.int32), np.empty(count, np.int32)
        seen[roots] = True
        begun = np.flatnonzero(seen)  # each once, whatever `roots` holds: the queue has room for as many as there are
        queue[: len(begun)] = begun
        if known is not None:
            seen |= known
        _reach(
            address(self.first), address(self._target), _marks(over, len(self._target)), _marks(closed, count),
            address(seen), address(parent), address(queue), len(begun),
        )  # fmt: skip
        return seen, parent


def _marks(marks: np.ndarray | None, count: int) -> int | None:
    if marks is None:
        return None
    if marks.dtype != bool or len(marks) != count or not marks.flags.c_contiguous:
        raise ValueError("each edge and each node is marked or is not")
    return address(marks)


def sorted_by(keys: np.ndarray, count: int) -> np.ndarray:
    """The order in which numbers below `count` are sorted; equal ones stay in theirs."""
    keys = np.ascontiguousarray(keys, np.int32)
    if len(keys) and not 0 <= keys.min() <= keys.max() < count:
        raise ValueError("a number is too large")
    place = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))])
    order = np.empty(len(keys), np.int32)
    _sorted_by(address(keys), len(keys), address(place), address(order))
    return order


def _wide(column: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column, np.int64)


def column_of(addresses: np.ndarray) -> np.ndarray:
    """Addresses as the loops take them."""
    return np.ascontiguousarray(addresses, addresses.dtype if addresses.dtype == np.int32 else np.int64)
