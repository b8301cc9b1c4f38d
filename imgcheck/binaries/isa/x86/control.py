"""The control-flow graph of a function: its basic blocks, the order to follow them in, its loops, and live registers.

Compilers lay out blocks by how likely they run, so that code at the end of a function often jumps back to what is no
loop. Blocks are followed in reverse postorder, where only the edges that close a loop lead back. What belongs to a loop
is found backwards from such an edge (its natural loop). A register is live where some way on reads it before it is
written: what other registers hold there is left over from something else (Aho, Lam, Sethi, Ullman, "Compilers", 9.2
and 9.6).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from imgcheck.binaries.isa.dominators import Tree, met, postdominators, tree
from imgcheck.binaries.isa.x86.facts import (
    CALL,
    CALLS,
    CLOBBERED,
    CPUID,
    FLAGS,
    INDIRECT_JUMP,
    JUMP,
    PARAMETERS,
    RAX,
    RDX,
    RETURN,
    STOP,
    Code,
    Fact,
    Memory,
)
from imgcheck.binaries.isa.x86.statuses import failing

_EXIT = -1
"""Where all ways out of a function end."""
_ALL = -1
"""Each register, and FLAGS."""
_ELSEWHERE = *CALLS, INDIRECT_JUMP
_ROUNDS = 12
"""Passes after which all registers count as live: real functions need as many as loops are nested, and two more."""
_LOOP_INSTRUCTIONS = 20_000
"""Instructions of all loops of a function; longer ones are taken to write to all that their function writes to."""
_MOST_CASES = 100_000
"""Ways from all jump tables of a function to what they may lead to; where there are more, nothing is known of these."""
_LOOP_STEPS = 100_000
"""Blocks looked at for all loops of a function; what is found later counts as long."""


@dataclass(slots=True)
class Block:
    """A basic block: its instructions by number, its range of addresses, the address of the branch that ends it (-1 if
    none does), and the blocks it leads to.
    """

    numbers: range
    first: int
    end: int
    control: int
    successors: list[int]


@dataclass(frozen=True, slots=True)
class Writes:
    """What some code writes to."""

    registers: int
    """Without what callees write to."""
    calls: tuple[int, ...]
    """The calls, by number."""
    slots: set[tuple[int, int]]
    """Places on the stack, by the base register and the displacement."""
    variables: dict[int, int]
    """By the address, how many bytes are stored there at most."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Where later code comes back to."""

    writes: Writes
    """What code that comes back may have written to."""
    natural: bool
    """It is entered by its first block alone."""


class ControlFlow:
    """The graph of the function that `code` makes up."""

    def __init__(self, code: Code) -> None:
        self.code = code

    @cached_property
    def blocks(self) -> list[Block]:
        """By address."""
        return _blocks(self.code) if self.code.ips else []

    @cached_property
    def asks(self) -> bool:
        """Whether it asks the CPU itself."""
        return any(fact.kind == CPUID for fact in self.code.facts)

    @cached_property
    def frameless(self) -> bool:
        """Whether it never moves the stack pointer down."""
        return not any(fact.lowers > 0 for fact in self.code.facts)

    @cached_property
    def dominators(self) -> Tree:
        """Of the blocks that are reached from the first."""
        return tree(0, {number: block.successors for number, block in enumerate(self.blocks)})

    @cached_property
    def _postdominators(self) -> Tree:
        """Which blocks lie on every way out of the function."""
        return postdominators(self.dominators, self._ways_out, _EXIT)

    @cached_property
    def _lasting(self) -> Tree:
        """The same where the program does not end."""
        return postdominators(self.dominators, self._lasting_ways_out, _EXIT, self.final)

    def inevitable(self, failing: Set[int]) -> list[int]:
        """The blocks on every way through the function that leads over none of `failing`, as they run one by one.

        A way ends, too, where nothing but more of the same is to come, as requests to a server.
        """
        reached = self.dominators
        leaving = set(self._lasting_ways_out)
        ending = postdominators(reached, leaving, _EXIT).place
        leaving.update(number for number in reached.order if number not in ending)
        back = postdominators(reached, leaving, _EXIT, failing)
        at, found = back.place.get(0, 0), []
        while at:
            found.append(back.order[at])
            at = back.above[at]
        return found

    @property
    def _ways_out(self) -> Iterator[int]:
        return (number for number in self.dominators.order if self._leaves(self.blocks[number]))

    @property
    def _lasting_ways_out(self) -> Iterator[int]:
        """Those of the blocks that do not leave to end the program."""
        return (number for number in self._ways_out if not self._may_end(self.blocks[number]))

    def _leaves(self, block: Block) -> bool:
        """Whether a way out of the function begins at the end of the block."""
        target = self.code.targets.get(block.control, -1)
        return not block.successors or (target >= 0 and not self.code.inside(target))

    def _may_end(self, block: Block) -> bool:
        """Whether it goes on, or leaves for code of the function's own elsewhere that ends the program."""
        return bool(block.successors) and block.control in self.code.endings

    def met(self, number: int) -> int:
        """As dominators.met."""
        return met(number, self.dominators, self._postdominators)

    def left(self, number: int) -> int:
        """The block that ends a loop and dominates what comes behind it, which `number` is; else -1.

        A loop ends at some time, whatever it asks for, unless it goes elsewhere than to the end of the program.
        """
        above = met(number, self.dominators, self._lasting)
        lasts = above >= 0 and all(one in self._lasting.place for one in self.blocks[above].successors)
        return above if lasts else -1

    @cached_property
    def final(self) -> set[int]:
        """The blocks behind which the program ends, whatever happens there: those that handle errors."""
        return self.leading_to(self.ends | self.failures)

    @cached_property
    def ends(self) -> set[int]:
        """The blocks at whose ends the program ends."""
        blocks, endings = self.blocks, self.code.endings
        return {one for one in self.before if not blocks[one].successors and blocks[one].control in endings}

    @cached_property
    def failures(self) -> set[int]:
        """The blocks of `main` that bring a status other than 0, which it returns whatever it does from there on."""
        return failing(self.code, self.blocks).intersection(self.before) if self.code.is_main else set()

    def leading_to(self, ends: Set[int]) -> set[int]:
        """Some blocks, and those that lead to them whatever happens there."""
        blocks, waiting = self.blocks, list(ends)
        found: set[int] = set()
        while waiting:
            number = waiting.pop()
            found.add(number)
            leading = ((one, blocks[one]) for one in self.before[number] if one not in found)
            remaining = ((one, block) for one, block in leading if not self._leaves(block) or self._may_end(block))
            waiting += [one for one, block in remaining if found.issuperset(block.successors)]
        return found

    @cached_property
    def order(self) -> list[int]:
        """The blocks as they are followed: behind those that are reached others, such as exception handlers, but for
        padding.
        """
        reached = self.dominators
        others = (number for number in range(len(self.blocks)) if number not in reached.place)
        return reached.order + [number for number in others if not _is_idle(self.code, self.blocks[number])]

    @cached_property
    def place(self) -> dict[int, int]:
        """Where each block comes in `order`."""
        return {number: at for at, number in enumerate(self.order)}

    @cached_property
    def before(self) -> dict[int, list[int]]:
        """For each block those that lead to it."""
        found: dict[int, list[int]] = {number: [] for number in self.order}
        for number in self.order:
            for successor in self.blocks[number].successors:
                if successor in found:  # else padding
                    found[successor].append(number)
        return found

    @cached_property
    def writes(self) -> Writes:
        """What any of the instructions writes to."""
        return self._writes([range(len(self.code.ips))])

    @cached_property
    def variables(self) -> dict[int, int]:
        """The variables that any of the instructions writes to, as in Writes."""
        found: dict[int, int] = {}
        for i, fact in enumerate(self.code.facts):
            for memory in fact.stores:
                if (where := _variable(self.code, i, memory)) is not None:
                    found[where] = max(found.get(where, 0), memory.size)
        return found

    def changed(self, writes: Writes, registers: int) -> int:
        """Which of some registers code may leave changed, callees and all."""
        changed = registers & writes.registers
        for call in writes.calls:
            left = registers & CLOBBERED & ~changed
            if not left:
                break
            changed |= left & ~self.kept(call)
        return changed

    def _writes(self, parts: list[range]) -> Writes:
        code = self.code
        registers, calls = 0, []
        slots: set[tuple[int, int]] = set()
        variables: dict[int, int] = {}
        for numbers in parts:
            for i, fact in enumerate(code.facts[numbers.start : numbers.stop], numbers.start):
                registers |= fact.written
                if fact.kind in CALLS:
                    calls.append(i)
                for memory in fact.stores:
                    if memory.base & code.stack:
                        slots.update([(memory.base, memory.displacement + at) for at in range(memory.size)])
                    elif (where := _variable(code, i, memory)) is not None:
                        variables[where] = max(variables.get(where, 0), memory.size)
        return Writes(registers, tuple(calls), slots, variables)

    @cached_property
    def loops(self) -> dict[int, Loop]:
        """The first block of each loop -> the loop."""
        closing: dict[int, list[int]] = {}
        for number, ends in self.before.items():
            back = [end for end in ends if self.place[number] <= self.place[end]]
            if back:
                closing[number] = back
        budget, instructions = _LOOP_STEPS, _LOOP_INSTRUCTIONS
        found = {}
        for head, ends in closing.items():
            body = _body(head, ends, self.before, budget)
            budget -= len(body)
            parts = [self.blocks[number].numbers for number in body]
            natural = budget > 0 and (head == 0 or 0 not in body)
            size = sum(map(len, parts))
            short = natural and size <= instructions
            instructions -= size if short else 0
            found[head] = Loop(self._writes(parts) if short else self.writes, natural)
        return found

    @cached_property
    def live(self) -> list[int]:
        """For each block the registers that matter where it begins, as bits, FLAGS among them."""
        used = [_used(self.code, block.numbers, _at_worst) for block in self.blocks]
        return [_ALL if registers < 0 else registers | self.code.stack for registers in self._live(used)]

    def kept(self, call: int) -> int:
        """The registers that code behind a call, by number, reads before anything writes to them.

        Of a function that they see compilers know which registers it leaves as they are (-fipa-ra).
        """
        block = self.blocks[self._holding[call]]
        later = 0
        for successor in block.successors:
            later |= max(self._read_later[successor], 0)
        read, left = _used(self.code, range(call + 1, block.numbers.stop), _for_sure)
        return read | later & left

    @property
    def reads(self) -> int:
        """The registers that are read before anything writes to them, whatever callees may read."""
        return self._read_later[0]

    @cached_property
    def _holding(self) -> dict[int, int]:
        """The block of each instruction."""
        return {number: at for at, block in enumerate(self.blocks) for number in block.numbers}

    @cached_property
    def _read_later(self) -> list[int]:
        """For each block the registers that are read behind its beginning, whatever callees may read."""
        return self._live([_used(self.code, block.numbers, _for_sure) for block in self.blocks])

    def _live(self, used: list[tuple[int, int]]) -> list[int]:
        """The registers that are live where each block begins; -1 where that takes too long to tell."""
        live = [0] * len(self.blocks)
        backwards = [(number, *used[number], self.blocks[number].successors) for number in reversed(self.order)]
        for _ in range(_ROUNDS):
            changed = False
            for number, read, left, successors in backwards:
                behind = 0
                for successor in successors:
                    behind |= live[successor]
                here = read | behind & left
                if here != live[number]:
                    live[number], changed = here, True
            if not changed:
                return live
        return [-1] * len(self.blocks)


def _variable(code: Code, number: int, memory: Memory) -> int | None:
    """The address of the variable that an instruction stores to; None where it stores elsewhere."""
    if memory.relative:
        return code.ips[number] + code.facts[number].size + memory.displacement
    return None if memory.base or memory.index else memory.displacement


def _blocks(code: Code) -> list[Block]:
    """Basic blocks by address, their successors as places in the list."""
    ips, facts = code.ips, code.facts
    count = len(ips)
    leaders = {0}
    goes = {}
    """By the number of a branch: the number of the instruction it goes to, if that is one of the function."""
    for at in code.controls:
        leaders.add(at + 1)
        target = code.targets.get(ips[at], -1)
        to = bisect_left(ips, target)
        if to < count and ips[to] == target:
            leaders.add(to)
            goes[at] = to
    leaders.update(bisect_left(ips, target) for targets in code.tables.values() for target in targets)
    starts = sorted(leaders - {count})
    place = {first: i for i, first in enumerate(starts)}
    controls = set(code.controls)
    blocks, indirect = [], []
    for first, stop in pairwise([*starts, count]):
        last = stop - 1
        ends = last in controls
        kind = facts[last].kind if ends else -1
        leads = ([goes[last]] if last in goes else []) + ([stop] if kind < JUMP and stop < count else [])
        successors = [place[to] for to in dict.fromkeys(leads)]
        end = ips[last] + facts[last].size
        successors += [place[bisect_left(ips, target)] for target in code.tables.get(ips[last], ())]
        blocks.append(Block(range(first, stop), ips[first], end, ips[last] if ends else -1, successors))
        if kind == INDIRECT_JUMP:
            indirect.append(blocks[-1])
    orphans = _orphans(code, blocks) if indirect else []
    if len(indirect) * len(orphans) <= _MOST_CASES:
        for block in indirect:
            block.successors.extend(orphans)
    return blocks


def _orphans(code: Code, blocks: list[Block]) -> list[int]:
    """Blocks that nothing names, to which jump tables lead that are not known, or known in part: all but padding."""
    named = {target for block in blocks for target in block.successors} | {0}
    return [i for i, block in enumerate(blocks) if i not in named and not _is_idle(code, block)]


def _is_idle(code: Code, block: Block) -> bool:
    """Whether it is padding."""
    return all(code.facts[number].idle for number in block.numbers)


def _body(head: int, ends: list[int], before: dict[int, list[int]], budget: int) -> set[int]:
    """The blocks from which one of `ends` is reached without coming through `head`, and this; stops beyond `budget`."""
    body, waiting = {head}, list(ends)
    while waiting and len(body) <= budget:
        one = waiting.pop()
        if one not in body:
            body.add(one)
            waiting += before[one]
    return body


_Leading = Callable[[Code, Fact, int], tuple[int, int]]
"""What a call, a branch or a return at an address reads, and what it writes to."""


def _used(code: Code, numbers: range, leading: _Leading) -> tuple[int, int]:
    """Registers that instructions read before they write to them, and those that they leave as they are."""
    read = written = 0
    for number, fact in enumerate(code.facts[numbers.start : numbers.stop], numbers.start):
        if fact.kind < CALL:
            needs, makes = fact.uses, fact.makes
        else:
            needs, makes = leading(code, fact, code.ips[number])
        read |= needs & ~written
        written |= makes
    return read, ~written


def _at_worst(code: Code, fact: Fact, ip: int) -> tuple[int, int]:
    """Callees may read each register of a parameter, and may leave the others as they are."""
    if fact.kind == RETURN:
        return RAX | RDX, 0
    if fact.kind == STOP:
        return fact.uses, 0
    leaves = fact.kind in _ELSEWHERE or not code.inside(code.targets.get(ip, -1))
    return fact.uses | (PARAMETERS if leaves else 0), RAX | FLAGS if fact.kind in CALLS else 0


def _for_sure(code: Code, fact: Fact, ip: int) -> tuple[int, int]:
    """What is read here and now. Of calls the results are new; who reads another register knows that they keep it."""
    return fact.uses, RAX | RDX if fact.kind in CALLS else 0
