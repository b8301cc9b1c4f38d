"""Walks CUDA fatbin containers by their headers: kinds, targets and PTX versions, without unpacking anything.

Layout, measured against nvcc 9 to 13.5 and cuobjdump (docs/gpu.md):

    container  u32 magic 0xBA55ED50, u16 version (1), u16 header size (16), u64 size of what follows
    entry      u16 kind, u16, u32 header size, u64 payload size, u32 packed size, u32 options offset, u16 minor,
               u16 major, u32 target, u32 name offset, u32 name length, u64 flags, u64, u64 unpacked size

An entry's header is at least 64 bytes and often more; the next entry begins at header size + payload size. Containers
follow each other at multiples of 8 with zeros between them.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from imgcheck.binaries.gpu.pages import release
from imgcheck.errors import ElfError

MAGIC = b"\x50\xed\x55\xba"

PTX, CUBIN, OLD_CUBIN, LTO, INDEX, RELOCATABLE_PTX, TILE, CONCATENATED = 0x1, 0x2, 0x4, 0x8, 0x20, 0x40, 0x80, 0x100
"""OLD_CUBIN is of no GPU that a driver since 2012 knows, INDEX is no code."""
LZ4_FLAG, ZSTD_FLAG = 0x2000, 0x8000
_EXACT_FLAG, _FAMILY_FLAG = 0x100000, 0x200000

CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
HEADER_LIMIT = 1 << 20
"""Of a file, of containers and entries together: no real one has as many."""
_ABSURD = "absurd fatbin: more than a million headers"
_CHUNK = 1 << 22
_HELD = 256
"""Headers read between two releases of pages: some 16 MB."""


class Code(NamedTuple):
    """What an image is, wherever it lies: `Entry` says what its fields mean."""

    kind: int
    target: str
    version: str
    concatenated: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One image in a container; offsets count from the start of the area that was walked."""

    kind: int
    target: str
    """"70", "90a", "100f"."""
    version: str
    """For PTX its ISA version, "6.0"."""
    flags: int
    offset: int
    """Of the payload."""
    size: int
    """Bytes of the payload that hold data: the packed size where it is packed."""
    unpacked: int
    """Bytes of the image once unpacked."""
    concatenated: bool = False
    """It lies with others in one packed entry."""

    @property
    def code(self) -> Code:
        return Code(self.kind, self.target, self.version, self.concatenated)

    @property
    def packed(self) -> bool:
        return bool(self.flags & 0xF000)


_CUT_OFF = -1
_NOT_READ = Entry(_CUT_OFF, "", "", 0, 0, 0, 0)
"""In place of the rest of a container that does not parse."""


@dataclass(frozen=True, slots=True)
class Container:
    """One module as the driver loads it: the same code for several targets."""

    offset: int
    entries: tuple[Entry, ...]
    whole: bool = True
    """All of it was understood; else there may be code that `entries` lack."""


def containers(area: memoryview, pure: bool = False) -> Iterator[Container]:
    """The containers of a fatbin section or file, in order.

    What does not parse ends its container; the walk goes on at the next magic. `pure`: the area holds nothing but
    containers, so that what does not parse is code that cannot be read, and no other data. Raises ElfError where there
    are more than a million headers, which no real file has.
    """
    at, left, held = 0, HEADER_LIMIT, 0
    magics = _Magics(area)
    while (at := magics.next(at)) >= 0:
        if at + CONTAINER.size > len(area):
            return
        _, version, header_size, size = CONTAINER.unpack_from(area, at)
        if version != 1 or header_size < CONTAINER.size:
            if pure:
                yield Container(at, (), whole=False)
            at += 8
            left -= 1
            if left <= 0:
                raise ElfError(_ABSURD)
            continue
        begin, end = at + header_size, min(at + header_size + size, len(area))
        entries = tuple(_entries(area, begin, end, left))
        whole = not any(entry.kind == _CUT_OFF for entry in entries)
        entries = entries if whole else entries[:-1]
        left -= len(entries) + 1
        held += len(entries) + 1
        if held >= _HELD:
            release(area)
            held = 0
        if left <= 0:
            raise ElfError(_ABSURD)
        yield Container(at, entries, whole or not pure)
        at = max(end + 7 & ~7, at + 16)


def _entries(area: memoryview, at: int, end: int, limit: int) -> Iterator[Entry]:
    while at + ENTRY.size <= end and limit > 0:
        fields = ENTRY.unpack_from(area, at)
        kind, header_size, size = fields[0], fields[2], fields[3]
        if header_size < ENTRY.size or at + header_size + size > end:
            yield _NOT_READ
            return
        if kind == CONCATENATED:
            inner = tuple(_concatenated(area, at, at + header_size, limit))
            limit -= len(inner)
            yield from inner
        else:
            yield _entry(fields, at + header_size)
        limit -= 1
        at += header_size + size


def _entry(fields: tuple[int, ...], payload: int) -> Entry:
    kind, _, _, size, packed, _, minor, major, target, _, _, flags, _, unpacked = fields
    suffix = "a" if flags & _EXACT_FLAG else "f" if flags & _FAMILY_FLAG else ""
    return Entry(
        kind=kind,
        target=f"{target}{suffix}",
        version=f"{major}.{minor}",
        flags=flags,
        offset=payload,
        size=min(packed, size) if packed else size,
        unpacked=unpacked or size,
    )


def _concatenated(area: memoryview, at: int, end: int, limit: int) -> Iterator[Entry]:
    # nvcc --concat (13.5): u32 count, u32 total, then a plain entry header for each image; all images share one
    # packed payload, so their own bytes cannot be read without unpacking it.
    if at + ENTRY.size + 8 > end:
        return
    count = int.from_bytes(area[at + 64 : at + 68], "little")
    sub = at + 72
    for _ in range(min(count, limit)):
        if sub + ENTRY.size > end:
            return
        fields = ENTRY.unpack_from(area, sub)
        yield replace(_entry((*fields[:4], 0, *fields[5:]), end), concatenated=True)
        sub += _inner_size(area, sub, fields[5])


def _inner_size(area: memoryview, at: int, options: int) -> int:
    """Bytes of an inner header with its options, whose offset counts from the header; a zero byte ends them."""
    if not options or at + ENTRY.size + 8 > len(area):
        return ENTRY.size
    offset, length = struct.unpack_from("<II", area, at + ENTRY.size)
    return max(offset + length + 8 & ~7, ENTRY.size)


class _Magics:
    """Where containers begin, asked for from the beginning of an area to its end; each part of it is looked at once."""

    def __init__(self, area: memoryview) -> None:
        self._area, self._chunk, self._from = area, b"", 0

    def next(self, at: int) -> int:
        """The first at or after `at`, at a multiple of 8; -1 where there is none."""
        if self._area[at : at + 4] == MAGIC:
            return at
        while at < len(self._area):
            if not self._from <= at < self._from + len(self._chunk):
                self._from, self._chunk = at, bytes(self._area[at : at + _CHUNK])
            found = self._chunk.find(MAGIC, at - self._from)
            while found >= 0 and (self._from + found) % 8:
                found = self._chunk.find(MAGIC, found + 1)
            if found >= 0:
                return self._from + found
            at = self._from + len(self._chunk)
        return -1
