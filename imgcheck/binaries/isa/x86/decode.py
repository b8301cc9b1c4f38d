"""Confirms candidates: an instruction counts only if it begins where decoding from a function's start arrives."""

from collections.abc import Iterator
from dataclasses import replace

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.isa.functions import Functions
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.encodings import UNDECODED, Encodings, needs
from imgcheck.binaries.isa.x86.screen import Candidates
from imgcheck.binaries.kernels import x86

_PREFIX_BYTES = np.zeros(256, bool)
_PREFIX_BYTES[[0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3, *range(0x40, 0x50)]] = True
_LONGEST = 15
_MOST_PREFIXES = 4
"""Before the VEX, EVEX, XOP or 0F byte of an instruction."""
_FUNCTION_LIMIT = 1 << 22
"""Bytes decoded of one function: longer ones are data, or a file without any boundaries, and are decoded in pieces."""


def instructions(layout: Layout, start: int, end: int, bits: int) -> Iterator[iced.Instruction]:
    """The instructions of a function; one that the decoder does not know is stepped over whole."""
    code = layout.bytes_at(start, min(end, start + _FUNCTION_LIMIT))
    decoder = iced.Decoder(bits, code, ip=start)
    for instruction in decoder:
        yield instruction
        if instruction.is_invalid:
            position = instruction.ip - start
            position = min(position + x86.lengths(code[position : position + _LONGEST], bits)[0], len(code))
            decoder.position, decoder.ip = position, start + position


def beginnings(layout: Layout, starts: np.ndarray, ends: np.ndarray, wanted: np.ndarray, bits: int) -> np.ndarray:
    """Where the instruction begins that holds each of the sorted addresses `wanted`; -1 where none does.

    Decoding goes from each function's start up to the end given for it.
    """
    found = np.full(len(wanted), -1, np.int64)
    for area in layout.areas:
        held = slice(*np.searchsorted(wanted, [area.address, area.end]))
        if held.start == held.stop:
            continue
        inside = slice(*np.searchsorted(starts, [area.address, area.end]))
        begin = x86.beginnings(
            area.data, starts[inside] - area.address, ends[inside] - area.address, wanted[held] - area.address, bits
        )
        found[held] = np.where(begin < 0, -1, begin + area.address)
    return found


def are_instructions(
    layout: Layout, starts: np.ndarray, ends: np.ndarray, addresses: np.ndarray, bits: int
) -> np.ndarray:
    """Whether an instruction begins at each of the sorted `addresses`."""
    return beginnings(layout, starts, ends, addresses, bits) == addresses


def confirm(
    layout: Layout, candidates: Candidates, functions: Functions, chosen: np.ndarray, bits: int, table: Encodings
) -> Candidates:
    """Those of `candidates` in the `chosen` functions that are instructions, by the address of their first byte.

    Each candidate lies in one of these functions.
    """
    starts, ends = functions.start[chosen], functions.end[chosen]
    begin = beginnings(layout, starts, ends, candidates.address, bits)
    distance = candidates.address - begin
    real = (begin >= 0) & (distance <= _MOST_PREFIXES)
    for shift in range(1, _MOST_PREFIXES + 1):
        deep = np.flatnonzero(real & (distance >= shift))
        real[deep] = _PREFIX_BYTES.take(layout.bytes_behind(candidates.address[deep], -shift))
    kept = candidates.take(np.flatnonzero(real))
    begin, distance = begin[real], distance[real]
    _read_again(layout, kept, begin, np.flatnonzero(distance < kept.depth), table)
    return _decide_doubtful(layout, replace(kept, address=begin), bits, table)


def _read_again(layout: Layout, found: Candidates, begin: np.ndarray, chosen: np.ndarray, table: Encodings) -> None:
    """Writes down anew what those need whose prefixes the screen could not tell from the instruction before."""
    starts = begin[chosen]
    for area in layout.areas:
        own = chosen[slice(*np.searchsorted(starts, [area.address, area.end]))]
        if len(own):
            opcodes = found.address[own] - area.address
            found.set[own], unsure = table.screen.again(area.data, begin[own] - area.address, opcodes)
            found.doubtful[own] |= unsure


def _decide_doubtful(layout: Layout, found: Candidates, bits: int, table: Encodings) -> Candidates:
    unknown = table.holding(*UNDECODED)
    for i in np.flatnonzero(found.doubtful & ~unknown.take(found.set)).tolist():
        instruction = decode_at(layout, int(found.address[i]), bits)
        found.set[i] = table.number.get(needs(instruction), 0) if instruction else 0
    # The decoder's word goes before the screen's where it can read an encoding after all.
    for i in np.flatnonzero(unknown.take(found.set)).tolist():
        if decode_at(layout, int(found.address[i]), bits):
            found.set[i] = 0
    return found.take(np.flatnonzero(found.set))


def decode_at(layout: Layout, address: int, bits: int) -> iced.Instruction | None:
    """The instruction at `address`; None where the decoder knows none."""
    code = layout.bytes_at(address, address + 16)
    instruction = next(iter(iced.Decoder(bits, code, ip=address)), None) if code else None
    return None if instruction is None or instruction.is_invalid else instruction
