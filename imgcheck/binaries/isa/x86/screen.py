"""Finds every byte position that may begin an instruction of interest, without decoding: numpy over the whole code.

A position is a candidate where prefix, map, opcode and operand fields name an encoding that exists. Most are real;
what is data, displacement or immediate is sorted out when the function around it is decoded. Layouts: Intel SDM
volume 2, sections 2.1 to 2.7 (legacy, VEX, EVEX); AMD manual volume 6 (XOP); Intel APX specification (EVEX map 4).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from imgcheck.binaries.isa.layout import Area, Layout
from imgcheck.binaries.isa.x86.encodings import Encodings

_LONGEST = 16
CHUNK = 1 << 18
"""Bytes compared at a time: what comes of it stays in the second-level cache."""
_PIECE = 1 << 22
"""Bytes screened at a time: the columns of their candidates are sorted and cut down before there are many."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Sorted addresses of possible instructions (of their VEX, EVEX, XOP or 0F byte) and the set each would need."""

    address: np.ndarray
    set: np.ndarray
    doubtful: np.ndarray
    """Only the decoder can tell what the instruction is."""
    depth: np.ndarray
    """How many bytes before `address` the mandatory prefix was taken from; 0 where none was."""
    beyond: np.ndarray
    """It may turn out to need more than the baseline."""

    def __len__(self) -> int:
        return len(self.address)

    def take(self, chosen: np.ndarray) -> "Candidates":
        columns = (self.address, self.set, self.doubtful, self.depth, self.beyond)
        return Candidates(*(column[chosen] for column in columns))


_NONE = Candidates(np.empty(0, np.int64), *(np.empty(0, kind) for kind in (np.uint8, bool, np.uint8, bool)))


def joined(parts: list[Candidates]) -> Candidates:
    """All of `parts`, by address."""
    found = Candidates(*map(np.concatenate, _columns(parts)))
    return found.take(np.argsort(found.address, kind="stable"))


def _columns(parts: list[Candidates]) -> Iterator[list[np.ndarray]]:
    return ([getattr(part, name) for part in parts] for name in Candidates.__dataclass_fields__)


def find_bytes(data: np.ndarray, mask: int, value: int) -> np.ndarray:
    """Positions of the bytes that are `value` under `mask`."""
    if len(data) <= CHUNK:
        return np.flatnonzero((data if mask == 0xFF else data & mask) == value)
    return np.concatenate([find_bytes(data[at : at + CHUNK], mask, value) + at for at in range(0, len(data), CHUNK)])


def screen(layout: Layout, bits: int, table: Encodings) -> Candidates:
    """All candidates of the file, by address."""
    parts = [joined(list(part)) for area in layout.spans for part in _screened(layout, area, bits, table)]
    columns = list(_columns(parts or [_NONE]))
    parts.clear()  # so that no column is there twice but the one that is put together
    return Candidates(*(np.concatenate(columns.pop(0)) for _ in Candidates.__dataclass_fields__))


def _screened(layout: Layout, area: Area, bits: int, table: Encodings) -> Iterator[Iterator[Candidates]]:
    """The candidates of each piece of `area`, by their first byte: sorting a piece is cheap, and takes little room."""
    for first in range(0, len(area.data), _PIECE):
        found = _screen_piece(area, first, bits, table)
        yield (replace(part, address=(part.address + area.address).astype(layout.address_type)) for part in found)


def _screen_piece(area: Area, first: int, bits: int, table: Encodings) -> Iterator[Candidates]:
    """The candidates of one piece, whose address is counted from the begin of `area` here."""
    data = area.data
    for byte, screener in ((0xC5, _vex2), (0xC4, _vex3), (0x62, _evex), (0x8F, _xop), (0x0F, _legacy)):
        at = find_bytes(data[first : first + _PIECE], 0xFF, byte) + first
        if bits == 32 and byte in (0xC5, 0xC4, 0x62):  # elsewhere LDS, LES and BOUND, whose operand is in memory
            at = at[_byte(data, at, 1) >= 0xC0]
        found = screener(data, at, bits, table)
        # Behind the end of the code there are no operands: there the decoder has to agree.
        found.doubtful[found.address > len(data) - _LONGEST] = True
        yield found.take(np.flatnonzero(found.set))


def pairs(spans: tuple[Area, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Where two 64-bit registers become a vector: addresses (of the 0F byte) of PINSRQ, and of PUNPCKLQDQ."""
    found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for area in spans:
        for first in range(0, len(area.data), _PIECE):
            at = find_bytes(area.data[first : first + _PIECE], 0xFF, 0x0F) + first
            second, rex = _byte(area.data, at, 1), _byte(area.data, at, -1)
            wide = (second == 0x3A) & (rex & 0xF8 == 0x48) & (_byte(area.data, at, 2) == 0x22)
            for where, addresses in zip((wide, second == 0x6C), found, strict=True):
                addresses.append(at[where & _has_66(area.data, at, rex)] + area.address)
    insert, unpack = (np.concatenate(parts or [_NONE.address]) for parts in found)
    return insert, unpack


def _has_66(data: np.ndarray, at: np.ndarray, rex: np.ndarray) -> np.ndarray:
    """Whether 66 stands before each position, or before the REX prefix there."""
    return np.where(rex & 0xF0 == 0x40, _byte(data, at, -2), rex) == 0x66


def _byte(data: np.ndarray, at: np.ndarray, shift: int) -> np.ndarray:
    return data.take(at + shift, mode="clip")


def _vector(at: np.ndarray, sets: np.ndarray, doubtful: np.ndarray) -> Candidates:
    return Candidates(at, sets.astype(np.uint8), doubtful, np.zeros(len(at), np.uint8), np.ones(len(at), bool))


def _vex2(data: np.ndarray, at: np.ndarray, bits: int, table: Encodings) -> Candidates:
    head = _byte(data, at, 1)
    key = 0, 1, head & 3, _byte(data, at, 2), 0, (head >> 2) & 1
    return _vector(at, table.vector[key], table.ambiguous_vector[key])


def _vex3(data: np.ndarray, at: np.ndarray, bits: int, table: Encodings) -> Candidates:
    place = _byte(data, at, 1) & 31
    at, place = at[place < 8], place[place < 8]
    head = _byte(data, at, 2)
    opcode = _byte(data, at, 3)
    key = 0, place, head & 3, opcode, head >> 7, (head >> 2) & 1
    sets = table.vector[key]
    loads = (place == 2) & ((opcode == 0x18) | (opcode == 0x19)) & (_byte(data, at, 4) < 0xC0)
    return _vector(at, np.where(loads & (sets > 0), table.avx, sets), table.ambiguous_vector[key])


def _evex(data: np.ndarray, at: np.ndarray, bits: int, table: Encodings) -> Candidates:
    first, second = _byte(data, at, 1), _byte(data, at, 2)
    shaped = ((second & 4) != 0) & ((first & 7) > 0) & ((first & 7) < 7)
    at, first, second = at[shaped], first[shaped], second[shaped]
    third, opcode, modrm = (_byte(data, at, shift) for shift in (3, 4, 5))
    place = first & 7
    # With register operands the broadcast bit means rounding, the length field its mode, and the length is 512.
    rounding = ((third & 0x10) != 0) & (modrm >= 0xC0)
    length = np.where(rounding, 2, (third >> 5) & 3)
    key = 1, place, second & 3, opcode, second >> 7, length
    sets = table.vector[key]
    sets = np.where((place == 4) | ((first & 8) != 0), 0, sets)
    # Map 4 is APX whatever else it says; other unknown opcodes of a well-formed prefix are newer than the decoder.
    new = (sets == 0) & (place != 4) & ((first & 8) == 0) & (length < 3)
    sets = np.where(place == 4, table.apx if bits == 64 else 0, np.where(new, table.avx10, sets))
    return _vector(at, sets, table.ambiguous_vector[key])


def _xop(data: np.ndarray, at: np.ndarray, bits: int, table: Encodings) -> Candidates:
    place = _byte(data, at, 1) & 31
    chosen = (place >= 8) & (place <= 10)
    at, place = at[chosen], place[chosen]
    head = _byte(data, at, 2)
    key = 2, place & 7, head & 3, _byte(data, at, 3), head >> 7, (head >> 2) & 1
    return _vector(at, table.vector[key], table.ambiguous_vector[key])


def _legacy(data: np.ndarray, at: np.ndarray, bits: int, table: Encodings) -> Candidates:
    wanted = table.legacy[1].any(axis=(0, 2))
    wanted[[0x38, 0x3A]] = True
    at = at[wanted[_byte(data, at, 1)]]
    second = _byte(data, at, 1)
    place = np.where(second == 0x38, 2, np.where(second == 0x3A, 3, 1))
    long = place > 1
    opcode = np.where(long, _byte(data, at, 2), second)
    reg = (_byte(data, at, 2) * ~long + _byte(data, at, 3) * long) >> 3 & 7
    (prefix, depth), *others = _prefixes(data, at, bits)
    sets = table.legacy[place, prefix, opcode, reg]
    unsure = (sets == 0) & (prefix > 0)
    # A byte before the opcode that looks like a prefix may end the instruction before it, or may make another
    # instruction of it, one that needs nothing: what the likeliest reading does not explain, the next one may.
    for other, distance in others:
        left = np.flatnonzero(sets == 0)
        prefix[left], depth[left] = other[left], distance[left]
        sets[left] = table.legacy[place[left], other[left], opcode[left], reg[left]]
    doubtful = table.ambiguous[place, prefix, opcode, reg] | unsure
    return Candidates(at, sets, doubtful, depth.astype(np.uint8), table.beyond[place, opcode, reg])


def _prefixes(data: np.ndarray, at: np.ndarray, bits: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mandatory prefixes (none, 66, F3, F2 as 0 to 3) that may stand before the 0F bytes, with their distance."""
    number = np.zeros(256, np.uint8)
    number[[0x66, 0xF3, 0xF2]] = 1, 2, 3
    before = [number[_byte(data, at, -i)] * (at >= i) for i in (1, 2, 3)]
    rex = np.zeros(len(at), bool)
    if bits == 64:
        rex = (_byte(data, at, -1) & 0xF0) == 0x40
        before = [np.where(rex, before[1], before[0]), np.where(rex, before[2], before[1])]
    # F2 and F3 decide over 66, in whichever order they stand.
    behind = (before[0] == 1) & (before[1] > 1)
    none = np.zeros(len(at), np.uint8)
    return [(np.where(behind, before[1], before[0]), (1 + rex + behind) * (before[0] > 0)),
            (before[0], (1 + rex) * (before[0] > 0)), (none, none)]  # fmt: skip
