"""How what the CPU told flows through one function: which branches test it, and which code runs only behind a test.

A forward pass over the decoded function marks registers, stack slots and flags that come from `cpuid`, `xgetbv`, a
function known to return such knowledge, or a variable known to hold it. A conditional branch on marked flags is a
test. Code is guarded where fixing one direction of one test makes it unreachable from the function's entry: this
holds for nested tests, early returns and tests inside loops, where plain dominance fails.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import iced_x86 as iced

_READS = {iced.OpAccess.READ, iced.OpAccess.COND_READ, iced.OpAccess.READ_WRITE, iced.OpAccess.READ_COND_WRITE}
_WRITES = {iced.OpAccess.WRITE, iced.OpAccess.COND_WRITE, iced.OpAccess.READ_WRITE, iced.OpAccess.READ_COND_WRITE}
_R = iced.Register
_FULL = [iced.RegisterExt.full_register(r) if r else 0 for r in range(max(
    v for v in vars(_R).values() if isinstance(v, int)) + 1)]  # fmt: skip
_STACK = {_R.RSP, _R.RBP, _R.ESP, _R.EBP}
_FULL_STACK = {_FULL[r] for r in _STACK}
ARGUMENTS = (_R.RDI, _R.RSI, _R.RDX, _R.RCX, _R.R8, _R.R9)
_RESULTS = (_R.RAX, _R.RDX)
_CLOBBERED = (*ARGUMENTS, _R.RAX, _R.R10, _R.R11)
_ADDRESS_IMMEDIATES = (iced.OpKind.IMMEDIATE32, iced.OpKind.IMMEDIATE32TO64)
_FLOW = iced.FlowControl
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
    passes: dict[int, set[int]] = field(default_factory=dict)
    """Next address of a call -> registers that hand CPU knowledge to the callee."""
    guarded: list[tuple[int, int]] = field(default_factory=list)
    """Address ranges that run only behind a test."""
    fields: set[int] = field(default_factory=set)
    """Displacements at which it stores CPU knowledge in structures that it knows by a pointer alone."""
    tests: int = 0


@dataclass(slots=True)
class _State:
    marked: set[int]
    slots: set[tuple[int, int]]
    addresses: dict[int, int]
    flags: bool = False

    def copy(self) -> "_State":
        return _State(set(self.marked), set(self.slots), dict(self.addresses), self.flags)

    def join(self, other: "_State") -> None:
        self.marked |= other.marked
        self.slots |= other.slots
        self.addresses = {k: v for k, v in self.addresses.items() if other.addresses.get(k) == v}
        self.flags |= other.flags


class _Walk:
    """One pass over the instructions of a function."""

    def __init__(self, code: list[iced.Instruction], context: Context, parameters: set[int]) -> None:
        self.code, self.context, self.flow = code, context, Flow()
        self.state = _State(set(parameters), set(), {})
        self.leased: set[tuple[int, int]] = set()
        self.tests: set[int] = set()
        self.frameless = not any(_moves_stack(i) for i in code)
        self.factory = iced.InstructionInfoFactory()
        self.written: list[tuple[int, int, int]] = []
        self.handed: list[tuple[int, set[int]]] = []

    def run(self) -> None:
        waiting: dict[int, _State] = {}
        falls = True
        for ins in self.code:
            joined = waiting.pop(ins.ip, None)
            if joined is not None:
                if falls:
                    self.state.join(joined)
                else:
                    self.state = joined
            self._step(ins)
            kind = ins.flow_control
            if kind in (_FLOW.CONDITIONAL_BRANCH, _FLOW.UNCONDITIONAL_BRANCH) and ins.near_branch_target > ins.ip:
                target = ins.near_branch_target
                if target in waiting:
                    waiting[target].join(self.state)
                else:
                    waiting[target] = self.state.copy()
            falls = kind not in (_FLOW.UNCONDITIONAL_BRANCH, _FLOW.INDIRECT_BRANCH, _FLOW.RETURN)

    def _step(self, ins: iced.Instruction) -> None:
        kind, state = ins.flow_control, self.state
        if kind in (_FLOW.CALL, _FLOW.INDIRECT_CALL):
            self._call(ins, ins.near_branch_target if kind == _FLOW.CALL else 0)
            return
        if kind == _FLOW.CONDITIONAL_BRANCH:
            if state.flags:
                self.tests.add(ins.ip)
            return
        if kind == _FLOW.RETURN:
            self.flow.returns |= _R.RAX in state.marked
            return
        if kind in (_FLOW.UNCONDITIONAL_BRANCH, _FLOW.INDIRECT_BRANCH):
            self._jump(ins, kind)
            return
        if ins.mnemonic in (iced.Mnemonic.CPUID, iced.Mnemonic.XGETBV):
            state.marked |= {_R.RAX, _R.RBX, _R.RCX, _R.RDX}
            return
        self._compute(ins)

    def _jump(self, ins: iced.Instruction, kind: int) -> None:
        if kind == _FLOW.INDIRECT_BRANCH:
            read = {_FULL[u.register] for u in self.factory.info(ins).used_registers()}
            if read & self.state.marked:
                self.tests.add(ins.ip)
        brings = self.context.callee(ins.next_ip, ins.near_branch_target if kind == _FLOW.UNCONDITIONAL_BRANCH else 0)
        self.flow.returns |= brings.returns
        self.flow.outputs |= brings.outputs
        self._hand_over(ins)

    def _hand_over(self, ins: iced.Instruction) -> None:
        handed = {r for r in ARGUMENTS if r in self.state.marked}
        if handed:
            self.flow.passes[ins.next_ip] = handed

    def _call(self, ins: iced.Instruction, target: int) -> None:
        state = self.state
        brings = self.context.callee(ins.next_ip, target)
        self._hand_over(ins)
        self.handed.append((ins.ip, {state.addresses[r] for r in ARGUMENTS if r in state.addresses}))
        if brings.outputs:
            self.flow.structures |= {state.addresses[r] for r in ARGUMENTS if r in state.addresses}
            state.slots |= {(base, at + i) for base, at in self.leased for i in (0, 4, 8, 12)}
        if brings.stack:
            state.slots |= {(_FULL[_R.RSP], 8 * i) for i in range(_STACK_RESULTS)}
        for register in _CLOBBERED:
            state.marked.discard(register)
            state.addresses.pop(register, None)
        state.flags = False
        if brings.returns:
            state.marked |= set(_RESULTS)

    def _compute(self, ins: iced.Instruction) -> None:
        state, info = self.state, self.factory.info(ins)
        read, written = set(), set()
        for used in info.used_registers():
            full = _FULL[used.register]
            if used.access in _READS:
                read.add(full)
            if used.access in _WRITES:
                written.add(full)
        written -= _FULL_STACK
        if ins.mnemonic == iced.Mnemonic.LEA:
            self._lea(ins, read, written)
            return
        zeroing = ins.mnemonic in (iced.Mnemonic.XOR, iced.Mnemonic.SUB) and len(read) == 0
        marked = not zeroing and (bool(read & state.marked) or (ins.rflags_read != 0 and state.flags))
        if ins.flow_control == _FLOW.NEXT and ins.rflags_read and any(r in state.addresses for r in read):
            marked = False  # a conditional move that chooses between two tables hands out a pointer, no knowledge
        pointee = 0
        for memory in info.used_memory():
            where = self._where(ins, memory)
            if memory.access in _READS:
                marked |= self._marked_memory(where)
                marked |= where is None and _signed(memory.displacement) in self.context.fields
                pointee = self.context.pointee(where) if isinstance(where, int) else 0
                marked |= bool(pointee) and self.context.holds(pointee)
        for memory in info.used_memory():
            if memory.access in _WRITES:
                where = self._where(ins, memory)
                self._store(where, marked, memory)
                if isinstance(where, int):
                    self.written.append((ins.ip, where, iced.MemorySizeExt.size(memory.memory_size)))
        for register in written:
            (state.marked.add if marked else state.marked.discard)(register)
            state.addresses.pop(register, None)
            if pointee and ins.mnemonic == iced.Mnemonic.MOV:
                state.addresses[register] = pointee
        if ins.mnemonic == iced.Mnemonic.MOV and ins.op1_kind == iced.OpKind.REGISTER and len(written) == 1:
            source = state.addresses.get(_FULL[ins.op1_register])
            if source is not None:
                state.addresses[next(iter(written))] = source
        if ins.mnemonic == iced.Mnemonic.MOV and ins.op1_kind in _ADDRESS_IMMEDIATES and len(written) == 1:
            register = next(iter(written))
            state.addresses[register] = ins.immediate(1)
            if self.context.holds(ins.immediate(1)):
                state.marked.add(register)
        if ins.rflags_modified:
            state.flags = marked

    def _lea(self, ins: iced.Instruction, read: set[int], written: set[int]) -> None:
        state = self.state
        target = next(iter(written), 0)
        state.addresses.pop(target, None)
        marked = bool(read & state.marked)
        if ins.is_ip_rel_memory_operand or (not ins.memory_base and not ins.memory_index):
            address = ins.memory_displacement
            state.addresses[target] = address
            marked |= self.context.holds(address)
        elif _FULL[ins.memory_base] in _FULL_STACK:
            self.leased.add((_FULL[ins.memory_base], _signed(ins.memory_displacement)))
        (state.marked.add if marked else state.marked.discard)(target)

    def _where(self, ins: iced.Instruction, memory: iced.UsedMemory) -> int | tuple[int, int] | None:
        """A global address, a stack slot, or None."""
        if ins.is_ip_rel_memory_operand:
            return ins.ip_rel_memory_address
        base = _FULL[memory.base] if memory.base else 0
        if not base and not memory.index:
            return memory.displacement
        if base in _FULL_STACK:
            return (base, _signed(memory.displacement))
        if base in self.state.addresses and not memory.index:
            return self.state.addresses[base] + _signed(memory.displacement)
        return None

    def _marked_memory(self, where: int | tuple[int, int] | None) -> bool:
        if isinstance(where, tuple):
            return where in self.state.slots
        return where is not None and self.context.holds(where)

    def _store(self, where: int | tuple[int, int] | None, marked: bool, memory: iced.UsedMemory) -> None:
        if isinstance(where, tuple):
            (self.state.slots.add if marked else self.state.slots.discard)(where)
            # Above the return address of a function that moves no stack pointer lies the caller's frame.
            self.flow.stack |= marked and where[0] == _FULL[_R.RSP] and where[1] >= 8 and self.frameless
        elif marked and where is not None:
            size = max(iced.MemorySizeExt.size(memory.memory_size), 1)
            self.flow.stores.update(range(where & ~3, where + size, 4))
        elif marked and memory.base:
            self.flow.outputs = True
            if _signed(memory.displacement) >= _SMALLEST_FIELD:
                self.flow.fields.add(_signed(memory.displacement))


def _moves_stack(ins: iced.Instruction) -> bool:
    if ins.mnemonic == iced.Mnemonic.PUSH:
        return True
    return ins.mnemonic == iced.Mnemonic.SUB and ins.op0_register == _R.RSP


def _signed(displacement: int) -> int:
    return displacement - (1 << 64) if displacement >> 63 else displacement


def follow(code: list[iced.Instruction], context: Context, parameters: set[int], tells: bool) -> Flow:
    """What the function made of `code` does with CPU knowledge; `parameters` are registers that bring some.

    `tells`: the function leads to no code that a test could protect, so it tests in order to tell: what it returns,
    stores or has stored behind a test is knowledge too, even where it is a constant.
    """
    walk = _Walk(code, context, parameters)
    walk.run()
    walk.flow.tests = len(walk.tests)
    if walk.tests:
        walk.flow.guarded = _guarded(code, walk.tests)
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
            flow.stores.update(range(where & ~3, where + max(size, 1), 4))
    for ip, addresses in walk.handed:
        if ip in inside:
            flow.structures |= addresses


def _guarded(code: list[iced.Instruction], tests: set[int]) -> list[tuple[int, int]]:
    """Address ranges that some direction of some test, taken always, would never reach."""
    leaders, successors, ends = _blocks(code)
    entry = code[0].ip
    if len(leaders) > _MAX_BLOCKS or len(tests) > _MAX_TESTS:
        return [(code[0].ip, code[-1].next_ip)]
    tested = [block for block in leaders if ends[block][0] in tests]
    everything = _reachable(entry, successors, None, None)
    guarded: set[int] = set()
    for block in tested:
        targets = successors[block]
        for left_out in set(targets):
            guarded |= everything - _reachable(entry, successors, block, left_out)
        if len(targets) > 2:  # a jump table indexed by what the CPU told
            guarded |= everything - _reachable(entry, successors, block, -1)
    return sorted((block, ends[block][1]) for block in guarded)


def _reachable(entry: int, successors: dict[int, list[int]], block: int | None, left_out: int | None) -> set[int]:
    """Blocks reached from `entry` when `block` never goes to `left_out` (nowhere at all for -1)."""
    seen, stack = {entry}, [entry]
    while stack:
        here = stack.pop()
        for target in successors[here]:
            if here == block and left_out in (target, -1):
                continue
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def _blocks(code: list[iced.Instruction]) -> tuple[list[int], dict[int, list[int]], dict[int, tuple[int, int]]]:
    """Basic blocks by first address: successors, and (address of the last instruction, end)."""
    inside = {ins.ip for ins in code}
    leaders = {code[0].ip}
    branching = (_FLOW.CONDITIONAL_BRANCH, _FLOW.UNCONDITIONAL_BRANCH)
    ending = (*branching, _FLOW.INDIRECT_BRANCH, _FLOW.RETURN)
    for ins in code:
        kind = ins.flow_control
        if kind in ending:
            leaders.add(ins.next_ip)
            if kind in branching and ins.near_branch_target in inside:
                leaders.add(ins.near_branch_target)
    successors: dict[int, list[int]] = {}
    ends: dict[int, tuple[int, int]] = {}
    indirect = []
    block = code[0].ip
    for ins in code:
        if ins.ip in leaders:
            block = ins.ip
            successors[block] = []
        kind = ins.flow_control
        if kind not in ending and ins.next_ip not in leaders:
            continue
        ends[block] = (ins.ip, ins.next_ip)
        if kind in branching and ins.near_branch_target in inside:
            successors[block].append(ins.near_branch_target)
        if kind not in ending[1:] and ins.next_ip in inside:
            successors[block].append(ins.next_ip)
        if kind == _FLOW.INDIRECT_BRANCH:
            indirect.append(block)
    ends.setdefault(block, (code[-1].ip, code[-1].next_ip))
    _attach_orphans(successors, indirect, code[0].ip)
    return sorted(successors), successors, ends


def _attach_orphans(successors: dict[int, list[int]], indirect: list[int], entry: int) -> None:
    """Blocks that nothing names are the targets of the function's jump tables."""
    named = {target for targets in successors.values() for target in targets} | {entry}
    orphans = [block for block in successors if block not in named]
    for block in indirect:
        successors[block].extend(orphans)
