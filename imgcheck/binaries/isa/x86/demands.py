"""What a program asks of the CPU before it goes on: tests on every way through its start, behind which it may end.

A test demands something where it stands on every way through a function on which the program lasts, and one of its
directions leads to the program's end alone. Besides, a function demands what those do that it calls on every such way.
"""

import re
from collections.abc import Iterator
from functools import reduce
from operator import and_

import numpy as np

from imgcheck.binaries.isa.conditions import Condition, Labels, implied
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.refusals import refusal_of
from imgcheck.binaries.isa.x86.bodies import Bodies
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.facts import ARGUMENTS, LEA, Code, Fact
from imgcheck.binaries.isa.x86.graph import Graph
from imgcheck.binaries.isa.x86.handed import Flow
from imgcheck.documents.facts import Refusal

_DEEPEST = 4
"""Calls from the start of a program to a function that demands something."""
_MOST = 64
"""Functions that are looked at for such calls."""
_SHORTEST, _LONGEST = 8, 256
"""Letters of what is printed."""
_STATUS = ARGUMENTS[0]
_CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]*)?[hlqjzt]*[a-zA-Z]")
"""What printf fills in."""


def demanded(graph: ControlFlow, tests: dict[int, Labels]) -> dict[int, Condition]:
    """By the address of a test in the function what it demands."""
    found = {}
    for number in graph.inevitable if tests else ():
        block = graph.blocks[number]
        lasting = [one for one in block.successors if one not in graph.final]
        ends = len(block.successors) > 1 or block.control in graph.code.endings
        if block.control in tests and len(lasting) == 1 and ends:
            ending = _behind(graph, number)
            # What both directions come to at once is the program's work, after which it may well tell of a failure.
            if lasting[0] not in ending and not _succeeds(graph, ending):
                taken = graph.blocks[lasting[0]].first == graph.code.targets.get(block.control)
                found[block.control] = tests[block.control][0 if taken else 1]
    return found


def refusal(graph: Graph, flows: dict[int, Flow], bodies: Bodies) -> Refusal | None:
    """What a 64-bit program demands, as far as that is understood, and what it prints where it ends for want of it."""
    demanding = {function for function, flow in flows.items() if flow.demands}
    begun = sorted(_begun(graph, bodies, demanding)) if demanding and graph.bits == 64 else []
    demands = [(each, *demand) for each in begun for demand in flows[each].demands.items()]
    features = _strongest(frozenset[str]().union(*(_necessary(condition) for _, _, condition in demands)))
    telling = ((each, test) for each, test, condition in demands if not _necessary(condition).isdisjoint(features))
    texts = (text for each, test in telling for text in _texts(graph, bodies, each, test))
    return refusal_of(features, next(filter(None, texts), "")) if features else None


def _begun(graph: Graph, bodies: Bodies, demanding: set[int]) -> Iterator[int]:
    """Those of some functions that are called whenever the program is started."""
    leading = _leading(graph.calls.backwards, demanding)
    waiting = [one for one in {*graph.first_roots.tolist(), *graph.own_mains.tolist()} if one in leading]
    seen = set(waiting)
    while waiting and len(seen) < _MOST:
        function = waiting.pop()
        if function in demanding:
            yield function
        called = leading.intersection(_called(bodies, function)) - seen
        seen |= called
        waiting += called


def _leading(callers: Edges, functions: set[int]) -> set[int]:
    """The functions, and those that lead to them by a few calls."""
    found = new = functions
    for _ in range(_DEEPEST):
        new = {caller for one in new for caller in callers.target[callers.among(one)].tolist()} - found
        found = found | new
    return found


def _called(bodies: Bodies, function: int) -> Iterator[int]:
    """What a function calls, or leaves for, on every way through it."""
    if not bodies.affords(function):
        return
    chart, sites = bodies.chart(function), bodies.sites(function)
    for number in chart.inevitable:
        for i in chart.blocks[number].numbers:
            after = chart.code.ips[i] + chart.code.facts[i].size
            if after in sites:
                yield sites[after]


def _succeeds(graph: ControlFlow, ending: list[int]) -> bool:
    """Whether one of some blocks ends the program with the status 0."""
    code = graph.code
    for number in ending:
        block = graph.blocks[number]
        given = [_number(code.facts[i]) for i in block.numbers if code.facts[i].written & _STATUS]
        if not block.successors and given and given[-1] == 0:
            return True
    return False


def _number(fact: Fact) -> int | None:
    """The number that an instruction brings to a register."""
    if fact.brings:
        return fact.brings.constant
    return fact.operation.number if fact.moves and fact.operation else None


def _behind(graph: ControlFlow, number: int) -> list[int]:
    """The blocks that run where a block leads to the program's end alone, in about that order."""
    found = [one for one in graph.blocks[number].successors if one in graph.final]
    for one in found:
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
        number = next(number for number in chart.inevitable if chart.blocks[number].control == test)
        for block in _behind(chart, number):
            if block in chart.final:
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
