"""The functions of one file, each read once and when it is asked for: instructions, control flow, calls, parameters."""

from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from imgcheck.binaries.isa.x86 import statuses
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.facts import INDIRECT_JUMP, PUSHED, RETURN, Code, Memory, facts, located
from imgcheck.binaries.isa.x86.parameters import ANY, Parameters, parameters
from imgcheck.binaries.isa.x86.stack import settled
from imgcheck.binaries.isa.x86.tables import tables

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

LONGEST = 1 << 16
"""Bytes of a function that is read."""
_MAINS = 8
"""Functions whose result may be the program's status."""
_HANDED_ON = 2
"""Calls over which a parameter is traced that a function does nothing with itself."""


class Bodies:
    """Functions are named by their index."""

    def __init__(self, found: "Findings", unread: int) -> None:
        """`unread`: bytes of functions that may be read for their parameters alone, besides those that are followed."""
        self._layout, self._bits = found.layout, found.bits
        self._graph, self._functions, self._calls = found.graph, found.functions, found.graph.calls
        self._endings = found.endings
        position = found.graph.position
        self._learnt = position.registers if position else {}
        self._unread = unread
        self._codes: dict[int, Code] = {}
        self._charts: dict[int, ControlFlow] = {}
        self._sites: dict[int, dict[int, int]] = {}
        self._parameters: dict[int, Parameters] = {}
        self._handed_on: dict[int, dict[int, int]] = {}

    def size(self, function: int) -> int:
        """Bytes of a function."""
        return int(self._functions.end[function] - self._functions.start[function])

    def affords(self, function: int) -> bool:
        """Whether a function may be read, besides those that are followed."""
        size = self.size(function)
        known = function in self._codes
        affordable = known or size <= min(LONGEST, self._unread)
        self._unread -= size if affordable and not known else 0
        return affordable

    def code(self, function: int) -> Code:
        """The instructions of a function, where nobody asks which calls return."""
        if function not in self._codes:
            start, end = int(self._functions.start[function]), int(self._functions.end[function])
            code = facts(self._layout.bytes_at(start, end), start, self._bits)
            if found := tables(self._layout.elf, code):
                code = msgspec.structs.replace(code, tables=found)
            self._codes[function] = settled(located(code, self._learnt)) if self._bits == 32 else code
        return self._codes[function]

    def chart(self, function: int) -> ControlFlow:
        """The control flow of a function, which ends at calls that do not return."""
        if function not in self._charts:
            self._charts[function] = self._read_chart(function, function in self._mains)
        return self._charts[function]

    @cached_property
    def _mains(self) -> list[int]:
        """`main`, and functions whose result it returns as its status, or those do."""
        found = list(self._graph.mains)
        for function in found:
            if len(found) < _MAINS and self.affords(function):
                chart = self._charts[function] = self._read_chart(function, is_main=True)
                sites = self.sites(function)
                handed_on = {sites[after] for after in statuses.handed_on(chart.code, chart.blocks) if after in sites}
                found += sorted(handed_on.difference(found))
        return found

    def _read_chart(self, function: int, is_main: bool) -> ControlFlow:
        code = self._endings.marked(self.code(function), self.sites(function))
        return ControlFlow(msgspec.structs.replace(code, is_main=True) if is_main else code)

    def sites(self, function: int) -> dict[int, int]:
        """Next address of each call or tail call in a function -> the function called."""
        if function not in self._sites:
            self._sites[function] = self._read_sites(function)
        return self._sites[function]

    def ends_elsewhere(self, function: int) -> bool:
        """Whether it returns by code alone that stands within another function, as what compilers take for rare does
        (.text.unlikely), which has an unwind entry of its own.
        """
        code = self.code(function)
        if any(fact.kind in (RETURN, INDIRECT_JUMP) for fact in code.facts):
            return False
        targets = [code.targets.get(code.ips[at], -1) for at in code.controls]
        leaving = [target for target in targets if target >= 0 and not code.inside(target)]
        return bool(leaving) and bool((self._graph.starting_at(np.array(leaving)) < 0).any())

    def _read_sites(self, function: int) -> dict[int, int]:
        own = self._calls.among(function)
        after = self._graph.behind(self._calls.site[own])
        return dict(zip(after.tolist(), self._calls.target[own].tolist(), strict=True))

    def loads_elsewhere(self, function: int) -> set[tuple[int, int]]:
        """How far from registers other than those of the stack a function reads, and how many bytes."""
        code = self.code(function)

        def is_elsewhere(memory: Memory) -> bool:
            return not memory.relative and not memory.base & code.stack

        return {
            (memory.displacement, memory.size) for fact in code.facts for memory in fact.loads if is_elsewhere(memory)
        }

    def expected(self, function: int, registers: int, steps: int = _HANDED_ON) -> int:
        """Those of `registers` that the function, or one that it hands them on to, takes for parameters."""
        if not registers:
            return 0
        taken = self._taken(function)
        expected = registers & taken.read
        for target, kept in self.handed_on(function).items() if steps else ():
            expected |= self.expected(target, registers & ~expected & kept, steps - 1)
        return expected

    def handed_on(self, function: int) -> dict[int, int]:
        """Functions that it calls or jumps to -> the registers in which they get what its own caller left there."""
        if function not in self._handed_on:
            passed = self._taken(function).passed
            found: dict[int, int] = {}
            for site, target in self.sites(function).items():
                found[target] = found.get(target, 0) | passed.get(site, 0)
            self._handed_on[function] = found
        return self._handed_on[function]

    def hands_out(self, function: int, registers: int) -> int:
        """Those of `registers` that the function leaves as they are for one of another file, as atexit does."""
        sites = self.sites(function)
        passed = (kept for site, kept in self._taken(function).passed.items() if site not in sites)
        return registers & reduce(or_, passed, 0)

    def _taken(self, function: int) -> Parameters:
        """The parameters of a function; of one that is too long to read all that there can be."""
        if function not in self._parameters:
            found = parameters(self.chart(function).code) if self.affords(function) else ANY
            # 32-bit code of Go hands over nothing in registers.
            if self._bits == 32 and self._layout.is_go(int(self._functions.start[function])):
                found = Parameters(found.read & PUSHED, {})
            self._parameters[function] = found
        return self._parameters[function]
