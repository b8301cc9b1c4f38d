"""Where `main` gives up: blocks behind which it returns a status other than 0, by which programs tell of failure.

The status often stands in a register, or in a place on the stack, while destructors run that the normal end has, too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import iced_x86 as iced

from imgcheck.binaries.isa.x86.facts import CALLS, CLOBBERED, RAX, RETURN, Code, Fact
from imgcheck.binaries.isa.x86.state import Place

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.control import Block

_MOST = 24
"""Blocks that are passed through from one on; what gives up has few left to go through."""


def failing(code: Code, blocks: Sequence["Block"]) -> set[int]:
    """The blocks, by number, that bring a status which `main` returns whatever way it goes on from there."""
    bringing = (number for number, block in enumerate(blocks) if any(_status(code.facts[i]) for i in block.numbers))
    return {number for number in bringing if _fails(code, blocks, number)}


def _fails(code: Code, blocks: Sequence["Block"], first: int) -> bool:
    """Whether each way on from the end of a block leads to a return with a status that stands somewhere there."""
    behind = {first: _passed(code, blocks[first], frozenset())}
    waiting, returned = [first], False
    for _ in range(_MOST):
        if not waiting:
            return returned  # what goes on for ever does not give up
        number = waiting.pop()
        block, held = blocks[number], behind[number]
        last = code.facts[block.numbers.stop - 1]
        if not held or not block.successors:
            if last.kind != RETURN or RAX not in held:
                return False
            returned = True
            continue
        for successor in block.successors:
            if successor == first:  # and from there on as before
                continue
            now = _passed(code, blocks[successor], held)
            before = behind.get(successor)
            behind[successor] = now if before is None else before & now
            if behind[successor] != before:
                waiting.append(successor)
    return False


def _passed(code: Code, block: "Block", held: frozenset[Place]) -> frozenset[Place]:
    """Where a status stands behind a block, if it does so before it in `held`."""
    now = set(held)
    for number in block.numbers:
        fact = code.facts[number]
        lost = fact.written | (CLOBBERED if fact.kind in CALLS else 0)
        places = [(memory.base, memory.displacement) for memory in fact.stores if memory.base & code.stack]
        is_status = _status(fact) or (fact.moves and not now.isdisjoint(_sources(fact)))
        now = {place for place in now if not (isinstance(place, int) and place & lost)}.difference(places)
        if is_status:
            now.update(places)
            now.update([fact.written] if fact.written else [])
    return frozenset(now)


def _status(fact: Fact) -> bool:
    """Whether it brings a number other than 0 somewhere, also by OR, as compilers have it for -1."""
    operation = fact.operation
    return operation is not None and bool(operation.number) and (fact.moves or operation.mnemonic == iced.Mnemonic.OR)


def _sources(fact: Fact) -> set[Place]:
    """What MOV copies."""
    return {fact.source, *((memory.base, memory.displacement) for memory in fact.loads)}
