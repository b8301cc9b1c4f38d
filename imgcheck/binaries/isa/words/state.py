"""What is known at one place of a function of words: registers, the stack, variables, flags, and how one came here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeGuard

from imgcheck.binaries.isa.conditions import ALWAYS, Condition, Labels, either
from imgcheck.binaries.isa.values import SETTLED, Comparison, Value, joined, tells

STACK, QUERIED, FUNCTION, VARIABLE, PARAMETER = -1, -2, -3, -4, -16
"""Bases of places and addresses: the stack, data that tell of the CPU, functions that do, variables (by address), and
from the last on what the parameters point to, by their number."""
Place = int | tuple[int, int]
"""A register by its number, or a base and a displacement."""
Known = tuple[bool, Value]
"""Whether it rests on what the CPU told, and what is known of it."""
NOTHING: Known = False, None
Part = tuple[int, int, Known]
"""Something that the CPU told and that lies in an object: its distance from there, its bytes, and what is known."""
Tested = Callable[[Comparison, int], Labels | None]
"""What holds where a test of a comparison is met, and where not."""
_ABSENT = object()


def is_variable(place: Place) -> TypeGuard[tuple[int, int]]:
    """Whether a place is a variable of the file."""
    return isinstance(place, tuple) and place[0] == VARIABLE


def together(all_known: list[Known]) -> Known:
    """What is known where any of some ways was taken."""
    if not all_known:
        return NOTHING
    value = reduce(lambda one, other: joined(one, ALWAYS, other, ALWAYS), (value for _, value in all_known))
    return any(told for told, _ in all_known) or tells(value), value


@dataclass(frozen=True, slots=True)
class Flags:
    """What the flags tell: the labels of each condition by its number, where they are understood."""

    told: bool
    labels: Callable[[int], Labels | None]
    origin: int = -1
    """The variable that is compared, if one is."""
    type: int | None = None
    """The number that something unknown is compared with: it may be the type of a word of the auxiliary vector."""
    site: int = -1
    """The address of the instruction that set them."""
    pair: tuple[int, int] | None = None
    """The register and the number that it compares."""


@dataclass(frozen=True, slots=True)
class Test:
    """What a conditional branch tests."""

    told: bool
    """It rests on what the CPU told."""
    labels: Labels | None
    origin: int
    type: int | None = None
    """As of the flags."""
    equal: bool | None = None
    """Whether it is met where what is compared is equal, if it asks for that."""
    pair: tuple[int, int] | None = None
    """A register that is the number then."""


@dataclass
class State:
    """What is known at one place of a function."""

    values: dict[Place, Value] = field(default_factory=dict)
    told: set[Place] = field(default_factory=set)
    """Places that hold what rests on what the CPU told."""
    flags: dict[int, Flags] = field(default_factory=dict)
    """By the number of the condition register's field, where there are several."""
    path: Condition = ALWAYS
    """What is necessary to arrive here."""
    word: Known = NOTHING
    """What a word of the auxiliary vector tells, where its type has just been found."""
    origins: dict[int, int] = field(default_factory=dict)
    """By a register's number the variable that it was read from, which the function writes to as well."""
    copied: dict[int, list["Part"]] = field(default_factory=dict)
    """By a register's number what was read into it as a whole, up to the end of the block."""

    def copy(self) -> "State":
        return State(dict(self.values), set(self.told), dict(self.flags), self.path, origins=dict(self.origins))

    def join(self, other: "State", initial: Callable[[int, int], Value], by_tests: bool = False) -> None:
        """The state where another way arrives too; `by_tests`: what differs then tells which of the two was taken."""
        parted = by_tests and self.path != other.path
        mine, theirs = self.values, other.values
        differing = [place for place, value in mine.items() if theirs.get(place, _ABSENT) is not value]
        for place in differing + [place for place in theirs if place not in mine]:
            one, two = self._at(self, place, initial), self._at(other, place, initial)
            value = joined(one, self.path, two, other.path) if one is not None and two is not None else None
            if (value != one and tells(value)) or (parted and value is None):
                self.told.add(place)
            if value is None and not is_variable(place):
                mine.pop(place, None)
            else:
                mine[place] = value
        self.told |= other.told
        self.origins = {k: v for k, v in self.origins.items() if other.origins.get(k) == v}
        self._keep_flags(other)
        self.path = either(self.path, other.path)

    def widen(self, other: "State") -> None:
        """What is known at the beginning of a loop where `other` comes back to: of what changes, if the CPU told it."""
        kept = self.origins.keys()  # what was read from a variable is what it holds at first, or what some run has left
        for place in [place for place in self.values if place not in kept]:
            one, two = self.values[place], other.values.get(place)
            if one != two:
                told = place in self.told or place in other.told
                value = joined(one, ALWAYS, two, ALWAYS) if told and two is not None and one is not None else None
                if value is None and not is_variable(place):
                    del self.values[place]
                else:
                    self.values[place] = value
        self.told |= {place for place in other.told - kept if not is_variable(place) or place in self.values}
        self._keep_flags(other)

    def _keep_flags(self, other: "State") -> None:
        """Of the flags those that one instruction has set, whichever way one came."""
        before = other.flags
        self.flags = {k: v for k, v in self.flags.items() if k in before and before[k].site == v.site >= 0}

    def settle(self, variable: int) -> None:
        """A variable is seen not to hold what it held at first: it holds what some run has left."""
        self.values[VARIABLE, variable] = SETTLED
        for register in [register for register, origin in self.origins.items() if origin == variable]:
            self.values[register] = SETTLED

    @staticmethod
    def _at(state: "State", place: Place, initial: Callable[[int, int], Value]) -> Value:
        """What is known of a place; a variable that was not written on the way holds what it held at first."""
        if is_variable(place) and place not in state.values:
            return initial(place[1], 4)
        return state.values.get(place)
