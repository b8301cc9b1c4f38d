"""The dynamic symbols that a file gives to others, and those that its relocations ask for.

Of what it gives there are up to half a million: their names are told by hashes of 32 bits.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from imgcheck.binaries.elf import DT_JMPREL, Elf, RelocationTable
from imgcheck.binaries.kernels.names import copied, hashes
from imgcheck.binaries.linkage.symbols import DynamicStrings, DynamicSymbols
from imgcheck.documents.facts import Symbols

# What a program takes over from a library into its own memory, by the ABI of each processor (R_*_COPY).
_COPIES = {
    "x86_64": 5, "i386": 5, "aarch64": 1024, "arm": 20, "ppc64le": 19, "ppc64": 19, "riscv64": 4, "s390x": 9,
    "loongarch64": 4,
}  # fmt: skip
_STV_INTERNAL, _STV_HIDDEN = 1, 2
_STT_TLS, _SHN_ABS = 6, 0xFFF1


def read_symbols(elf: Elf) -> Symbols | None:
    """Those of `elf`; None where they are not known, since no real file has such names."""
    strings = DynamicStrings(elf)
    symbols = DynamicSymbols(elf, strings)
    wanted = np.zeros(len(symbols.table), bool)
    wanted[symbols.strong(symbols.undefined)] = True
    relocations = _Relocations(elf)
    taken = relocations.copied()
    taken = taken[taken < len(wanted)]
    wanted[symbols.strong(taken)] = True
    table, starts = elf.array[strings.offset :][: strings.size], symbols.table["name"]
    at_load, at_call = (relocations.asked_for(wanted, part) for part in (relocations.at_load, relocations.at_call))
    try:
        return Symbols(
            # What is copied stands in the table as if it were the program's own.
            defined=hashes(table, starts[_given(symbols, taken)]).astype("<u4").tobytes(),
            at_load=copied(table, starts[at_load]),
            at_call=copied(table, starts[at_call]),
        )
    except ValueError:
        return None


def hashes_of(names: Sequence[bytes]) -> np.ndarray:
    """Those of `names` by which Symbols.defined has them."""
    table = np.frombuffer(b"".join(name + b"\0" for name in names), np.uint8)
    lengths = np.array([len(name) + 1 for name in names], np.int64)
    return hashes(table, np.cumsum(lengths) - lengths)


def _given(symbols: DynamicSymbols, taken: np.ndarray) -> np.ndarray:
    """Indexes of what others find in the file (do_lookup_x in glibc's elf/dl-lookup.c), but for what it has `taken`."""
    found = symbols.defined[_is_found(symbols.table)[symbols.defined]]
    return found[~np.isin(found, taken)] if len(taken) else found


def _is_found(entries: np.ndarray) -> np.ndarray:
    visibility = entries["other"] & 3
    placed = (entries["value"] != 0) | (entries["shndx"] == _SHN_ABS) | (entries["info"] & 15 == _STT_TLS)
    return placed & (visibility != _STV_INTERNAL) & (visibility != _STV_HIDDEN)


class _Relocations:
    """The relocations of DT_RELA, DT_REL and DT_JMPREL that name a symbol."""

    def __init__(self, elf: Elf) -> None:
        self._shift = 32 if elf.bits == 64 else 8
        self._copy = _COPIES.get(elf.machine)
        tables = dict(elf.relocation_tables)
        calls = tables.pop(DT_JMPREL, None)
        self.at_load = self._named(elf, [_without(table, calls) for table in tables.values()])
        """The word `info` of each: the symbol's number above the type."""
        self.at_call = self._named(elf, [calls] if calls else [])

    def _named(self, elf: Elf, tables: list[RelocationTable]) -> np.ndarray:
        words = [elf.relocation_entries(table)["info"] for table in tables]
        named = [info[info >= 1 << self._shift].astype(np.uint64) for info in words]  # most have no symbol
        return np.concatenate([np.empty(0, np.uint64), *named])

    def copied(self) -> np.ndarray:
        """Numbers of the symbols that are copied from a library."""
        return self._numbers(self.at_load[self._types(self.at_load) == self._copy] if self._copy else self.at_load[:0])

    def asked_for(self, wanted: np.ndarray, relocations: np.ndarray) -> np.ndarray:
        """Those of the `wanted` symbols that `relocations` name, each once, after which they are wanted no more.

        In the order of the loader: the first that it does not find is the one it names. R_*_NONE, 0 on all machines,
        asks for nothing.
        """
        numbers = self._numbers(relocations[self._types(relocations) != 0])
        numbers = numbers[numbers < len(wanted)]
        numbers = numbers[wanted[numbers]]
        left = np.count_nonzero(wanted) - len(numbers)
        wanted[numbers] = False
        if np.count_nonzero(wanted) == left:  # as in most files, where none is named twice
            return numbers
        return numbers[np.sort(np.unique(numbers, return_index=True)[1])]

    def _numbers(self, relocations: np.ndarray) -> np.ndarray:
        return (relocations >> np.uint64(self._shift)).astype(np.int64)

    def _types(self, relocations: np.ndarray) -> np.ndarray:
        return relocations & np.uint64((1 << self._shift) - 1)


def _without(table: RelocationTable, calls: RelocationTable | None) -> RelocationTable:
    """`table` without what it has in common with DT_JMPREL, where it ends with that (glibc, elf/dynamic-link.h)."""
    if calls is None or table.offset + table.size != calls.offset + calls.size:
        return table
    return structs.replace(table, size=table.size - calls.size)
