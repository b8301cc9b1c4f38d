"""Calls that are one arm of a choice by a flag: `if (flag) f_bmi2(...); else f(...);`.

The flag comes as a parameter, down from an object that somebody filled with what the CPU told (Zstandard keeps it in
its contexts): what it holds is not known where the function is exported, but what it is for is.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.isa.conditions import ALWAYS
from imgcheck.binaries.isa.x86.control import Block, ControlFlow
from imgcheck.binaries.isa.x86.facts import BRANCH, CALLS, CLOBBERED, OF_BITS, PARAMETERS, Code, Fact

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

_CHOOSER = 64
"""Bytes of a function that does nothing but choose."""
_JUMP, _CONDITIONAL = 0xE9, 0x0F
"""First bytes of jumps with a long distance."""
_COPIES = 3
"""From register to register, over which a flag is traced."""
_AND = iced.Mnemonic.AND
_MOST = 16
"""Calls of one function by another that may all be such arms: each takes a look at all of the code,"""
_MOST_TESTS = 8
"""and so does each test before one."""


def arms(found: "Findings", source: int, target: int, by_members: bool) -> set[int]:
    """Sites where function `source` calls `target`, if that is one of two that it chooses between.

    `by_members`: also by a flag in a byte of an object, which may lie within another one (Abseil's Randen).
    """
    calls = found.graph.calls
    own = calls.among(source)
    sites = calls.site[own][calls.target[own] == target]
    if _are_tested(found, source, sites):
        return set()
    if _only_chooses(found, source, target) or _chooses_by_flag(found, source, target, sites.tolist(), by_members):
        return set(sites.tolist())
    return set()


def _are_tested(found: "Findings", function: int, sites: np.ndarray) -> bool:
    """Whether it is known what the CPU has to have for one of some calls to happen."""
    conditions = found.guards.at(np.full(len(sites), function), sites)
    return any(found.guards.conditions[number] != ALWAYS for number in conditions.tolist())


def _only_chooses(found: "Findings", source: int, target: int) -> bool:
    """Whether a function is small and ends in either of two others, one of which uses nothing."""
    calls = found.graph.calls
    own = calls.among(source)
    others = calls.target[own][calls.target[own] != target]
    small = found.functions.end[source] - found.functions.start[source] <= _CHOOSER
    if not small or not len(others) or found.any_use[others].all():
        return False
    return bool(np.isin(found.layout.bytes_behind(calls.site[own]), (_JUMP, _CONDITIONAL)).all())


def _chooses_by_flag(found: "Findings", source: int, target: int, sites: list[int], by_members: bool) -> bool:
    """Whether each call stands behind a test of a flag, beside which something else is done, and the file keeps in
    objects whether the CPU has all that the function called uses.
    """
    kept = found.kept_in_objects
    # Of a program all callers are there, and what they hand over is followed.
    if found.layout.is_program and not by_members:
        return False
    if not kept or found.any_use[source] or not found.features_of(target) <= kept:
        return False
    chart = found.chart(source)
    return chart is not None and len(sites) <= _MOST and all(_is_arm(chart, site, by_members) for site in sites)


def _is_arm(chart: ControlFlow, site: int, by_members: bool) -> bool:
    """Whether a call stands behind a test of a flag, whose other way does something without it."""
    number = next((n for n, block in enumerate(chart.blocks) if block.first <= site < block.end), -1)
    if number not in chart.before:
        return False
    # Where the call itself is a conditional jump, its own block is the one that tests.
    last = chart.code.facts[chart.blocks[number].numbers.stop - 1]
    itself = last.kind == BRANCH and chart.blocks[number].control <= site
    if itself and _is_choice(chart, -1, number, False, by_members):
        return True
    return any(_is_choice(chart, *test, by_members) for test in islice(_tests_before(chart, number), _MOST_TESTS))


def _tests_before(chart: ControlFlow, number: int) -> Iterator[tuple[int, int, bool]]:
    """The blocks that branch on every way to a block, the last first, each behind the one where these ways go on, and
    whether anything else is decided further on.
    """
    tree, further = chart.dominators, False
    at = tree.place.get(number, 0)
    while at:
        above = tree.order[tree.above[at]]
        alone = len(tree.before[at]) == 1
        tests = len(chart.blocks[above].successors) > 1
        # Where others lead to a block, too, nothing is told by how one comes to it.
        if alone and tests:
            yield tree.order[at], above, further
        further = further or tests or not alone
        at = tree.above[at]


def _way_to(chart: ControlFlow, number: int) -> list[int]:
    """The blocks on the only way to one, as far back as there is but one, and that block itself."""
    way = {number: None}  # in order, and quick to look into
    while len(before := chart.before[number]) == 1 and before[0] not in way:
        (number,) = before
        way[number] = None
    return list(way)[::-1]


def _is_choice(chart: ControlFlow, entry: int, test: int, further: bool, by_members: bool) -> bool:
    """Whether a block ends in a test of a flag, and does something where it does not go on at `entry`.

    A test before others (`further` up) may be of whether there is an object at all: there only single bits count.
    """
    if not _is_of_flag(chart, test, by_members, further):
        return False
    mine = _reached(chart, entry, test) if entry >= 0 else set()
    others = set().union(*(_reached(chart, n, test) for n in chart.blocks[test].successors if n != entry))
    return any(_goes_on(chart, chart.blocks[n]) for n in others - mine)


def _reached(chart: ControlFlow, number: int, test: int) -> set[int]:
    """The blocks that one leads to, by number, with itself, but for those behind another look at the `test`."""
    seen, pending = set[int](), [number]
    while pending:
        at = pending.pop()
        if at not in seen and at != test:
            seen.add(at)
            pending += chart.blocks[at].successors
    return seen


def _goes_on(chart: ControlFlow, block: Block) -> bool:
    """Whether a block calls something or closes a loop, as what does the work does."""
    code = chart.code
    if any(code.facts[i].kind in CALLS for i in block.numbers):
        return True
    target = code.targets.get(block.control, -1)
    return target >= 0 and (not code.inside(target) or target <= block.first)


def _is_of_flag(chart: ControlFlow, number: int, by_members: bool, of_bits: bool) -> bool:
    """Whether the branch at the end of a block depends on a bit of a parameter, or unless `of_bits` on whether one is
    nought; or so on a byte of an object.
    """
    code, way = chart.code, _way_to(chart, number)
    facts = [code.facts[i] for one in way for i in chart.blocks[one].numbers]
    own = len(chart.blocks[number].numbers)
    if not own or facts[-1].kind != BRANCH:
        return False
    at = next((i for i in range(len(facts) - 1, len(facts) - 1 - own, -1) if facts[i].writes_flags), -1)
    test = facts[at]
    if at < 0 or not (test.comparison and test.comparison[-1] in (0, OF_BITS)):
        return False
    if by_members and test.loads and _is_flag_in_object(test):
        return True
    if of_bits and test.comparison[-1] != OF_BITS and not _is_masked(facts[:at], test.read):
        return False
    if test.loads:
        return _are_on_stack(code, test)
    return _is_parameter(_Way(code, facts[:at], way[0] == 0), test.read, _COPIES)


def _is_masked(facts: list[Fact], register: int) -> bool:
    """Whether some bits of a register are left, by what last writes to it."""
    at = _last_to_write(facts, register)
    return at >= 0 and _masks(facts[at])


def _last_to_write(facts: list[Fact], register: int) -> int:
    """The number of the last one that writes to a register, calls of what may do so included; -1 where none does."""
    clobbered = bool(register & CLOBBERED)
    numbers = range(len(facts) - 1, -1, -1)
    return next((i for i in numbers if facts[i].written & register or (clobbered and facts[i].kind in CALLS)), -1)


def _masks(fact: Fact) -> bool:
    return fact.operation is not None and fact.operation.mnemonic == _AND and fact.operation.number is not None


class _Way(NamedTuple):
    """The only way to a place in a function."""

    code: Code
    facts: list[Fact]
    """Those on it, and"""
    whole: bool
    """whether it begins where the function does."""


def _are_on_stack(code: Code, fact: Fact) -> bool:
    """Whether an instruction reads words on the stack alone, where parameters lie or are kept."""
    return all(memory.base & code.stack and not memory.index for memory in fact.loads)


def _is_flag_in_object(fact: Fact) -> bool:
    (memory,) = fact.loads
    return bool(memory.base) and not memory.index and memory.size == 1


def _is_parameter(way: _Way, register: int, copies: int) -> bool:
    """Whether a register holds a parameter, by what last writes to it on the way or, where nothing does, anywhere."""
    at = _last_to_write(way.facts, register)
    if at >= 0:
        fact = way.facts[at]
        return bool(fact.written & register) and _brings_parameter(way._replace(facts=way.facts[:at]), fact, copies)
    writers = [] if way.whole else [fact for fact in way.code.facts if fact.written & register]
    if not writers:
        return bool(register & PARAMETERS)
    return all(_brings_parameter(_Way(way.code, [], False), fact, copies) for fact in writers)


def _brings_parameter(way: _Way, fact: Fact, copies: int) -> bool:
    if fact.loads:
        return _are_on_stack(way.code, fact) and not fact.writes_flags
    if not copies:
        return False
    if _masks(fact):  # one of several flags
        return _is_parameter(way, fact.written, copies - 1)
    return fact.moves and bool(fact.source) and _is_parameter(way, fact.source, copies - 1)
