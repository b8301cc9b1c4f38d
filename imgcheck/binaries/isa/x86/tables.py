"""Where the jump tables of a function lead: what compilers make of a switch.

Position-independent code reads a signed word of 32 bits from the table and adds the table's address (LEA, MOVSXD, ADD,
JMP); other code jumps to an address that it reads from a table of addresses (JMP [TABLE + 8 * RAX]).
"""

import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.x86.facts import INDIRECT_JUMP, LEA, Code, Memory

_BEFORE = 6
"""Instructions from the one that reads the table to the jump."""
_MOST = 1024
"""Cases read of one table."""
_WORD = 4


def cases(elf: Elf, code: Code) -> dict[int, tuple[int, ...]]:
    """By the address of an indirect jump, where its table leads to; without those whose table is not found."""
    jumps = [number for number in code.controls if code.facts[number].kind == INDIRECT_JUMP]
    places = {code.ips[number]: place for number in jumps if (place := _place(code, number)) is not None}
    bases = sorted(base for base, _ in places.values())
    found = {}
    for jump, (base, distances) in places.items():
        behind = next((other for other in bases if other > base), base + _MOST * code.pointer)
        if targets := _targets(elf, code, base, behind, distances):
            found[jump] = targets
    return found


def _place(code: Code, jump: int) -> tuple[int, bool] | None:
    """Where the table of a jump seems to lie, and whether it holds distances."""
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
    for above in range(number - 1, -1, -1):
        fact = code.facts[above]
        if fact.written & memory.base:
            taken = fact.loads[0] if fact.kind == LEA else None
            return code.ips[above] + fact.size + taken.displacement if taken and taken.relative else None
    return None


def _targets(elf: Elf, code: Code, base: int, behind: int, distances: bool) -> tuple[int, ...]:
    """Where the table leads: up to what is no instruction of the function, or to the next table."""
    offset = elf.offset_of(base)
    if offset is None:
        return ()
    size = _WORD if distances else code.pointer
    held = elf.array[offset : offset + min((behind - base) // size, _MOST) * size]
    held = held[: len(held) // size * size].tobytes()
    entries = np.frombuffer(held, np.dtype(f"<{'i' if distances else 'u'}{size}"))
    targets = entries.astype(np.int64) + (base if distances else 0)
    wrong = np.flatnonzero(~np.isin(targets, np.array(code.ips, np.int64)))
    return tuple(dict.fromkeys(targets[: wrong[0] if len(wrong) else None].tolist()))
