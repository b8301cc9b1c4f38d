"""How AArch64 writes branches and addresses, and how literals among its code show.

Encodings: Arm A-profile A64 instruction set.
"""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.ordered import distinct
from imgcheck.binaries.isa.words.code import Code, Convention, Places, of_kinds, signed
from imgcheck.binaries.kernels.arrays import holding

if TYPE_CHECKING:
    import capstone

_ADR, _ADRP, _ADD = (0x9F000000, 0x10000000), (0x9F000000, 0x90000000), (0x7FC00000, 0x11000000)
"""Mask and value of the instructions that make addresses; of ADD the one with a number."""
_USES = 128
"""Words behind an ADRP that may use its register."""
_CONDITIONAL = (0xFF000010, 0x54000000, 19), (0x7E000000, 0x34000000, 19), (0x7E000000, 0x36000000, 14)
"""Mask and value of B.cond, CBZ and TBZ, and how many bits from the fifth on their distance has."""
_ENDS = (0xFC000000, 0x14000000), (0xFFFFFC1F, 0xD65F0000), (0xFFFFFC1F, 0xD61F0000), (0xFFFFFBFF, 0xD65F0BFF)
"""B, RET, BR, and RETAA with RETAB."""
_CALLS = (0xFC000000, 0x94000000), (0xFFDFF800, 0xD61F0000), (0xFE000000, 0xD4000000), (0xBFA07C00, 0x08207C00)
"""BL, BR and BLR, SVC and its like; and CASP, which writes to registers that it does not name."""
TO_GENERAL = (
    *((0x5F26FC00, 0x1E200000), (0x5F26FC00, 0x1E240000)),  # FCVT to integers, by the rounding
    *((0x5F37FC00, 0x1E260000), (0x7FFFFC00, 0x1E7E0000), (0x5F3E0000, 0x1E180000)),  # FMOV, FJCVTZS, to fixed point
    *((0xBFE0FC00, 0x0E003C00), (0xBFE0FC00, 0x0E002C00)),  # UMOV, SMOV
    *((0xFF30FC00, 0x0420E000), (0xFF30F800, 0x0430E000), (0xFF20F000, 0x0420F000)),  # SVE: CNTB, INCB, SQINCB
    *((0xFFFFF800, 0x04BF5000), (0xFFE0F800, 0x04205000), (0xFFE0F800, 0x04605000)),  # RDVL, ADDVL, ADDPL
    *((0xFF3FC200, 0x25208000), (0xFF3EF800, 0x252C8800), (0xFF3EE000, 0x0520A000), (0xFF3FE000, 0x0530A000)),
)
"""Instructions on vector registers and predicates that write to a general one; the last: CNTP, INCP, LASTA, CLASTA."""
_VECTORS = 0x0E000000, 0x0E000000
"""What works on vector registers alone, but for some of the above."""
_BRANCHES, _SYSTEM, _HINT = ((0x1C000000, 0x14000000),), (0xFF000000, 0xD5000000), (0xFFFFF01F, 0xD503201F)
_NOP, _BTI_C = 0xD503201F, 0xD503245F
_ADRP_X16, _ADDS_TO_X16, _LDR_X16, _BR_X16 = 0x90000010, 0x91000210, 0x58000050, 0xD61F0200
"""ADRP of x16, ADD of a number to it, the load of the eight bytes behind the next word, and the branch to it."""
_UNALLOCATED = (0x9E000000, 0x00000000), (0x1E000000, 0x02000000), (0x1E000000, 0x06000000)
"""Bits 28 to 25 are 0000, 0001 or 0011 (C4.1, "A64 instruction set encoding"); 0000 with the highest bit set is SME."""


class AArch64(Code):
    """One AArch64 file."""

    irelative = 1032
    opcode = 0x1F000000
    links = 0x80000000
    made, base = 0, 5
    parameters = range(8)
    padding = _NOP, 0
    go = Convention(handing=tuple(range(8, 16)))

    @cached_property
    def landings(self) -> np.ndarray:
        return self.matching(0xFFFFFFFF, _BTI_C)

    @cached_property
    def branches(self) -> Places:
        sites = self.matching(0x7C000000, 0x14000000)
        return sites, sites + 4 * signed(self.word_at(sites).astype(np.int64), 26)

    def conditional(self, words: np.ndarray) -> Places:
        kinds = [(np.flatnonzero(of_kinds(words, kind)), bits) for *kind, bits in _CONDITIONAL]
        distances = [4 * signed(words[at].astype(np.int64) >> 5, bits) for at, bits in kinds]
        return np.concatenate([at for at, _ in kinds]), np.concatenate(distances)

    def is_end(self, words: np.ndarray) -> np.ndarray:
        return of_kinds(words, *_ENDS)

    def is_no_instruction(self, words: np.ndarray) -> np.ndarray:
        return of_kinds(words, *_UNALLOCATED)

    def jumps_anywhere(self, words: np.ndarray) -> np.ndarray:
        return of_kinds(words, _ENDS[2])

    @cached_property
    def addresses(self) -> Places:
        """ADR, which linkers make of ADRP and ADD too, and ADRP with the 12-bit offset of words that use its register.

        Clang keeps a page in a register over long stretches: uses are looked for until something else is put there.
        """
        near = self.matching(*_ADR)
        found_sites, found_targets = [near], [near + _relative(self.word_at(near))]
        sites = self.matching(*_ADRP)
        word = self.word_at(sites)
        page, register = (sites & ~0xFFF) + (_relative(word) << 12), word & np.uint32(31)
        for _ in range(_USES):
            if not len(sites):
                break
            sites = sites + 4
            user = self.word_at(sites)
            same = user >> np.uint32(5) & np.uint32(31) == register
            loads = same & (user & 0x3B000000 == 0x39000000)
            hit = loads | (same & of_kinds(user, _ADD))
            scale = np.where(loads, user >> np.uint32(30), 0)
            found_sites.append(sites[hit])
            found_targets.append((page + ((user.astype(np.int64) >> 10 & 0xFFF) << scale))[hit])
            kept = ~_puts_elsewhere(user, register)
            sites, page, register = sites[kept], page[kept], register[kept]
        return np.concatenate(found_sites), np.concatenate(found_targets)

    def stores(self, words: np.ndarray) -> np.ndarray:
        return (words & 0x3B400000) == 0x39000000

    def picks(self, words: np.ndarray) -> np.ndarray:
        return words & 0x3FE00000 == 0x1A800000  # CSEL and its kin

    def makes(self, words: np.ndarray) -> np.ndarray:
        return of_kinds(words, _ADD, _ADR)

    def distances(self, words: np.ndarray) -> np.ndarray:
        number = words >> np.uint32(10) & np.uint32(0xFFF)
        uses, makes = words & 0x3F000000 == 0x39000000, of_kinds(words, _ADD)
        return np.concatenate([number[uses] << (words[uses] >> np.uint32(30)), number[makes]]).astype(np.int64)

    def named(self, words: np.ndarray) -> frozenset[int] | None:
        """All that stands where instructions name registers, whichever of these they are."""
        if of_kinds(words, *_CALLS).any():
            return None
        words = words[~of_kinds(words, _VECTORS, *_BRANCHES) | of_kinds(words, *TO_GENERAL, _SYSTEM)]
        words = words[~of_kinds(words, _HINT)]
        return frozenset(int(n) for at in (0, 5, 10, 16) for n in np.unique(words >> np.uint32(at) & np.uint32(31)))

    def calling(self, users: np.ndarray) -> np.ndarray:
        """PLT entries are 16 bytes from ADRP to BR; some are functions of their own, the others lie behind these."""
        marks = self.holding(users)
        stubs = self.functions.holding(users)
        marks[self.calls.source[np.isin(self.calls.target, stubs[stubs >= 0])]] = True
        sites, targets = self.branches
        near = np.isin(targets & ~15, (users - 4) & ~15) & ~np.isin(targets, self.functions.start)
        return marks | self.holding(sites[near])

    @cached_property
    def stubs(self) -> dict[int, int]:
        """PLT entries begin with the ADRP of their slot, or with BTI before that."""
        sites, targets = self.addresses
        loads = (self.word_at(sites) & 0xFFC003FF) == 0xF9400211
        found = zip(sites[loads].tolist(), targets[loads].tolist(), strict=True)
        return {site - before: slot for site, slot in found for before in (4, 8)}

    @cached_property
    def jumping_stubs(self) -> Places:
        """Linkers put them where a branch does not reach: they make the address in x16, or load it from behind them."""
        sites, targets = self.addresses
        made = self.word_at(sites) & 0xFFC003FF == _ADDS_TO_X16
        made &= (self.word_at(sites - 4) & 0x9F00001F == _ADRP_X16) & (self.word_at(sites + 4) == _BR_X16)
        loading = self.matching(0xFFFFFFFF, _LDR_X16)
        loading = loading[self.word_at(loading + 4) == _BR_X16]
        loaded = self.layout.pointed(loading + 8)
        return np.append(sites[made] - 4, loading), np.append(targets[made], loaded)

    def comparing(self, number: int, first: bool) -> np.ndarray:
        mask, value = (0x7FFFFFFF, 0x7100001F) if first else (0xFFFFFC1F, 0xF100001F)
        return self.holding(self.matching(mask, value | number << 10))

    def handing(self, number: int) -> np.ndarray:
        return self.matching(0x7FFFFFFF, 0x52800000 | number << 5)

    def is_data(self, at: np.ndarray) -> np.ndarray:
        """Literals: where no branch leads, behind one that goes elsewhere, together with what is no instruction.

        A table may lead there too, in a function that jumps by one: zeros that only fill it up tell nothing of that.
        """
        targets, ends, others = self._flow
        place = np.searchsorted(targets, at, side="right")
        entered, until = np.append(-1, targets)[place], np.append(targets, np.iinfo(np.int64).max)[place]
        before = np.append(-1, ends)[np.searchsorted(ends, at)]
        found = np.zeros(len(at), bool)
        jumping = np.append(self._jumping, False)[self.functions.holding(at)]
        for among, strange in ((~jumping, others), (jumping, others[~np.isin(others, self._filling)])):
            found |= among & (np.searchsorted(strange, until) > np.searchsorted(strange, before))
        return found & (before > entered)

    @cached_property
    def _jumping(self) -> np.ndarray:
        """Marks functions that jump by a register."""
        return self.holding(self.matching(*_ENDS[2]))

    @cached_property
    def _filling(self) -> np.ndarray:
        """Addresses of zeros up to where a function begins, or the code ends."""
        zeros = self.matching(0xFFFFFFFF, 0)
        behind = np.append(zeros[1:] != zeros[:-1] + 4, True)[: len(zeros)]  # marks the last ones of each stretch
        last = zeros[behind][np.searchsorted(np.flatnonzero(behind), np.arange(len(zeros)))]
        fills = np.isin(last + 4, self.functions.start) | (holding(self._address, self._end, last + 4) < 0)
        return zeros[fills]

    @cached_property
    def _flow(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where branches lead to and functions begin, words that never go on, and words that are no instructions."""
        numbers, distances = self.conditional(self._words)
        targets = [self.functions.start, self.branches[1], self._addresses(numbers) + distances]
        kinds = self.is_end(self._words), self.is_no_instruction(self._words)
        ends, others = (self._addresses(np.flatnonzero(marks)) for marks in kinds)
        return distinct(np.concatenate(targets)), ends, others

    @cached_property
    def choosers(self) -> np.ndarray:
        """They load a byte to x16 by an address in x16 and branch on it (lse.S of libgcc and compiler-rt)."""
        loads = self.matching(0xFFC003FF, 0x39400210)
        return self.holding(loads[(self.word_at(loads + 4) & 0x7E00001F) == 0x34000010])

    def decoder(self) -> "capstone.Cs":
        import capstone

        return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)


def _relative(words: np.ndarray) -> np.ndarray:
    """The distance in each ADR or ADRP."""
    word = words.astype(np.int64)
    return signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)


def _puts_elsewhere(words: np.ndarray, registers: np.ndarray) -> np.ndarray:
    """Which words put something else into the register of the same row, or leave the function for good or for a call.

    Of what a call may change nothing is left.
    """
    group = words >> np.uint32(25) & np.uint32(15)
    loads = (group & 5 == 4) & (words & 0x00400000 != 0)
    writes = np.isin(group, (5, 8, 9, 13)) | loads
    second = loads & (words & 0x3A000000 == 0x28000000) & (words >> np.uint32(10) & np.uint32(31) == registers)
    calls = (words & 0xFC000000 == 0x94000000) | (words & 0xFFFFFC1F == 0xD63F0000)
    returns = words & 0xFFFFFC1F == 0xD65F0000
    return (writes & (words & np.uint32(31) == registers)) | second | (calls & (registers < 19)) | returns
