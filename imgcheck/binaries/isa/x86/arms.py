"""Calls that are one arm of a choice by a flag: `if (flag) f_bmi2(...); else f(...);`.

The flag comes as a parameter, down from an object that somebody filled with what the CPU told (Zstandard keeps it in
its contexts): what it holds is not known where the function is exported, but what it is for is.
"""

from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.conditions import ALWAYS
from imgcheck.binaries.isa.x86.control import Block, ControlFlow
from imgcheck.binaries.isa.x86.facts import BRANCH, CALL, INDIRECT_CALL, OF_BITS, PARAMETERS, Code, Fact

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

_CHOOSER = 64
"""Bytes of a function that does nothing but choose."""
_JUMP, _CONDITIONAL = 0xE9, 0x0F
"""First bytes of jumps with a long distance."""
_COPIES = 3
"""From register to register, over which a flag is traced."""
_MOST = 16
"""Calls of one function by another that may all be such arms: each takes a look at all of the code."""


def arms(found: "Findings", source: int, target: int) -> set[int]:
    """Sites where function `source` calls `target`, if that is one of two that it chooses between."""
    calls = found.graph.calls
    own = calls.among(source)
    sites = calls.site[own][calls.target[own] == target]
    if _are_tested(found, source, sites):
        return set()
    if _only_chooses(found, source, target) or _chooses_by_flag(found, source, target, sites.tolist()):
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


def _chooses_by_flag(found: "Findings", source: int, target: int, sites: list[int]) -> bool:
    """Whether each call stands behind a test of a flag, beside which something else is done, and the file keeps in
    objects whether the CPU has all that the function called uses.
    """
    kept = found.kept_in_objects
    # Of a program all callers are there, and what they hand over is followed.
    if found.layout.is_program or not kept or found.any_use[source] or not found.features_of(target) <= kept:
        return False
    chart = found.chart(source)
    return chart is not None and len(sites) <= _MOST and all(_is_arm(chart, site) for site in sites)


def _is_arm(chart: ControlFlow, site: int) -> bool:
    """Whether a call is what one way of a test of a flag leads to, and the other way does something without it."""
    number = next((n for n, block in enumerate(chart.blocks) if block.first <= site < block.end), -1)
    if number not in chart.before:
        return False
    entry, test = _test_before(chart, number, site)
    if test < 0 or not _is_of_flag(chart, chart.blocks[test]):
        return False
    mine = _reached(chart, entry) if entry != test else set()
    others = set().union(*(_reached(chart, n) for n in chart.blocks[test].successors if n != entry))
    return any(_goes_on(chart, chart.blocks[n]) for n in others - mine)


def _test_before(chart: ControlFlow, number: int, site: int) -> tuple[int, int]:
    """The block that branches last on the only way to a block, -1 for none, and the one where it leads from there.

    Where the call itself is a conditional jump, its block is the one that branches.
    """
    control = chart.blocks[number].control
    if 0 <= control <= site and chart.code.facts[chart.blocks[number].numbers.stop - 1].kind == BRANCH:
        return number, number
    while len(before := chart.before[number]) == 1 and before != [number]:
        (above,) = before
        if len(chart.blocks[above].successors) > 1:
            return number, above
        number = above
    return number, -1


def _reached(chart: ControlFlow, number: int) -> set[int]:
    """The blocks that one leads to, by number, with itself."""
    seen, pending = set[int](), [number]
    while pending:
        at = pending.pop()
        if at not in seen:
            seen.add(at)
            pending += chart.blocks[at].successors
    return seen


def _goes_on(chart: ControlFlow, block: Block) -> bool:
    """Whether a block calls something or closes a loop, as what does the work does."""
    code = chart.code
    if any(code.facts[i].kind in (CALL, INDIRECT_CALL) for i in block.numbers):
        return True
    target = code.targets.get(block.control, -1)
    return target >= 0 and (not code.inside(target) or target <= block.first)


def _is_of_flag(chart: ControlFlow, block: Block) -> bool:
    """Whether the branch at the end of a block depends on a bit of a parameter, or on whether one is nought."""
    facts = [chart.code.facts[i] for i in block.numbers]
    if not facts or facts[-1].kind != BRANCH:
        return False
    tests = [fact for fact in facts if fact.writes_flags]
    if not tests or not (tests[-1].comparison and tests[-1].comparison[-1] in (0, OF_BITS)):
        return False
    test = tests[-1]
    if test.loads:
        return _are_on_stack(chart.code, test)
    return _is_parameter(chart.code, facts[: facts.index(test)], test.read, _COPIES)


def _are_on_stack(code: Code, fact: Fact) -> bool:
    """Whether an instruction reads words on the stack alone, where parameters lie or are kept."""
    return all(memory.base & code.stack and not memory.index for memory in fact.loads)


def _is_parameter(code: Code, before: list[Fact], register: int, copies: int) -> bool:
    """Whether a register holds a parameter, by the last of `before` that writes to it or by all instructions."""
    writers = [fact for fact in before if fact.written & register][-1:]
    writers = writers or [fact for fact in code.facts if fact.written & register]
    if not writers:
        return bool(register & PARAMETERS)
    return all(_brings_parameter(code, fact, copies) for fact in writers)


def _brings_parameter(code: Code, fact: Fact, copies: int) -> bool:
    if fact.loads:
        return _are_on_stack(code, fact) and not fact.writes_flags
    return bool(copies and fact.moves and fact.source) and _is_parameter(code, [], fact.source, copies - 1)
