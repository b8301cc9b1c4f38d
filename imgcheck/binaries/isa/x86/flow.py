"""How what the CPU told flows through one function: which branches test it, and which code runs only behind a test.

A forward pass over the decoded function marks registers, stack slots and flags that come from `cpuid`, `xgetbv`, a
function known to return such knowledge, or a variable known to hold it. A conditional branch on marked flags is a
test. Code is guarded where fixing one direction of one test makes it unreachable from the function's entry: this
holds for nested tests, early returns and tests inside loops, where plain dominance fails.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from imgcheck.binaries.isa.x86.facts import (
    ARGUMENTS,
    BRANCH,
    CALL,
    CLOBBERED,
    COMPUTE,
    INDIRECT_CALL,
    INDIRECT_JUMP,
    JUMP,
    LEA,
    QUERY,
    RAX,
    RBX,
    RCX,
    RDX,
    RETURN,
    RSP,
    STACK,
    Code,
    Fact,
    Memory,
)

_PARAMETERS = sum(ARGUMENTS)
_JUMPS = (BRANCH, JUMP)
_ENDS = (JUMP, INDIRECT_JUMP, RETURN)
_CONTROL = (BRANCH, *_ENDS)
_MAX_TESTS, _MAX_BLOCKS = 48, 4000
_STACK_RESULTS = 8
_SMALLEST_FIELD = 64
"""Smaller displacements occur in every structure, and would take any of them for the one with the knowledge."""
STRUCT = 64
"""Bytes of a structure that a callee fills through a pointer, as far as they are taken for CPU knowledge."""


@dataclass(frozen=True, slots=True)
class Callee:
    """What a call brings: knowledge of the CPU as its result, or through pointers that it gets."""

    returns: bool = False
    outputs: bool = False
    stack: bool = False
    """Its results lie on the caller's stack (the calling convention of Go's assembly)."""


NOTHING = Callee()


@dataclass(slots=True)
class Context:
    """What the file knows about its surroundings when a function is looked at."""

    callee: Callable[[int, int], Callee]
    """(call site's next address, direct target or 0) -> what the call brings."""
    holds: Callable[[int], bool]
    """Whether a global address holds knowledge of the CPU."""
    pointee: Callable[[int], int]
    """What the pointer at an address points to, 0 where it is none."""
    fields: frozenset[int] = frozenset()
    """Displacements in structures, wherever those lie, that hold knowledge."""


@dataclass(slots=True)
class Flow:
    """What one function does with what the CPU told."""

    returns: bool = False
    outputs: bool = False
    stack: bool = False
    stores: set[int] = field(default_factory=set)
    """Global addresses that it fills with CPU knowledge."""
    structures: set[int] = field(default_factory=set)
    """Global addresses that it hands to a callee which fills them."""
    passes: dict[int, int] = field(default_factory=dict)
    """Next address of a call -> registers that hand CPU knowledge to the callee, as bits."""
    guarded: list[tuple[int, int]] = field(default_factory=list)
    """Address ranges that run only behind a test."""
    fields: set[int] = field(default_factory=set)
    """Displacements at which it stores CPU knowledge in structures that it knows by a pointer alone."""
    tests: int = 0


@dataclass(slots=True)
class _State:
    """What holds knowledge at one point: registers (as bits), stack slots, flags; and registers that hold addresses."""

    marked: int
    slots: set[tuple[int, int]]
    addresses: dict[int, int]
    """By the register's bit."""
    flags: bool = False
    compared: tuple = ()
    """What the flags tell, where it is certain to be the same whenever this stands here."""
    origins: dict[int, int] = field(default_factory=dict)
    """By the register's bit: the address of the variable that the knowledge in it was read from, or of the instruction
    that worked it out."""

    def copy(self) -> "_State":
        return _State(self.marked, set(self.slots), dict(self.addresses), self.flags, self.compared, dict(self.origins))

    def join(self, other: "_State") -> None:
        self.marked |= other.marked
        self.slots |= other.slots
        self.addresses = {k: v for k, v in self.addresses.items() if other.addresses.get(k) == v}
        self.flags |= other.flags
        self.compared = self.compared if self.compared == other.compared else ()
        self.origins = {k: v for k, v in self.origins.items() if other.origins.get(k) == v}

    def mark(self, registers: int, marked: bool) -> None:
        """Registers get a new value, which is knowledge or not, and no address that is known."""
        self.marked = self.marked | registers if marked else self.marked & ~registers
        for register in [r for r in self.addresses if r & registers]:
            del self.addresses[register]
        for register in [r for r in self.origins if r & registers]:
            del self.origins[register]

    def handed(self) -> set[int]:
        """Addresses in the registers of parameters."""
        return {self.addresses[r] for r in ARGUMENTS if r in self.addresses} if self.addresses else set()


class _Walk:
    """One pass over the instructions of a function."""

    def __init__(self, code: Code, context: Context, parameters: int) -> None:
        self.code, self.context, self.flow = code, context, Flow()
        self.state = _State(parameters, set(), {})
        self.leased: set[tuple[int, int]] = set()
        self.tests: set[int] = set()
        self.alike: dict[tuple, list[int]] = {}
        """What is compared -> the tests of it."""
        self.frameless = not any(fact.moves_stack for fact in code.facts)
        self.written: list[tuple[int, int, int]] = []
        self.handed: list[tuple[int, set[int]]] = []

    def run(self) -> None:
        waiting: dict[int, _State] = {}
        falls, state, targets = True, self.state, self.code.targets
        for ip, fact in zip(self.code.ips, self.code.facts, strict=True):
            if ip in waiting:
                joined = waiting.pop(ip)
                if falls:
                    state.join(joined)
                else:
                    self.state = state = joined
            kind = fact.kind
            if kind == COMPUTE:
                # Most code is far from any knowledge: what then concerns registers alone changes nothing.
                if not fact.plain or state.marked or state.flags or state.addresses:
                    self._compute(ip, fact)
                falls = True
                continue
            self._special(kind, ip, fact)
            falls = kind not in _ENDS
            target = targets.get(ip, 0) if kind in _JUMPS else 0
            if target in waiting:
                waiting[target].join(state)
            elif target > ip:
                waiting[target] = state.copy()

    def _special(self, kind: int, ip: int, fact: Fact) -> None:
        state = self.state
        if kind == BRANCH:
            if state.flags:
                self.tests.add(ip)
                if state.compared and fact.condition >= 0:
                    self.alike.setdefault((*state.compared, fact.condition >> 1), []).append(ip)
        elif kind == LEA:
            self._lea(ip, fact)
        elif kind in (CALL, INDIRECT_CALL):
            self._call(ip, fact)
        elif kind == RETURN:
            self.flow.returns |= bool(RAX & state.marked)
        elif kind == QUERY:
            state.mark(RAX | RBX | RCX | RDX, True)
        else:
            self._jump(ip, fact)

    def _jump(self, ip: int, fact: Fact) -> None:
        if fact.kind == INDIRECT_JUMP and fact.read & self.state.marked:
            self.tests.add(ip)
        brings = self._brings(ip, fact)
        self.flow.returns |= brings.returns
        self.flow.outputs |= brings.outputs

    def _brings(self, ip: int, fact: Fact) -> Callee:
        """What the code at the end of a call or jump brings; notes what it is given."""
        after = ip + fact.size
        handed = self.state.marked & _PARAMETERS
        if handed:
            self.flow.passes[after] = handed
        return self.context.callee(after, self.code.targets.get(ip, 0))

    def _call(self, ip: int, fact: Fact) -> None:
        state = self.state
        brings = self._brings(ip, fact)
        addresses = state.handed()
        if addresses:
            self.handed.append((ip, addresses))
        if brings.outputs:
            self.flow.structures |= addresses
            state.slots |= {(base, at + i) for base, at in self.leased for i in (0, 4, 8, 12)}
        if brings.stack:
            state.slots |= {(RSP, 8 * i) for i in range(_STACK_RESULTS)}
        state.mark(CLOBBERED, False)
        state.flags = False
        if brings.returns:
            state.marked |= RAX | RDX

    def _compute(self, ip: int, fact: Fact) -> None:
        state = self.state
        marked = bool(fact.read & state.marked) or (fact.reads_flags and state.flags)
        if state.addresses and fact.reads_flags and any(r & fact.read for r in state.addresses):
            marked = False  # a conditional move that chooses between two tables hands out a pointer, no knowledge
        pointee = 0
        for memory in fact.loads:
            where = self._where(ip + fact.size, memory)
            marked = marked or self._marked_memory(where, memory)
            pointee = self.context.pointee(where) if isinstance(where, int) else 0
            marked = marked or (pointee != 0 and self.context.holds(pointee))
        for memory in fact.stores:
            where = self._where(ip + fact.size, memory)
            self._store(where, marked, memory)
            if isinstance(where, int):
                self.written.append((ip, where, memory.size))
        if fact.writes_flags:
            state.compared = self._compared(ip, fact) if marked else ()
        if fact.written:
            source = self._where(ip + fact.size, fact.loads[0]) if marked and fact.moves and fact.loads else None
            state.mark(fact.written, marked)
            if marked:
                state.origins[fact.written] = source if isinstance(source, int) else ip
            if fact.moves:
                self._move(fact, pointee)
        if fact.writes_flags:
            state.flags = marked

    def _compared(self, ip: int, fact: Fact) -> tuple:
        """What a comparison of one variable, or of one register with knowledge, with a constant compares."""
        if not fact.comparison:
            return ()
        if fact.loads:
            what = ip + fact.size + fact.loads[0].displacement if fact.loads[0].relative and not fact.read else None
        else:
            what = self.state.origins.get(fact.read)
        return (what, *fact.comparison) if isinstance(what, int) else ()

    def _move(self, fact: Fact, pointee: int) -> None:
        """Addresses that a MOV brings into a register."""
        state = self.state
        if pointee:
            state.addresses[fact.written] = pointee
        if fact.source and fact.source in state.addresses:
            state.addresses[fact.written] = state.addresses[fact.source]
        if fact.immediate is not None:
            state.addresses[fact.written] = fact.immediate
            if self.context.holds(fact.immediate):
                state.marked |= fact.written

    def _lea(self, ip: int, fact: Fact) -> None:
        (memory,) = fact.loads
        self.state.mark(fact.written, bool(fact.read & self.state.marked))
        if fact.written and (memory.relative or (not memory.base and not memory.indexed)):
            address = memory.displacement + (ip + fact.size if memory.relative else 0)
            self.state.addresses[fact.written] = address
            if self.context.holds(address):
                self.state.marked |= fact.written
        elif memory.base & STACK:
            self.leased.add((memory.base, memory.displacement))

    def _where(self, after: int, memory: Memory) -> int | tuple[int, int] | None:
        """A global address, a stack slot, or None."""
        if memory.relative:
            return after + memory.displacement
        if not memory.base and not memory.indexed:
            return memory.displacement
        if memory.base & STACK:
            return memory.base, memory.displacement
        if memory.base in self.state.addresses and not memory.indexed:
            return self.state.addresses[memory.base] + memory.displacement
        return None

    def _marked_memory(self, where: int | tuple[int, int] | None, memory: Memory) -> bool:
        if where is None:
            return memory.displacement in self.context.fields
        return where in self.state.slots if isinstance(where, tuple) else self.context.holds(where)

    def _store(self, where: int | tuple[int, int] | None, marked: bool, memory: Memory) -> None:
        if isinstance(where, tuple):
            (self.state.slots.add if marked else self.state.slots.discard)(where)
            # Above the return address of a function that moves no stack pointer lies the caller's frame.
            self.flow.stack |= marked and where[0] == RSP and where[1] >= 8 and self.frameless
        elif marked and where is not None:
            self.flow.stores.update(range(where & ~3, where + memory.size, 4))
        elif marked and memory.base:
            self.flow.outputs = True
            if memory.displacement >= _SMALLEST_FIELD:
                self.flow.fields.add(memory.displacement)


def follow(code: Code, context: Context, parameters: int, tells: bool) -> Flow:
    """What the function made of `code` does with CPU knowledge; `parameters` are registers that bring some.

    `tells`: the function leads to no code that a test could protect, so it tests in order to tell: what it returns,
    stores or has stored behind a test is knowledge too, even where it is a constant.
    """
    walk = _Walk(code, context, parameters)
    walk.run()
    walk.flow.tests = len(walk.tests)
    if walk.tests:
        changed = {where & ~3 for _, where, _ in walk.written}
        alike = [ips for key, ips in walk.alike.items() if len(ips) > 1 and key[0] & ~3 not in changed]
        walk.flow.guarded = _guarded(code, walk.tests, alike)
        # A conditional jump out of the function happens behind the test that it is.
        walk.flow.guarded += [(ip, ip + 1) for ip in walk.tests]
        if tells:
            _tell(walk)
    return walk.flow


def _tell(walk: _Walk) -> None:
    flow = walk.flow
    inside = {ip for first, end in flow.guarded for ip in range(first, end)}
    flow.returns = True
    for ip, where, size in walk.written:
        if ip in inside:
            flow.stores.update(range(where & ~3, where + size, 4))
    for ip, addresses in walk.handed:
        if ip in inside:
            flow.structures |= addresses


@dataclass(slots=True)
class _Block:
    """A basic block: its range, the address of the branch that ends it (-1 if none does), and where it goes."""

    first: int
    end: int
    control: int
    successors: list[int]


def _guarded(code: Code, tests: set[int], alike: list[list[int]]) -> list[tuple[int, int]]:
    """Address ranges that some direction of some test, taken always, would never reach.

    Tests that are `alike` go the same way each time, so they are taken as one.
    """
    blocks = _blocks(code)
    if len(blocks) > _MAX_BLOCKS or len(tests) > _MAX_TESTS:
        return [(blocks[0].first, blocks[-1].end)]
    successors = [block.successors for block in blocks]
    everything = _reachable(successors, {})
    guarded: set[int] = set()
    for number, block in enumerate(blocks):
        if block.control not in tests:
            continue
        targets = set(block.successors)
        # A jump table indexed by what the CPU told guards all that only it leads to.
        for left_out in targets | {_ANY} if len(block.successors) > 2 else targets:
            guarded |= everything - _reachable(successors, {number: left_out})
    for left_out in _directions(code, blocks, alike):
        guarded |= everything - _reachable(successors, left_out)
    return sorted((blocks[i].first, blocks[i].end) for i in guarded)


def _directions(code: Code, blocks: list[_Block], alike: list[list[int]]) -> Iterator[dict[int, int]]:
    """For each group of tests and each outcome the successor that each of its blocks then never goes to."""
    number = {block.first: i for i, block in enumerate(blocks)}
    ends = {block.control: i for i, block in enumerate(blocks)}
    inverted = dict(zip(code.ips, code.facts, strict=True))
    for group in alike:
        for outcome in (0, 1):
            jumps = {ip: inverted[ip].condition & 1 == outcome for ip in group}
            goes = {ip: code.targets.get(ip, -1) if not jumps[ip] else blocks[ends[ip]].end for ip in group}
            yield {ends[ip]: number.get(to, _NOWHERE) for ip, to in goes.items()}


_ANY, _NOWHERE = -2, -3


def _reachable(successors: list[list[int]], left_out: dict[int, int]) -> set[int]:
    """The blocks reached from the first when none goes to the one `left_out` for it (nowhere at all for _ANY)."""
    seen, stack = {0}, [0]
    while stack:
        here = stack.pop()
        targets = successors[here]
        if here in left_out:
            targets = [target for target in targets if left_out[here] not in (target, _ANY)]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def _blocks(code: Code) -> list[_Block]:
    """Basic blocks by address, their successors as places in the list."""
    controls = {ip + fact.size: (ip, fact.kind) for ip, fact in zip(code.ips, code.facts, strict=True)
                if fact.kind in _CONTROL}  # fmt: skip
    named = {code.ips[0], *controls, *(code.targets[ip] for ip, _ in controls.values() if ip in code.targets)}
    leaders = sorted(named & set(code.ips))
    number = {first: i for i, first in enumerate(leaders)}
    behind = code.ips[-1] + code.facts[-1].size
    blocks = []
    for first, end in pairwise([*leaders, behind]):
        control, kind = controls.get(end, (-1, COMPUTE))
        goes = [code.targets.get(control, -1), end if kind not in _ENDS else -1]
        blocks.append(_Block(first, end, control, [number[to] for to in goes if to in number]))
    _attach_orphans(blocks, [b for b in blocks if controls.get(b.end, (-1, COMPUTE))[1] == INDIRECT_JUMP])
    return blocks


def _attach_orphans(blocks: list[_Block], indirect: list[_Block]) -> None:
    """Blocks that nothing names are the targets of the function's jump tables."""
    named = {target for block in blocks for target in block.successors} | {0}
    orphans = [i for i in range(len(blocks)) if i not in named]
    for block in indirect:
        block.successors.extend(orphans)
