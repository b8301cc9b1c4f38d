"""Functions that tables in the data lead to: those of classes, structures of functions, and lists of such.

A table begins where code or a pointer refers to, and ends where the next thing does. Code that takes its address may
come to call any function in it, or in a table to which it points.
"""

from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.ordered import distinct, spread_out

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.graph import Graph

_LARGEST = 4096
"""Bytes of a table."""
_DEEPEST = 3
"""Tables, each of which points to the next: a list of objects, an object, its class."""
_MOST = 10_000
"""Ways from code over tables that are followed from one step to the next."""


class Tabled:
    """The tables of one file, and the code that refers to them."""

    def __init__(self, graph: "Graph", asking: np.ndarray, testing: np.ndarray) -> None:
        """`asking` marks functions that ask the CPU: a table with one of them has its versions chosen by that.

        `testing` are those with tests of the CPU. A table with other words beside the pointers may hold what they test.
        """
        self._pointers, self._asking, self._testing = graph.layout.pointers, asking, testing
        self._width = graph.bits // 8
        """Bytes of a pointer."""
        self._function = graph.starting_at(self._pointers.target)
        slot, into = self._pointers.slot, self._pointers.target
        lowest, highest = (int(slot[0]) - _LARGEST, int(slot[-1]) + 1) if len(slot) else (0, 0)
        site, address = (np.concatenate(column) for column in zip(*graph.addresses_taken, strict=True))
        near = np.flatnonzero((address >= lowest) & (address < highest))
        source = graph.functions.holding(site[near])
        order = np.lexsort((address[near], source))[int((source < 0).sum()) :]
        self._source, self._site = source[order], site[near][order]
        self._address = address[near][order].astype(np.int64)
        named = into[(into >= lowest) & (into < highest) & (self._function < 0)]
        self._bounds = distinct(np.concatenate([self._address, named]))
        begins = ~self._ends()
        self._source, self._site, self._address = self._source[begins], self._site[begins], self._address[begins]

    def _ends(self) -> np.ndarray:
        """Which of the addresses taken end a list of functions, of which the same code takes the beginning.

        So the C library calls all initialisers; what lies behind them is another thing.
        """
        code = self._pointers.slot[self._function >= 0]
        first, behind = self._address[:-1], self._address[1:]
        count = np.searchsorted(code, behind) - np.searchsorted(code, first)
        listed = (self._source[:-1] == self._source[1:]) & (count > 0) & (behind - first == count * self._width)
        return np.append(np.zeros(min(len(self._address), 1), bool), listed)

    def led_to(self, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where tables lead from the functions `sources`, sorted: from which of them, to which, and over what site.

        By the site.
        """
        first, end = (np.searchsorted(self._source, sources, side) for side in ("left", "right"))
        row, _ = spread_out(first, end)
        address = self._address[row]
        found = []
        for _ in range(_DEEPEST):
            row, address = row[:_MOST], address[:_MOST]
            which, pointer = self._held(address, self._testing[self._source[row]])
            function = self._function[pointer]
            is_code = function >= 0
            found.append((row[which[is_code]], function[is_code]))
            onward = ~is_code & (self._pointers.target[pointer] > 0)
            row, address = row[which[onward]], self._pointers.target[pointer[onward]]
        rows, functions = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(self._site[rows], kind="stable")
        rows = rows[order]
        return self._source[rows], functions[order], self._site[rows]

    def _held(self, addresses: np.ndarray, tested: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pointers in the table at each address: which of these it is, and the pointer's number.

        None of those where a test tells which is meant; `tested` marks where one stands in the code.
        """
        slot = self._pointers.slot
        behind = np.searchsorted(self._bounds, addresses, side="right")
        ends = np.append(self._bounds, np.iinfo(np.int64).max)[behind]
        ends = np.minimum(ends, addresses + _LARGEST)
        first, end = np.searchsorted(slot, addresses), np.searchsorted(slot, ends)
        pointer, which = spread_out(first, end)
        function = self._function[pointer]
        excused = np.zeros(len(addresses), bool)
        excused[which[(function >= 0) & self._asking.take(np.maximum(function, 0))]] = True
        last = slot[np.maximum(end, 1) - 1] if len(slot) else slot
        excused |= tested & (end > first) & (last - addresses > (end - first - 1) * self._width)
        kept = ~excused[which]
        return which[kept], pointer[kept]
