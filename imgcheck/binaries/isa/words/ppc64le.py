"""How ppc64le writes branches and addresses, and what linkers and compilers put among its code.

Encodings: Power ISA 3.1. Data lies at a distance from the table of contents, which r2 points to: 64-Bit ELF V2 ABI
Specification for Power, 2.3.4.1 (function prologue) and 3.4.2 (TOC).
"""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.elf import ET_EXEC
from imgcheck.binaries.isa.words.code import Code, Convention, Numbers, Places, of_kinds, signed

if TYPE_CHECKING:
    import capstone

_TOC, _ENTRY = 2, 12
"""The registers of the table of contents, and of a function's own address at its global entry."""
_LOCAL_ENTRY = 8
"""Bytes behind the global one: calls inside a file go there."""
_ADDI, _ADDIS, _LD, _STD = 14, 15, 58, 62
_LOADS, _STORES = (32, 33, 34, 40, 42, _LD), (36, 37, 38, 44, _STD)
"""Primary opcodes of loads and stores with a base and a distance."""
_USERS = (_ADDI, *_LOADS, *_STORES)
PREFIX, _PLD, _PSTD = 1, 57, 61
_PREFIXED = (_ADDI, *_LOADS[:-1], 41, _PLD, *_STORES[:-1], _PSTD)
"""Primary opcodes behind a prefix: 41 is PLWA."""
_RELATIVE = 0xFD900000, 0x04100000
"""Mask and value of prefixes of both kinds (8LS and MLS) that make a distance relative to the instruction."""
_OF_REGISTER = 0xFC1F0000
"""Mask of the primary opcode and the base."""
_USES = 7
"""Words from an ADDIS on that may use its register."""
_COMPARISON, _FIRST = 0x28000000, 3
"""CMPLI, and but for one bit CMPI; the register of the first parameter."""
_MTCTR, _BRANCH = 0x7D8903A6, 0x48000000
"""`mtctr r12` before a `bctr`, and `b`: the ends of stubs by which linkers reach a function with its address in r12."""
_CONDITIONAL = 0x40000000
_NOPS = 0x60000000, 0x60420000
"""ORI of r0 and of r2 with zero."""
_ENDS = (0xFC000001, _BRANCH), (0xFE8007FF, 0x4E800020), (0xFE8007FF, 0x4E800420)
"""Mask and value of B, BLR and BCTR."""
_KEEPS_TABLE = 0xF8410018
"""STD r2, 24(r1): who calls gets its table of contents back from there."""
_STACK, _PRESERVED = 1, range(14, 32)
_BLR, _MTLR = 0x4E800020, 0x7C0803A6
_MOST_KEPT = len(_PRESERVED) + 4
"""Words of a function that saves or restores all of these."""
_CALLS = ((0xFC000001, _BRANCH | 1), (0xFC0007FE, 0x4C000420), (0xFC000000, 0x44000000), (0xFC000001, 0x40000001),
          (0xFC000000, 0xB8000000), (0xFC000000, 0xE0000000))  # fmt: skip
"""BL, BCTR and BCTRL, SC, BCL; LMW and LQ, which write to registers that they do not name."""
_BRANCHES = 16, 18, 19
_NEAR_STUB = 8
"""Bytes from the start of such a stub to the load of its slot, at most."""


class Ppc64le(Code):
    """One ppc64le file."""

    irelative = 248
    opcode = 0xFC000000
    links = 1
    made, base = 21, 16
    parameters = range(3, 11)
    padding = _NOPS
    go = Convention(zero=(0,), handing=(14, 15, 16, 17))

    @cached_property
    def branches(self) -> Places:
        sites = self.matching(0xFC000002, _BRANCH)
        return sites, sites + (signed(self.word_at(sites).astype(np.int64), 26) & ~3)

    def conditional(self, words: np.ndarray) -> Places:
        at = np.flatnonzero(words & np.uint32(0xFC000002) == _CONDITIONAL)
        return at, signed(words[at].astype(np.int64), 16) & ~3

    def is_end(self, words: np.ndarray) -> np.ndarray:
        return of_kinds(words, *_ENDS)

    def is_no_instruction(self, words: np.ndarray) -> np.ndarray:
        return words >> 26 == 0

    def jumps_anywhere(self, words: np.ndarray) -> np.ndarray:
        return of_kinds(words, _ENDS[2])

    def beginning(self, targets: np.ndarray) -> np.ndarray:
        """Calls inside a file go past the two words by which a function works out r2."""
        makes_table = self.word_at(targets - _LOCAL_ENTRY) & 0xFFE00000 == _ADDIS << 26 | _TOC << 21
        makes_table &= self.word_at(targets - _LOCAL_ENTRY + 4) >> 16 == _ADDI << 10 | _TOC << 5 | _TOC
        return np.where(makes_table, targets - _LOCAL_ENTRY, targets)

    @cached_property
    def addresses(self) -> Places:
        """Distances from the table of contents, from zero in programs that cannot be moved, and from prefixed
        instructions, whose second words stand for them.
        """
        sites, targets = zip(self._near_table, self._near_zero, self._near_themselves, strict=True)
        return np.concatenate(sites), np.concatenate(targets)

    @cached_property
    def _near_themselves(self) -> Places:
        sites = self.matching(*_RELATIVE)
        last = self.word_at(sites + 4).astype(np.int64)
        used = np.isin(last >> 26, _PREFIXED)
        sites, last = sites[used], last[used]
        return sites + 4, sites + distance_of_prefixed(self.word_at(sites).astype(np.int64), last)

    @cached_property
    def _near_table(self) -> Places:
        """In one word from r2, or with ADDIS and the next few words."""
        table = self.table
        if table is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        near = np.concatenate([self.fitting(_OF_REGISTER, opcode << 26 | _TOC << 16) for opcode in _USERS])
        sites, targets = self._with_addis(_TOC, table)
        return np.append(near, sites), np.append(table + self._distance(near), targets)

    @cached_property
    def _near_zero(self) -> Places:
        """Addresses as numbers: so they are written without a table of contents, and by Go."""
        lowest, behind = self.layout.extent if self.layout.elf.type == ET_EXEC else (0, 0)
        sites, targets = self._with_addis(0, 0)
        inside = (targets >= lowest) & (targets < behind)
        return sites[inside], targets[inside]

    def _with_addis(self, base: int, at: int) -> Places:
        """What uses the register of an ADDIS of a base, which holds the address `at`, in the next few words."""
        found_sites, found_targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        sites = self.fitting(_OF_REGISTER, _ADDIS << 26 | base << 16)
        word = self.word_at(sites).astype(np.int64)
        register, high = word >> 21 & 31, at + (signed(word, 16) << 16)
        for step in range(1, _USES):
            place = sites + 4 * step
            user = self.word_at(place).astype(np.int64)
            hit = (user >> 16 & 31 == register) & np.isin(user >> 26, _USERS)
            found_sites.append(place[hit])
            found_targets.append(high[hit] + self._distance(place[hit]))
        return np.concatenate(found_sites), np.concatenate(found_targets)

    def _distance(self, addresses: np.ndarray) -> np.ndarray:
        return _distances(self.word_at(addresses))

    @cached_property
    def table(self) -> int | None:
        """Where r2 points: functions work it out at their global entry, from r12 or as a constant."""
        for register, relative in ((_ENTRY, 1), (0, 0)):
            sites = self.fitting(0xFFFF0000, _ADDIS << 26 | _TOC << 21 | register << 16)
            sites = sites[self.word_at(sites + 4) >> 16 == _ADDI << 10 | _TOC << 5 | _TOC]
            high = signed(self.word_at(sites).astype(np.int64), 16) << 16
            tables, counts = np.unique(relative * sites + high + self._distance(sites + 4), return_counts=True)
            if len(tables):
                return int(tables[np.argmax(counts)])
        return None

    def stores(self, words: np.ndarray) -> np.ndarray:
        return np.isin(words >> 26, _STORES)

    def is_stored_to(self, sites: np.ndarray) -> np.ndarray:
        prefixed = (self.word_at(sites) >> 26 == _PSTD) & (self.word_at(sites - 4) >> 26 == PREFIX)
        return super().is_stored_to(sites) | prefixed

    def picks(self, words: np.ndarray) -> np.ndarray:
        return words & 0xFC00003E == 0x7C00001E  # ISEL

    def makes(self, words: np.ndarray) -> np.ndarray:
        return words >> 26 == _ADDI

    def index(self, addresses: np.ndarray) -> np.ndarray:
        found, local = super().index(addresses), super().index(addresses - _LOCAL_ENTRY)
        return np.where(found < 0, local, found)

    def distances(self, words: np.ndarray) -> np.ndarray:
        return _distances(words[np.isin(words >> np.uint32(26), _USERS)])

    def keeps_registers(self, address: int) -> bool:
        """2.3.3.1 of the ABI: compilers have them where code is to be small."""
        words = self.word_at(address + 4 * np.arange(_MOST_KEPT)).tolist()
        until = next((i for i, word in enumerate(words) if word == _BLR), 0)
        return until > 0 and all(word == _MTLR or _keeps(word) for word in words[:until])

    def named(self, words: np.ndarray) -> frozenset[int] | None:
        """All that stands where instructions name registers, whichever of these they are."""
        if of_kinds(words, *_CALLS).any():
            return None
        words = words[~np.isin(words >> np.uint32(26), _BRANCHES)]
        return frozenset(int(n) for at in (11, 16, 21) for n in np.unique(words >> np.uint32(at) & np.uint32(31)))

    def calling(self, users: np.ndarray) -> np.ndarray:
        """Stubs stand together in what looks like one function."""
        sites, targets = self.branches
        slots = np.sort(users)
        first = np.append(slots, np.iinfo(np.int64).max)[np.searchsorted(slots, targets)]
        return self.holding(sites[first - targets <= _NEAR_STUB])

    @cached_property
    def stubs(self) -> dict[int, int]:
        sites, targets = self.addresses
        loads = np.isin(self.word_at(sites) >> 21, (_LD << 5 | _ENTRY, _PLD << 5 | _ENTRY))
        found = zip(sites[loads].tolist(), targets[loads].tolist(), strict=True)
        return {site - before: slot for site, slot in found for before in range(0, _NEAR_STUB + 1, 4)}

    @cached_property
    def jumping_stubs(self) -> Places:
        """By these, code that has no table of contents reaches functions that work out theirs from r12, and code that
        has one those that have none.
        """
        sites, targets = self.branches
        makes_entry = self.word_at(sites - 4) >> 16 == _ADDI << 10 | _ENTRY << 5
        makes_entry &= self.word_at(sites - 8) & _RELATIVE[0] == _RELATIVE[1]
        keeps_table = (self.word_at(sites - 4) == _KEEPS_TABLE) & (self.word_at(sites) & self.links == 0)
        first = np.concatenate([sites[makes_entry] - 8, sites[keeps_table] - 4])
        return first, np.concatenate([targets[makes_entry], targets[keeps_table]])

    @property
    def bounds_of_stubs(self) -> np.ndarray:
        first = self.jumping_stubs[0]
        return np.append(first, first[self.word_at(first) == _KEEPS_TABLE] + 8)

    def comparing(self, number: int, first: bool) -> np.ndarray:
        mask, value = (0xF85FFFFF, _FIRST << 16) if first else (0xF860FFFF, 1 << 21)
        return self.holding(self.matching(mask, _COMPARISON | value | number))

    def handing(self, number: int) -> np.ndarray:
        return self.matching(0xFFFFFFFF, _ADDI << 26 | _FIRST << 21 | number)

    def is_data(self, at: np.ndarray) -> np.ndarray:
        """A prefixed instruction of a linker's stub is run by who calls the stub: it loads where the next words go."""
        loads = self.word_at(at + 4) >> 21 & 31 == _ENTRY
        behind = self.word_at(at + 8)
        return loads & ((behind == _MTCTR) | (behind & 0xFC000003 == _BRANCH))

    def handed_over(self, near: np.ndarray) -> np.ndarray:
        """Main is the second pointer of a structure (glibc, sysdeps/powerpc/powerpc64/start.S)."""
        return np.append(near, near + 8)

    def decoder(self) -> "capstone.Cs":
        import capstone

        return capstone.Cs(capstone.CS_ARCH_PPC, capstone.CS_MODE_64 | capstone.CS_MODE_LITTLE_ENDIAN)


def _distances(words: np.ndarray) -> np.ndarray:
    """The distance in each word; the lowest two bits of LD and STD say more of the instruction."""
    word = words.astype(np.int64)
    return signed(np.where(np.isin(word >> 26, (_LD, _STD)), word & ~3, word), 16)


def _keeps(word: int) -> bool:
    """Whether a word moves a register that callees preserve, or the return address, to the stack or from there."""
    return (
        word >> 26 in (_LD, _STD)
        and word >> 16 & 31 == _STACK
        and (word >> 21 & 31 in _PRESERVED or word >> 21 & 31 == 0)
    )


def distance_of_prefixed(prefix: Numbers, last: Numbers) -> Numbers:
    """The distance or number with 34 bits in the two words of a prefixed instruction."""
    return signed((prefix & 0x3FFFF) << 16 | last & 0xFFFF, 34)
