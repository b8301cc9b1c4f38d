"""Which calls never return: those of library functions that end the program, and of functions without a way out."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.queries import imports
from imgcheck.binaries.isa.x86.facts import (
    ARGUMENTS,
    BRANCH,
    CALL,
    INDIRECT_CALL,
    INDIRECT_JUMP,
    JUMP,
    RETURN,
    STOP,
    Code,
    Fact,
    facts,
    last,
    returns,
    stopped,
)

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

_LONGEST = 1024
"""Bytes of a function that is read for whether it returns; longer ones are taken to."""
_STATUS = ARGUMENTS[0]
_MOST = 8
"""Functions that one jumps to, over any number of others, of which it is looked at whether they return."""


class Endings:
    """What is known of one file's functions, found out as it is asked for."""

    def __init__(self, found: "Findings") -> None:
        self._found = found
        self._returns: dict[int, bool] = {}
        self._jumps: dict[int, list[int] | None] = {}

    def marked(self, code: Code, callees: dict[int, int]) -> Code:
        """`code` with its calls that never return as STOP; `callees` are functions by the address behind the call."""
        bounds = (code.ips[0], code.ips[-1] + code.facts[-1].size + 1) if code.ips else (0, 0)
        final, leaving = (set(_between(*bounds, calls)) for calls in (self._final, self._leaving))
        if failing := set(_between(*bounds, self._failing)):
            behind = ((i, code.ips[i] + fact.size) for i, fact in enumerate(code.facts))
            final |= {after for i, after in behind if after in failing and given(code, i)}

        def never_returns(after: int) -> bool:
            return after in final or not self._may_return(callees.get(after, -1))

        def ends(after: int) -> bool:
            return after not in leaving if after in final else not self._leaves(callees[after])

        return stopped(code, never_returns, ends)

    def _leaves(self, function: int) -> bool:
        """Whether a function without a way out throws, or jumps elsewhere otherwise."""
        functions = self._found.functions
        return bool(_between(int(functions.start[function]), int(functions.end[function]) + 1, self._leaving))

    @cached_property
    def _final(self) -> np.ndarray:
        """The next addresses of calls of imported functions that never return, in order."""
        return self.behind_calls("functions")

    @cached_property
    def _failing(self) -> np.ndarray:
        """The next addresses of calls of such that return where they are told no failure, in order."""
        return self.behind_calls("failing")

    @cached_property
    def _leaving(self) -> np.ndarray:
        """Of these, those that end no program."""
        return self.behind_calls("leaving")

    def behind_calls(self, kind: str) -> np.ndarray:
        """The next addresses of calls of imported functions, in order; `kind` is a list in rules/analysis/isa.toml."""
        symbols, graph = imports(self._found.layout, analysis()["endings"][kind]), self._found.graph
        return np.sort(graph.behind(graph.imported(list(symbols))[2])).astype(np.int64)

    def _may_return(self, function: int) -> bool:
        if function not in self._returns:
            self._returns[function] = self._has_way_out(function)
        return self._returns[function]

    def _has_way_out(self, function: int) -> bool:
        """Whether a function, or one that it jumps to, over any number of others, returns; or that is too much to see.

        Of those that jump in a circle none returns.
        """
        reached = [function]
        for each in reached:
            onward = self._jumping_to(each)
            if onward is None:
                return True
            reached += set(onward).difference(reached)
            if len(reached) > _MOST:
                return True
        return False

    def _jumping_to(self, function: int) -> list[int] | None:
        """Functions that one jumps to whose end unwind data tell; None where it may return, or goes somewhere else."""
        if function not in self._jumps:
            self._jumps[function] = self._read_jumps(function)
        return self._jumps[function]

    def _read_jumps(self, function: int) -> list[int] | None:
        functions = self._found.functions
        if function < 0 or not functions.unwind[function]:
            return None
        start, end = int(functions.start[function]), int(functions.end[function])
        if end - start > _LONGEST:
            return None
        data, bits = self._found.layout.bytes_at(start, end), self._found.bits
        if returns(data, bits):
            return None
        final = last(data, start, bits)
        if final is None or final.kind not in (CALL, INDIRECT_CALL, JUMP, STOP):
            return None
        code = facts(data, start, bits)
        if any(code.facts[i].kind in (INDIRECT_JUMP, RETURN) for i in code.controls):
            return None
        branches = (code.ips[i] for i in code.controls if code.facts[i].kind in (BRANCH, JUMP))
        outside = [target for ip in branches if not code.inside(target := code.targets.get(ip, -1))]
        # Compilers put what handles exceptions elsewhere, and jump into the middle of that.
        return self._found.functions.holding(np.array(outside, np.int64)).tolist()


def given(code: Code, call: int) -> int:
    """The status that a call, named by its number, gets in the first register of parameters, as whoever started the
    program gets it; 0 where that is open.
    """
    entered = set(code.targets.values())
    for i in reversed(range(call if code.pointer == 8 else 0)):
        fact = code.facts[i]
        if fact.kind >= CALL or code.ips[i + 1] in entered:
            return 0
        if fact.written & _STATUS:
            return (brought(fact) or 0) & 255
    return 0


def brought(fact: Fact) -> int | None:
    """The number that an instruction brings to a register."""
    if fact.brings:
        return fact.brings.constant
    return fact.operation.number if fact.moves and fact.operation else None


def _between(start: int, end: int, ordered: np.ndarray) -> list[int]:
    """Those of some addresses from `start` up to `end`."""
    return ordered[slice(*np.searchsorted(ordered, [start, end]))].tolist()
