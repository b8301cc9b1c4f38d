"""Which calls never return: those of library functions that end the program, and of functions without a way out."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.queries import imports
from imgcheck.binaries.isa.x86.facts import (
    BRANCH,
    CALL,
    INDIRECT_CALL,
    INDIRECT_JUMP,
    JUMP,
    RETURN,
    STOP,
    Code,
    facts,
    last,
    stopped,
)

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

_LONGEST = 1024
"""Bytes of a function that is read for whether it returns; longer ones are taken to."""
_FARTHEST = 4
"""Jumps from one to the next function that are followed for whether the last one returns."""


class Endings:
    """What is known of one file's functions, found out as it is asked for."""

    def __init__(self, found: "Findings") -> None:
        self._found = found
        self._returns: dict[int, bool] = {}

    def marked(self, code: Code, callees: dict[int, int]) -> Code:
        """`code` with its calls that never return as STOP; `callees` are functions by the address behind the call."""
        first, last = np.searchsorted(self._sites, [code.ips[0], code.ips[-1] + 1]) if code.ips else (0, 0)
        final = set(self._sites[first:last].tolist())
        return stopped(code, lambda site, after: site in final or not self._may_return(callees.get(after, -1)))

    @cached_property
    def _sites(self) -> np.ndarray:
        """Of calls to imported functions that end the program, in order."""
        symbols = imports(self._found.layout, analysis()["endings"]["functions"])
        return np.sort(self._found.graph.imported(list(symbols))[2]).astype(np.int64)

    def _may_return(self, function: int, jumps: int = 0) -> bool:
        if jumps > _FARTHEST:
            return True
        if function not in self._returns:
            self._returns[function] = True  # until it is known: one that jumps to it asks, too
            self._returns[function] = self._has_way_out(function, jumps)
        return self._returns[function]

    def _has_way_out(self, function: int, jumps: int) -> bool:
        """Whether a function, of which unwind data tell the end, returns or jumps to another one that may."""
        functions = self._found.functions
        if function < 0 or not functions.unwind[function]:
            return True
        start, end = int(functions.start[function]), int(functions.end[function])
        if end - start > _LONGEST:
            return True
        data, bits = self._found.layout.bytes_at(start, end), self._found.bits
        final = last(data, start, bits)
        if final is None or final.kind not in (CALL, INDIRECT_CALL, JUMP, STOP):
            return True
        code = facts(data, start, bits)
        if any(code.facts[i].kind in (INDIRECT_JUMP, RETURN) for i in code.controls):
            return True
        branches = (code.ips[i] for i in code.controls if code.facts[i].kind in (BRANCH, JUMP))
        outside = [target for ip in branches if not code.inside(target := code.targets.get(ip, -1))]
        reached = self._found.graph.starting_at(np.array(outside, np.int64)).tolist()
        return any(self._may_return(other, jumps + 1) for other in reached)
