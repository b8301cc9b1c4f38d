"""What a program asks of the CPU before it goes on: tests on every way through its start, behind which it may end.

A test demands something where it stands on every way through a function on which the program lasts, and one of its
directions leads to the program's end alone. Besides, a function demands what those do that it calls on every such way.
"""

import re
from collections.abc import Iterator
from functools import reduce
from itertools import islice
from operator import and_

import numpy as np

from imgcheck.binaries.isa.conditions import Condition, Labels, implied
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.refusals import refusal_of
from imgcheck.binaries.isa.x86.bodies import Bodies
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.facts import ARGUMENTS, CALLS, LEA, Code, Fact
from imgcheck.binaries.isa.x86.graph import Graph
from imgcheck.binaries.isa.x86.handed import Flow
from imgcheck.documents.facts import Refusal

_DEEPEST = 4
"""Calls from the start of a program to a function that tests the CPU."""
_MOST = 64
"""Functions that are looked at for such calls."""
_MOST_BLOCKS = 64
"""Blocks in which a program gives up: it has few left to go through."""
_READ = 8
"""Tests of which it is looked at what is printed."""
_SHORTEST, _LONGEST = 8, 256
"""Letters of what is printed."""
_STATUS, _INT = ARGUMENTS[0], 32
_CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]*)?[hlqjzt]*[a-zA-Z]")
"""What printf fills in."""


def refusal(graph: Graph, flows: dict[int, Flow], bodies: Bodies) -> Refusal | None:
    """What a 64-bit program demands, as far as that is understood, and what it prints where it ends for want of it."""
    testing = {function for function, flow in flows.items() if flow.tests}
    begun = sorted(_begun(graph, bodies, testing)) if testing and graph.bits == 64 else []
    demands = [(each, *demand) for each in begun for demand in _demands(bodies.chart(each), flows[each].tests)]
    features = _strongest(frozenset[str]().union(*(wanted for _, _, wanted in demands)))
    telling = ((each, test) for each, test, wanted in demands if not wanted.isdisjoint(features))
    texts = (text for each, test in islice(telling, _READ) for text in _texts(graph, bodies, each, test))
    return refusal_of(features, next(texts, "")) if features else None


def _demands(graph: ControlFlow, tests: dict[int, Labels]) -> Iterator[tuple[int, frozenset[str]]]:
    """The addresses of tests in a function that demand something, and the features that each wants."""
    failing = _failing(graph)
    for number in graph.inevitable(failing):
        block = graph.blocks[number]
        lasting = [one for one in block.successors if one not in failing]
        may_end = len(block.successors) > 1 or block.control in graph.code.endings
        if block.control not in tests or len(lasting) != 1 or not may_end:
            continue
        ending = _behind(graph, number, failing)
        # What both directions come to at once is the program's work, after which it may well tell of a failure.
        if len(ending) <= _MOST_BLOCKS and lasting[0] not in ending:
            taken = graph.blocks[lasting[0]].first == graph.code.targets.get(block.control)
            yield block.control, _necessary(tests[block.control][0 if taken else 1])


def _begun(graph: Graph, bodies: Bodies, functions: set[int]) -> Iterator[int]:
    """Those of some functions that are called whenever the program is started."""
    leading = _leading(graph.calls, functions)
    waiting = [one for one in {*graph.first_roots.tolist(), *graph.own_mains.tolist()} if leading[one]]
    seen = set(waiting)
    while waiting and len(seen) < _MOST:
        function = waiting.pop()
        if function in functions:
            yield function
        called = {one for one in _called(bodies, function) if leading[one]} - seen
        seen |= called
        waiting += called


def _leading(calls: Edges, functions: set[int]) -> np.ndarray:
    """Marks the functions, and those that lead to them by a few calls."""
    marks = np.zeros(calls.count, bool)
    marks[list(functions)] = True
    for _ in range(_DEEPEST):
        marks[calls.source[calls.into(marks)]] = True
    return marks


def _called(bodies: Bodies, function: int) -> Iterator[int]:
    """What a function calls, or leaves for, on every way through it."""
    chart = bodies.chart(function) if bodies.affords(function) else None
    if chart is None or not chart.blocks:
        return
    sites = bodies.sites(function)
    for number in chart.inevitable(_failing(chart)):
        for i in chart.blocks[number].numbers:
            after = chart.code.ips[i] + chart.code.facts[i].size
            if after in sites:
                yield sites[after]


def _failing(graph: ControlFlow) -> set[int]:
    """The blocks behind which the program ends with a failure, whatever happens there."""
    return graph.leading_to({number for number in graph.ends if not _may_succeed(graph, number)} | graph.failures)


def _may_succeed(graph: ControlFlow, number: int) -> bool:
    """Whether the program may end with the status 0 at the end of a block: that, or one that is not known, is given.

    A status is no wider than an int; what is wider leads to the words of a function of the program's own.
    """
    facts = reversed([graph.code.facts[i] for i in graph.blocks[number].numbers[:-1]])
    given = next((fact for fact in facts if fact.kind in CALLS or fact.written & _STATUS), None)
    return given is not None and given.operation is not None and given.operation.bits <= _INT and not _number(given)


def _number(fact: Fact) -> int | None:
    """The number that an instruction brings to a register."""
    if fact.brings:
        return fact.brings.constant
    return fact.operation.number if fact.moves and fact.operation else None


def _behind(graph: ControlFlow, number: int, failing: set[int]) -> list[int]:
    """The blocks that run where a block leads to such an end, in about that order."""
    found = [one for one in graph.blocks[number].successors if one in failing]
    for one in found:
        if len(found) > _MOST_BLOCKS:
            break
        found += [other for other in graph.blocks[one].successors if other not in found]
    return found


def _texts(graph: Graph, bodies: Bodies, function: int, test: int) -> Iterator[str]:
    """The texts whose addresses are taken where a test leads to the program's end, as those that are printed are."""
    for code, i in _ending(graph, bodies, function, test):
        fact = code.facts[i]
        relative = fact.kind == LEA and fact.loads[0].relative
        address = fact.loads[0].displacement + code.ips[i] + fact.size if relative else _number(fact)
        if text := _text(graph, address or 0):
            yield text


def _ending(graph: Graph, bodies: Bodies, function: int, test: int) -> Iterator[tuple[Code, int]]:
    """The instructions there, by number."""
    chart = bodies.chart(function)
    target = chart.code.targets.get(test, -1)
    if chart.code.inside(target):
        failing = _failing(chart)
        number = next(number for number, block in enumerate(chart.blocks) if block.control == test)
        for block in _behind(chart, number, failing):
            if block in failing:
                yield from ((chart.code, i) for i in chart.blocks[block].numbers)
        return
    # What compilers take for rare is a function of its own.
    (elsewhere,) = graph.starting_at(np.array([target])).tolist()
    if elsewhere >= 0:
        code = bodies.code(elsewhere)
        yield from ((code, i) for i in range(len(code.ips)))


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


def _strongest(features: frozenset[str]) -> list[str]:
    """The features without those that others bring along."""
    return sorted(one for one in features if not any(one in implied(other) for other in features - {one}))
