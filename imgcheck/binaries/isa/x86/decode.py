"""Confirms candidates: an instruction counts only if it begins where decoding from a function's start arrives."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.isa.columns import Columns
from imgcheck.binaries.isa.functions import Functions
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.encodings import UNDECODED, Encodings, needs
from imgcheck.binaries.isa.x86.screen import Candidates
from imgcheck.binaries.kernels import x86
from imgcheck.binaries.kernels.x86 import Confirmer

_LONGEST = 15
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


def are_instructions(
    layout: Layout, starts: np.ndarray, ends: np.ndarray, addresses: np.ndarray, bits: int
) -> np.ndarray:
    """Whether an instruction begins at each of the sorted `addresses`.

    Decoding goes from each function's start up to the end given for it.
    """
    reader = x86.Reader(starts, ends, bits)
    found = np.zeros(len(addresses), bool)
    for area in layout.areas:
        held = slice(*np.searchsorted(addresses, [area.address, area.end]))
        if held.start == held.stop:
            continue
        beginnings, _ = reader.read(area.data, area.address, addresses[held])
        found[held] = beginnings.at(addresses[held] - area.address)
    return found


@dataclass(frozen=True, slots=True)
class Confirmed(Columns):
    """Instructions of functions, by the address of their first byte, and the set each needs."""

    address: np.ndarray
    set: np.ndarray
    doubtful: np.ndarray
    """Only the decoder could tell what the instruction is."""
    function: np.ndarray


NONE = Confirmed(*(np.empty(0, kind) for kind in (np.int64, np.uint8, np.bool_, np.int32)))


def confirm(
    layout: Layout, functions: Functions, table: Encodings, pieces: Iterable[Candidates]
) -> Iterator[Confirmed]:
    """Those of candidates, which come by address in pieces, that are instructions of a function, in parts.

    Of the baseline of x86-64, which tells nothing but which functions hold it, most are left out.
    """
    confirmer = Confirmer(table.screen, table.baseline_alone, functions.start, functions.end)
    for candidates in pieces:
        if not len(candidates.address):
            continue
        # A hostile file has an area and a piece for each of very many sections.
        for area in layout.areas_between(candidates.address[0], candidates.address[-1]):
            held = slice(*np.searchsorted(candidates.address, [area.address, area.end]))
            if held.start == held.stop:  # as most: sections of some bytes around the code
                continue
            columns = candidates.address, candidates.set, candidates.doubtful, candidates.depth
            found = confirmer.of(area.data, area.address, tuple(column[held] for column in columns))
            yield _decide_doubtful(layout, Confirmed(*found), table)


def _decide_doubtful(layout: Layout, found: Confirmed, table: Encodings) -> Confirmed:
    unknown = table.holding(*UNDECODED)
    for i in np.flatnonzero(found.doubtful & ~unknown.take(found.set)).tolist():
        instruction = decode_at(layout, int(found.address[i]), table.bits)
        found.set[i] = table.number.get(needs(instruction), 0) if instruction else 0
    # The decoder's word goes before the screen's where it can read an encoding after all.
    for i in np.flatnonzero(unknown.take(found.set)).tolist():
        if decode_at(layout, int(found.address[i]), table.bits):
            found.set[i] = 0
    return found.take(np.flatnonzero(found.set))


def decode_at(layout: Layout, address: int, bits: int) -> iced.Instruction | None:
    """The instruction at `address`; None where the decoder knows none."""
    code = layout.bytes_at(address, address + 16)
    instruction = next(iter(iced.Decoder(bits, code, ip=address)), None) if code else None
    return None if instruction is None or instruction.is_invalid else instruction
