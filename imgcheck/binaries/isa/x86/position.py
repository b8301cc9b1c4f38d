"""32-bit position-independent code: where it learns its own address, and what lies at a distance from that.

Such code has no operands relative to the next instruction. It calls a function that returns its own return address
(GCC's `__x86.get_pc_thunk.bx`), or calls the next instruction and pops (clang, and assembler by hand); most often it
adds the distance to the global offset table (System V ABI, Intel386 supplement, "Position-Independent Function
Prologue"). Variables and functions are then named by how far they lie from that address.
"""

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from imgcheck.binaries.isa.functions import Functions
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.kernels import arrays, x86

_CALL, _MOV, _RET, _ADD, _ADD_EAX, _LEA = 0xE8, 0x8B, 0xC3, 0x81, 0x05, 0x8D
_CALL_BYTES = 5
_FROM_STACK = 0x04
"""ModRM of `[esp]`, but for the register; its SIB byte follows."""
_SIB = 4
"""The register field of ModRM that says that a SIB byte follows."""
_ESP, _EAX = 4, 0
_AWAY = 32
"""Bytes behind which no ADD belongs to what learns the address."""
_GROUP = 0xFF
_JUMP_THROUGH_EBX = 0xA3
"""ModRM of `jmp [ebx+disp32]`, with which PLT stubs begin: EBX holds the address of the table there."""
_DT_PLTGOT = 3


@dataclass(frozen=True, slots=True)
class Learnt:
    """Instructions behind which a register holds the file's own address, in columns, in order of `at`."""

    at: np.ndarray
    """The CALL of a function that returns it, or the POP."""
    after: np.ndarray
    """That address."""
    base: np.ndarray
    """What it is with what is soon added to it: most often the address of the global offset table."""
    since: np.ndarray
    """Where that is added."""
    register: np.ndarray
    """Its number, as in ModRM."""


class Position:
    """Where the code of one file learns its own address, and what it names by the distance from there."""

    def __init__(self, layout: Layout, site: np.ndarray, target: np.ndarray) -> None:
        """`site` and `target` of everything that looks like a near call."""
        self._layout = layout
        self.learnt = self._learnt(site, target)

    def _learnt(self, site: np.ndarray, target: np.ndarray) -> Learnt:
        first, modrm, sib, last = (self._layout.bytes_behind(target, k) for k in range(4))
        returned = (first == _MOV) & (modrm & 0xC7 == _FROM_STACK) & (sib == 0x24) & (last == _RET)
        at, register = site[returned], modrm[returned] >> 3 & 7
        popped = self._next_popped()
        opcode = self._layout.bytes_behind(popped)
        at = np.append(at, popped).astype(np.int64)
        after = np.append(site[returned] + _CALL_BYTES, popped).astype(np.int64)
        register = np.append(register, opcode & 7)
        order = np.argsort(at, kind="stable")
        at, after, register = at[order], after[order], register[order]
        number, distance = self._added(after, register)
        return Learnt(at, after, after + number, after + distance, register)

    def _next_popped(self) -> np.ndarray:
        """Addresses of POP of a register right behind a call of that POP."""
        found = [np.empty(0, np.int64)]
        for span in self._layout.spans:
            at = arrays.find_bytes(span.data, 0xFF, _CALL)
            at = at[at < len(span.data) - _CALL_BYTES]
            for k in range(1, _CALL_BYTES):
                at = at[span.data[at + k] == 0]
            pop = span.data[at + _CALL_BYTES]
            found.append(at[(pop & 0xF8 == 0x58) & (pop & 7 != _ESP)] + (span.address + _CALL_BYTES))
        return np.concatenate(found)

    def _added(self, after: np.ndarray, register: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number that is added to a register soon behind each address, and how far behind; else 0.

        The sum lies in the file.
        """
        lowest, highest = self._layout.extent
        added, where = np.zeros(len(after), np.int64), np.zeros(len(after), np.int64)
        for distance in reversed(range(_AWAY)):
            first, second = (self._layout.bytes_behind(after, distance + k) for k in range(2))
            short = (first == _ADD_EAX) & (register == _EAX)
            number = self._number(after, np.where(short, distance + 1, distance + 2))
            long = ((first == _ADD) & (second == 0xC0 | register)) | ((first == _LEA) & (second == 0x80 | 9 * register))
            found = (short | long) & (after + number >= lowest) & (after + number < highest)
            added, where = np.where(found, number, added), np.where(found, distance, where)
        return added, where

    def _number(self, after: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """The signed 32-bit number so far behind each address."""
        parts = (self._layout.bytes_behind(after + distance, k).astype(np.uint32) << 8 * k for k in range(4))
        return reduce(np.bitwise_or, parts).view(np.int32).astype(np.int64)

    @cached_property
    def registers(self) -> dict[int, tuple[int, int]]:
        """Address of an instruction that learns the own address -> the number of its register, and that address."""
        learnt = self.learnt
        told = zip(learnt.register.tolist(), learnt.after.tolist(), strict=True)
        return dict(zip(learnt.at.tolist(), told, strict=True))

    def base_within(self, start: int, end: int) -> int:
        """The address to which distances count in code from `start` to `end`; 0 where it learns none."""
        inside = self.learnt.base[(self.learnt.at >= start) & (self.learnt.at < end)]
        return int(inside[0]) if len(inside) else 0

    def distances(self, functions: Functions) -> "Distances":
        """What code names by the distance from its own address, as far as `functions` are known."""
        return Distances(self._layout, self.learnt, functions)


class Distances:
    """Operands at a distance from where the function that holds them has learnt to lie."""

    def __init__(self, layout: Layout, learnt: Learnt, functions: Functions) -> None:
        self._layout, self._functions = layout, functions
        self._table = layout.elf.dynamic_value(_DT_PLTGOT)
        self._at = learnt.at
        # The last of each goes with no address.
        self._holder = np.append(functions.holding(learnt.at), -2)
        self._columns = [np.append(c, 0) for c in (learnt.after, learnt.base, learnt.since, learnt.register)]

    def operands(
        self, data: np.ndarray, address: int, within: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Addresses of what looks like the ModRM byte of an operand at a distance from the own address, and its target.

        And whether LEA takes it, and it leads from code to code, as only assembler by hand has it: to a table there.
        `data`, which lies at `address`, has PADDING more bytes than are looked at; targets are those `within` alone.
        """
        at = arrays.find_bytes(data[: -x86.PADDING], 0xC0, 0x80)
        has_sib = data[at] & 7 == _SIB
        register = np.where(has_sib, data[at + 1], data[at]) & 7
        distance = arrays.words_at(data, at + 1 + has_sib)
        site = at + address
        index = self._learnt_before(site)
        after, base, since, learnt = (column[index] for column in self._columns)
        base = np.where(site > since + 1, base, after)  # what adds it has its ModRM byte there
        opcode = self._layout.bytes_behind(site - 1)
        # Another register may hold a copy; but calls through others are those of methods.
        known = (index >= 0) & ((learnt == register) | (opcode != _GROUP))
        known &= distance != 0  # LEA of what a register holds anyway fills gaps
        if self._table is not None:
            stubs = (data[at] == _JUMP_THROUGH_EBX) & (opcode == _GROUP)
            base, known = np.where(stubs, self._table, base), known | stubs
        target = base + distance
        known &= (target >= within[0]) & (target < within[1])
        site, base, target = site[known], base[known], target[known]
        within_code = self._layout.in_code(base) & self._layout.in_code(target)
        named = within_code & (opcode == _LEA)[known] & (learnt == register)[known]
        kept = named | ~within_code
        return site[kept], target[kept], named[kept]

    def _learnt_before(self, site: np.ndarray) -> np.ndarray:
        """Which instruction has learnt it last before each address in the same function, or -1."""
        index = np.searchsorted(self._at, site) - 1
        return np.where(self._functions.holding(site) == self._holder[index], index, -1)
