"""Finds every byte position that may begin an instruction of interest, without decoding.

A position is a candidate where prefix, map, opcode and operand fields name an encoding that exists. Most are real;
what is data, displacement or immediate is sorted out when the function around it is decoded. Layouts: Intel SDM
volume 2, sections 2.1 to 2.7 (legacy, VEX, EVEX); AMD manual volume 6 (XOP); Intel APX specification (EVEX map 4).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from imgcheck.binaries.isa.columns import Columns
from imgcheck.binaries.isa.layout import Area, Layout
from imgcheck.binaries.isa.x86.encodings import Encodings
from imgcheck.binaries.kernels.arrays import find_bytes

_LONGEST = 16
_PIECE = 1 << 20
"""Bytes screened at a time: there may be as many candidates in it."""


@dataclass(frozen=True, slots=True)
class Candidates(Columns):
    """Sorted addresses of possible instructions (of their VEX, EVEX, XOP or 0F byte) and the set each would need."""

    address: np.ndarray
    set: np.ndarray
    doubtful: np.ndarray
    """Only the decoder can tell what the instruction is."""
    depth: np.ndarray
    """How many bytes before `address` the mandatory prefix was taken from; 0 where none was, 255 where one may be."""

    def __len__(self) -> int:
        return len(self.address)


def screened(layout: Layout, table: Encodings) -> Iterator[Candidates]:
    """All candidates of the file, by address, piece by piece: those of a large one take half as much as its code."""
    for area in layout.spans:
        for first in range(0, len(area.data), _PIECE):
            position, chosen, doubtful, depth = table.screen.of(area.data, first, min(first + _PIECE, len(area.data)))
            # Behind the end of the code there are no operands: there the decoder has to agree.
            doubtful |= position > len(area.data) - _LONGEST
            yield Candidates((position + area.address).astype(layout.address_type), chosen, doubtful, depth)


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
    insert, unpack = (np.concatenate(parts or [np.empty(0, np.int64)]) for parts in found)
    return insert, unpack


def _has_66(data: np.ndarray, at: np.ndarray, rex: np.ndarray) -> np.ndarray:
    """Whether 66 stands before each position, or before the REX prefix there."""
    return np.where(rex & 0xF0 == 0x40, _byte(data, at, -2), rex) == 0x66


def _byte(data: np.ndarray, at: np.ndarray, shift: int) -> np.ndarray:
    return data.take(at + shift, mode="clip")
