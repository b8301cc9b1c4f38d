"""Registers, the stack and variables of a function of words while it is followed: what loads find and stores leave."""

from itertools import pairwise

from imgcheck.binaries.isa.conditions import ALWAYS, NEVER, Condition, both, either
from imgcheck.binaries.isa.values import (
    SETTLED,
    Frame,
    Options,
    Value,
    Word,
    added,
    low,
    mapped,
    replaced,
    shifted,
    tells,
    truth,
    under,
)
from imgcheck.binaries.isa.words.state import (
    FUNCTION,
    NOTHING,
    PARAMETER,
    QUERIED,
    VARIABLE,
    Known,
    Part,
    Place,
    State,
    is_variable,
    together,
)
from imgcheck.binaries.isa.words.surroundings import Flow, Surroundings

OBJECT = 64
"""Bytes of an object that a call gets by its address which are looked at."""
_MOST_PLACES = 400
"""Registers and other places of which something is known at once: each has a price at each return."""
_WIDEST = 8
_BIT, _EITHER = Word((), 1), truth(ALWAYS, ALWAYS)
"""A bit that has nothing to do with the CPU: as one of two numbers it can be told from others on another way."""


def moved(address: Value, distance: int) -> Value:
    """An address and a distance from there."""
    return added(address, distance, 64) if isinstance(address, Frame | Options) else None


def inserted(value: Value, part: Value, at: int, bits: int) -> Value:
    """A value of 64 bits with a part in place of the bits from `at` on; of either nothing may be known."""
    value, part = (each if isinstance(each, Options | Word) else None for each in (value, part))
    return replaced(value, Word((), (1 << bits) - 1) if part is None else part, at, bits)


class Memory:
    """What one function keeps where, as far as the CPU has a part in it; `state` is the place where it is followed."""

    def __init__(self, start: int, surroundings: Surroundings, owned: frozenset[int]) -> None:
        """`start`: where the function begins; `owned`: variables that it writes to itself."""
        self.start, self.surroundings, self.owned = start, surroundings, owned
        self.flow, self.state = Flow(), State()
        self._widths: dict[tuple[int, int], int] = {}
        """Bytes that were stored to a place."""
        self._stored: dict[int, list[Known]] = {}
        """What is stored to each variable, wherever that happens."""
        self._compared: dict[int, int] = {}
        """Registers whose value was compared in this block, and has not changed since, by the address of that."""

    def known(self, place: Place) -> Known:
        """What is known of a register or another place."""
        value = self.state.values.get(place)
        return (True, None) if value is SETTLED else (place in self.state.told, value)

    def put(self, place: Place, known: Known) -> None:
        """A register or another place gets a value."""
        self.state.told.discard(place)
        self.state.values.pop(place, None)
        if isinstance(place, int):
            self.state.origins.pop(place, None)
            self.state.copied.pop(place, None)
            self._compared.pop(place, None)
        self._keep(place, known)

    def _keep(self, place: Place, known: Known) -> None:
        told, value = known
        if isinstance(place, tuple) and len(self.state.values) + len(self.state.told) > _MOST_PLACES:
            self.flow.hides |= told
            return
        if told:
            self.state.told.add(place)
        elif value == _BIT:
            value = _EITHER
        if value is not None or is_variable(place):
            self.state.values[place] = value

    def load(self, address: Value, size: int) -> Known:
        """What lies at an address."""
        if isinstance(address, Frame):
            if address.place[0] in (QUERIED, FUNCTION):
                return True, None
            return self._load_place(address.place, size)
        if not isinstance(address, Options):
            return self.state.word
        if address.constant is None:
            return self._load_entry(address, size) if tells(address) else self.state.word
        where = address.constant
        found = self._assembled((VARIABLE, where), size)
        if found:
            return found
        if (VARIABLE, where) not in self.state.values and where in self.owned:
            return False, self.surroundings.initial(where, size)
        return False, self.surroundings.pointer(where) if size == _WIDEST else None

    def _load_entry(self, address: Options, size: int) -> Known:
        """What lies in a table at one of some addresses, which tell the same as what is there."""
        on_path = under(address, self.state.path)
        addresses = on_path.numbers if isinstance(on_path, Options) else ()
        lying = ((at, self.surroundings.fixed(at, size)) for at, _ in addresses)
        entries = {at: number for at, number in lying if number is not None}
        inside = tuple(each for each in addresses if each[0] in entries)
        return True, mapped(Options(inside), entries.__getitem__) if inside else None

    def store(self, address: Value, known: Known, size: int) -> None:
        """A value is stored at an address."""
        told, value = known
        if self.state.word[0] and not told and not isinstance(value, Options | Word) and size >= 4:
            told, value = self.state.word
        if size == _WIDEST:
            self._hand_out(value, self.state.path)
        value = value if size == _WIDEST else None if isinstance(value, Frame) else low(value, 8 * size)
        if isinstance(address, Frame):
            base, at = address.place
            for distance in range(-size + 1, size):
                self.put((base, at + distance), NOTHING)
            self.put((base, at), (told, value))
            self._widths[base, at] = size
        elif isinstance(address, Options) and address.constant and self.surroundings.is_data(address.constant):
            self.put((VARIABLE, address.constant), (told, value))
            self._widths[VARIABLE, address.constant] = self.flow.widths[address.constant] = size
            self._stored.setdefault(address.constant, []).append((told, under(value, self.state.path)))
        else:
            self.flow.hides |= told

    def forget(self, address: Value, size: int) -> None:
        """Something unknown is stored at an address."""
        place = self.one_place(address)
        if place is None:
            return
        base, first = place
        for at in range(first - _WIDEST + 1, first + size):
            if at + self._widths.get((base, at), _WIDEST) > first:
                self.put((base, at), NOTHING)
                self.state.values.pop((base, at), None)

    def parts(self, address: Value, size: int) -> list[Part]:
        """What the CPU told that lies in the bytes at an address."""
        place = self.one_place(address)
        if place is None:
            return []
        base, first = place
        held = [at for at in range(size) if (base, first + at) in self.state.told or self._is_left(base, first + at)]
        found = []
        for at, behind in pairwise([*held, size]):
            width = min(self._widths.get((base, first + at), _WIDEST), behind - at)
            found.append((at, width, self.load(moved(address, at), width)))
        return found

    def copy_out(self, register: int, address: Value, size: int) -> None:
        """A register is stored that holds what was read as a whole, or nothing that is known."""
        self.forget(address, size)
        for at, width, known in self.state.copied.get(register, ()):
            if at + width <= size:
                self.store(moved(address, at) if self.is_one(address) else None, known, width)

    def store_to_element(self, parts: list[Value], known: Known) -> None:
        """A value is stored to some element of an array, one of `parts` of whose address may be where that lies."""
        if not known[0]:
            return
        for value in parts:
            for at in range(0, OBJECT, _WIDEST):
                if isinstance(value, Frame):
                    self.put((value.place[0], value.place[1] + at), (True, None))
                elif isinstance(value, Options) and value.constant and self.surroundings.is_data(value.constant):
                    self.put((VARIABLE, value.constant + at), (True, None))

    @staticmethod
    def one_place(address: Value) -> tuple[int, int] | None:
        """The place at an address, where that can be but one."""
        if isinstance(address, Frame):
            return address.place
        where = address.constant if isinstance(address, Options) else None
        return None if where is None else (VARIABLE, where)

    def is_one(self, address: Value) -> bool:
        """Whether an address can be but one."""
        return self.one_place(address) is not None

    def is_object(self, value: Value) -> bool:
        """Whether a value is the address of an object in which something lies that the CPU told."""
        if isinstance(value, Frame):
            base, first = value.place
            return any((base, first + at) in self.state.told for at in range(OBJECT))
        return isinstance(value, Options) and self.surroundings.holds(value.constant)

    def _covering(self, base: int, at: int) -> int | None:
        """How far below a place the one begins that was written and reaches there."""
        for distance in range(_WIDEST):
            held = base, at - distance
            if distance < self._widths.get(held, _WIDEST):
                value = self.state.values.get(held)
                if held in self.state.told or value not in (None, SETTLED):
                    return distance
        return None

    def _load_place(self, place: tuple[int, int], size: int) -> Known:
        return self._assembled(place, size) or (self.state.word if PARAMETER <= place[0] < VARIABLE else NOTHING)

    def _assembled(self, place: tuple[int, int], size: int) -> Known | None:
        """What lies at a place; where it was written in parts, what these make together."""
        width, known = self._piece(place, size)
        if width == size:
            return known
        base, at = place
        if known is None and not any((base, at + i) in self.state.told for i in range(1, size)):
            return None
        told, value, done = False, None, 0
        while done < size:
            width, known = self._piece((base, at + done), size - done)
            part_told, part = known or NOTHING
            told, value = told or part_told, inserted(value, part, 8 * done, 8 * width)
            done += width
        return told, low(value, 8 * size)

    def _piece(self, place: tuple[int, int], size: int) -> tuple[int, Known | None]:
        """What is known of what lies at a place, and of how many bytes; None where nothing is."""
        base, at = place
        distance = self._covering(base, at)
        if distance is None:
            return self._left_by_others(at, size) if base == VARIABLE else (1, None)
        held = base, at - distance
        value, width = self.state.values.get(held), min(size, self._widths.get(held, _WIDEST) - distance)
        if not isinstance(value, Frame):
            value = low(shifted(value, -8 * distance, 64), 8 * width)
        elif distance or width < _WIDEST:
            value = None
        return width, (held in self.state.told, value)

    def _left_by_others(self, where: int, size: int) -> tuple[int, Known | None]:
        """The same of what other functions leave in a variable."""
        variable = self.surroundings.variable
        apart = -1 if self.state.values.get((VARIABLE, where)) is SETTLED else self.start
        for distance in range(_WIDEST):
            known = variable(where - distance, distance, apart)
            if known:
                width = size
                while not variable(where - distance, distance + width - 1, apart):
                    width -= 1
                return width, (True, low(shifted(known[1], -8 * distance, 64), 8 * width))
        return 1, None

    def _is_left(self, base: int, at: int) -> bool:
        """Whether other functions leave something that the CPU told in a variable, and this one nothing yet."""
        if base != VARIABLE or self._covering(base, at) is not None:
            return False
        return self.surroundings.variable(at, 0, self.start) is not None

    def _fill(self, address: Value, at: int, known: Known) -> None:
        if isinstance(address, Frame):
            self.put((address.place[0], address.place[1] + at), known)
        elif isinstance(address, Options) and address.constant and self.surroundings.is_data(address.constant):
            self.put((VARIABLE, address.constant + at), known)
        else:
            self.flow.hides = True

    def _object(self, address: Frame) -> dict[int, Known]:
        """What the CPU told that lies in an object, by the distance from its beginning."""
        base, first = address.place
        held = [place for place in self.state.told if isinstance(place, tuple) and place[0] == base]
        return {at - first: self.known((base, at)) for _, at in held if 0 <= at - first < OBJECT}

    def _hand_out(self, value: Value, path: Condition) -> None:
        for number, condition in value.numbers if isinstance(value, Options) else ():
            if self.surroundings.is_code(number):
                told = both(condition, path)
                self.flow.chosen[number] = either(self.flow.chosen.get(number, NEVER), told)

    def _let_others_write(self) -> None:
        """After a call, a variable may hold what another function leaves there."""
        for place in [place for place in self.state.values.keys() | self.state.told if is_variable(place)]:
            left = self.surroundings.variable(place[1], 0, self.start)
            if left and self.state.values.get(place) is not SETTLED:
                self.put(place, together([self.known(place), left]))
