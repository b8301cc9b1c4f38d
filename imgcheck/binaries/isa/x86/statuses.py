"""Where `main` gives up: blocks behind which it returns a status other than 0, by which programs tell of failure.

The status often stands in a register, or in a place on the stack, while destructors run that the normal end has, too.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import iced_x86 as iced

from imgcheck.binaries.isa.x86.facts import CALL, CALLS, CLOBBERED, JUMP, RAX, RETURN, Code, Fact
from imgcheck.binaries.isa.x86.state import Place

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.control import Block

_MOST = 24
"""Blocks that are passed through from one on; what gives up has few left to go through."""


def failing(code: Code, blocks: Sequence["Block"]) -> set[int]:
    """The blocks, by number, that bring a status which `main` returns whatever way it goes on from there."""
    bringing = (number for number, block in enumerate(blocks) if any(_status(code.facts[i]) for i in block.numbers))
    course = _Course(code, blocks, _status)
    return {number for number in bringing if course.is_returned(number, frozenset())}


def handed_on(code: Code, blocks: Sequence["Block"]) -> Iterator[int]:
    """The addresses behind calls, and jumps to functions, whose result `main` returns whatever way it goes on."""
    course = _Course(code, blocks, None)
    for number, block in enumerate(blocks):
        for i in block.numbers:
            fact = code.facts[i]
            leaves = fact.kind == JUMP and not block.successors
            if leaves or (fact.kind == CALL and course.is_returned(number, frozenset({RAX}), i + 1)):
                yield code.ips[i] + fact.size


class _Course:
    """The way of a status through `main`."""

    def __init__(self, code: Code, blocks: Sequence["Block"], brings: Callable[[Fact], bool] | None) -> None:
        """`brings`: which instructions bring it, or one that does as well."""
        self._code, self._blocks, self._brings = code, blocks, brings

    def is_returned(self, first: int, held: frozenset[Place], since: int = 0) -> bool:
        """Whether each way on leads to a return with it: from the instruction `since` in the block `first` on, before
        which `held` has it.
        """
        block = self._blocks[first]
        behind = {first: self._passed(range(max(since, block.numbers.start), block.numbers.stop), held)}
        waiting, returned = [first], False
        for _ in range(_MOST):
            if not waiting:
                return returned  # what goes on for ever does not give up
            number = waiting.pop()
            block, held = self._blocks[number], behind[number]
            last = self._code.facts[block.numbers.stop - 1]
            if not held or not block.successors:
                if last.kind != RETURN or RAX not in held:
                    return False
                returned = True
                continue
            for successor in block.successors:
                if successor == first:  # and from there on as before
                    continue
                now = self._passed(self._blocks[successor].numbers, held)
                before = behind.get(successor)
                behind[successor] = now if before is None else before & now
                if behind[successor] != before:
                    waiting.append(successor)
        return False

    def _passed(self, numbers: range, held: frozenset[Place]) -> frozenset[Place]:
        """Where it stands behind some instructions, if it does so before them in `held`."""
        now = set(held)
        for number in numbers:
            if not now and not self._brings:
                break
            fact = self._code.facts[number]
            lost = fact.written | (CLOBBERED if fact.kind in CALLS else 0)
            places = [(memory.base, memory.displacement) for memory in fact.stores if memory.base & self._code.stack]
            is_it = bool(self._brings and self._brings(fact)) or (fact.moves and not now.isdisjoint(_sources(fact)))
            now = {place for place in now if not (isinstance(place, int) and place & lost)}.difference(places)
            if is_it:
                now.update(places)
                now.update([fact.written] if fact.written else [])
        return frozenset(now)


def _status(fact: Fact) -> bool:
    """Whether it brings a number other than 0 somewhere, also by OR, as compilers have it for -1."""
    operation = fact.operation
    return operation is not None and bool(operation.number) and (fact.moves or operation.mnemonic == iced.Mnemonic.OR)


def _sources(fact: Fact) -> set[Place]:
    """What MOV copies."""
    copied = fact.operation.source if fact.operation else 0
    return {copied, *((memory.base, memory.displacement) for memory in fact.loads)}
