"""Confirms candidates: an instruction counts only if it begins where decoding from a function's start arrives."""

from collections.abc import Iterator
from dataclasses import replace

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.isa.layout import Functions, Layout, distinct
from imgcheck.binaries.isa.x86.encodings import BASELINE, UNDECODED, VECTOR, Encodings, needs
from imgcheck.binaries.isa.x86.screen import Candidates, joined

_PREFIX_BYTES = np.zeros(256, bool)
_PREFIX_BYTES[[0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3, *range(0x40, 0x50)]] = True
_VECTOR_PREFIXES = (0xC4, 0xC5, 0x62, 0xD5)
_LONGEST = 16
_FUNCTION_LIMIT = 1 << 22
"""Bytes decoded of one function: longer ones are data, or a file without any boundaries, and are decoded in pieces."""


def lengths(code: memoryview, bits: int) -> bytes:
    """Lengths of the instructions of `code`, decoded one after the other from its first byte."""
    return bytes(map(len, iced.Decoder(bits, bytes(code))))


def instructions(layout: Layout, start: int, end: int, bits: int) -> Iterator[iced.Instruction]:
    """The instructions of a function; a vector instruction that the decoder does not know is stepped over whole."""
    code = layout.bytes_at(start, min(end, start + _FUNCTION_LIMIT))
    at = 0
    while at < len(code):
        decoder = iced.Decoder(bits, code[at:] if at else code, ip=start + at)
        for instruction in decoder:
            if instruction.is_invalid:
                break
            yield instruction
        else:
            return
        position = instruction.ip - start
        yield instruction
        at = position + max(own_length(code[position : position + 16], bits), 1)


def own_length(code: bytes, bits: int) -> int:
    """Length of a VEX, EVEX or REX2 instruction by its own fields, whatever its opcode means; 0 if it is none."""
    if not code or code[0] not in _VECTOR_PREFIXES:
        return 0
    if code[0] == 0xD5:  # REX2: the payload byte says whether map 1 follows
        return 2 if bits == 64 else 0
    payload = {0xC5: 1, 0xC4: 2, 0x62: 3}[code[0]]
    place = 1 if payload == 1 else code[1] & (31 if payload == 2 else 7) if len(code) > 1 else 0
    at = payload + 2
    if len(code) <= at:
        return len(code)
    modrm = code[at]
    at += 1
    mod, rm = modrm >> 6, modrm & 7
    if mod != 3 and rm == 4:
        base = code[at] & 7 if len(code) > at else 0
        at += 1
        if mod == 0 and base == 5:
            at += 4
    if mod == 1:
        at += 1
    elif mod == 2 or (mod == 0 and rm == 5):
        at += 4
    return min(at + (1 if place == 3 else 0), len(code))


def boundaries(layout: Layout, starts: np.ndarray, ends: np.ndarray, bits: int) -> np.ndarray:
    """Sorted addresses at which instructions begin from each function's start up to the end given for it."""
    pieces, bases = [], []
    for area in layout.areas:
        code = layout.elf.data[area.offset : area.offset + len(area.data)]
        inside = slice(*np.searchsorted(starts, [area.address, area.end]))
        for start, end in zip(
            (starts[inside] - area.address).tolist(), (ends[inside] - area.address).tolist(), strict=True
        ):
            for at in range(start, end, _FUNCTION_LIMIT):
                pieces.append(lengths(code[at : min(end, at + _FUNCTION_LIMIT)], bits))
                bases.append(at + area.address)
    counts = np.array([len(piece) for piece in pieces], np.int64)
    steps = np.frombuffer(b"".join(pieces), np.uint8).astype(np.int64)
    if not len(steps):
        return steps
    offset = np.cumsum(steps) - steps
    first = np.cumsum(counts) - counts
    filled = counts > 0
    shift = np.array(bases, np.int64)[filled] - offset[first[filled]]
    return offset + np.repeat(shift, counts[filled])


def confirm(
    layout: Layout, candidates: Candidates, functions: Functions, chosen: np.ndarray, bits: int, table: Encodings
) -> Candidates:
    """Those of `candidates` in the `chosen` functions that are instructions, by the address of their first byte.

    Each candidate lies in one of these functions, and each of them holds one. Of those that need no more than the
    baseline not all are told: no function is without one, or without vector code, that has any.
    """
    if not len(candidates):
        return candidates
    starts, ends = functions.start[chosen], functions.end[chosen]
    first = np.searchsorted(candidates.address, starts)
    last = np.append(first[1:], len(candidates)) - 1
    ends = np.minimum(ends, candidates.address[last] + _LONGEST)
    stops = np.minimum(ends, _far_enough(candidates, first) + _LONGEST)
    holder = np.repeat(np.arange(len(first)), last - first + 1)
    near = candidates.address < stops[holder]
    begin = boundaries(layout, starts, stops, bits)
    found = _beginning(layout, candidates.take(near), begin, bits, table)
    # Where the first that seemed to need the baseline is no instruction, decoding goes on where it stopped.
    settled = np.zeros(len(starts), bool)
    telling = table.holding(*BASELINE, *VECTOR)[found.set]
    settled[np.searchsorted(starts, found.address[telling], side="right") - 1] = True
    far = ~near & ~settled[holder]
    if not far.any():
        return found
    open_ = distinct(holder[far])
    resumed = begin[np.searchsorted(begin, stops[open_]) - 1]
    begin = boundaries(layout, resumed, ends[open_], bits)
    return joined([found, _beginning(layout, candidates.take(far), begin, bits, table)])


def _far_enough(candidates: Candidates, first: np.ndarray) -> np.ndarray:
    """Of each run of candidates: the last that may need more than the baseline, or what comes later, the first other.

    Runs begin at the indices `first`.
    """
    never = np.iinfo(candidates.address.dtype).max
    beyond = np.maximum.reduceat(np.where(candidates.beyond, candidates.address, -1), first)
    within = np.minimum.reduceat(np.where(candidates.beyond, never, candidates.address), first)
    return np.maximum(beyond, np.where(within == never, -1, within))


def _beginning(layout: Layout, candidates: Candidates, begin: np.ndarray, bits: int, table: Encodings) -> Candidates:
    """Those of `candidates` that are instructions, where instructions begin at the addresses `begin`."""
    index = np.searchsorted(begin, candidates.address, side="right") - 1
    start = begin[np.maximum(index, 0)]
    distance = candidates.address - start
    real = (index >= 0) & (distance >= 0) & (distance <= 4)
    for shift in range(1, 5):
        deep = np.flatnonzero(real & (distance >= shift))
        if not len(deep):
            break
        real[deep] = _PREFIX_BYTES[bytes_at(layout, candidates.address[deep] - shift)]
    kept = candidates.take(np.flatnonzero(real))
    start, distance = start[real], distance[real]
    # A prefix that belongs to the instruction before is none: the decoder then tells what this one is.
    doubtful = kept.doubtful | (distance < kept.depth)
    return _decide_doubtful(layout, replace(kept, address=start, doubtful=doubtful), bits, table)


def bytes_at(layout: Layout, addresses: np.ndarray) -> np.ndarray:
    """The byte at each address; 0 outside the code."""
    values = np.zeros(len(addresses), np.uint8)
    for area in layout.spans:
        inside = (addresses >= area.address) & (addresses < area.end)
        values[inside] = area.data[addresses[inside] - area.address]
    return values


def _decide_doubtful(layout: Layout, found: Candidates, bits: int, table: Encodings) -> Candidates:
    unknown = table.holding(*UNDECODED)
    for i in np.flatnonzero(found.doubtful & ~unknown[found.set]).tolist():
        instruction = decode_at(layout, int(found.address[i]), bits)
        found.set[i] = table.number.get(needs(instruction), 0) if instruction else 0
    # The decoder's word goes before the screen's where it can read an encoding after all.
    for i in np.flatnonzero(unknown[found.set]).tolist():
        if decode_at(layout, int(found.address[i]), bits):
            found.set[i] = 0
    return found.take(np.flatnonzero(found.set))


def decode_at(layout: Layout, address: int, bits: int) -> iced.Instruction | None:
    """The instruction at `address`; None where the decoder knows none."""
    code = layout.bytes_at(address, address + 16)
    instruction = next(iter(iced.Decoder(bits, code, ip=address)), None) if code else None
    return None if instruction is None or instruction.is_invalid else instruction
