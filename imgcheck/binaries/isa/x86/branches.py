"""What the two directions of a conditional branch tell of the CPU, and of the values that were compared for it."""

from msgspec.structs import replace

from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    Labels,
    not_understood,
    understood,
    understood_wholly,
    ways_not_understood,
)
from imgcheck.binaries.isa.values import (
    BORROW,
    CLEAR,
    EQUAL,
    SETTLED,
    Comparison,
    Options,
    Value,
    Word,
    constant,
    narrowed,
    outcome,
    tells,
)
from imgcheck.binaries.isa.x86.control import Block, ControlFlow
from imgcheck.binaries.isa.x86.facts import INDIRECT_JUMP, OF_BITS, OF_ONE_BIT, Fact
from imgcheck.binaries.isa.x86.handed import Context
from imgcheck.binaries.isa.x86.operands import WHOLE, WORD, Operands
from imgcheck.binaries.isa.x86.state import MERGED, Place, State, variable

_LARGEST = 0x7FFFFFFF
"""Larger numbers, as -1, stand for flags that are not known yet."""


class Branches:
    """The conditional branches of one function, each looked at in the state that it is met in."""

    def __init__(self, graph: ControlFlow, context: Context, operands: Operands) -> None:
        self._graph, self._context, self._operands = graph, context, operands

    def labels(self, state: State, ip: int, fact: Fact, block: Block) -> Labels:
        """What the two directions of a test, at the end of `block`, tell of the CPU: where it is taken, and not."""
        found = outcome(state.told, fact.condition >> 1) if fact.condition >= 0 else None
        if found is None or state.told is None or NEVER in found or _is_lost(state.told, found):
            if self._is_before(state, fact, found):
                return ALWAYS, ALWAYS
            taken = not_understood(ip)
            if found and NEVER in found:
                never = 0 if found[fact.condition & 1] == NEVER else 1  # the direction that no CPU takes
                if self._is_range_check(block):
                    return (taken, ALWAYS) if never == 0 else (ALWAYS, taken)
                left = found[0] or found[1]
                if understood_wholly(left):  # what is known already is asked once more, and tells no more than that
                    return (taken, left) if never == 0 else (left, taken)
            return self._but_for_errors(ip, block, ways_not_understood(ip, state.flags == MERGED))
        labels = found[::-1] if fact.condition & 1 else found
        return labels if any(map(understood, labels)) else self._but_for_errors(ip, block, labels)

    def _but_for_errors(self, ip: int, block: Block, labels: Labels) -> Labels:
        """The same of a test that is not understood, where the program ends in one of its directions.

        What goes on in the other one is no version of anything: where the test was of the CPU, the program needs that.
        """
        code, final = self._graph.code, self._graph.final
        target = code.targets.get(ip, -1)
        led = {self._graph.blocks[successor].first: successor for successor in block.successors}
        ends = led[target] in final if target in led else ip in code.endings
        if ends == (led.get(block.end, -1) in final):
            return labels
        return (labels[0], ALWAYS) if ends else (ALWAYS, labels[1])

    def settle(self, state: State, fact: Fact, taken: bool) -> None:
        """What a test tells of a variable, besides of the CPU.

        Where it does not hold what it held at first, it holds what some run has left; and where it tests as the nought
        of the beginning, which no run leaves, it holds that.
        """
        first = self._at_first(state, fact)
        if first is None:
            return
        number, met = first
        where = state.compared[0]
        left = self._context.value(where)
        places: list[Place] = [variable(where)]
        places += (register for register, origin in state.origins.items() if origin == where)
        if met != (taken != bool(fact.condition & 1)):
            _exclude(state, places, number, _without(left, number))
        elif number == 0 and isinstance(left, Options) and not any(_is_met(state, fact, n) for n, _ in left.numbers):
            state.values.update(dict.fromkeys(places, constant(number)))

    def _at_first(self, state: State, fact: Fact) -> tuple[int, bool] | None:
        """The number that the variable which a branch tests holds at first, and whether that meets its condition."""
        compared = state.compared
        if compared[-1:] == (OF_ONE_BIT,):
            return None
        known = compared and self._context.holds(compared[0])
        initial = self._operands.initial(compared[0], compared[1] // 8) if known else None
        if not isinstance(initial, Options) or initial.constant is None:
            return None
        met = _is_met(state, fact, initial.constant)
        return None if met is None else (initial.constant, met)

    def _is_before(self, state: State, fact: Fact, found: Labels | None) -> bool:
        """Whether the branch asks if a number is there still that stands for no flags: that is no test of the CPU."""
        first = self._at_first(state, fact)
        if first is None:
            return False
        number, met = first
        if found:
            return found[0 if met else 1] == NEVER
        where, bits, *_ = state.compared
        bits = min(bits, 8 * self._graph.variables.get(where, WORD), WHOLE)
        return met and number > _LARGEST >> WHOLE - bits and not _is_met(state, fact, 0)

    def _is_range_check(self, block: Block) -> bool:
        """Whether a branch stands before a jump by a table: what passes it says nothing more."""
        onward = (self._graph.blocks[number].numbers for number in block.successors)
        return any(self._graph.code.facts[numbers.stop - 1].kind == INDIRECT_JUMP for numbers in onward)


def narrow(state: State, test: int, holds: bool) -> None:
    """What the condition `test` of a jump says of what was compared, where it is met or is not."""
    if state.equal and test == EQUAL and holds:
        register, number = state.equal
        if state.values.get(register) is None and not state.marked & register:
            state.values[register] = constant(number)
    if state.told and isinstance(state.told.value, Options | Word):
        left = narrowed(state.told, test, holds)
        for place in [place for place, value in state.values.items() if value is state.told.value]:
            state.values[place] = left
        state.told = replace(state.told, value=left)  # further instructions may look at the same flags


def _exclude(state: State, places: list[Place], number: int, left: Value) -> None:
    """These do not hold the number any more that a variable held at first, but what some run has left."""
    for place in places:
        known = state.values.get(place)
        if known in (None, constant(number)):
            state.values[place] = left
        elif isinstance(known, Options):
            state.values[place] = _without(known, number)


def _is_met(state: State, fact: Fact, number: int) -> bool | None:
    """Whether the condition of a branch is met where the variable that is compared holds a number."""
    _, bits, *compared = state.compared
    if compared[-1] == OF_BITS:
        told = Comparison(constant(number & compared[-2]), 0, bits, CLEAR)
    else:
        told = Comparison(constant(number), compared[-1], bits, BORROW)
    found = outcome(told, fact.condition >> 1)
    return found[0] == ALWAYS if found else None


def _is_lost(told: Comparison, found: Labels) -> bool:
    """Whether knowledge was lost on the way: one answer goes with any CPU, and the other is not understood."""
    others = [condition for condition in found if condition != ALWAYS]
    if not others:
        return not tells(told.value)
    return len(others) == 1 and not understood(others[0])


def _without(value: Value, number: int) -> Value:
    """What is known of a value that is not this number; of one that is no choice of numbers that it has been set."""
    if not isinstance(value, Options) or value.constant is not None:
        return SETTLED
    return Options(tuple(each for each in value.numbers if each[0] != number))
