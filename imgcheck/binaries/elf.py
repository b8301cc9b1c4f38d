"""A bounds-checked view of an ELF file in memory: headers, sections, segments, dynamic table, notes.

Everything is read with numpy straight from the buffer and nothing is copied but what is asked for, so a file of
900 MB costs no more than its headers. Offsets come from a hostile file: whatever points outside it reads as
absent, and only a header that makes the file unreadable as a whole raises ElfError. Layouts are those of the
System V gABI (elf.h).
"""

import mmap
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from typing import Literal

import msgspec
import numpy as np

from imgcheck.errors import ElfError

MAGIC = b"\x7fELF"

ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_TLS, PT_GNU_EH_FRAME = 1, 2, 3, 4, 7, 0x6474E550
PT_GNU_RELRO, PT_GNU_PROPERTY = 0x6474E552, 0x6474E553
PF_X, PF_W = 1, 2
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_REL, DT_RELSZ, DT_PLTREL, DT_JMPREL = 2, 7, 8, 17, 18, 20, 23
SHT_SYMTAB, SHT_NOBITS, SHT_NOTE, SHT_DYNSYM = 2, 8, 7, 11
SHF_EXECINSTR = 4
FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""CUDA's own sections of packed GPU code."""
SEGMENT = "segment"
"""Name of what Elf.code has where no section tells what is code."""

_MACHINES = {
    3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
    190: "cuda", 224: "amdgpu", 243: "riscv", 258: "loongarch",
}  # fmt: skip

ADDRESS_LIMIT = 1 << 62
"""What is said to lie there or higher lies nowhere: sums of such addresses would leave 64 bits."""
_SECTION_LIMIT = 1 << 20
_DYNAMIC_LIMIT = 1 << 16
_MOST_NOTES = 1 << 12
_LONGEST_NAME = 512
"""Bytes of a section's name that are read: a hostile file has as many names as headers, in one table without NUL."""
_LARGEST_HEADERS = 1 << 16
"""Bytes of program headers (load_elf_phdrs in Linux's fs/binfmt_elf.c)."""


class Segment(msgspec.Struct, frozen=True, gc=False):
    type: int
    flags: int
    offset: int
    vaddr: int
    filesz: int
    memsz: int
    align: int


class Section(msgspec.Struct, frozen=True, gc=False):
    name: str
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int


class RelocationTable(msgspec.Struct, frozen=True, gc=False):
    offset: int
    """In the file."""
    size: int
    """Bytes."""
    with_addends: bool
    """Its entries are those of `Elf.rela_dtype`, else of `Elf.rel_dtype`."""


class Note(msgspec.Struct, frozen=True, gc=False):
    owner: str
    type: int
    description: bytes


# The layouts of the gABI, by byte order (numpy's `<` or `>`) and class (32 or 64).


def _word(order: str, bits: int) -> str:
    return order + ("u8" if bits == 64 else "u4")


@cache
def _ehdr(o: str, bits: int) -> np.dtype:
    w = _word(o, bits)
    return np.dtype([
        ("ident", "V16"), ("type", o + "u2"), ("machine", o + "u2"), ("version", o + "u4"), ("entry", w),
        ("phoff", w), ("shoff", w), ("flags", o + "u4"), ("ehsize", o + "u2"), ("phentsize", o + "u2"),
        ("phnum", o + "u2"), ("shentsize", o + "u2"), ("shnum", o + "u2"), ("shstrndx", o + "u2"),
    ])  # fmt: skip


@cache
def _phdr(o: str, bits: int) -> np.dtype:
    if bits == 64:
        names = ["type:4", "flags:4", "offset", "vaddr", "paddr", "filesz", "memsz", "align"]
    else:
        names = ["type:4", "offset", "vaddr", "paddr", "filesz", "memsz", "flags:4", "align"]
    return np.dtype([(n.removesuffix(":4"), o + "u4" if n.endswith(":4") else _word(o, bits)) for n in names])


@cache
def _shdr(o: str, bits: int) -> np.dtype:
    w = _word(o, bits)
    return np.dtype([("name", o + "u4"), ("type", o + "u4"), ("flags", w), ("addr", w), ("offset", w), ("size", w),
                     ("link", o + "u4"), ("info", o + "u4"), ("align", w), ("entsize", w)])  # fmt: skip


@cache
def _dyn(o: str, bits: int) -> np.dtype:
    w = _word(o, bits)
    return np.dtype([("tag", w.replace("u", "i")), ("value", w)])


@cache
def _symbol(o: str, bits: int) -> np.dtype:
    if bits == 64:
        return np.dtype([("name", o + "u4"), ("info", "u1"), ("other", "u1"), ("shndx", o + "u2"),
                         ("value", o + "u8"), ("size", o + "u8")])  # fmt: skip
    return np.dtype([("name", o + "u4"), ("value", o + "u4"), ("size", o + "u4"), ("info", "u1"),
                     ("other", "u1"), ("shndx", o + "u2")])  # fmt: skip


@cache
def _rela(o: str, bits: int) -> np.dtype:
    w = _word(o, bits)
    return np.dtype([("offset", w), ("info", w), ("addend", w.replace("u", "i"))])


@cache
def _rel(o: str, bits: int) -> np.dtype:
    w = _word(o, bits)
    return np.dtype([("offset", w), ("info", w)])


def _text(raw: memoryview) -> str:
    return bytes(raw).partition(b"\0")[0].decode("utf-8", "backslashreplace")


class Elf:
    """`data` seen as an ELF file. Raises ElfError where even its header cannot be believed."""

    def __init__(self, data: bytes | bytearray | memoryview | mmap.mmap) -> None:
        self.data = memoryview(data).cast("B")
        self.array = np.frombuffer(self.data, np.uint8)
        if len(self.data) < 20 or bytes(self.data[:4]) != MAGIC:
            raise ElfError("truncated ELF header: the file ends within its first 20 bytes")
        if self.data[4] not in (1, 2) or self.data[5] not in (1, 2):
            raise ElfError(f"absurd ELF header: class {self.data[4]}, byte order {self.data[5]}")
        self.bits = 64 if self.data[4] == 2 else 32
        self.order = "<" if self.data[5] == 1 else ">"
        if len(self.data) < (64 if self.bits == 64 else 52):
            raise ElfError("truncated ELF header: the file ends within it")
        header = np.frombuffer(self.data, _ehdr(self.order, self.bits), 1)[0]
        self.abi_version = self.data[8]
        self.type = int(header["type"])
        self.e_machine = int(header["machine"])
        self.entry = int(header["entry"])
        self.e_flags = int(header["flags"])
        self._header = header

    @cached_property
    def machine(self) -> str:
        """The name used in Linkage.machine."""
        name = _MACHINES.get(self.e_machine, f"em-{self.e_machine}")
        if name in ("riscv", "loongarch"):
            return f"{name}{self.bits}"
        return "ppc64le" if name == "ppc64" and self.order == "<" else name

    @property
    def symbol_dtype(self) -> np.dtype:
        """Elf32_Sym or Elf64_Sym with the fields name, info, other, shndx, value, size."""
        return _symbol(self.order, self.bits)

    @property
    def rela_dtype(self) -> np.dtype:
        return _rela(self.order, self.bits)

    @property
    def rel_dtype(self) -> np.dtype:
        return _rel(self.order, self.bits)

    def records(self, offset: int, dtype: np.dtype, count: int) -> np.ndarray:
        """Up to `count` records at file `offset`: as many as lie whole inside the file. A view, not a copy."""
        if offset < 0 or offset >= len(self.data) or count <= 0:
            return np.empty(0, dtype)
        return np.frombuffer(self.data, dtype, min(count, (len(self.data) - offset) // dtype.itemsize), offset)

    def slice(self, offset: int, size: int) -> memoryview:
        """The bytes at file `offset`, cut at the end of the file; empty where it lies outside."""
        if offset < 0 or size <= 0 or offset >= len(self.data):
            return self.data[:0]
        return self.data[offset : offset + size]

    def string(self, offset: int, limit: int = 4096) -> str:
        r"""The NUL-terminated string at file `offset`; bytes that are no UTF-8 come as `\xNN`."""
        return _text(self.slice(offset, limit))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Program headers; none where they lie outside the file, or are more than Linux reads of a program."""
        dtype, count = _phdr(self.order, self.bits), int(self._header["phnum"])
        if int(self._header["phentsize"]) != dtype.itemsize or count * dtype.itemsize > _LARGEST_HEADERS:
            return ()
        raw = self.records(int(self._header["phoff"]), dtype, count)
        fields = ("type", "flags", "offset", "vaddr", "filesz", "memsz", "align")
        return tuple(map(Segment, *(raw[field].tolist() for field in fields)))

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Section headers; empty where the file has none or they lie outside the file."""
        dtype = _shdr(self.order, self.bits)
        offset, count = int(self._header["shoff"]), int(self._header["shnum"])
        if not offset or int(self._header["shentsize"]) != dtype.itemsize:
            return ()
        first = self.records(offset, dtype, 1)
        names_index = int(self._header["shstrndx"])
        if len(first):  # gABI: counts that do not fit the header stand in section 0
            count = count or int(first[0]["size"])
            names_index = int(first[0]["link"]) if names_index == 0xFFFF else names_index
        raw = self.records(offset, dtype, min(count, _SECTION_LIMIT))
        names = self._section_names(raw, names_index)
        fields = ("type", "flags", "addr", "offset", "size", "link", "info")
        return tuple(map(Section, names, *(raw[field].tolist() for field in fields)))

    def _section_names(self, raw: np.ndarray, index: int) -> list[str]:
        if index >= len(raw):
            return [""] * len(raw)
        table, starts = self.slice(int(raw[index]["offset"]), int(raw[index]["size"])), raw["name"].tolist()
        names = {start: _text(table[start : start + _LONGEST_NAME]) for start in set(starts)}
        return [names[start] for start in starts]

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def section_data(self, section: Section) -> memoryview:
        return self.data[:0] if section.type == SHT_NOBITS else self.slice(section.offset, section.size)

    def areas(self, name: str) -> list[memoryview]:
        """The data of the sections of a name, in the file's order, each part of the file once.

        A hostile file has a thousand headers for the same bytes.
        """
        return [area for _, area in self.located_areas(name)]

    def located_areas(self, name: str) -> list[tuple[int, memoryview]]:
        """The same, each with its offset in the file."""
        return self._located(section for section in self.sections if section.name == name)

    def areas_beginning(self, *prefixes: str) -> list[memoryview]:
        """As `areas`, of all sections whose names begin with one of `prefixes`."""
        return [area for _, area in self._located(each for each in self.sections if each.name.startswith(prefixes))]

    def _located(self, sections: Iterable[Section]) -> list[tuple[int, memoryview]]:
        wanted = (section for section in sections if section.type != SHT_NOBITS)
        spans = sorted({(section.offset, section.offset + section.size) for section in wanted})
        found, read = [], 0
        for start, end in spans:
            start = max(start, read)
            if start < end:
                found.append((start, self.slice(start, end - start)))
                read = end
        return found

    def offset_of(self, vaddr: int) -> int | None:
        """File offset of the byte loaded at `vaddr`; None where no PT_LOAD brings it from the file."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.vaddr <= vaddr < segment.vaddr + segment.filesz:
                offset = vaddr - segment.vaddr + segment.offset
                return offset if offset < len(self.data) else None
        return None

    @cached_property
    def dynamic(self) -> tuple[tuple[int, int], ...]:
        """(tag, value) pairs of PT_DYNAMIC up to DT_NULL; of `.dynamic` where there are no segments."""
        found = next(((s.offset, s.filesz) for s in self.segments if s.type == PT_DYNAMIC), None)
        if found is None:
            section = self.section(".dynamic")
            if section is None or section.type == SHT_NOBITS:
                return ()
            found = (section.offset, section.size)
        dtype = _dyn(self.order, self.bits)
        raw = self.records(found[0], dtype, min(found[1] // dtype.itemsize, _DYNAMIC_LIMIT))
        ends = np.flatnonzero(raw["tag"] == 0)
        raw = raw[: ends[0]] if len(ends) else raw
        return tuple(zip(raw["tag"].tolist(), raw["value"].tolist(), strict=True))

    def dynamic_value(self, tag: int) -> int | None:
        return self._dynamic_values.get(tag)

    @cached_property
    def _dynamic_values(self) -> dict[int, int]:
        """The first value of each tag."""
        return dict(reversed(self.dynamic))

    @cached_property
    def relocation_tables(self) -> dict[int, RelocationTable]:
        """Those of PT_DYNAMIC by DT_RELA, DT_REL and DT_JMPREL."""
        of_calls = self.dynamic_value(DT_PLTREL) != DT_REL
        kinds = ((DT_RELA, DT_RELASZ, True), (DT_REL, DT_RELSZ, False), (DT_JMPREL, DT_PLTRELSZ, of_calls))
        found = {}
        for tag, size, with_addends in kinds:
            address = self.dynamic_value(tag)
            offset = self.offset_of(address) if address else None
            if offset is not None:
                found[tag] = RelocationTable(offset, self.dynamic_value(size) or 0, with_addends)
        return found

    def relocation_entries(self, table: RelocationTable) -> np.ndarray:
        """The entries of a table, as far as they lie in the file."""
        dtype = self.rela_dtype if table.with_addends else self.rel_dtype
        return self.records(table.offset, dtype, table.size // dtype.itemsize)

    @cached_property
    def dynamic_symbol_count(self) -> int | None:
        """How many dynamic symbols there are; None where nothing tells.

        ld.so has no other number than that of DT_HASH (nchain), or the end of the last chain of DT_GNU_HASH. Where a
        file exports nothing, that has no chain (bfd's elflink.c), and the table goes on to what linkers put behind it.
        """
        words = self._dynamic_words(DT_HASH, 0, 2)
        if len(words) == 2 and self.machine != "s390x":  # s390x alone has 64-bit words in DT_HASH
            return int(words[1])
        header = self._dynamic_words(DT_GNU_HASH, 0, 4)
        if len(header) < 4:
            return self._symbols_before_names()
        buckets, first, bloom = (int(value) for value in header[:3])
        chains_at = 16 + bloom * self.bits // 8 + 4 * buckets
        starts = self._dynamic_words(DT_GNU_HASH, chains_at - 4 * buckets, buckets)
        last = int(starts.max()) if len(starts) else 0
        if last < first:
            return self._symbols_before_names()
        chain = self._dynamic_words(DT_GNU_HASH, chains_at + 4 * (last - first), len(self.data) // 4)
        # The lowest bit marks the end of a chain. Chains are short: a small window nearly always holds the end.
        for window in (chain[:4096], chain):
            ends = np.flatnonzero(window & 1)
            if len(ends):
                return last + int(ends[0]) + 1
        return self._symbols_before_names()

    def _symbols_before_names(self) -> int | None:
        section = next((s for s in self.sections if s.type == SHT_DYNSYM), None)
        if section is not None:
            return section.size // self.symbol_dtype.itemsize
        table, names = self.dynamic_value(DT_SYMTAB), self.dynamic_value(DT_STRTAB) or 0
        return (names - table) // self.symbol_dtype.itemsize if table is not None and table < names else None

    def _dynamic_words(self, tag: int, skip: int, count: int) -> np.ndarray:
        address = self.dynamic_value(tag)
        offset = self.offset_of(address) if address is not None else None
        if offset is None:
            return np.empty(0, np.uint32)
        return self.records(offset + skip, np.dtype(self.order + "u4"), count)

    @property
    def interpreter(self) -> str:
        segment = next((s for s in self.segments if s.type == PT_INTERP), None)
        return self.string(segment.offset, min(segment.filesz, 4096)) if segment else ""

    def notes(self) -> Iterator[Note]:
        """Notes of PT_NOTE segments, else of SHT_NOTE sections (relocatable files, cubins)."""
        areas = [(s.offset, s.filesz, s.align) for s in self.segments if s.type in (PT_NOTE, PT_GNU_PROPERTY)]
        if not areas:
            areas = [(s.offset, s.size, 4) for s in self.sections if s.type == SHT_NOTE]
        seen: set[int] = set()
        left, room = _MOST_NOTES, 2 * len(self.data)  # areas of a hostile file overlap
        for offset, size, align in areas:
            if offset in seen:
                continue
            seen.add(offset)
            for note in self._notes_in(offset, size, 8 if align == 8 else 4):
                left, room = left - 1, room - len(note.description)
                if left < 0 or room < 0:
                    return
                yield note

    def _notes_in(self, offset: int, size: int, align: int) -> Iterator[Note]:
        area = self.slice(offset, size)
        order: Literal["little", "big"] = "little" if self.order == "<" else "big"
        at = 0
        while at + 12 <= len(area):
            name_size, desc_size, kind = (int.from_bytes(area[at + i : at + i + 4], order) for i in (0, 4, 8))
            desc_at = at + 12 + (name_size + 3 & ~3)
            desc_at = desc_at + align - 1 & -align
            end = desc_at + desc_size
            if end > len(area):
                return
            named = bytes(area[at + 12 : at + 12 + min(name_size, _LONGEST_NAME)])
            owner = named.partition(b"\0")[0].decode("utf-8", "replace")
            yield Note(owner, kind, bytes(area[desc_at:end]))
            at = end + align - 1 & -align

    @cached_property
    def code(self) -> tuple[Section, ...]:
        """Executable areas: SHF_EXECINSTR sections, else executable PT_LOAD segments under the name SEGMENT."""
        sections = tuple(
            s for s in self.sections if s.flags & SHF_EXECINSTR and s.type != SHT_NOBITS and s.offset < len(self.data)
        )
        if sections:
            return sections
        return tuple(
            Section(SEGMENT, 1, SHF_EXECINSTR, s.vaddr, s.offset, s.filesz, 0, 0)
            for s in self.segments
            if s.type == PT_LOAD and s.flags & PF_X and s.offset < len(self.data)
        )
