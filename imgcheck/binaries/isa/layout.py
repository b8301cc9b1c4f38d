"""Where the code of an ELF file lies, for every architecture: executable areas, unwind entries, symbols and pointers.

Everything is read with numpy, so that 700,000 functions cost no Python loop, and whatever a hostile file claims is cut
to its areas.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from operator import itemgetter

import numpy as np

from imgcheck.binaries.elf import (
    ADDRESS_LIMIT,
    DT_STRTAB,
    DT_SYMTAB,
    ET_EXEC,
    ET_REL,
    FATBIN_SECTIONS,
    PT_LOAD,
    SEGMENT,
    SHT_DYNSYM,
    SHT_SYMTAB,
    Elf,
    RelocationTable,
    Segment,
)
from imgcheck.binaries.isa.columns import Columns
from imgcheck.binaries.isa.ordered import distinct, within
from imgcheck.binaries.isa.pclntab import GoFunctions, go_functions
from imgcheck.binaries.isa.unwind import unwind_entries
from imgcheck.binaries.kernels.arrays import Ranges, Texts, words_at
from imgcheck.binaries.kernels.x86 import behind_end

_LOW = (1 << 31) - (1 << 20)
"""Addresses below fit into 32 bits with a sign, and so do those some steps beyond."""
_STT_FUNC, STT_NOTYPE, _STT_IFUNC = 2, 0, 10
_IN_CODE = np.isin(np.arange(16), (_STT_FUNC, STT_NOTYPE, _STT_IFUNC))
"""By the type of a symbol."""
_SHT_RELA, _SHT_REL = 4, 9
_SYMBOL_ALONE = (6, 7)
"""R_386_GLOB_DAT and R_386_JMP_SLOT: what their slots hold in the file is not added. Those of lazy PLTs lead back."""
_DT = {"RELR": 36, "RELRSZ": 35, "SONAME": 14, "INIT": 12, "INIT_ARRAY": 25, "INIT_ARRAYSZ": 27, "FINI": 13,
       "FINI_ARRAY": 26, "FINI_ARRAYSZ": 28, "FLAGS_1": 0x6FFFFFFB}  # fmt: skip
_DF_1_PIE = 0x08000000
_RELOCATION = np.dtype([("offset", "i8"), ("type", "i4"), ("symbol", "i4"), ("addend", "i8")])
_NAMES_LIMIT = 10_000
_LONGEST_NAME = 512
"""Bytes of a symbol's name that are read; the rest of longer ones tells nothing."""
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_ENDBR = _ENDBR64[:3]
"""What ENDBR64 and ENDBR32 have in common, before FA and FB."""
_PADDING = 1 << 12
"""Bytes between two sections of code that linkers leave out for alignment."""


@dataclass(frozen=True, slots=True)
class Area:
    """One executable section (or segment, where the file has no sections)."""

    name: str
    address: int
    data: np.ndarray
    offset: int
    """Where it begins in the file."""

    @property
    def end(self) -> int:
        return self.address + len(self.data)


@dataclass(frozen=True, slots=True)
class Symbols(Columns):
    """Defined and undefined entries of a symbol table, as columns."""

    value: np.ndarray
    size: np.ndarray
    type: np.ndarray
    bind: np.ndarray
    section: np.ndarray
    visibility: np.ndarray
    string: np.ndarray
    """File offset of the name."""


_NO_SYMBOLS = Symbols(*(np.empty(0, kind) for kind in ("i8", "i8", "u1", "u1", "u2", "u1", "i8")))


@dataclass(frozen=True, slots=True)
class Pointers:
    """Addresses that relocations write into data: `slot` holds `target`, or the imported symbol `symbol`.

    Sorted by slot. target is -1 where it lies in another file; symbol is -1 where there is none.
    """

    slot: np.ndarray
    target: np.ndarray
    symbol: np.ndarray

    def at(self, addresses: np.ndarray) -> np.ndarray:
        """Index of the entry whose slot is each address, or -1."""
        if not len(self.slot):
            return np.full(len(addresses), -1, np.int64)
        found = np.minimum(np.searchsorted(self.slot, addresses), len(self.slot) - 1)
        return np.where(self.slot[found] == addresses, found, -1)


def _ranges(elf: Elf, areas: tuple[Area, ...]) -> Ranges:
    return Ranges(elf.array, [(area.address, area.end, area.offset) for area in areas])


def _clipped(values: np.ndarray) -> np.ndarray:
    """Unsigned words of any width as signed ones; absurd addresses become one that lies nowhere."""
    return np.minimum(values.astype(np.uint64), np.uint64(ADDRESS_LIMIT)).astype(np.int64)


class Layout:
    """The code of `elf`, described lazily."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf

    @cached_property
    def areas(self) -> tuple[Area, ...]:
        """Executable areas by address; of overlapping ones the first. Object files use file offsets as addresses."""
        found = []
        for section in self.elf.code:
            address = section.offset if self.elf.type == ET_REL else section.addr
            data = self.elf.array[section.offset : section.offset + section.size]
            if len(data) and 0 <= address < ADDRESS_LIMIT:
                found.append(Area(section.name, address, data, section.offset))
        kept: list[Area] = []
        for area in sorted(found, key=lambda area: area.address):
            if not kept or area.address >= kept[-1].end:
                kept.append(area)
        return tuple(kept)

    @cached_property
    def spans(self) -> tuple[Area, ...]:
        """The same code in as few pieces as the file allows: neighbouring areas as one, with what lies between them.

        What is looked for everywhere is looked for in these: a small file has five areas, and every look has a price.
        """
        spans: list[tuple[int, int, int]] = []
        for area in self.areas:
            address, start, end = spans[-1] if spans else (0, 0, 0)
            if spans and 0 <= area.offset - end <= _PADDING and area.offset - start == area.address - address:
                spans[-1] = address, start, area.offset + len(area.data)
            else:
                spans.append((area.address, area.offset, area.offset + len(area.data)))
        return tuple(Area("", address, self.elf.array[start:end], start) for address, start, end in spans)

    @cached_property
    def extent(self) -> tuple[int, int]:
        """The lowest address that the loaded file or its code holds, and the one behind the highest."""
        held = [(area.address, area.end) for area in self.areas]
        held += [(s.vaddr, s.vaddr + s.memsz) for s in self.elf.segments if s.type == PT_LOAD and s.memsz]
        return min((first for first, _ in held), default=0), max((end for _, end in held), default=0)

    @cached_property
    def address_type(self) -> type[np.signedinteger]:
        """For columns of addresses in `extent` and next to it: most files lie so low that half the room will do."""
        return np.int32 if self.extent[1] < _LOW else np.int64

    @property
    def code_bytes(self) -> int:
        return sum(len(area.data) for area in self.areas)

    @cached_property
    def _area_starts(self) -> list[int]:
        return [area.address for area in self.areas]

    def areas_between(self, first: int, last: int) -> tuple[Area, ...]:
        """The areas from the one that holds `first`, or comes next, to the one that holds `last`, or comes before."""
        begin = bisect_right(self.areas, first, key=lambda area: area.end)
        return self.areas[begin : bisect_right(self._area_starts, last)]

    def area_of(self, address: int) -> Area | None:
        index = bisect_right(self._area_starts, address) - 1
        return self.areas[index] if index >= 0 and address < self.areas[index].end else None

    def bytes_at(self, start: int, end: int) -> bytes:
        """Code from `start` to `end`, cut at the end of its area."""
        area = self.area_of(start)
        if area is None:
            return b""
        shift = area.offset - area.address
        return bytes(self.elf.data[start + shift : max(min(end, area.end), start) + shift])

    def bytes_before(self, addresses: np.ndarray) -> np.ndarray:
        """The byte before each address; 0 outside the code."""
        return self._ranges.bytes_at(addresses, -1)

    def bytes_behind(self, addresses: np.ndarray, distance: int = 0) -> np.ndarray:
        """The byte so far behind each address, also of what lies between the areas of a span; 0 outside the code."""
        return self._span_ranges.bytes_at(addresses, distance)

    def in_code(self, addresses: np.ndarray) -> np.ndarray:
        return self._ranges.holding(addresses) >= 0

    @cached_property
    def _ranges(self) -> Ranges:
        return _ranges(self.elf, self.areas)

    @cached_property
    def _span_ranges(self) -> Ranges:
        return _ranges(self.elf, self.spans)

    # Symbols

    @cached_property
    def dynamic_symbols(self) -> Symbols:
        """.dynsym by index, as relocations count it; from the dynamic table where there are no sections."""
        section = next((s for s in self.elf.sections if s.type == SHT_DYNSYM), None)
        if section is not None and section.link < len(self.elf.sections):
            return self._symbols(section.offset, section.size, self.elf.sections[section.link].offset)
        table, strings = self.elf.dynamic_value(DT_SYMTAB), self.elf.dynamic_value(DT_STRTAB)
        table = self.elf.offset_of(table) if table is not None else None
        strings = self.elf.offset_of(strings) if strings is not None else None
        if table is None or strings is None:
            return _NO_SYMBOLS
        return self._symbols(table, (self.elf.dynamic_symbol_count or 0) * self.elf.symbol_dtype.itemsize, strings)

    @property
    def static_symbols(self) -> Symbols:
        """.symtab, read anew for each of the few who ask: that of a large library takes tens of megabytes."""
        section = next((s for s in self.elf.sections if s.type == SHT_SYMTAB), None)
        if section is None or section.link >= len(self.elf.sections):
            return _NO_SYMBOLS
        return self._symbols(section.offset, section.size, self.elf.sections[section.link].offset)

    def _symbols(self, offset: int, size: int, strings: int) -> Symbols:
        dtype = self.elf.symbol_dtype
        raw = self.elf.records(offset, dtype, size // dtype.itemsize)
        value = _clipped(raw["value"])
        if self.elf.type == ET_REL and len(raw):
            bases = np.array([s.offset for s in self.elf.sections] or [0], np.int64)
            value = value + bases[np.minimum(raw["shndx"], len(bases) - 1)]
        return Symbols(
            value=value,
            size=_clipped(raw["size"]),
            type=raw["info"] & 15,
            bind=raw["info"] >> 4,
            section=raw["shndx"],
            visibility=raw["other"] & 3,
            string=raw["name"].astype(np.int64) + min(strings, len(self.elf.data)),
        )

    @cached_property
    def code_symbols(self) -> Symbols:
        """Defined symbols of both tables that lie in code, sorted by value, global functions first among equals."""
        joined = Symbols.joined((self.dynamic_symbols, self.static_symbols))
        wanted = _IN_CODE[joined.type] & (joined.section != 0)
        wanted &= self.in_code(joined.value) & (self._mapped(joined) == 0)
        rank = (joined.type == STT_NOTYPE) * 2 + (joined.bind == 0)
        ranked = np.concatenate([np.flatnonzero(wanted & (rank == k)) for k in range(4)])
        return joined.take(ranked[np.argsort(joined.value[ranked], kind="stable")])

    def _mapped(self, symbols: Symbols) -> np.ndarray:
        """What AArch64's mapping symbols mark, by letter: x for code, d for data; 0 for symbols of other kinds.

        ELF for the Arm 64-bit Architecture, "Mapping symbols": $x and $d, which .ANYTHING may follow.
        """
        letters = np.zeros(len(symbols.value), np.uint8)
        if self.elf.machine != "aarch64":
            return letters
        array = self.elf.array
        inside = (symbols.string >= 0) & (symbols.string < len(array) - 2)
        at = np.flatnonzero(inside & (symbols.type == STT_NOTYPE) & (symbols.bind == 0) & (symbols.section != 0))
        first, letter, behind = (array[symbols.string[at] + i] for i in range(3))
        is_one = (first == ord("$")) & np.isin(letter, list(b"xd")) & np.isin(behind, list(b"\0."))
        letters[at[is_one]] = letter[is_one]
        return letters

    @cached_property
    def data_in_code(self) -> tuple[np.ndarray, np.ndarray]:
        """Where data among code begins and ends by the file's mapping symbols, in order.

        Where code without such symbols follows, it ends with the next function.
        """
        symbols = self.static_symbols
        letters = self._mapped(symbols)
        starts = distinct(symbols.value[letters == ord("d")])
        if not len(starts):
            return starts, starts
        functions = symbols.value[(symbols.type == _STT_FUNC) & (symbols.section != 0)]
        code = np.concatenate([symbols.value[letters == ord("x")], functions, self.unwind[0]])
        starts = starts[self.in_code(starts) & ~np.isin(starts, code)]
        edges = distinct(np.concatenate([starts, code, [area.end for area in self.areas]]))
        return starts, edges[np.searchsorted(edges, starts, side="right")]

    @cached_property
    def ifuncs(self) -> np.ndarray:
        """Addresses in code of the symbols of type IFUNC."""
        tables = (self.dynamic_symbols, self.static_symbols)
        found = np.concatenate([s.value[(s.type == _STT_IFUNC) & (s.section != 0)] for s in tables])
        return found[self.in_code(found)]

    @cached_property
    def imports(self) -> tuple[np.ndarray, list[bytes]]:
        """Indices and names of the undefined dynamic symbols."""
        missing = np.flatnonzero(self.dynamic_symbols.section == 0)
        return missing, self.names(self.dynamic_symbols, missing)

    def name(self, address: int) -> str:
        """Symbol at `address`, or the name in Go's table, or `sub_ADDRESS`."""
        for starts, names in ((self.code_symbols.value, self.code_symbols.string), (self.go.start, self.go.name)):
            at = int(np.searchsorted(starts, address))
            if at < len(starts) and starts[at] == address:
                text = self.elf.string(int(names[at]), _LONGEST_NAME)
                if text:
                    return text
        return f"sub_{address:x}"

    def named_starts(self, go: bool) -> np.ndarray:
        """Addresses of a program's main, if wanted of Go's, and of Python modules' PyInit functions, by their names."""
        if not self.is_program:
            return self.module_starts
        mains = [(SHT_SYMTAB, b"main\0"), (SHT_DYNSYM, b"main\0")]
        return self._named(mains + ([(SHT_SYMTAB, b"main.main\0")] if go else []))

    @cached_property
    def module_starts(self) -> np.ndarray:
        """Addresses of PyInit functions, which make a library a module of Python's."""
        return self._named([(SHT_DYNSYM, b"PyInit_")])

    def _named(self, wanted: list[tuple[int, bytes]]) -> np.ndarray:
        """Addresses of symbols whose names begin with wanted ones, in tables of the kind that goes with each."""
        symbols = self.code_symbols
        # Linkers let a name share the end of a longer one, so a name need not follow a NUL.
        sections = self.elf.sections
        linked = {(each.link, name) for each in sections for kind, name in wanted if each.type == kind}
        linking = ((sections[link], name) for link, name in linked if link < len(sections))
        # Each of very many headers may lead to one table.
        tables = {(table.offset, table.size, name): table for table, name in linking}
        offsets: list[int] = []
        for (offset, _, name), table in tables.items():
            data = np.frombuffer(self.elf.section_data(table), np.uint8)
            # What lies outside of the file, where nothing is found, may begin where no integer of numpy reaches.
            offsets += [offset + at for at in Texts([name]).find(data, _NAMES_LIMIT)[0].tolist()]
        return symbols.value[np.isin(symbols.string, np.array(offsets, np.int64))]

    def names(self, symbols: Symbols, indices: np.ndarray) -> list[bytes]:
        """The names of some symbols as the file has them."""
        data, longest = self.elf.data, _LONGEST_NAME
        starts = symbols.string[indices].tolist()
        return [data[at : at + longest].tobytes().partition(b"\0")[0] if at >= 0 else b"" for at in starts]

    @property
    def is_program(self) -> bool:
        """Whether it is started, rather than loaded: the C library, which may be started too, has a soname."""
        loaded = self.elf.dynamic_value(_DT["SONAME"]) is not None
        return (bool(self.elf.interpreter) and not loaded) or self._is_executable

    @property
    def can_be_started(self) -> bool:
        """Whether its entry point means anything: linkers give libraries one that is where their code begins."""
        return bool(self.elf.interpreter) or self._is_executable

    @property
    def _is_executable(self) -> bool:
        """By its type, or by the linker's mark of a program that can be moved."""
        return self.elf.type == ET_EXEC or bool((self.elf.dynamic_value(_DT["FLAGS_1"]) or 0) & _DF_1_PIE)

    # Where functions may begin

    def is_landing_pad(self, addresses: np.ndarray) -> np.ndarray:
        """Whether ENDBR64 or ENDBR32 stands at each address, where indirect branches may arrive (x86)."""
        found = np.zeros(len(addresses), bool)
        at = np.arange(len(addresses))
        for distance, byte in enumerate(_ENDBR):
            at = at[self.bytes_behind(addresses[at], distance) == byte]  # few are left behind the first
            if not len(at):
                return found
        found[at] = self.bytes_behind(addresses[at], len(_ENDBR)) | 1 == 0xFB
        return found

    def is_behind_end(self, addresses: np.ndarray, padded: bool = True) -> np.ndarray:
        """Whether what stands before each address, or if `padded` before a NOP there that aligns it, ends a function
        (x86).
        """
        return behind_end(self._ranges, addresses, padded)

    @cached_property
    def go(self) -> GoFunctions:
        """The functions of Go's own table, which has none of C."""
        return go_functions(self)

    def is_go(self, address: int) -> bool:
        """Whether a function of Go begins at an address."""
        at = int(np.searchsorted(self.go.start, address))
        return at < len(self.go.start) and bool(self.go.start[at] == address)

    @cached_property
    def unwind(self) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends of the functions that tables for unwinding stacks bound, sorted: `.eh_frame_hdr` and Go's."""
        start, end = unwind_entries(self)
        start = self._with_landings(start)
        if not len(self.go.start):
            return start, end
        start, end = np.append(start, self.go.start), np.append(end, self.go.end)
        order = np.argsort(start, kind="stable")
        return start[order], end[order]

    def _with_landings(self, starts: np.ndarray) -> np.ndarray:
        """`starts`, moved to where a named function begins with an ENDBR64 that its unwind entry leaves out.

        A macro of assembly writes it, before the directive that begins the entry (Intel's vector functions in the JDK).
        """
        before = starts - len(_ENDBR64)
        at = np.flatnonzero(self.is_landing_pad(before)) if self.elf.machine == "x86_64" else before[:0]
        if not len(at):  # as in most files, which are spared a look at their symbols
            return starts
        symbols = self.code_symbols
        at = at[np.isin(before[at], symbols.value[symbols.type != STT_NOTYPE])]
        moved = starts.copy()
        moved[at] = before[at]
        return moved

    def words(self, offsets: np.ndarray) -> np.ndarray:
        """Signed 32-bit words at file offsets of any alignment."""
        array = self.elf.array
        if len(array) < 4:
            return np.zeros(len(offsets), np.int64)
        return words_at(array, offsets, self.elf.order)

    # Relocations

    @cached_property
    def relocations(self) -> np.ndarray:
        """offset, type, symbol, addend of every dynamic relocation (of static ones in object files)."""
        by_form = groupby(self._relocation_tables(), key=lambda table: table.with_addends)
        parts = [self._relocations(list(tables), rela) for rela, tables in by_form]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, _RELOCATION), *parts])

    def _relocation_tables(self) -> list[RelocationTable]:
        tables = set(self.elf.relocation_tables.values())
        if not tables and self.elf.type != ET_REL:  # static programs keep IRELATIVE in a section alone
            tables = {
                RelocationTable(s.offset, s.size, s.type == _SHT_RELA)
                for s in self.elf.sections
                if s.type in (_SHT_RELA, _SHT_REL)
            }
        return sorted(tables, key=lambda table: (table.offset, table.size, table.with_addends))

    def _relocations(self, tables: list[RelocationTable], rela: bool) -> np.ndarray:
        raw = np.concatenate([self.elf.relocation_entries(table) for table in tables])
        out = np.empty(len(raw), _RELOCATION)
        shift, mask = (32, 0xFFFFFFFF) if self.elf.bits == 64 else (8, 0xFF)
        out["offset"] = _clipped(raw["offset"])
        out["type"], out["symbol"] = raw["info"] & mask, raw["info"] >> shift
        out["addend"] = raw["addend"] if rela else self._stored(out["offset"])
        if rela:  # numpy's own clip takes several times as long where there are few
            np.maximum(out["addend"], -ADDRESS_LIMIT, out=out["addend"])
            np.minimum(out["addend"], ADDRESS_LIMIT, out=out["addend"])
        if not rela and self.elf.machine == "i386":
            out["addend"][np.isin(out["type"], _SYMBOL_ALONE)] = 0
        return out

    def _stored(self, addresses: np.ndarray) -> np.ndarray:
        """Words of the file's size that the file holds at `addresses`; 0 where it holds none."""
        values = np.zeros(len(addresses), np.int64)
        width = self.elf.bits // 8
        for segment in self.elf.segments:
            last = min(segment.filesz, len(self.elf.array) - segment.offset) - width
            if segment.type != PT_LOAD or segment.vaddr >= ADDRESS_LIMIT or last < 0:
                continue
            at = addresses - segment.vaddr
            inside = (at >= 0) & (at <= last)
            offsets = at[inside] + segment.offset
            raw = self.elf.array[offsets[:, None] + np.arange(width)]
            words = np.ascontiguousarray(raw).view(f"{self.elf.order}u{width}")[:, 0]
            values[inside] = _clipped(words)
        return values

    @cached_property
    def relr(self) -> np.ndarray:
        """Slots of DT_RELR: a word with bit 0 clear is an address, with bit 0 set a bitmap of what follows it."""
        at, size = self.elf.dynamic_value(_DT["RELR"]), self.elf.dynamic_value(_DT["RELRSZ"])
        offset = self.elf.offset_of(at) if at else None
        width = self.elf.bits // 8
        empty = np.empty(0, np.int64)
        if offset is None or not size:
            return empty
        words = self.elf.records(offset, np.dtype(f"{self.elf.order}u{width}"), size // width).astype(np.uint64)
        if not len(words) or words[0] & 1:
            return empty
        plain = (words & 1) == 0
        index = np.arange(len(words))
        last = np.maximum.accumulate(np.where(plain, index, 0))
        per_map = self.elf.bits - 1
        base = _clipped(words[last]) + width
        base += np.maximum(index - last - 1, 0) * per_map * width
        slots = [_clipped(words[plain])]
        maps = np.flatnonzero(~plain)
        for bit in range(per_map):
            chosen = maps[(words[maps] >> np.uint64(bit + 1)) & np.uint64(1) == 1]
            slots.append(base[chosen] + bit * width)
        return np.concatenate(slots)

    # Entry points

    @cached_property
    def initialisers(self) -> np.ndarray:
        """Addresses that the loader calls when it has loaded the file."""
        return self._called_as("INIT", ".init")

    @cached_property
    def finalisers(self) -> np.ndarray:
        """Those that it calls when the program ends."""
        return self._called_as("FINI", ".fini")

    @property
    def called_by_loader(self) -> np.ndarray:
        """Addresses that the loader calls, at either time."""
        return np.concatenate([self.initialisers, self.finalisers])

    def _called_as(self, tag: str, name: str) -> np.ndarray:
        """What `tag` (DT_INIT) names, and the members of its array; or of the sections that are called so."""
        found = [value for value in (self.elf.dynamic_value(_DT[tag]),) if value and value < ADDRESS_LIMIT]
        start, size = self.elf.dynamic_value(_DT[f"{tag}_ARRAY"]), self.elf.dynamic_value(_DT[f"{tag}_ARRAYSZ"])
        array, code = self.elf.section(f"{name}_array"), self.elf.section(name)
        if not start and array is not None:
            start, size = array.addr, array.size
        if not found and code is not None:
            found.append(code.addr)
        width = self.elf.bits // 8
        if start and size and start < ADDRESS_LIMIT:
            slots = start + width * np.arange(min(size // width, 1 << 20), dtype=np.int64)
            found += self.pointed(slots).tolist()
        return np.array([address for address in found if address > 0], np.int64)

    def addresses_of(self, *texts: bytes) -> list[np.ndarray]:
        """Where each of the texts lies when the file is loaded; among code only if no section tells where that is."""
        return _places(texts, ((address, self.elf.array[start:end]) for address, start, end in self._with_texts))

    def addresses_in_code(self, *texts: bytes) -> list[np.ndarray]:
        """Where each of the texts lies among code."""
        return _places(texts, ((span.address, span.data) for span in self.spans))

    @cached_property
    def _loaded(self) -> list[Segment]:
        """What is loaded at addresses that make sense, as far as a sound file has it.

        Neighbours may share a page; a hostile file has the same bytes many times.
        """
        segments = [s for s in self.elf.segments if s.type == PT_LOAD and s.vaddr + s.memsz < ADDRESS_LIMIT]
        sizes = accumulate(segment.filesz for segment in segments)
        return [s for s, size in zip(segments, sizes, strict=True) if size <= 2 * len(self.elf.array)]

    @property
    def _with_texts(self) -> Iterator[tuple[int, int, int]]:
        """Address, offset and end in the file of what is loaded, but for code and packed GPU code.

        Code has texts by chance, if any, and is as much as all the rest. Packed GPU code has none of the host's, and a
        worker gets it as holes, which take memory once they are read.
        """
        code = (each for each in self.elf.code if each.name != SEGMENT)
        sections = (*filter(None, map(self.elf.section, FATBIN_SECTIONS)), *code)
        others = _together((section.offset, section.offset + section.size) for section in sections)
        for segment in self._loaded:
            at, end = segment.offset, min(segment.offset + segment.filesz, len(self.elf.array))
            first, last = bisect_right(others, at, key=itemgetter(1)), bisect_left(others, end, key=itemgetter(0))
            for start, stop in (*others[first:last], (end, end)):
                if start > at:
                    yield segment.vaddr + at - segment.offset, at, start
                at = max(at, stop)

    def number_at(self, address: int, size: int) -> int | None:
        """The number of `size` bytes that lies at an address when the file is loaded, before relocation."""
        for segment in self.elf.segments:
            if segment.type == PT_LOAD and segment.vaddr <= address and address + size <= segment.vaddr + segment.memsz:
                at = address - segment.vaddr
                if at >= segment.filesz:
                    return 0
                data = self.elf.data[segment.offset + at : segment.offset + at + size]
                return int.from_bytes(data, "little")
        return None

    def pointed(self, slots: np.ndarray) -> np.ndarray:
        """What each slot points to after relocation: by its relocation, else by the bytes in the file; -1 if absent."""
        index = self.pointers.at(slots)
        stored = self._stored(slots)
        by_relocation = self.pointers.target[index] if len(self.pointers.slot) else np.full(len(slots), -1)
        return np.where(index >= 0, by_relocation, np.where(stored > 0, stored, -1))

    @cached_property
    def pointers(self) -> Pointers:
        """Every relocated word of the file, and in programs that cannot be moved every word that may be an address."""
        relocations, symbols = self.relocations, self.dynamic_symbols
        index = np.clip(relocations["symbol"], 0, max(len(symbols.value) - 1, 0))
        has = (relocations["symbol"] > 0) & (relocations["symbol"] < len(symbols.value))
        if len(symbols.value):
            defined = has & (symbols.section[index] != 0)
            value = symbols.value[index]
        else:
            defined, value = has, index
        target = np.where(has, np.where(defined, value + relocations["addend"], -1), relocations["addend"])
        relr = self.relr
        fixed, addresses = self._absolute()
        if len(fixed):
            unchanged = ~within(fixed, np.sort(relocations["offset"], kind="stable"))
            fixed, addresses = fixed[unchanged], addresses[unchanged]
        slot = np.concatenate([relocations["offset"], relr, fixed])
        target = np.concatenate([target, self._stored(relr), addresses])
        symbol = np.concatenate([np.where(has, index, -1), np.full(len(relr) + len(fixed), -1, np.int32)])
        order = np.argsort(slot, kind="stable")
        return Pointers(slot[order], target[order], symbol[order])

    def _absolute(self) -> tuple[np.ndarray, np.ndarray]:
        """Aligned words outside the code whose value is an address of the program, with it: ET_EXEC relocates none."""
        slots, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        loaded = self._loaded
        if self.elf.type != ET_EXEC or not loaded:
            return slots[0], targets[0]
        width = self.elf.bits // 8
        lowest, highest = min(s.vaddr for s in loaded), max(s.vaddr + s.memsz for s in loaded)
        for segment in loaded:
            skipped = -segment.vaddr % width
            data = self.elf.array[segment.offset + skipped : segment.offset + segment.filesz]
            words = np.frombuffer(data[: len(data) // width * width], f"{self.elf.order}u{width}")
            at = np.flatnonzero((words >= lowest) & (words < highest))
            slot = segment.vaddr + skipped + at * width
            outside = ~self.in_code(slot)
            slots.append(slot[outside])
            targets.append(words[at[outside]].astype(np.int64))
        return np.concatenate(slots), np.concatenate(targets)

    @cached_property
    def exports(self) -> np.ndarray:
        """Addresses of the functions of .dynsym that other files can call."""
        s = self.dynamic_symbols
        wanted = np.isin(s.type, (_STT_FUNC, _STT_IFUNC)) & (s.section != 0) & (s.bind != 0) & (s.visibility != 2)
        return distinct(s.value[wanted])


def _places(texts: Sequence[bytes], where: Iterable[tuple[int, np.ndarray]]) -> list[np.ndarray]:
    """Addresses of each of the texts in pieces of the file, each with the address that it begins at."""
    found: list[list[np.ndarray]] = [[np.empty(0, np.int64)] for _ in texts]
    sought = Texts(texts)
    for address, data in where:
        for places, more in zip(found, sought.find(data, _NAMES_LIMIT), strict=True):
            places.append(address + more)
    return [np.concatenate(places) for places in found]


def _together(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Starts and ends of ranges, in order, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
