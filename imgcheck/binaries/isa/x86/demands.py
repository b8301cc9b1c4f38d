"""What a program asks of the CPU before it goes on: tests on every way through its start, behind which it may end.

A test demands something where it stands on every way through a function on which the program lasts, and one of its
directions leads to the program's end alone. Besides, a function demands what those do that it calls on every such way.
"""

import re
from collections.abc import Iterator
from functools import cached_property, reduce
from itertools import islice
from operator import and_

import numpy as np

from imgcheck.binaries.isa.conditions import Condition, Labels, implied, shortened
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.refusals import refusal_of
from imgcheck.binaries.isa.x86.bodies import Bodies
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.endings import Endings, brought, given
from imgcheck.binaries.isa.x86.facts import LEA, Code
from imgcheck.binaries.isa.x86.graph import Graph
from imgcheck.binaries.isa.x86.handed import Flow
from imgcheck.documents.facts import Refusal

_DEEPEST = 4
"""Calls from the start of a program to a function that tests the CPU."""
_MOST = 64
"""Functions that are looked at for such calls."""
_DEEPEST_END = 3
"""And from one to the next of the program's own functions that end it."""
_MOST_BLOCKS = 64
"""Blocks in which a program gives up: it has few left to go through."""
_READ = 8
"""Tests of which it is looked at what is printed."""
_SHORTEST, _LONGEST = 8, 256
"""Letters of what is printed."""
_CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]*)?[hlqjzt]*[a-zA-Z]")
"""What printf fills in."""


def refusal(graph: Graph, flows: dict[int, Flow], bodies: Bodies, endings: Endings) -> Refusal | None:
    """What a 64-bit program demands, as far as that is understood, and what it prints where it ends for want of it.

    A static one does not show by whose functions it ends, or goes on as another program.
    """
    testing = {function for function, flow in flows.items() if flow.tests}
    if not testing or graph.bits != 64 or not graph.layout.elf.interpreter:
        return None
    start = _Start(graph, bodies, endings)
    begun = sorted(start.begun(testing))
    demands = [(each, *demand) for each in begun for demand in start.demands(each, flows[each].tests)]
    features = sorted(shortened(frozenset[str]().union(*(wanted for _, _, wanted in demands))))
    telling = ((each, test) for each, test, wanted in demands if not wanted.isdisjoint(features))
    texts = (text for each, test in islice(telling, _READ) for text in start.texts(each, test))
    return refusal_of(features, next(texts, "")) if features else None


class _Start:
    """What runs whenever a program is started; functions are named by their index."""

    def __init__(self, graph: Graph, bodies: Bodies, endings: Endings) -> None:
        self._graph, self._bodies, self._endings = graph, bodies, endings
        self._courses: dict[int, tuple[set[int], list[int]]] = {}

    def begun(self, functions: set[int]) -> Iterator[int]:
        """Those of some functions that are called whenever the program is started."""
        leading = _leading(self._graph.calls, functions)
        roots = {*self._graph.first_roots.tolist(), *self._graph.own_mains.tolist()}
        waiting = [one for one in roots if leading[one]]
        seen = set(waiting)
        while waiting and len(seen) < _MOST:
            function = waiting.pop()
            if function in functions:
                yield function
            called = {one for one in self._called(function) if leading[one]} - seen
            seen |= called
            waiting += called

    def demands(self, function: int, tests: dict[int, Labels]) -> Iterator[tuple[int, frozenset[str]]]:
        """The addresses of tests in a function that demand something, and the features that each wants."""
        chart = self._bodies.chart(function)
        failing, inevitable = self._course(function)
        for number in inevitable:
            block = chart.blocks[number]
            lasting = [one for one in block.successors if one not in failing]
            may_end = len(block.successors) > 1 or block.control in chart.code.endings
            if block.control not in tests or len(lasting) != 1 or not may_end:
                continue
            ending = _behind(chart, number, failing)
            # What both directions come to at once is the program's work, after which it may well tell of a failure.
            if len(ending) > _MOST_BLOCKS or lasting[0] in ending or self._may_go_well(function, number, ending):
                continue
            taken = chart.blocks[lasting[0]].first == chart.code.targets.get(block.control)
            yield block.control, _necessary(tests[block.control][0 if taken else 1])

    def texts(self, function: int, test: int) -> Iterator[str]:
        """The texts whose addresses are taken where a test leads to the end: those that are printed are among them."""
        for code, i in self._ending(function, test):
            fact = code.facts[i]
            relative = fact.kind == LEA and fact.loads[0].relative
            address = fact.loads[0].displacement + code.ips[i] + fact.size if relative else brought(fact)
            if text := _text(self._graph, address or 0):
                yield text

    def _called(self, function: int) -> Iterator[int]:
        """What a function calls, or leaves for, on every way through it."""
        if self._is_readable(function):
            _, inevitable = self._course(function)
            for number in inevitable:
                yield from self._calls(function, number)

    def _is_readable(self, function: int) -> bool:
        return self._bodies.affords(function) and bool(self._bodies.chart(function).blocks)

    def _calls(self, function: int, number: int) -> Iterator[int]:
        """The functions that a block calls or leaves for."""
        sites = self._bodies.sites(function)
        return (sites[after] for after in _returning(self._bodies.chart(function), number) if after in sites)

    def _course(self, function: int) -> tuple[set[int], list[int]]:
        """The blocks of a function behind which the program ends with a failure, whatever happens there, and those on
        every way that leads over none of them.
        """
        if function not in self._courses:
            chart = self._bodies.chart(function)
            ends = {number for number in chart.ends if not self._may_succeed(function, number, _DEEPEST_END)}
            failing = chart.leading_to(ends | chart.failures)
            self._courses[function] = failing, chart.inevitable(failing)
        return self._courses[function]

    def _may_succeed(self, function: int, number: int, depth: int) -> bool:
        """Whether the program may end with the status 0 at the end of a block, which calls what never returns.

        Of a function of its own that is so where any of its ends may, whatever it is told.
        """
        chart = self._bodies.chart(function)
        after = _returning(chart, number)[-1]
        if after in self._statuses:
            return not given(chart.code, chart.blocks[number].numbers[-1])
        called = self._bodies.sites(function).get(after)
        return called is not None and self._may_end_well(called, depth)

    def _may_end_well(self, function: int, depth: int) -> bool:
        """Whether the program may end with the status 0 in a function that never returns."""
        if not depth or function < 0 or not self._is_readable(function):
            return True
        ends = self._bodies.chart(function).ends
        return not ends or any(self._may_succeed(function, one, depth - 1) for one in ends)

    def _may_go_well(self, function: int, number: int, ending: list[int]) -> bool:
        """Whether the program may end well, or go on as another one, where a block leads to blocks in which it ends."""
        chart = self._bodies.chart(function)
        target = chart.code.targets.get(chart.blocks[number].control, -1)
        elsewhere = self._graph.starting_at(np.array([target])).tolist() if not chart.code.inside(target) else []
        called = [*elsewhere, *(one for block in ending for one in self._calls(function, block))]
        if any(self._may_end_well(one, _DEEPEST_END) for one in elsewhere):
            return True
        if any(self._handing_over[one] for one in called):
            return True
        return any(after in self._handed_over for block in ending for after in _returning(chart, block))

    @cached_property
    def _statuses(self) -> frozenset[int]:
        """Next addresses of the calls of library functions that end the program with a status."""
        return frozenset(self._endings.behind_calls("statuses").tolist())

    @cached_property
    def _handed_over(self) -> frozenset[int]:
        """Those of the calls by which the program goes on as another one, or has another one do its work."""
        return frozenset(self._endings.behind_calls("handing_over").tolist())

    @cached_property
    def _handing_over(self) -> np.ndarray:
        """Marks functions that lead to such calls."""
        callers = self._graph.functions.holding(np.array([after - 1 for after in self._handed_over], np.int64))
        return _leading(self._graph.calls, set(callers[callers >= 0].tolist()))

    def _ending(self, function: int, test: int) -> Iterator[tuple[Code, int]]:
        """The instructions that run where a test leads to the program's end, by number."""
        chart = self._bodies.chart(function)
        target = chart.code.targets.get(test, -1)
        if chart.code.inside(target):
            failing, _ = self._course(function)
            number = next(number for number, block in enumerate(chart.blocks) if block.control == test)
            for block in _behind(chart, number, failing):
                if block in failing:
                    yield from ((chart.code, i) for i in chart.blocks[block].numbers)
            return
        # What compilers take for rare is a function of its own.
        (elsewhere,) = self._graph.starting_at(np.array([target])).tolist()
        if elsewhere >= 0:
            code = self._bodies.code(elsewhere)
            yield from ((code, i) for i in range(len(code.ips)))


def _leading(calls: Edges, functions: set[int]) -> np.ndarray:
    """Marks the functions, and those that lead to them by a few calls."""
    marks = np.zeros(calls.count, bool)
    marks[list(functions)] = True
    for _ in range(_DEEPEST):
        marks[calls.source[calls.into(marks)]] = True
    return marks


def _returning(chart: ControlFlow, number: int) -> list[int]:
    """The addresses behind the instructions of a block, to which calls return."""
    code = chart.code
    return [code.ips[i] + code.facts[i].size for i in chart.blocks[number].numbers]


def _behind(graph: ControlFlow, number: int, failing: set[int]) -> list[int]:
    """The blocks that run where a block leads to such an end, in about that order."""
    found = [one for one in graph.blocks[number].successors if one in failing]
    for one in found:
        if len(found) > _MOST_BLOCKS:
            break
        found += [other for other in graph.blocks[one].successors if other not in found]
    return found


def _text(graph: Graph, address: int) -> str:
    """The first line of a text at an address, of one for printf what it prints in any case at most in one piece; ""
    where none lies there, or code does.
    """
    elf = graph.layout.elf
    offset = elf.offset_of(address)
    if offset is None or graph.layout.in_code(np.array([address]))[0]:
        return ""
    line = elf.string(offset, _LONGEST).strip().partition("\n")[0]
    piece = max(_CONVERSION.split(line), key=len).strip(" :")
    return piece if len(piece) >= _SHORTEST and piece.isprintable() else ""


def _necessary(condition: Condition) -> frozenset[str]:
    """The features that the CPU has wherever the condition holds."""
    terms = (frozenset[str]().union(*map(implied, term)) for term in condition)
    return reduce(and_, terms) if condition else frozenset()
