"""The function table of Go programs (pclntab): starts, ends and names of functions, which stripped programs keep.

Go's runtime needs it to unwind stacks, so that every Go program has one; it covers Go's own assembly, too, but no C
that is linked in. The format is that of Go's debug/gosym and runtime/symtab.go: a header

    u32 magic, u8 0, u8 0, u8 quantum (1, 2 or 4 bytes of code), u8 size of an address, then words of that size

whose magic tells the version, a table of two fields for each function, where it begins and where its record lies, and
where the last one ends, and records that begin with where the function begins and u32 name. In Go 1.2 to 1.15 the table
follows the number of functions, fields are addresses and offsets in the whole, and so are names. Since Go 1.16 the
header gives offsets of the parts; since Go 1.18 fields have 32 bits and count from where Go's code begins. That is in
the module data, whose first word is the address of the header: the header itself leaves it out since Go 1.26.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.elf import PF_X, PT_LOAD, SHT_NOBITS

if TYPE_CHECKING:
    from imgcheck.binaries.isa.layout import Layout

_MARK = ".go.buildinfo"
"""A section of every Go program since Go 1.13, in which linkers that merge the table with other data leave it."""
_SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
_HEADER = re.compile(rb"[\xfb\xfa\xf0\xf1]\xff{3}\0\0[\x01\x02\x04][\x04\x08]")
_MOST = 1 << 22
"""Functions of one program at most; large ones have 300,000."""
_LOCATIONS = 64
"""Places that look like a header, or like the module data, at most."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How a version of Go writes the table."""

    names: int | None
    """Number of the header's word with the offset of the names; None where offsets count from the header."""
    records: int | None
    """The same of the records, before which the table stands."""
    relative: bool
    """Whether fields have 32 bits and count from where Go's code begins."""


_FORMS = {
    0xFFFFFFFB: _Form(None, None, relative=False),
    0xFFFFFFFA: _Form(2, 6, relative=False),
    0xFFFFFFF0: _Form(3, 7, relative=True),
    0xFFFFFFF1: _Form(3, 7, relative=True),
}
_TEXT = 22
"""Number of the module data's word with where Go's code begins (runtime.moduledata, since Go 1.18)."""


@dataclass(frozen=True, slots=True)
class GoFunctions:
    """Functions by address: where each begins and ends, its padding included, and the file offset of its name."""

    start: np.ndarray
    end: np.ndarray
    name: np.ndarray


def go_functions(layout: "Layout") -> GoFunctions:
    """The functions that the file's pclntab lists; none where it has no such table, or one that cannot be right."""
    tables = (_Table(layout, at).read() for at in _headers(layout))
    empty = np.empty(0, np.int64)
    return next((found for found in tables if found), GoFunctions(empty, empty, empty))


def _headers(layout: "Layout") -> Iterator[int]:
    """File offsets of what looks like the table's header."""
    elf = layout.elf
    section = next((s for s in elf.sections if s.name in _SECTIONS and s.type != SHT_NOBITS), None)
    if section:
        yield section.offset
    elif elf.section(_MARK):
        for segment in elf.segments:
            if segment.type == PT_LOAD and not segment.flags & PF_X:
                hits = _HEADER.finditer(elf.slice(segment.offset, segment.filesz))
                yield from (segment.offset + hit.start() for _, hit in zip(range(_LOCATIONS), hits, strict=False))


class _Table:
    """One table, whose header is at a file offset."""

    def __init__(self, layout: "Layout", at: int) -> None:
        self.layout, self.elf, self.at = layout, layout.elf, at
        self.word = np.dtype(f"{self.elf.order}u{self.elf.bits // 8}")

    def read(self) -> GoFunctions | None:
        head = self.elf.slice(self.at, 8)
        form = _FORMS.get(self._number(self.at, "u4"))
        if form is None or len(head) < 8 or head[7] != self.word.itemsize:
            return None
        count = self._header_word(0)
        records = self.at if form.records is None else self.at + self._header_word(form.records)
        names = self.at if form.names is None else self.at + self._header_word(form.names)
        table = self.at + 8 + self.word.itemsize if form.records is None else records
        field = np.dtype(self.elf.order + "u4") if form.relative else self.word
        fields = self.elf.records(table, field, 2 * count + 1)
        if not 0 < count <= _MOST or len(fields) < 2 * count + 1 or max(records, names) >= len(self.elf.array):
            return None
        starts = self._starts(fields[::2], table, form)
        if starts is None or not self._is_right(starts):
            return None
        name = names + self._names(records + fields[1::2].astype(np.int64) + field.itemsize)
        kept = starts[1:] > starts[:-1]
        return GoFunctions(starts[:-1][kept], starts[1:][kept], name[kept])

    def _starts(self, entries: np.ndarray, table: int, form: _Form) -> np.ndarray | None:
        """Addresses where functions begin, and where the last one ends."""
        if form.relative:
            text = self._text()
            return entries.astype(np.int64) + text if text is not None else None
        address = self._address(table)
        if address is None:
            return None
        return self.layout.pointed(address + 2 * self.word.itemsize * np.arange(len(entries), dtype=np.int64))

    def _text(self) -> int | None:
        """Where Go's code begins, by the module data that refers to this table."""
        header = self._address(self.at)
        pointers = self.layout.pointers
        slots = pointers.slot[pointers.target == header][:_LOCATIONS] if header is not None else ()
        candidates = self.layout.pointed(np.array(slots, np.int64) + _TEXT * self.word.itemsize)
        candidates = candidates[self.layout.in_code(candidates)]
        return int(candidates[0]) if len(candidates) else None

    def _is_right(self, starts: np.ndarray) -> bool:
        """Whether the functions lie in the code one behind the other."""
        return bool((np.diff(starts) >= 0).all()) and bool(self.layout.in_code(starts[:-1]).all())

    def _address(self, offset: int) -> int | None:
        """Where the byte at a file offset is loaded."""
        for segment in self.elf.segments:
            if segment.type == PT_LOAD and segment.offset <= offset < segment.offset + segment.filesz:
                return segment.vaddr + offset - segment.offset
        return None

    def _header_word(self, number: int) -> int:
        return self._number(self.at + 8 + number * self.word.itemsize, self.word.str[1:])

    def _number(self, offset: int, kind: str) -> int:
        """The number at a file offset; 0 where the file ends before."""
        found = self.elf.records(offset, np.dtype(self.elf.order + kind), 1)
        return int(found[0]) if len(found) else 0

    def _names(self, offsets: np.ndarray) -> np.ndarray:
        """Numbers of 32 bits at file offsets; -1 where the file ends before."""
        inside = (offsets >= 0) & (offsets <= len(self.elf.array) - 4)
        return np.where(inside, self.layout.words(np.where(inside, offsets, 0)), -1)
