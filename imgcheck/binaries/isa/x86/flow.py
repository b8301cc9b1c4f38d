"""How what the CPU told flows through one function: which branches test it, and which code runs only behind a test.

A forward pass over the decoded function marks registers, stack slots and flags that come from `cpuid`, `xgetbv`, a
function known to return such knowledge, or a variable known to hold it. A conditional branch on marked flags is a
test. Beside the marks goes what is known of each value, bit by bit or number by number (see values.py); where a test
is of such a value, both its directions say what they tell of the CPU.
"""

from bisect import bisect_left
from collections import Counter
from functools import cached_property, reduce

from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    Labels,
    as_far_as_told,
    bit_conditions,
    both,
    either,
    featureless,
    not_understood,
    opposite,
    understood_wholly,
)
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.values import (
    SETTLED,
    Frame,
    Options,
    Value,
    Word,
    added,
    constant,
    halves,
    joined,
    low,
    outcome,
    replaced,
    shifted,
    tells,
    under,
    word,
)
from imgcheck.binaries.isa.x86.branches import Branches, narrow
from imgcheck.binaries.isa.x86.control import Block, ControlFlow, Loop
from imgcheck.binaries.isa.x86.dominance import guarded, merged
from imgcheck.binaries.isa.x86.facts import (
    ARGUMENTS,
    BRANCH,
    CALL,
    CLOBBERED,
    COMPUTE,
    CPUID,
    FIRST_ARGUMENT,
    HANDED,
    INDIRECT_CALL,
    INDIRECT_JUMP,
    LEA,
    PARAMETERS,
    PUSHED_ARGUMENTS,
    RAX,
    RCX,
    RDX,
    RETURN,
    RSP,
    STOP,
    SWAP,
    XGETBV,
    Fact,
    Memory,
)
from imgcheck.binaries.isa.x86.handed import (
    NOTHING,
    STRUCT,
    WORDS,
    Arguments,
    Callee,
    Context,
    Flow,
    Given,
    add_member,
)
from imgcheck.binaries.isa.x86.operands import ARRAY, POINTER, WHOLE, WORD, Operands, Where, moved
from imgcheck.binaries.isa.x86.operations import COPIES, SELECTING, flags_of, of_flags, result
from imgcheck.binaries.isa.x86.stack import parameter_places, word_places
from imgcheck.binaries.isa.x86.state import CALLER, State, each_of, is_pointer, variable
from imgcheck.binaries.isa.x86.summary import SIGNATURES, Notes, summarise, tell, told_to_caller
from imgcheck.binaries.isa.x86.texts import compared_texts

_RESULTS = RAX | RDX
_SCRATCH = CLOBBERED & ~RAX
_ADDRESSES = 1 << 12, 1 << 47
"""Where a program's code may lie."""
_STACK_RESULTS = 64
"""Bytes."""
_STORED = 16
"""Bytes that a callee fills through a pointer to the stack: the words of CPUID."""


_QUERIED = {RAX: "eax", RCX: "ecx", RDX: "edx"}
"""Registers that CPUID writes; the one beside them gets EBX."""
_ONE_SUBLEAF = {1, 0x80000001}
"""Leaves of CPUID with features for which ECX does not matter."""


class _Walk:
    """One pass over the instructions of a function."""

    def __init__(self, graph: ControlFlow, context: Context, given: Given, arguments: Arguments) -> None:
        self.graph, self.code, self.context, self.flow = graph, graph.code, context, Flow()
        self.operands = Operands(graph, context)
        self.branches = Branches(graph, context, self.operands)
        self.notes = Notes()
        self.state = State(given.knowledge | sum(given.pointers), set(), dict(given.pointers))
        self.state.values.update(given.values | arguments)
        for (register, at), value in given.objects.items():
            place = CALLER + register, at
            self.state.values.setdefault(register, Frame((CALLER + register, 0)))
            self.state.values[place] = value
            self.state.slots.add(place)
        if self.code.pushed:
            self._put_on_stack()
        self.exact = bool(arguments)
        """Whether numbers are worked out that the CPU has no part in: a leaf may be one."""
        self.block = graph.blocks[0]
        """The one that is looked at."""
        self.leased: set[tuple[int, int]] = set()
        """Words on the stack that a callee may fill, as their address was taken."""
        self.tests: dict[int, Labels] = {}
        self.cases: dict[int, dict[int, Condition]] = {}
        """Address of a jump by a table -> where it leads to, and under what condition."""
        self.alike: dict[tuple, list[int]] = {}
        """What is compared -> the tests of it."""
        self.asks = any(fact.kind == CPUID for fact in graph.code.facts)
        self.frameless = not any(fact.lowers > 0 for fact in graph.code.facts)
        self.paths: dict[int, Condition] = {}
        """What is necessary to arrive at a block, by its number."""
        self.called: dict[int, list[Condition]] = {}
        """What is necessary for each call of a place in the function itself, as assembler has them, by the address."""
        self.closed: set[int] = set()
        """Blocks that are not come to with the arguments that are known, by number, and"""
        self.unused: set[tuple[int, int]] = set()
        """the ways between two blocks that are not taken."""

    def _put_on_stack(self) -> None:
        """What callers hand to 32-bit code lies on the stack."""
        state = self.state
        for register, place in parameter_places():
            known = state.values.pop(register, None)
            if register in state.addresses:
                known = constant(state.addresses[register])
            if known is not None:
                state.values[place] = known
            if state.marked & register and register not in state.addresses:
                state.slots |= {moved(place, at) for at in range(WORD)}
        state.mark(self.code.pushed, False)
        self._copy(FIRST_ARGUMENT, RAX)
        state.mark(FIRST_ARGUMENT, False)

    def _copy(self, source: int, target: int) -> None:
        """A register gets what another one holds."""
        state = self.state
        state.mark(target, bool(state.marked & source))
        for known in (state.values, state.addresses, state.origins):
            if source in known:
                known[target] = known[source]

    def _take_from_stack(self, ip: int) -> None:
        """What 32-bit code hands to a callee, as if that was in registers."""
        state = self.state
        for register, place in word_places(self.code.handed[ip]):
            known = state.values.get(place)
            state.mark(register, not state.slots.isdisjoint({moved(place, at) for at in range(WORD)}))
            if known is not None:
                state.values[register] = known
                self._point(register, known)
        self._copy(RAX, FIRST_ARGUMENT)

    def run(self) -> None:
        graph = self.graph
        arriving = {0: self.state}
        for number in graph.order:
            if number not in arriving and self._is_closed(number):
                self.closed.add(number)
                continue
            self.block = block = graph.blocks[number]
            self.state = state = arriving.pop(number, None) or State(0, set(), {}, path=self._way_by_calls(block.first))
            state.keep(graph.live[number])
            if number in graph.loops:
                self._enter_loop(graph.loops[number])
            if state.path != ALWAYS and len(graph.before[number]) > 1:
                met = graph.met(number)
                state.path = self.paths.get(met, ALWAYS) if met >= 0 else state.path
            if state.path != ALWAYS:
                self.paths[number] = state.path
            self._pass_through(block)
            self._go_on(number, block, arriving)

    def arrivals(self) -> list[Guarded]:
        """Blocks to which several ways lead, each over a test: what these have in common, or that each has one."""
        blocks = self.graph.blocks
        told = ((blocks[number], as_far_as_told(path)) for number, path in sorted(self.paths.items()))
        return [(block.first, block.end, path) for block, path in told if path != ALWAYS]

    def _way_by_calls(self, address: int) -> Condition:
        """What is necessary to arrive at a block that nothing but calls in the function itself leads to."""
        calls = self.called.get(address, [])
        # Before all calls have been passed nobody knows what is necessary for the others.
        return reduce(either, calls, NEVER) if calls and len(calls) == self._named[address] else ALWAYS

    @cached_property
    def _named(self) -> Counter[int]:
        """How many calls and branches lead to each address."""
        return Counter(self.code.targets.values())

    def _is_closed(self, number: int) -> bool:
        """Whether no way leads to a block, as arguments that are known go others."""
        before = self.graph.before[number]
        return bool(before) and all(one in self.closed or (one, number) in self.unused for one in before)

    def _pass_through(self, block: Block) -> None:
        state, numbers = self.state, slice(block.numbers.start, block.numbers.stop)
        closely = self.exact or self.asks or bool(self.context.spelled)
        for ip, fact in zip(self.code.ips[numbers], self.code.facts[numbers], strict=True):
            if fact.kind != COMPUTE:
                self._special(fact.kind, ip, fact)
            # Most code is far from any knowledge: what then concerns registers alone changes nothing.
            elif not fact.plain or state.marked or state.flags or state.addresses or state.bases or closely:
                self._compute(ip, fact)
            else:
                if state.equal and (fact.writes_flags or fact.written & state.equal[0]):
                    state.equal = None
                if fact.brings is not None:
                    state.values[fact.written] = fact.brings
                elif fact.source in state.values:
                    state.values[fact.written] = state.values[fact.source]
                elif state.values:
                    state.forget(fact.written)

    def _go_on(self, number: int, block: Block, arriving: dict[int, State]) -> None:
        """The state at the end of a block goes on at those that it leads to."""
        ip, place, blocks = block.control, self.graph.place, self.graph.blocks
        fact = self.code.facts[block.numbers.stop - 1]
        target = self.code.targets.get(ip, -1)
        if fact.kind == BRANCH and not self.code.inside(target):
            self._leave_by(ip, fact, both(self.state.path, self.tests[ip][0]) if ip in self.tests else self.state.path)
        onward = [one for one in block.successors if place.get(one, 0) > place[number]]  # no loop closed, no padding
        cases = self.cases.get(ip)
        if cases:
            onward = [one for one in onward if blocks[one].first in cases]
        if self.exact and fact.kind == BRANCH and fact.condition >= 0 and target != block.end:
            onward = [one for one in onward if self._may_go(number, one, blocks[one].first == target, fact)]
        for successor in onward:
            leaving = self.state if successor == onward[-1] else self.state.copy()
            if cases:
                leaving.path = both(leaving.path, cases[blocks[successor].first])
            taken = blocks[successor].first == target
            if fact.kind == BRANCH and target != block.end and fact.condition >= 0:
                narrow(leaving, fact.condition >> 1, taken != bool(fact.condition & 1))
            if fact.kind == BRANCH and ip in self.tests and target != block.end:
                leaving.path = both(leaving.path, self.tests[ip][0 if taken else 1])
                self.branches.settle(leaving, fact, taken)
            elif fact.kind == INDIRECT_JUMP and ip in self.tests:
                leaving.path = both(leaving.path, self.tests[ip][0])
            if successor in arriving:
                arriving[successor].join(leaving, self.operands.initial)
            else:
                arriving[successor] = leaving

    def _may_go(self, number: int, successor: int, taken: bool, fact: Fact) -> bool:
        """Whether a branch may go from one block to another, where it may rest on arguments alone."""
        found = outcome(self.state.told, fact.condition >> 1) if not self.state.flags else None
        if found is None or found[0 if taken != bool(fact.condition & 1) else 1] != NEVER:
            return True
        self.unused.add((number, successor))
        return False

    def _enter_loop(self, loop: Loop) -> None:
        """Forget what later code that comes back to here may have changed."""
        state, changed = self.state, loop.writes
        state.told = None
        if not loop.natural:
            state.path = ALWAYS  # nobody knows who comes here
        if state.values or self.graph.writes.variables:
            held = state.bases | sum(place for place in state.values if isinstance(place, int) and place > 0)
            lost = self.graph.changed(changed, held)
            state.forget(lost)
            state.lose(lost)
            for slot in (changed.slots & state.values.keys()).union(state.members_of(state.bases)):
                state.values.pop(slot, None)
            self.notes.kept_in_loops |= changed.variables.keys()
            for where in changed.variables:
                state.values[variable(where)] = SETTLED if self.context.value(where) is not None else None

    def _special(self, kind: int, ip: int, fact: Fact) -> None:
        state = self.state
        if kind == BRANCH:
            if state.flags:
                self.tests[ip] = self.branches.labels(state, ip, fact, self.block)
                if state.compared and fact.condition >= 0:
                    self.alike.setdefault((*state.compared, fact.condition >> 1), []).append(ip)
        elif kind == LEA:
            self._lea(ip, fact)
        elif kind in (CALL, INDIRECT_CALL):
            self._call(ip, fact)
        elif kind == RETURN:
            if state.marked & RAX:
                self.flow.returns |= state.marked & _RESULTS
            self._leave(state.values.get(RAX), state.path)
        elif kind == SWAP:
            state.swap(fact.read)
        elif kind == CPUID:
            self._query(fact.written)
        elif kind == XGETBV:
            state.mark(RAX | RDX, True)
            state.values[RAX], state.values[RDX] = word(bit_conditions("xcr0")), word({})
        elif kind == STOP:
            self._brings(ip, fact)  # a call that never returns gets what it is handed all the same
        else:
            self._jump(ip, fact)

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

    def _called(self, ip: int, fact: Fact) -> Value:
        """What is known of the address that an indirect call or jump goes to."""
        return self.operands.read(self.state, ip, fact) if fact.loads else self.state.values.get(fact.read & ~RSP)

    def _leave(self, value: Value, path: Condition) -> None:
        """The function ends here, on the way `path`, and returns `value`."""
        self.notes.leave(self.state, value, path)
        self.flow.told |= told_to_caller(self.state)
        if self.flow.stack:
            self.notes.leave_words(self.state, path, self.code.pointer)
        self._hand_out(value, path)

    def _hand_out(self, value: Value, path: Condition) -> None:
        """Addresses of code that somebody may call from now on."""
        for number, condition in value.numbers if isinstance(value, Options) else ():
            if _ADDRESSES[0] <= number < _ADDRESSES[1]:
                told = _by_default(value, number) if condition == ALWAYS else condition
                self.flow.chosen[number] = either(self.flow.chosen.get(number, NEVER), both(told, path))

    def _jump(self, ip: int, fact: Fact) -> None:
        if fact.kind == INDIRECT_JUMP:
            self._jump_by_table(ip, fact)
        if not self.code.inside(self.code.targets.get(ip, 0)):
            self._leave_by(ip, fact, self.state.path)

    def _leave_by(self, ip: int, fact: Fact, path: Condition) -> None:
        """The function ends with a jump to another one, on the way `path`, and brings what that does."""
        brings = self._brings(ip, fact)
        self.flow.returns |= brings.returns
        self.flow.outputs |= brings.outputs
        self._leave(brings.value, path)

    def _jump_by_table(self, ip: int, fact: Fact) -> None:
        called = self._called(ip, fact)
        if isinstance(called, Options) and all(self.code.inside(number) for number, _ in called.numbers):
            self.cases[ip] = dict(called.numbers)
            return
        if fact.read & self.state.marked:
            taken = not_understood(ip)
            self.tests[ip] = taken, taken
        self._hand_out(called, self.state.path)

    def _brings(self, ip: int, fact: Fact) -> Callee:
        """What the code at the end of a call or jump brings; notes what it is given."""
        after = ip + fact.size
        state = self.state
        if ip in self.code.handed:
            self._take_from_stack(ip)
        handed = state.marked & PARAMETERS & ~state.members
        objects = self._objects() if state.slots else {}
        if handed or objects:
            pointing = {r: address for r, address in state.addresses.items() if r & handed}
            handed &= ~sum(pointing)
            values = {r: v for r in ARGUMENTS if r & handed and tells(v := state.values.get(r))}
            self.flow.passes[after] = Given(handed, pointing, values, objects)
            if self.context.reads(after, bool(pointing or objects)):
                return Callee(returns=RAX, outputs=True)
        brings = self.context.callee(after)
        if brings.compares:
            return self._compare_texts(brings.compares)
        if not (brings.obeys or brings.outputs):
            return brings
        arguments = {r: v for r in ARGUMENTS if _is_argument(v := state.values.get(r))}
        if brings.stack:
            first, values = self.code.handed.get(ip, 0), state.values
            words = ((at, values.get((RSP, first + at))) for at in range(_STACK_RESULTS))
            arguments |= {(WORDS, at): value for at, value in words if _is_argument(value)}
        if not brings.obeys and not any(map(self._is_address, arguments.values())):
            return brings
        asked = self.context.asked(after, arguments)
        self.flow.obeys |= brings.obeys and asked is None
        return asked or brings

    def _compare_texts(self, function: str) -> Callee:
        """What a library function tells that compares texts, where which one it gets was chosen by the CPU."""
        state = self.state
        registers = PUSHED_ARGUMENTS if self.code.pushed else ARGUMENTS
        one, other, count = map(state.values.get, registers[:3])
        # Where a buffer is known that holds what the CPU told, that is compared: of the maker's name nothing follows.
        told = state.marked & (registers[0] | registers[1]) & ~(state.members | sum(state.addresses))
        if not told and not tells(one) and not tells(other):
            return NOTHING
        return Callee(returns=RAX, value=compared_texts(function, (one, other, count), self.context.initial))

    def _objects(self) -> dict[tuple[int, int], Value]:
        """Knowledge in objects on the stack that a call gets by pointer, as in Given."""
        found = {}
        for register in ARGUMENTS:
            frame = self.state.values.get(register)
            for at in range(STRUCT) if isinstance(frame, Frame) else ():
                place = moved(frame.place, at)
                if place in self.state.slots:
                    found[register, at] = self.state.values.get(place)
            if self.context.spelled and any(key[0] == register for key in found):  # a text and the pointer to it
                found |= {(register, at): None for at in range(STRUCT)}
            for place in self.state.members_of(register & self.state.bases):
                if place in self.state.slots:
                    found[place] = self.state.values.get(place)
        return found

    def _is_address(self, value: Value) -> bool:
        return isinstance(value, Frame) or is_pointer(value, self.context.initial)

    def _call(self, ip: int, fact: Fact) -> None:
        state = self.state
        if (target := self.code.targets.get(ip)) is not None and self.code.inside(target):
            self.called.setdefault(target, []).append(state.path)
        brings = self._brings(ip, fact)
        if brings.outputs:
            self.flow.structures |= state.handed()
            state.slots |= self._lent()
        if not brings.filled and (leased := self.leased & state.values.keys()):
            lent = self._lent()
            for place in leased:  # who is not handed a place hardly changes what the CPU told there
                if place in lent or not tells(state.values[place]):
                    del state.values[place]
        for place in state.members_of(state.bases) if state.bases else ():
            state.values.pop(place, None)
        first = self.code.handed.get(ip, 0)
        filled = {(RSP, at + first) if base == WORDS else (base, at): v for (base, at), v in brings.filled.items()}
        if brings.stack:
            left = {(RSP, at + first) for base, at in brings.filled if base == WORDS}
            results = left or {(RSP, i + first) for i in range(_STACK_RESULTS)}
            state.slots |= results
            for place in results & state.values.keys():  # what it was given lay there
                del state.values[place]
        if fact.kind == INDIRECT_CALL:
            self._hand_out(self._called(ip, fact), state.path)
        held = not state.values.keys().isdisjoint(each_of(_SCRATCH))
        matters = state.marked & _SCRATCH or (held and (state.marked or state.slots or self.exact))
        kept = self.graph.kept(bisect_left(self.code.ips, ip)) if matters else 0
        state.mark(RAX | CLOBBERED & ~kept, False)
        if self.code.pushed:
            state.mark(HANDED, False)
        state.flags, state.told, state.equal = False, None, None
        state.marked |= brings.returns
        for register, value in ((RAX, brings.value), (RDX, brings.second)):
            if value is not None:
                state.values[register] = value
                self._point(register, value)
        for place, value in filled.items():
            # Where it found nothing, it may have left the nought that was there.
            old = state.values.get(place)
            state.values[place] = joined(value, ALWAYS, old, ALWAYS) if old == constant(0) else value
            if tells(value):
                state.slots.add(place)
        state.slots |= brings.told
        for where, value in brings.assigned.items():
            self._keep(where, value, WORD)
            self.notes.written.append((ip, where, WORD))
        self.flow.stores |= brings.stores

    def _lent(self) -> set[tuple[int, int]]:
        """The places on the stack whose addresses a call hands over, and those close behind them."""
        handed = [value.place for value in map(self.state.values.get, ARGUMENTS) if isinstance(value, Frame)]
        return {moved(place, i) for place in handed for i in range(_STORED)}

    def _compute(self, ip: int, fact: Fact) -> None:
        state, after = self.state, ip + fact.size
        told = self._told_by(fact) & state.marked if state.marked else 0
        marked = bool(told) or (fact.reads_flags and state.flags) or (bool(self.context.spelled) and self._spells(fact))
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
            state.flags = marked

    def _spells(self, fact: Fact) -> bool:
        """Whether an instruction has a number that compilers make of a short text."""
        numbers = (fact.operation and fact.operation.number, fact.brings and fact.brings.constant)
        return not self.context.spelled.isdisjoint(numbers)

    def _load(self, after: int, memory: Memory, marked: bool) -> tuple[bool, int]:
        """Whether an instruction makes knowledge (`marked` so far), and the address that an operand of it holds."""
        state, operands = self.state, self.operands
        where = operands.where(state, after, memory)
        marked = marked or operands.is_knowledge(state, where, memory)
        if where is None and not marked and operands.is_of_array(state, after, memory):
            marked = self.flow.obeys = True
        pointee = self.context.pointee(where) if isinstance(where, int) else 0
        return marked or (pointee != 0 and self.context.holds(pointee)), pointee

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
            where = memory.base, memory.displacement
            state.slots |= {moved(where, i) for i in range(memory.size)} if marked else set()
        self._keep(where, value, memory.size)
        if isinstance(where, int):
            self.notes.written.append((ip, where, memory.size))

    def _is_member(self, marked: bool, memory: Memory, value: Value) -> bool:
        """Whether a store to an object that only a register points to tells something of it."""
        if memory.index or not memory.base:
            return False
        return marked or bool(memory.base & self.state.bases) or (self.asks and isinstance(value, Options))

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
        if operation.number is not None:
            second = constant(operation.number)
        if fact.condition >= 0 or operation.carries:
            value = of_flags(operation, state.told, fact.condition, state.flags, ip, first, second)
        else:
            value = result(operation, first, second, state.values.get(operation.third) if operation.third else memory)
        if fact.writes_flags:
            state.told = flags_of(operation, first, second, value)
            self.notes.signatures |= SIGNATURES & {fact.comparison[-1:]}
        if operation.bits < WHOLE and held is not None and value is not None and operation.target:
            value = replaced(held, value, 8 if operation.high else 0, operation.bits)
        return value

    def _keep(self, where: Where, value: Value, size: int) -> None:
        """Remember what is known of a value that is stored."""
        values = self.state.values
        if size < WORD:
            value = low(value, 8 * size)
        if isinstance(where, tuple):
            base, at = where
            for other in range(size):
                values.pop(moved(where, other), None)
            parts = size < POINTER and isinstance(value, Options | Word)
            if parts or (isinstance(value, Options) and value.constant is not None):
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
        if isinstance(known, Options) and _ADDRESSES[0] <= (known.constant or 0) < _ADDRESSES[1]:
            self.state.addresses[register] = known.constant
            if self.context.holds(known.constant):
                self.state.marked |= register

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
            self.leased |= {(memory.base, memory.displacement + i) for i in range(0, _STORED, 4)}
            self.state.values[fact.written] = Frame((memory.base, memory.displacement))
        elif known is not None:
            self.state.values[fact.written] = known
            self._point(fact.written, known)
        elif fact.written and of_array:
            self.state.marked |= fact.written
            self.flow.obeys = True

    def _store_somewhere(self, first: Where, marked: bool) -> None:
        """Something is stored to one element of an array: to which is not known."""
        values = self.state.values
        if isinstance(first, int):
            held = {variable(first + i) for i in range(ARRAY)} & values.keys()
            values.update(dict.fromkeys(held))
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
                held = {moved(where, i) for i in range(memory.size)}
                (self.state.slots.update if marked else self.state.slots.difference_update)(held)
            # Above the return address of a function that moves no stack pointer lies the caller's frame.
            self.flow.stack |= marked and where[0] == RSP and where[1] >= self.code.pointer and self.frameless
        elif marked and where is not None:
            self.flow.stores.update(range(where & ~3, where + memory.size, 4))
        elif marked and memory.base:
            self.flow.outputs = True
            add_member(self.flow.members, (memory.displacement, memory.size), under(value, self.state.path))


def _by_default(value: Options, number: int) -> Condition:
    """When it is that number for certain: where nothing that is necessary for another one holds."""
    others = [condition for other, condition in value.numbers if other != number]
    if not others or not all(map(understood_wholly, others)):
        return ALWAYS
    return reduce(both, map(opposite, others))


def _is_argument(value: Value) -> bool:
    return isinstance(value, Frame) or (isinstance(value, Options) and value.constant is not None)


def follow(graph: ControlFlow, context: Context, given: Given, tells: bool, arguments: Arguments) -> Flow:
    """What a function does with CPU knowledge, where it is called with these arguments.

    `tells`: the function leads to no code that a test could protect, so it tests in order to tell: what it returns,
    stores or has stored behind a test is knowledge too, even where it is a constant.
    """
    walk = _Walk(graph, context, given, arguments)
    walk.run()
    flow, notes = walk.flow, walk.notes
    if walk.tests:
        changed = {where & ~3 for _, where, _ in notes.written}
        alike = [ips for key, ips in walk.alike.items() if len(ips) > 1 and key[0] & ~3 not in changed]
        flow.guarded = merged(guarded(graph, walk.tests, alike), walk.arrivals())
    summarise(flow, notes, walk.operands.initial, context.initial)
    if tells and any(labels != (ALWAYS, ALWAYS) for labels in walk.tests.values()):
        tell(flow, notes, context.initial)
    return flow
