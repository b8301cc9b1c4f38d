"""Which registers pass between functions: what a function takes for parameters, and a caller for the result.

Much is left in these registers that is meant for nobody: only what is read before it is written to counts.
"""

from typing import NamedTuple

from imgcheck.binaries.isa.x86.facts import (
    BRANCH,
    CALL,
    CALLS,
    CLOBBERED,
    COMPUTE,
    FIRST_ARGUMENT,
    JUMP,
    LEA,
    LEADING,
    PARAMETERS,
    RAX,
    Code,
    Fact,
    Memory,
)
from imgcheck.binaries.isa.x86.stack import parameter_places
from imgcheck.binaries.isa.x86.state import Place


class Parameters(NamedTuple):
    """Registers as bits."""

    read: int
    passed: dict[int, int]
    """Next address of a direct call, or of a jump out of the function -> registers that still hold what the caller
    left in them."""


_MOST_PASSES = 6
"""Over the code of a function: one for each jump back that leads to another one, and one more."""
ANY = Parameters(PARAMETERS, {})
"""What is taken for the parameters of a function that is not read."""


def parameters(code: Code) -> Parameters:
    """The parameters of a function, seen by address, and anew as long as later code is seen to lead back with more."""
    arrivals = dict.fromkeys(filter(code.inside, code.targets.values()), 0)
    for _ in range(_MOST_PASSES):
        known = dict(arrivals)
        found = _passed_through(code, arrivals)
        if arrivals == known:
            break
    return found


def _passed_through(code: Code, arrivals: dict[int, int]) -> Parameters:
    """One pass. `arrivals`: where branches lead to, and which registers may still hold there what the caller left."""
    read, passed = 0, {}
    taken = _at_entry(code)
    fresh, goes_on = taken, True
    for ip, fact in zip(code.ips, code.facts, strict=True):
        if goes_on:
            fresh |= arrivals.get(ip, 0)
        elif fact.idle and ip not in arrivals:
            continue  # padding
        else:  # what no branch is seen to lead to may be entered with all of them
            fresh = arrivals.get(ip, taken)
        kind = fact.kind
        if fact.brings is None:
            read |= fact.read & fresh
        if kind in LEADING:
            target = code.targets.get(ip, 0)
            if target in arrivals:
                arrivals[target] |= fresh
            if kind == CALL or not code.inside(target):
                # What is to be handed on by the stack is pushed anew, but for a jump.
                passed[ip + fact.size] = _named(fresh & ~code.pushed if kind == CALL else fresh, code)
        fresh &= ~(CLOBBERED if kind in CALLS else fact.written)
        goes_on = kind < JUMP
    return Parameters(_named(read, code), passed)


def _at_entry(code: Code) -> int:
    """Registers that may bring parameters: in 32-bit code EAX, too, for which FIRST_ARGUMENT stands elsewhere."""
    return PARAMETERS | RAX if code.pushed else PARAMETERS


def _named(registers: int, code: Code) -> int:
    """Registers of parameters, as others name them."""
    return registers & ~RAX | FIRST_ARGUMENT if code.pushed and registers & RAX else registers & PARAMETERS


def compared(code: Code) -> int:
    """The parameters that a function compares with a number other than 0: it does this or that as its callers say."""
    found, fresh = 0, _at_entry(code)
    copies = _Copies(code)
    for fact in code.facts:
        found |= copies.step(fact, fresh)
        fresh &= ~(CLOBBERED if fact.kind in CALLS else fact.written)
    return _named(found, code)


class _Copies:
    """Where parameters are kept, or what is made of one and of numbers: other registers, and places on the stack."""

    def __init__(self, code: Code) -> None:
        self._stack = code.stack
        self._held: dict[int | tuple[int, int], int] = {}
        if code.pushed:
            self._held.update((place, register) for register, place in parameter_places())

    def step(self, fact: Fact, fresh: int) -> int:
        """Go over an instruction; the parameter that it compares with a number other than 0, where it does."""
        # What is read behind a call that may have changed it is known not to have been.
        written = RAX if fact.kind in CALLS else fact.written
        if not self._held and not fact.read & fresh:
            return 0
        original = self._original(fact, fresh)
        if original and fact.with_number and fact.with_number[1]:
            return original
        for held in [place for place in self._held if isinstance(place, int) and place & written]:
            del self._held[held]
        new: list[Place] = [*self._places(fact.stores)]
        if fact.kind in (COMPUTE, LEA) and written:
            new.append(written)
        for place in new:
            if original:
                self._held[place] = original
            else:
                self._held.pop(place, None)
        return 0

    def _original(self, fact: Fact, fresh: int) -> int:
        """The one parameter that an instruction works with, 0 where there is none or others, too."""
        operands = () if fact.kind == LEA else fact.loads
        loads = self._places(operands)
        if len(loads) < len(operands):
            return 0
        registers = fact.read & ~(self._stack if fact.loads or fact.stores else 0)
        sources: list[int | tuple[int, int]] = [*loads]
        while registers:
            sources.append(registers & -registers)
            registers &= registers - 1
        found = {place if isinstance(place, int) and place & fresh else self._held.get(place, 0) for place in sources}
        return found.pop() if len(found) == 1 else 0

    def _places(self, operands: tuple[Memory, ...]) -> list[tuple[int, int]]:
        return [(m.base, m.displacement) for m in operands if m.base & self._stack and not m.index]


def takes_result(code: Code, registers: int) -> bool:
    """Whether the code behind a call, which `code` begins with, may do something with its result in `registers`."""
    call, *behind = code.facts
    if call.kind != CALL:
        return True  # a jump: what the callee returns is the function's own result
    for fact in behind:
        if fact.brings is None and fact.read & registers:
            return True
        if fact.kind in CALLS:
            return bool(code.pushed)  # 32-bit code may hand it over where it is
        registers &= ~fact.written
        if not registers:
            return False
        if fact.kind not in (COMPUTE, LEA, BRANCH):
            return True
    return True


def first_arguments(number: int) -> tuple[bytes, ...]:
    """Code that makes a small number the first argument of a call: MOV, or PUSH and POP, to EDI."""
    return b"\xbf" + number.to_bytes(4, "little"), bytes([0x6A, number, 0x5F])
