"""The dynamic string and symbol tables of one file, searched with numpy without decoding every name."""

from functools import cache, cached_property

import numpy as np

from imgcheck.binaries.elf import DT_STRTAB, DT_SYMTAB, SHT_DYNSYM, Elf

DT_STRSZ, DT_VERSYM = 10, 0x6FFFFFF0

STB_WEAK = 2
_MOST_BYTES = 1 << 23
"""Of names that are read of one file: a hostile one has as many as fit, all of the same bytes."""
_HIDDEN = 0x8000
_PREFIX_BYTES = 8
_BEGINNING = 0xFFFF


class DynamicStrings:
    """The string table of PT_DYNAMIC."""

    def __init__(self, elf: Elf) -> None:
        address, size = elf.dynamic_value(DT_STRTAB), elf.dynamic_value(DT_STRSZ)
        offset = elf.offset_of(address) if address is not None else None
        if offset is None and (section := elf.section(".dynstr")):
            offset, size = section.offset, section.size
        self._elf = elf
        self.offset = offset or 0
        self.size = len(elf.slice(self.offset, size or 0)) if offset is not None else 0
        self._left = _MOST_BYTES

    def at(self, index: int, longest: int = 4096) -> str:
        """The string at `index` of the table; empty where that lies outside, or more was read than real files have."""
        if index >= self.size or self._left <= 0:
            return ""
        found = self._elf.string(self.offset + index, min(longest, self.size - index))
        self._left -= len(found)
        return found

    @cached_property
    def heads(self) -> np.ndarray:
        """For every position of the table its next 8 bytes as a little-endian number: an overlapping view."""
        data, offset = self._elf.data, self.offset
        count = min(self.size, len(data) - offset - _PREFIX_BYTES + 1)
        return np.ndarray((max(count, 0),), "<u8", buffer=data, offset=offset, strides=(1,)) if count > 0 else _NONE


_NONE = np.empty(0, "<u8")
_NO_INDEXES = np.empty(0, np.int64)


@cache
def _mask_and_value(prefix: str) -> tuple[np.uint64, np.uint64, int]:
    """What the first 8 bytes of a name that begins with `prefix` are under a mask, and its first 2, little-endian."""
    head = prefix.encode()[:_PREFIX_BYTES]
    value = int.from_bytes(head, "little")
    return np.uint64((1 << 8 * len(head)) - 1), np.uint64(value), value & _BEGINNING


class _Named:
    """Symbols whose names lie in the table."""

    def __init__(self, given: np.ndarray, kept: np.ndarray, heads: np.ndarray) -> None:
        self.given = given
        """The indexes among which they are, held so that nothing else takes on their id."""
        self.kept = kept
        self.heads = heads
        """The first 8 bytes of each name as a number."""
        self.beginnings = frozenset((heads & _BEGINNING).tolist())
        """The first 2 bytes of all names: a prefix that is not among them, as nearly none is, needs no search."""


class DynamicSymbols:
    """`.dynsym` as ld.so sees it."""

    def __init__(self, elf: Elf, strings: DynamicStrings) -> None:
        self._elf, self._strings = elf, strings
        self.table = self._read()
        self._named: dict[int, _Named] = {}

    def _read(self) -> np.ndarray:
        address = self._elf.dynamic_value(DT_SYMTAB)
        offset = self._elf.offset_of(address) if address is not None else None
        count = self._elf.dynamic_symbol_count
        section = next((s for s in self._elf.sections if s.type == SHT_DYNSYM), None)
        if section is not None and (offset is None or count is None):
            offset, count = section.offset, section.size // self._elf.symbol_dtype.itemsize
        return self._elf.records(offset if offset is not None else -1, self._elf.symbol_dtype, count or 0)

    @cached_property
    def undefined(self) -> np.ndarray:
        """Indexes of symbols that others must give."""
        return np.flatnonzero((self.table["shndx"] == 0) & (self.table["name"] != 0))

    @cached_property
    def defined(self) -> np.ndarray:
        """Indexes of symbols that the file exports."""
        return np.flatnonzero((self.table["shndx"] != 0) & (self.table["info"] >> 4 != 0))

    def unversioned(self, indexes: np.ndarray) -> np.ndarray:
        """Those of `indexes` without a symbol version (versym 0 or 1)."""
        address = self._elf.dynamic_value(DT_VERSYM)
        offset = self._elf.offset_of(address) if address is not None else None
        if offset is None:
            return indexes
        versym = self._elf.records(offset, np.dtype(self._elf.order + "u2"), len(self.table))
        inside = indexes[indexes < len(versym)]
        return inside[(versym[inside] & ~np.uint16(_HIDDEN)) <= 1]

    def strong(self, indexes: np.ndarray) -> np.ndarray:
        return indexes[self.table["info"][indexes] >> 4 != STB_WEAK]

    def starting(self, prefix: str, indexes: np.ndarray) -> np.ndarray:
        """Those of `indexes` whose name begins with `prefix`, 2 bytes or more; beyond 8 names are compared singly."""
        mask, value, beginning = _mask_and_value(prefix)
        named = self._named_among(indexes)
        if beginning not in named.beginnings:
            return _NO_INDEXES
        found = named.kept[named.heads & mask == value]
        if len(prefix) <= _PREFIX_BYTES:
            return found
        return np.array([i for i in found.tolist() if self.name(i).startswith(prefix)], np.int64)

    def _named_among(self, indexes: np.ndarray) -> _Named:
        known = self._named.get(id(indexes))
        if known is None:
            names = self.table["name"][indexes]
            inside = names < len(self._strings.heads)
            known = _Named(indexes, indexes[inside], self._strings.heads[names[inside]])
            self._named[id(indexes)] = known
        return known

    def name(self, index: int) -> str:
        return self._strings.at(int(self.table["name"][index]))

    def names(self, indexes: np.ndarray) -> list[str]:
        return [self.name(index) for index in indexes.tolist()]
