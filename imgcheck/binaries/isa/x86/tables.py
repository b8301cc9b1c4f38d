"""Where the jump tables of a function lead: what compilers make of a switch.

Position-independent code reads a signed word of 32 bits from the table and adds the table's address (LEA, MOVSXD, ADD,
JMP); other code jumps to an address that it reads from a table of addresses (JMP [TABLE + 8 * RAX]).
"""

from bisect import bisect_right

import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.x86.facts import INDIRECT_JUMP, LEA, Code, Memory

_BEFORE = 6
"""Instructions from the one that reads the table to the jump."""
_ABOVE = 256
"""Instructions from there up to the one that takes the table's address."""
_MOST = 1024
"""Cases read of one table."""
_MOST_OF_ALL = 8192
"""Cases of all tables of a function; where there are more, nothing is known of any."""
_WORD = 4

_Place = tuple[int, bool]
"""Where a table seems to lie, and whether it holds distances."""


def tables(elf: Elf, code: Code) -> dict[int, tuple[int, ...]]:
    """By the address of an indirect jump, where its table leads to; without those whose table is not found.

    What a table leads to besides, as to code that its function's cold part holds, is not told.
    """
    jumps = [number for number in code.controls if code.facts[number].kind == INDIRECT_JUMP]
    places = {code.ips[number]: place for number in jumps if (place := _place(code, number)) is not None}
    if not places:
        return {}
    bases = sorted({base for base, _ in places.values()})
    ips = np.array(code.ips, np.int64)
    known: dict[_Place, tuple[int, ...]] = {}
    for place in places.values():
        if place not in known:
            at = bisect_right(bases, place[0])
            known[place] = _targets(elf, code, ips, place, bases[at] if at < len(bases) else None)
    found = {jump: known[place] for jump, place in places.items() if known[place]}
    return found if sum(map(len, found.values())) <= _MOST_OF_ALL else {}


def _place(code: Code, jump: int) -> _Place | None:
    for number in range(jump, max(jump - _BEFORE, -1), -1):
        for memory in code.facts[number].loads:
            if not memory.index or memory.relative or code.facts[number].kind == LEA:
                continue
            if not memory.base and memory.scale == code.pointer:
                return memory.displacement, False
            if memory.base and memory.scale == _WORD == memory.size and not memory.displacement:
                base = _address(code, number, memory)
                return None if base is None else (base, True)
    return None


def _address(code: Code, number: int, memory: Memory) -> int | None:
    """What the base of an operand holds, where the last instruction above that writes to it is a LEA of an address."""
    for above in range(number - 1, max(number - _ABOVE, -1), -1):
        fact = code.facts[above]
        if fact.written & memory.base:
            taken = fact.loads[0] if fact.kind == LEA else None
            return code.ips[above] + fact.size + taken.displacement if taken and taken.relative else None
    return None


def _targets(elf: Elf, code: Code, ips: np.ndarray, place: _Place, behind: int | None) -> tuple[int, ...]:
    """Where the table leads: up to what is no instruction of the function, or to the next table at `behind`."""
    base, distances = place
    offset = elf.offset_of(base)
    if offset is None:
        return ()
    size = _WORD if distances else code.pointer
    count = _MOST if behind is None else min((behind - base) // size, _MOST)
    held = elf.array[offset : offset + count * size]
    whole = held[: len(held) // size * size].tobytes()
    entries = np.frombuffer(whole, np.dtype(f"<{'i' if distances else 'u'}{size}"))
    targets = entries.astype(np.int64) + (base if distances else 0)
    wrong = np.flatnonzero(ips[np.searchsorted(ips, targets).clip(max=len(ips) - 1)] != targets)
    return tuple(dict.fromkeys(targets[: wrong[0] if len(wrong) else None].tolist()))
