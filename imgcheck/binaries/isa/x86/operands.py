"""Where the operands of instructions lie in memory, and what is known of what lies there."""

from typing import overload

from imgcheck.binaries.isa.values import (
    SETTLED,
    Frame,
    Options,
    Value,
    Word,
    alike,
    constant,
    low,
    numbered,
    shifted,
    summed,
    tells,
    whole,
)
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.facts import Fact, Memory
from imgcheck.binaries.isa.x86.handed import Context
from imgcheck.binaries.isa.x86.state import State, variable

Where = int | tuple[int, int] | None
"""A global address, a place on the stack or in an object (a register's bit and a distance), or nobody knows."""
POINTER, WORD = 8, 4
"""Bytes."""
WHOLE = 32
"""Bits of an operand that leaves nothing of its register as it was."""
_MASK = (1 << 64) - 1
_NOUGHT = constant(0)
ARRAY = 64
"""Bytes of an array as far as they are taken to be meant by an index that is not known."""


@overload
def moved(place: tuple[int, int], distance: int) -> tuple[int, int]: ...
@overload
def moved(place: Where, distance: int) -> Where: ...
def moved(place: Where, distance: int) -> Where:
    """The place that many bytes further on."""
    return (place[0], place[1] + distance) if isinstance(place, tuple) else place and place + distance


class Operands:
    """The operands in memory of one function. `after` is the address of the next instruction."""

    def __init__(self, graph: ControlFlow, context: Context) -> None:
        self._context = context
        self._stack, self._pointer = graph.code.stack, graph.code.pointer
        self._written = graph.variables

    def where(self, state: State, after: int, memory: Memory) -> Where:
        """Where an operand lies."""
        if not memory.index:
            return self.array(state, after, memory)
        index = state.values.get(memory.index)
        if not isinstance(index, Options) or index.constant is None:
            return None
        return moved(self.array(state, after, memory), index.constant * memory.scale)

    def array(self, state: State, after: int, memory: Memory) -> Where:
        """The place of what an operand has before its index is added."""
        if memory.relative:
            return after + memory.displacement
        if not memory.base:
            return memory.displacement
        if memory.base & self._stack:
            return memory.base, memory.displacement
        if memory.base in state.addresses:
            return state.addresses[memory.base] + memory.displacement
        if isinstance(frame := state.values.get(memory.base), Frame):
            return frame.place[0], frame.place[1] + memory.displacement
        return None

    def is_of_array(self, state: State, after: int, memory: Memory) -> bool:
        """Whether an operand is one element, nobody knows which, of an array with knowledge of the CPU."""
        first = self.array(state, after, memory) if memory.index else None
        if isinstance(first, tuple):
            return bool(state.slots) and not state.slots.isdisjoint(parts(first, range(ARRAY)))
        return first is not None and any(self._context.holds(first + i) for i in range(0, ARRAY, 4))

    def is_knowledge(self, state: State, where: Where, memory: Memory) -> bool:
        """Whether what the CPU told lies in an operand, which is at `where`."""
        if isinstance(where, int):
            return self._context.holds(where) or tells(state.values.get(variable(where)))
        if where is None and self._context.member(memory.displacement, memory.size)[0]:
            return True
        place, slots = where or _in_object(state, memory), state.slots
        return place is not None and bool(slots) and not slots.isdisjoint(parts(place, range(memory.size)))

    def read(self, state: State, ip: int, fact: Fact) -> Value:
        """What is known of the one operand in memory of an instruction."""
        if len(fact.loads) != 1 or fact.loads[0].size > POINTER:
            return None
        memory = fact.loads[0]
        where = self.where(state, ip + fact.size, memory)
        if isinstance(where, tuple):
            return _read_place(state, where, memory)
        if where is None and (place := _in_object(state, memory)):
            return _read_place(state, place, memory)
        if where is None:
            looked_up = self._looked_up(self.addresses(state, memory), memory.size)
            return looked_up or self._context.member(memory.displacement, memory.size)[1]
        known = self._variable_at(state, where, memory.size)
        if known is None and (lying := self._context.fixed(where, memory.size)) is not None:
            return lying
        if memory.size == POINTER and isinstance(known, Word):
            known = whole(low(known, WHOLE), self._variable_at(state, where + WORD, WORD))
        if known is None and where & 3:  # a test of one byte of a word
            known = shifted(self._variable_at(state, where & ~3, 4), -8 * (where & 3), 32)
        return known

    def initial(self, where: int, size: int) -> Value:
        """What lies at an address when the file is loaded, of a variable as much as is stored to it."""
        return self._context.initial(where, min(size, self._written.get(where, size)))

    def _variable_at(self, state: State, where: int, size: int) -> Value:
        known = state.values.get(variable(where), SETTLED)
        if known is not SETTLED:
            return known
        known = self._context.value(where)
        return self._context.initial(where, size) if known is None and where in self._written else known

    def addresses(self, state: State, memory: Memory) -> Options | None:
        """The addresses that an operand may have, where they are numbered by what the CPU told."""
        if memory.relative or memory.base & self._stack:
            return None
        base = numbered(state.values.get(memory.base)) if memory.base else _NOUGHT
        if base is None:
            return None
        index = numbered(state.values.get(memory.index)) if memory.index else _NOUGHT
        found = _total(base, index, memory) if index is not None else None
        return found if isinstance(found, Options) else None

    def sum(self, state: State, memory: Memory) -> Value:
        """What LEA makes of an operand, of which compilers make use for sums of any kind."""
        found = self.addresses(state, memory)
        if found is not None or memory.relative or memory.base & self._stack:
            return found
        base, index = (state.values.get(r) if r else _NOUGHT for r in (memory.base, memory.index))
        if memory.base == memory.index and memory.scale == 1:
            base, index = shifted(base, 1, 64), _NOUGHT
        return _total(base, index, memory)

    def _looked_up(self, addresses: Options | None, size: int) -> Value:
        """The pointers or numbers that lie at addresses."""
        found = []
        lying = self._context.initial if size == self._pointer else self._context.fixed
        for address, condition in addresses.numbers if addresses else ():
            pointer = self._context.pointee(address) if size == self._pointer else 0
            at = constant(pointer) if pointer else lying(address, size)
            if not isinstance(at, Options):
                return None
            found.append((*at.numbers[0][:1], condition))
        return Options(tuple(found)) if found else None


def _total(base: Value, index: Value, memory: Memory) -> Value:
    """The base, the index as often as an operand scales it, and the displacement."""
    scaled = shifted(index, memory.scale.bit_length() - 1, 64)
    return summed(summed(base, scaled, 64), constant(memory.displacement & _MASK), 64)


def _in_object(state: State, memory: Memory) -> tuple[int, int] | None:
    """The place of an operand in an object of which something is known."""
    return None if memory.index or not memory.base & state.bases else (memory.base, memory.displacement)


def _read_place(state: State, place: tuple[int, int], memory: Memory) -> Value:
    known, behind = state.values.get(place), state.values.get(moved(place, WORD))
    if memory.size == POINTER:
        return known if behind is None else whole(known, behind)
    if known is None or _is_mixed(state, place, known, memory.size):
        return None
    # What was stored may have been longer.
    return low(known, 8 * memory.size)


def _is_mixed(state: State, place: tuple[int, int], known: Value, size: int) -> bool:
    """Whether of some bytes that are read together one was stored by itself, as members of small structures are."""
    inner = [(k, at) for k, at in enumerate(parts(place, range(1, size)), 1) if at in state.values]
    return any(not alike(state.values[at], shifted(known, -8 * k, 8 * size)) for k, at in inner)


def parts(place: tuple[int, int], distances: range) -> list[tuple[int, int]]:
    """The places so far from one on."""
    base, at = place
    return [(base, at + distance) for distance in distances]
