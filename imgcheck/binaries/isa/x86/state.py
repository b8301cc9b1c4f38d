"""What is known at one point of a function: where knowledge of the CPU lies, in which values, and how one came here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from imgcheck.binaries.isa.conditions import ALWAYS, Condition, either
from imgcheck.binaries.isa.values import Comparison, Options, Value, joined, tells, under
from imgcheck.binaries.isa.x86.facts import ARGUMENTS, FLAGS

_LOWEST_ADDRESS = 1 << 12
Initial = Callable[[int, int], Value]
"""(address, bytes) -> what lies there when the file is loaded; None outside of it."""
Place = int | tuple[int, int]
"""Where a value is: a register's bit, a place on the stack or in an object (a register's bit and a distance), or below
zero a variable."""


_ABSENT = object()
MERGED = -1
"""See State.flags."""
CALLER = 1 << 200
"""Added to the base of a place on the stack, it makes that one of the caller's; no register has a bit so high."""


def variable(address: int) -> int:
    """The place of the variable at an address."""
    return -1 - address


address_of = variable
"""A variable's place back to its address."""


@cache
def each_of(bits: int) -> tuple[int, ...]:
    """The bit of each register among some: instructions write to few different sets."""
    return tuple(1 << at for at in range(bits.bit_length()) if bits >> at & 1)


_EACH = set(each_of(CALLER - 1 & ~FLAGS))
"""Of a set that is not frozen and the keys of a dictionary, Python goes through whichever are fewer."""


def _apart(one: Condition, other: Condition) -> tuple[Condition, Condition]:
    """Two paths without what is necessary for both."""
    if one == other:
        return ALWAYS, ALWAYS
    shared = frozenset.intersection(*one, *other) if one and other else frozenset()
    if not shared:
        return one, other
    return frozenset(term - shared for term in one), frozenset(term - shared for term in other)


def is_pointer(value: Value, initial: Initial) -> bool:
    """Whether all that it may be are addresses of the file, or 0."""
    numbers = [number for number, _ in value.numbers if number] if isinstance(value, Options) else []
    return bool(numbers) and min(numbers) >= _LOWEST_ADDRESS and all(initial(n, 1) is not None for n in numbers)


@dataclass(slots=True)
class State:
    """What holds knowledge at one point: registers (as bits), stack slots, flags; and registers that hold addresses."""

    marked: int
    slots: set[tuple[int, int]]
    addresses: dict[int, int]
    """By the register's bit."""
    members: int = 0
    """Those of the marked registers that got a whole word through a marked pointer: where that is a pointer itself, it
    leads away from what the CPU told."""
    flags: int = 0
    """Where the flags were set, if they are knowledge: MERGED where that differs by the way here, 0 where they are not.
    """
    compared: tuple = ()
    """What the flags tell, where it is certain to be the same whenever this stands here: the address of the variable,
    or of the instruction that made what is compared, how many bits of it, and the rest as Fact.comparison."""
    origins: dict[int, int] = field(default_factory=dict)
    """By the register's bit: the address of the variable that the knowledge in it was read from, or of the instruction
    that worked it out."""
    values: dict[Place, Value] = field(default_factory=dict)
    told: Comparison | None = None
    """What the flags tell."""
    path: Condition = ALWAYS
    """What is necessary to arrive here."""
    equal: tuple[int, int] | None = None
    """The register that the flags compare with a number, and that."""
    bases: int = 0
    """Registers that point to objects of which something is known, in `slots` and `values` by the register's bit."""

    def copy(self) -> "State":
        """A state that may go on elsewhere."""
        return State(
            self.marked, set(self.slots), dict(self.addresses), self.members, self.flags, self.compared,
            dict(self.origins), dict(self.values), self.told, self.path, self.equal, self.bases,
        )  # fmt: skip

    def join(self, other: "State", initial: Initial) -> None:
        """The state where another path arrives too; `initial` tells what lies at an address when the file is loaded."""
        if self.values or other.values:
            self._join_values(other, initial)
        self.told = self.told if self.told == other.told else None
        self.equal = self.equal if self.equal == other.equal else None
        self.path = either(self.path, other.path)
        self.members = (self.members | ~self.marked) & (other.members | ~other.marked)
        self.marked |= other.marked
        self.members &= self.marked
        self.slots |= other.slots
        self.bases |= other.bases
        self.addresses = {k: v for k, v in self.addresses.items() if other.addresses.get(k) == v}
        self.flags = self.flags if self.flags == other.flags else MERGED
        self.compared = self.compared if self.compared == other.compared else ()
        self.origins = {k: v for k, v in self.origins.items() if other.origins.get(k) == v}

    def _join_values(self, other: "State", initial: Initial) -> None:
        mine, theirs = self.values, other.values
        here, there = _apart(self.path, other.path)
        # Most places hold the very same on both paths.
        differing = [place for place, value in mine.items() if theirs.get(place, _ABSENT) is not value]
        differing += [place for place in theirs if place not in mine]
        for place in differing:
            if place in mine and place in theirs:
                one, two = mine[place], theirs[place]
            elif isinstance(place, int) and place < 0:  # a variable that the one path has not written
                one, two = (v[place] if place in v else initial(address_of(place), 4) for v in (mine, theirs))
            elif isinstance(place, tuple) and place[0] >= CALLER:  # of what is left there at all, and when
                one = two = under(mine[place], here) if place in mine else under(theirs[place], there)
            else:
                one = two = None
            if one is two or one is None or two is None:
                value = one if one is two else None
            else:
                value = joined(one, here, two, there)
                # Which of the two it is tells of the test; but which address it is nobody asks.
                if value is not one and tells(value) and not is_pointer(value, initial):
                    self._note(place)
            if value is not None or (isinstance(place, int) and place < 0):
                mine[place] = value
            else:
                mine.pop(place, None)

    def _note(self, place: Place) -> None:
        if isinstance(place, tuple):
            self.slots.add(place)
        elif place > 0:
            self.marked |= place

    def forget(self, places: int) -> None:
        """Nothing is known of the values in these registers any more."""
        for register in each_of(places):
            self.values.pop(register, None)

    def keep(self, live: int) -> None:
        """Only these registers, and the flags if FLAGS is among them, matter from here on."""
        if not live & FLAGS:
            self.flags, self.told, self.compared, self.equal = 0, None, (), None
        self.marked &= live
        self.members &= live
        if self.equal and self.equal[0] & ~live:
            self.equal = None
        every: tuple[dict[Any, Any], ...] = self.addresses, self.origins, self.values
        for known in filter(None, every):
            for register in known.keys() & _EACH:
                if not register & live:
                    del known[register]

    def members_of(self, registers: int) -> list[tuple[int, int]]:
        """The places in objects that these registers point to."""
        if not registers:
            return []
        return [
            place
            for place in {*self.slots, *self.values}
            if isinstance(place, tuple) and place[0] < CALLER and place[0] & registers
        ]

    def lose(self, registers: int) -> None:
        """Nothing is known of the objects that these registers pointed to."""
        for place in self.members_of(registers & self.bases):
            self.slots.discard(place)
            self.values.pop(place, None)
        self.bases &= ~registers

    def share(self, source: int, target: int) -> None:
        """A register points to the object of another one, too."""
        for place in self.members_of(source):
            if place in self.slots:
                self.slots.add((target, place[1]))
            if place in self.values:
                self.values[target, place[1]] = self.values[place]
        self.bases |= target

    def mark(self, registers: int, marked: bool) -> None:
        """Registers get a new value, which is knowledge or not, and no address that is known."""
        if registers & self.bases:
            self.lose(registers)
        self.marked = self.marked | registers if marked else self.marked & ~registers
        self.members &= ~registers
        if self.equal and self.equal[0] & registers:
            self.equal = None
        every: tuple[dict[Any, Any], ...] = self.addresses, self.origins, self.values
        for known in filter(None, every):
            for register in each_of(registers):
                known.pop(register, None)

    def swap(self, registers: int) -> None:
        """Two registers exchange all that is known of them."""
        self.lose(registers)
        self.equal = None
        one = registers & -registers
        other = registers - one
        self.marked, self.members = (
            held ^ registers if bool(held & one) != bool(held & other) else held for held in (self.marked, self.members)
        )
        every: tuple[dict[Any, Any], ...] = self.addresses, self.origins, self.values
        for known in every:
            moved = [(to, known.pop(at)) for at, to in ((one, other), (other, one)) if at in known]
            known.update(moved)

    def handed(self) -> set[int]:
        """Addresses in the registers of parameters."""
        return {self.addresses[r] for r in ARGUMENTS if r in self.addresses} if self.addresses else set()
