"""What single x86 instructions do to what is known of registers, the stack and variables, and to the marks on them."""

from functools import reduce
from typing import Any

from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    bit_conditions,
    both,
    either,
    featureless,
    opposite,
    understood_wholly,
)
from imgcheck.binaries.isa.values import (
    Frame,
    Options,
    Value,
    Word,
    added,
    constant,
    halves,
    low,
    replaced,
    shifted,
    under,
    word,
)
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.facts import RAX, RCX, RDX, RSP, Fact, Memory, Operation
from imgcheck.binaries.isa.x86.handed import Arguments, Context, Flow, Given, add_member
from imgcheck.binaries.isa.x86.operands import ARRAY, POINTER, WHOLE, WORD, Operands, Where, moved, parts
from imgcheck.binaries.isa.x86.operations import COPIES, SELECTING, flags_of, is_masked_openly, of_flags, result
from imgcheck.binaries.isa.x86.state import CALLER, State, is_pointer, variable
from imgcheck.binaries.isa.x86.summary import SIGNATURES, Notes

_ADDRESSES = 1 << 12, 1 << 47
"""Where a program's code may lie."""
STORED = 16
"""Bytes that a callee fills through a pointer to the stack: the words of CPUID."""
_QUERIED = {RAX: "eax", RCX: "ecx", RDX: "edx"}
"""Registers that CPUID writes; the one beside them gets EBX."""
_ONE_SUBLEAF = {1, 0x80000001}
"""Leaves of CPUID with features for which ECX does not matter."""


class Effects:
    """The place of a function where it is followed, and what each instruction there makes of what is known."""

    def __init__(self, graph: ControlFlow, context: Context, given: Given, arguments: Arguments) -> None:
        self.graph, self.code, self.context, self.flow = graph, graph.code, context, Flow()
        self.operands = Operands(graph, context)
        self.notes = Notes()
        self.state = State(given.knowledge | sum(given.pointers), set(), dict(given.pointers))
        self.state.values.update(given.values.items())
        self.state.values.update(arguments)
        for (register, at), value in given.objects.items():
            place = CALLER + register, at
            self.state.values.setdefault(register, Frame((CALLER + register, 0)))
            self.state.values[place] = value
            self.state.slots.add(place)
        self.exact = bool(arguments)
        """Whether numbers are worked out that the CPU has no part in: a leaf may be one."""
        self.asks = graph.asks
        self.leased: set[tuple[int, int]] = set()
        """Words on the stack that a callee may fill, as their address was taken."""

    def _compute(self, ip: int, fact: Fact) -> None:
        state, after = self.state, ip + fact.size
        told = self._told_by(fact) & state.marked if state.marked else 0
        marked = bool(told) or (fact.reads_flags and state.flags != 0)
        marked = marked or (bool(self.context.spelled) and self._spells(fact))
        if state.addresses and fact.reads_flags and any(r & fact.read for r in state.addresses):
            marked = False  # a conditional move that chooses between two tables hands out a pointer, no knowledge
        pointee = 0
        for memory in fact.loads:
            marked, pointee = self._load(after, memory, marked)
        # Of what the CPU did not tell only constants matter, on their way to a variable or a test.
        wanted = fact.moves or fact.stores or fact.condition >= 0 or fact.comparison[-1:] in SIGNATURES
        wanted = wanted or (fact.operation is not None and fact.operation.target in state.values)
        if marked or wanted or self.exact or self.asks:
            value = self._evaluate(ip, fact)
        else:
            value = fact.brings
            state.told = None if fact.writes_flags else state.told
        for memory in fact.stores:
            self._store(ip, after, memory, marked, value)
        if told and fact.operation and fact.operation.source and fact.operation.mnemonic in SELECTING:
            self.flow.obeys |= not isinstance(state.values.get(fact.operation.source), Options)
        if fact.writes_flags:
            state.compared = self._compared(ip, fact) if marked else ()
            state.equal = fact.with_number if not fact.loads else None
        if fact.written:
            from_address = state.addresses and fact.written in state.addresses
            self._write(ip, fact, told if marked else 0, marked, value)
            if fact.moves:
                self._move(fact, pointee)
            elif from_address:  # a number is added to one, or taken away
                self._point(fact.written, value)
        if fact.writes_flags:
            state.flags = ip if marked else 0

    def _lea(self, ip: int, fact: Fact) -> None:
        (memory,) = fact.loads
        known = self.operands.sum(self.state, memory) if fact.written else None
        told = fact.read & self.state.marked
        members = self._members(fact, told) if told else 0
        of_array = self.operands.is_of_array(self.state, ip + fact.size, memory)  # the base may be what is written
        self.state.mark(fact.written, bool(told))
        self.state.members |= members
        if fact.written and (memory.relative or (not memory.base and not memory.index)):
            address = memory.displacement + (ip + fact.size if memory.relative else 0)
            self.state.addresses[fact.written] = address
            self.state.values[fact.written] = constant(address)
            if self.context.holds(address):
                self.state.marked |= fact.written
        elif isinstance(frame := self.state.values.get(memory.base), Frame) and not memory.index:
            self.state.values[fact.written] = added(frame, memory.displacement, 64)
        elif memory.base & self.code.stack and not memory.index:
            self.leased |= {(memory.base, memory.displacement + i) for i in range(0, STORED, 4)}
            self.state.values[fact.written] = Frame((memory.base, memory.displacement))
        elif known is not None:
            self.state.values[fact.written] = known
            self._point(fact.written, known)
        elif fact.written and of_array:
            self.state.marked |= fact.written
            self.flow.obeys = True

    def _query(self, written: int) -> None:
        state = self.state
        leaf, subleaf = (v.constant if isinstance(v, Options) else None for v in map(state.values.get, (RAX, RCX)))
        self.flow.obeys |= leaf is None
        state.mark(written, leaf not in featureless())
        if leaf in featureless():
            state.values[RAX] = Word((), 0xFFFFFFFF)  # of copies of it a comparison tells something, too
            return
        for register, name in {**_QUERIED, written & ~sum(_QUERIED): "ebx"}.items():
            if leaf is not None and (leaf in _ONE_SUBLEAF or subleaf is not None):
                told = bit_conditions(f"{leaf:x}.{0 if leaf in _ONE_SUBLEAF else subleaf:x}.{name}")
                if told:
                    state.values[register] = word(told)

    def _load(self, after: int, memory: Memory, marked: bool) -> tuple[bool, int]:
        """Whether an instruction makes knowledge (`marked` so far), and the address that an operand of it holds."""
        state, operands = self.state, self.operands
        where = operands.where(state, after, memory)
        marked = marked or operands.is_knowledge(state, where, memory)
        if where is None and not marked and operands.is_of_array(state, after, memory):
            marked = self.flow.obeys = True
        pointee = self.context.pointee(where) if isinstance(where, int) else 0
        return marked or (pointee != 0 and self.context.holds(pointee)), pointee

    def _store(self, ip: int, after: int, memory: Memory, marked: bool, value: Value) -> None:
        """A value is stored, which is knowledge or not."""
        state = self.state
        where = self.operands.where(state, after, memory)
        array = self.operands.array(state, after, memory) if where is None and memory.index else None
        by_pointer = where is None and memory.base and not memory.index
        if by_pointer and isinstance(value, Options) and not is_pointer(value, self.context.initial):
            self.notes.pointed.append(ip)
        if array is None:
            self._note(where, marked, memory, value)
        else:
            self._store_somewhere(array, marked)
        if where is None and self._is_member(marked, memory, value):
            state.bases |= memory.base
            where = place = memory.base, memory.displacement
            state.slots |= {moved(place, i) for i in range(memory.size)} if marked else set()
        self._keep(where, value, memory.size)
        if isinstance(where, int):
            self.notes.written.append((ip, where, memory.size))

    def _write(self, ip: int, fact: Fact, told: int, marked: bool, value: Value) -> None:
        """The written registers get a value, which is knowledge or not; `told` are the registers that this is from."""
        state = self.state
        source = None
        if marked and (fact.moves or (fact.loads and fact.operation and fact.operation.mnemonic in COPIES)):
            source = self.operands.where(state, ip + fact.size, fact.loads[0]) if fact.loads else None
            source = state.origins.get(fact.source, source)
        members = self._members(fact, told) if told else 0
        state.mark(fact.written, marked)
        state.members |= members
        if marked:
            state.origins[fact.written] = source if isinstance(source, int) else ip
        if value is not None:
            state.values[fact.written] = value

    def _evaluate(self, ip: int, fact: Fact) -> Value:
        """What is known of the value that an instruction makes; sets what its flags tell."""
        state, operation = self.state, fact.operation
        if operation is None:
            state.told = None if fact.writes_flags else state.told
            return fact.brings
        memory = self.operands.read(self.state, ip, fact) if fact.loads else None
        held = first = state.values.get(operation.target) if operation.target else memory
        if operation.high:
            first = shifted(first, -8, 64)
        second = state.values.get(operation.source) if operation.source else memory
        if operation.high_source:
            second = shifted(second, -8, 64)
        if operation.number is not None:
            second = constant(operation.number)
        if fact.condition >= 0 or operation.carries:
            value = of_flags(operation, state.told, fact.condition, state.flags, ip, first, second)
        else:
            value = result(operation, first, second, state.values.get(operation.third) if operation.third else memory)
        if fact.writes_flags:
            self._tell_flags(fact, operation, first, second, value)
        if operation.bits < WHOLE and held is not None and value is not None and operation.target:
            value = replaced(held, value, 8 if operation.high else 0, operation.bits)
        return value

    def _tell_flags(self, fact: Fact, operation: Operation, first: Value, second: Value, made: Value) -> None:
        """What the flags tell behind an instruction, whose result is `made`."""
        if is_masked_openly(operation, first, second):
            self.flow.obeys, self.state.told = True, None
            return
        self.state.told = flags_of(operation, first, second, made)
        if fact.comparison:
            self.notes.signatures |= SIGNATURES & {fact.comparison[-1:]}

    def _keep(self, where: Where, value: Value, size: int) -> None:
        """Remember what is known of a value that is stored."""
        values = self.state.values
        if size < WORD:
            value = low(value, 8 * size)
        if isinstance(where, tuple):
            base, at = where
            for other in range(at, at + size):
                values.pop((base, other), None)
            small = size < POINTER and isinstance(value, Options | Word)
            if small or (isinstance(value, Options) and value.constant is not None):
                for other in range(1, size):  # single bytes of a structure may be tested
                    values[base, at + other] = shifted(value, -8 * other, 8 * size)
            if size == POINTER and isinstance(value, Word):
                values[where], values[base, at + WORD] = halves(value)
            elif value is not None:
                values[where] = value
        elif where is not None:
            self._assign(where, value)
            if size == POINTER and isinstance(value, Word):
                self._assign(where + WORD, shifted(value, -WHOLE, 64))
        if size == self.code.pointer:
            self._hand_out(value, self.state.path)

    def _assign(self, where: int, value: Value) -> None:
        """A variable gets a value."""
        self.state.values[variable(where)] = value
        self.notes.store(where, value, self.state.path)

    def _hand_out(self, value: Value, path: Condition) -> None:
        """Addresses of code that somebody may call from now on."""
        if not isinstance(value, Options):
            return
        for number, condition in value.numbers:
            if _ADDRESSES[0] <= number < _ADDRESSES[1]:
                told = _by_default(value, number) if condition == ALWAYS else condition
                self.flow.chosen[number] = either(self.flow.chosen.get(number, NEVER), both(told, path))

    def _compared(self, ip: int, fact: Fact) -> tuple:
        """What a comparison of one variable, or of one register with knowledge, with a constant compares."""
        if not fact.comparison:
            return ()
        if fact.loads:
            with_register = any(fact.comparison[1:3])
            what = None if with_register else self.operands.where(self.state, ip + fact.size, fact.loads[0])
        else:
            what = self.state.origins.get(fact.read)
        bits = fact.operation.bits if fact.operation else WHOLE
        return (what, bits, *fact.comparison) if isinstance(what, int) else ()

    def _told_by(self, fact: Fact) -> int:
        """Registers whose knowledge is knowledge of what an instruction makes, too.

        What lies at a known address is knowledge or not by itself, and so is what is stored, wherever it goes. What
        was itself read through a pointer is a number or a name, or leads away from what the CPU told.
        """
        compares = fact.writes_flags and not fact.written and not fact.stores
        # Where knowledge lies is none: compilers compare with the end of an array, and another variable begins there.
        read = fact.read & ~(sum(self.state.addresses) & ~fact.pointers) if compares else fact.read
        if not fact.pointers:
            return read
        if not fact.loads:
            return read & ~fact.pointers
        bases = sum({m.base for m in fact.loads if not m.index})
        return read & ~(fact.pointers & bases & (self.state.members | sum(self.state.addresses)))

    def _members(self, fact: Fact, told: int) -> int:
        """The written registers, where all knowledge `told` comes from words read through a pointer, now or before."""
        through = fact.pointers if any(memory.size == POINTER for memory in fact.loads) else 0
        return fact.written if not told & ~(self.state.members | through) else 0

    def _is_member(self, marked: bool, memory: Memory, value: Value) -> bool:
        """Whether a store to an object that only a register points to tells something of it."""
        if memory.index or not memory.base:
            return False
        return marked or bool(memory.base & self.state.bases) or (self.asks and isinstance(value, Options))

    def _move(self, fact: Fact, pointee: int) -> None:
        """Addresses that a MOV brings into a register."""
        state = self.state
        if pointee:
            state.addresses[fact.written] = pointee
        if fact.source and fact.source in state.addresses:
            state.addresses[fact.written] = state.addresses[fact.source]
        if fact.source & self.code.stack:
            state.values[fact.written] = Frame((fact.source, 0))
        if fact.source & state.bases:
            state.share(fact.source, fact.written)
        self._point(fact.written, state.values.get(fact.written))

    def _point(self, register: int, known: Value) -> None:
        """What is known of a register may be an address."""
        address = known.constant if isinstance(known, Options) else None
        if address is not None and _ADDRESSES[0] <= address < _ADDRESSES[1]:
            self.state.addresses[register] = address
            if self.context.holds(address):
                self.state.marked |= register

    def _copy(self, source: int, target: int) -> None:
        """A register gets what another one holds."""
        state = self.state
        state.mark(target, bool(state.marked & source))
        every: tuple[dict[Any, Any], ...] = state.values, state.addresses, state.origins
        for known in every:
            if source in known:
                known[target] = known[source]

    def _store_somewhere(self, first: int | tuple[int, int], marked: bool) -> None:
        """Something is stored to one element of an array: to which is not known."""
        values = self.state.values
        if isinstance(first, int):
            values.update(dict.fromkeys({variable(first + i) for i in range(ARRAY)} & values.keys()))
            if marked:
                self.flow.stores.update(range(first & ~3, first + ARRAY, 4))
            return
        held = {moved(first, i) for i in range(ARRAY)} & values.keys()
        for place in held:
            del values[place]
        if marked or self.state.path != ALWAYS:
            self.state.slots |= held

    def _note(self, where: Where, marked: bool, memory: Memory, value: Value) -> None:
        """Remember where knowledge is stored, or is not any more."""
        if isinstance(where, tuple):
            if marked or self.state.slots:
                held = parts(where, range(memory.size))
                (self.state.slots.update if marked else self.state.slots.difference_update)(held)
            # Above the return address of a function that moves no stack pointer lies the caller's frame.
            self.flow.stack |= marked and where[0] == RSP and where[1] >= self.code.pointer and self.graph.frameless
        elif marked and where is not None:
            self.flow.stores.update(range(where & ~3, where + memory.size, 4))
        elif marked and memory.base:
            self.flow.outputs = True
            add_member(self.flow.members, (memory.displacement, memory.size), under(value, self.state.path))

    def _spells(self, fact: Fact) -> bool:
        """Whether an instruction has a number that compilers make of a short text."""
        numbers = (fact.operation and fact.operation.number, fact.brings and fact.brings.constant)
        return not self.context.spelled.isdisjoint(numbers)


def _by_default(value: Options, number: int) -> Condition:
    """When it is that number for certain: where nothing that is necessary for another one holds."""
    others = [condition for other, condition in value.numbers if other != number]
    if not others or not all(map(understood_wholly, others)):
        return ALWAYS
    return reduce(both, map(opposite, others))
