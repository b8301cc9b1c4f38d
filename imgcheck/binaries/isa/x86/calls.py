"""What a function of x86 hands to the functions that it calls, what these bring, and what it leaves at its own end."""

from bisect import bisect_left

from imgcheck.binaries.isa.conditions import ALWAYS, Condition
from imgcheck.binaries.isa.values import Frame, Options, Value, constant, joined, tells
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.effects import STORED, Effects
from imgcheck.binaries.isa.x86.facts import (
    ARGUMENTS,
    CLOBBERED,
    FIRST_ARGUMENT,
    HANDED,
    INDIRECT_CALL,
    PARAMETERS,
    PUSHED_ARGUMENTS,
    RAX,
    RDX,
    RSP,
    Fact,
)
from imgcheck.binaries.isa.x86.handed import NOTHING, STRUCT, WORDS, Arguments, Callee, Context, Given
from imgcheck.binaries.isa.x86.operands import WORD, moved
from imgcheck.binaries.isa.x86.stack import parameter_places, word_places
from imgcheck.binaries.isa.x86.state import each_of, is_pointer
from imgcheck.binaries.isa.x86.summary import told_to_caller
from imgcheck.binaries.isa.x86.texts import compared_texts

_SCRATCH = CLOBBERED & ~RAX
_STACK_RESULTS = 64
"""Bytes."""


class Calls(Effects):
    """A function that is followed, with what goes over its calls and returns."""

    def __init__(self, graph: ControlFlow, context: Context, given: Given, arguments: Arguments) -> None:
        super().__init__(graph, context, given, arguments)
        self.called: dict[int, list[Condition]] = {}
        """What is necessary for each call of a place in the function itself, as assembler has them, by the address."""
        self.versions: set[int] = set()
        """Calls and jumps to what is known here to be one of some functions."""
        if self.code.pushed:
            self._put_on_stack()

    def _call(self, ip: int, fact: Fact) -> None:
        state = self.state
        if (target := self.code.targets.get(ip)) is not None and self.code.inside(target):
            self.called.setdefault(target, []).append(state.path)
        brings = self._brings(ip, fact)
        first = self.code.handed.get(ip, 0)
        self._lend(brings)
        if brings.stack:
            self._take_words(first, brings)
        if fact.kind == INDIRECT_CALL:
            self._go_to(ip, self._called(ip, fact))
        self._clobber(ip, brings)
        self._receive(ip, first, brings)

    def _lend(self, brings: Callee) -> None:
        """A callee may change what lies where it can get to."""
        state = self.state
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

    def _take_words(self, first: int, brings: Callee) -> None:
        """What a callee leaves on the stack, from `first` on, is knowledge; what it was given lay there."""
        state = self.state
        left = {(RSP, at + first) for base, at in brings.filled if base == WORDS}
        results = left or {(RSP, i + first) for i in range(_STACK_RESULTS)}
        state.slots |= results
        for place in results & state.values.keys():
            del state.values[place]

    def _clobber(self, ip: int, brings: Callee) -> None:
        """Forget what a callee may leave in registers and flags."""
        state = self.state
        held = not state.values.keys().isdisjoint(each_of(_SCRATCH))
        told = state.marked or state.slots or self.exact or brings.returns
        matters = state.marked & _SCRATCH or (held and told)
        kept = self.graph.kept(bisect_left(self.code.ips, ip)) if matters else 0
        state.mark(RAX | CLOBBERED & ~kept, False)
        if self.code.pushed:
            state.mark(HANDED, False)
        state.flags, state.told, state.equal = 0, None, None

    def _receive(self, ip: int, first: int, brings: Callee) -> None:
        """What a callee hands back, in registers, objects, variables and on the stack."""
        state = self.state
        state.marked |= brings.returns
        for register, value in ((RAX, brings.value), (RDX, brings.second)):
            if value is not None:
                state.values[register] = value
                self._point(register, value)
        for (base, at), value in brings.filled.items():
            place = (RSP, at + first) if base == WORDS else (base, at)
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
            knowledge = handed & ~sum(pointing)
            values = {r: v for r in ARGUMENTS if r & knowledge and tells(v := state.values.get(r))}
            self.flow.passes[after] = Given(knowledge, pointing, values, objects)
            if self.context.reads(after, bool(pointing or objects)):
                return Callee(returns=RAX, outputs=True)
        brings = self.context.callee(after)
        if brings.echoes and not (handed or objects):
            return NOTHING
        if brings.compares:
            return self._compare_texts(brings.compares)
        if not (brings.obeys or brings.outputs):
            return brings
        arguments: Arguments = {r: v for r in ARGUMENTS if _is_argument(v := state.values.get(r))}
        if brings.stack:
            first = self.code.handed.get(ip, 0)
            words = ((at, state.values.get((RSP, first + at))) for at in range(_STACK_RESULTS))
            arguments.update({(WORDS, at): value for at, value in words if _is_argument(value)})
        if not brings.obeys and not any(map(self._is_address, arguments.values())):
            return brings
        asked = self.context.asked(after, arguments)
        self.flow.obeys |= brings.obeys and asked is None
        return asked or brings

    def _go_to(self, ip: int, called: Value) -> None:
        """Call or jump to what a pointer holds."""
        self._hand_out(called, self.state.path)
        if isinstance(called, Options):
            self.versions.add(ip)

    def _leave(self, value: Value, path: Condition) -> None:
        """The function ends here, on the way `path`, and returns `value`."""
        self.notes.leave(self.state, value, path)
        self.flow.told |= told_to_caller(self.state)
        if self.flow.stack:
            self.notes.leave_words(self.state, path, self.code.pointer)
        self._hand_out(value, path)

    def _leave_by(self, ip: int, fact: Fact, path: Condition) -> None:
        """The function ends with a jump to another one, on the way `path`, and brings what that does."""
        brings = self._brings(ip, fact)
        self.notes.has_result |= ip not in self.versions
        self.flow.returns |= brings.returns
        self.flow.outputs |= brings.outputs
        self._leave(brings.value, path)

    def _called(self, ip: int, fact: Fact) -> Value:
        """What is known of the address that an indirect call or jump goes to."""
        return self.operands.read(self.state, ip, fact) if fact.loads else self.state.values.get(fact.read & ~RSP)

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

    def _objects(self) -> dict[tuple[int, int], Value]:
        """Knowledge in objects on the stack that a call gets by pointer, as in Given."""
        found: dict[tuple[int, int], Value] = {}
        for register in ARGUMENTS:
            frame = self.state.values.get(register)
            if isinstance(frame, Frame):
                places = ((at, moved(frame.place, at)) for at in range(STRUCT))
                found |= {(register, at): self.state.values.get(p) for at, p in places if p in self.state.slots}
            if self.context.spelled and any(key[0] == register for key in found):  # a text and the pointer to it
                found |= {(register, at): None for at in range(STRUCT)}
            for place in self.state.members_of(register & self.state.bases):
                if place in self.state.slots:
                    found[place] = self.state.values.get(place)
        return found

    def _lent(self) -> set[tuple[int, int]]:
        """The places on the stack whose addresses a call hands over, and those close behind them."""
        handed = [value.place for value in map(self.state.values.get, ARGUMENTS) if isinstance(value, Frame)]
        return {moved(place, i) for place in handed for i in range(STORED)}

    def _is_address(self, value: Value) -> bool:
        return isinstance(value, Frame) or is_pointer(value, self.context.initial)


def _is_argument(value: Value) -> bool:
    return isinstance(value, Frame) or (isinstance(value, Options) and value.constant is not None)
