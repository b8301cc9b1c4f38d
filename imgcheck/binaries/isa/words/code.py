"""The code of one file as an array of words, with what every such machine needs to follow calls and data.

Every word is an instruction, so a match by mask and value needs no decoding. What differs between machines, how
branches and addresses are written and where data stands among the code, is left to AArch64 and Ppc64le.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from imgcheck.binaries.isa.functions import Boundaries
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.ordered import within
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.words.reached import Reached, Runs
from imgcheck.binaries.kernels.arrays import holding

if TYPE_CHECKING:
    import capstone

_START_BYTES = 64
"""The C library's start code has referred to main by then."""
_STEPS = 5
"""Words looked at behind one that makes an address."""
_HANDING = 16
"""Words behind one that makes an address up to the call that gets it."""
_LONGEST = 8
"""Bytes of an instruction: those of Power with a prefix have two words."""
Numbers = TypeVar("Numbers", int, np.ndarray)
Places = tuple[np.ndarray, np.ndarray]
"""Addresses of instructions, and for each the address that it means."""


@dataclass(frozen=True, slots=True)
class Convention:
    """What a language does with registers besides what the platform's ABI says."""

    zero: tuple[int, ...] = ()
    """Those that hold 0 whenever functions call one another."""
    handing: tuple[int, ...] = ()
    """Those that hand over parameters, too."""


class Code:
    """One file's words, functions and calls."""

    irelative: int
    """Relocation type of a slot that an IFUNC's resolver fills."""
    opcode: int
    """Bits that say which kind of instruction a word is; most patterns have all of them."""
    links: int
    """The bit of a branch that makes it a call."""
    made: int
    """The lowest bit of the register that gets an address, where `makes` holds."""
    base: int
    """The lowest bit of the register that holds the address of a load or store."""
    parameters: range
    """Registers that hand over whole numbers and addresses."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._of_opcode: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        areas = [(a.address, a.data[: len(a.data) & ~3].view("<u4")) for a in layout.areas if a.address % 4 == 0]
        self._words = np.concatenate([np.empty(0, np.uint32), *(words for _, words in areas)])
        self._address = np.array([address for address, _ in areas], np.int64)
        counts = np.array([len(words) for _, words in areas], np.int64)
        self._end, self._first = self._address + 4 * counts, np.cumsum(counts) - counts
        """Of each area with code where it begins and ends, and the number of the words before it."""
        self._leave_out(*layout.data_in_code)
        sites, targets = self.branches
        # Other branches also go to labels within a function.
        called = targets[(self.word_at(sites) & np.uint32(self.links)) != 0]
        landed = self.landings[self.is_outside(self.landings)]
        entered = np.concatenate([self._entered(), landed, self.bounds_of_stubs])
        boundaries = Boundaries(layout)
        self.functions = boundaries.functions(boundaries.outside(called), entered=entered)

    # What machines tell

    go: "Convention"
    """How Go uses registers (its "internal ABI specification")."""

    @property
    def table(self) -> int | None:
        """Where the register of the table of contents points to, on machines that have one."""
        return None

    @cached_property
    def branches(self) -> Places:
        """Direct calls and jumps."""
        raise NotImplementedError

    def picks(self, words: np.ndarray) -> np.ndarray:
        """Which words take one of two registers."""
        raise NotImplementedError

    padding: tuple[int, ...]
    """Words that compilers put between functions."""

    @cached_property
    def landings(self) -> np.ndarray:
        """Where an instruction stands that begins what is called through pointers, on machines that have one."""
        return np.empty(0, np.int64)

    def conditional(self, words: np.ndarray) -> Places:
        """The numbers of direct branches that may go on to the next word, and how far they go."""
        raise NotImplementedError

    def is_end(self, words: np.ndarray) -> np.ndarray:
        """Which words are instructions that never go on to the next."""
        raise NotImplementedError

    def is_no_instruction(self, words: np.ndarray) -> np.ndarray:
        """Which words are none."""
        raise NotImplementedError

    def jumps_anywhere(self, words: np.ndarray) -> np.ndarray:
        """Which words jump by a register."""
        raise NotImplementedError

    def beginning(self, targets: np.ndarray) -> np.ndarray:
        """Where the functions begin that calls of these addresses lead to."""
        return targets

    @cached_property
    def addresses(self) -> Places:
        """Instructions that take or use the address of data."""
        raise NotImplementedError

    def stores(self, words: np.ndarray) -> np.ndarray:
        """Which words store to memory at a base and a distance."""
        raise NotImplementedError

    def makes(self, words: np.ndarray) -> np.ndarray:
        """Which words make an address in a register."""
        raise NotImplementedError

    def distances(self, words: np.ndarray) -> np.ndarray:
        """How far from a base those of the words go that use memory there, or make an address."""
        raise NotImplementedError

    def keeps_registers(self, address: int) -> bool:
        """Whether what begins at an address only saves or restores registers for the function that goes there."""
        return False

    def named(self, words: np.ndarray) -> frozenset[int] | None:
        """The general registers that words may write to, taken together, and others; None where they may call."""
        raise NotImplementedError

    def calling(self, users: np.ndarray) -> np.ndarray:
        """Marks functions that call through stubs, whose instructions `users` load the slots of imported functions."""
        raise NotImplementedError

    @cached_property
    def stubs(self) -> dict[int, int]:
        """Address of a stub that leads to another file's function -> the slot with its address."""
        raise NotImplementedError

    @cached_property
    def jumping_stubs(self) -> Places:
        """Stubs that jump to functions of this file themselves, and where to."""
        return np.empty(0, np.int64), np.empty(0, np.int64)

    @property
    def bounds_of_stubs(self) -> np.ndarray:
        """Where those begin, and what stands behind them."""
        return self.jumping_stubs[0]

    def comparing(self, number: int, first: bool) -> np.ndarray:
        """Marks functions that compare a number with 64 bits, or their first parameter, with this one."""
        raise NotImplementedError

    def handing(self, number: int) -> np.ndarray:
        """Words that make a number the first parameter of a call."""
        raise NotImplementedError

    def is_data(self, at: np.ndarray) -> np.ndarray:
        """Which of the words at these addresses are no code that the function around them runs."""
        raise NotImplementedError

    @cached_property
    def choosers(self) -> np.ndarray:
        """Marks outlined atomics: compilers' functions that test a flag of the CPU and choose between two forms."""
        return np.zeros(len(self.functions), bool)

    def handed_over(self, near: np.ndarray) -> np.ndarray:
        """Where main may be told, of the addresses that the start code refers to."""
        return near

    def decoder(self) -> "capstone.Cs":
        """The disassembler for this machine."""
        raise NotImplementedError

    # Words

    def _leave_out(self, starts: np.ndarray, ends: np.ndarray) -> None:
        """Puts zeros, which are no instruction, for the words of some stretches of code."""
        area = holding(self._address, self._end, starts)
        starts, ends, area = starts[area >= 0], ends[area >= 0], area[area >= 0]
        first = self._first[area] + (starts - self._address[area] >> 2)
        behind = first + (ends - starts + 3 >> 2)
        for start, end in zip(first.tolist(), behind.tolist(), strict=True):
            self._words[start:end] = 0

    def matching(self, mask: int, value: int) -> np.ndarray:
        """Addresses of the words that are `value` under `mask`."""
        return self._addresses(np.flatnonzero((self._words & np.uint32(mask)) == np.uint32(value)))

    def _addresses(self, numbers: np.ndarray) -> np.ndarray:
        """Addresses of words by their numbers."""
        area = np.searchsorted(self._first, numbers, side="right") - 1
        return self._address[area] + 4 * (numbers - self._first[area])

    def fitting(self, mask: int, value: int) -> np.ndarray:
        """The same for one of many patterns: words of one main opcode are looked for once."""
        if mask & self.opcode != self.opcode:
            return self.matching(mask, value)
        kind = value & self.opcode
        if kind not in self._of_opcode:
            at = self.matching(self.opcode, kind)
            self._of_opcode[kind] = at, self.word_at(at)
        at, words = self._of_opcode[kind]
        return at[(words & np.uint32(mask)) == np.uint32(value)]

    def text(self, address: int) -> str:
        """Disassembly; empty where the instruction is not known."""
        code = self.layout.bytes_at(address, address + _LONGEST)
        shown = next(self.decoder().disasm_lite(code, address, 1), None)
        return f"{shown[2]} {shown[3]}".strip() if shown else ""

    def word_at(self, addresses: np.ndarray) -> np.ndarray:
        """The word at each address; 0 outside the code."""
        area = holding(self._address, self._end, addresses)
        held = area >= 0
        values = np.zeros(len(addresses), np.uint32)
        values[held] = self._words[self._first[area[held]] + (addresses[held] - self._address[area[held]] >> 2)]
        return values

    def is_stored_to(self, sites: np.ndarray) -> np.ndarray:
        """Whether each of these instructions stores to its address, or makes one that the next few words store to."""
        word = self.word_at(sites)
        found, makes = self.stores(word), self.makes(word)
        made = word >> np.uint32(self.made) & np.uint32(31)
        for step in range(1, _STEPS):
            behind = self.word_at(sites + 4 * step)
            found |= makes & self.stores(behind) & (behind >> np.uint32(self.base) & np.uint32(31) == made)
        return found

    # Starts

    def is_reached(self, at: np.ndarray) -> np.ndarray:
        """Which of these addresses are reached, of those outside of unwind entries."""
        return self._reached.holds(at)

    @cached_property
    def _reached(self) -> Runs:
        return Reached(self).runs

    def _entered(self) -> np.ndarray:
        """Functions without unwind entries, beside some that have; none where the file's own symbols tell."""
        if len(self.layout.static_symbols.value) or not len(self.layout.unwind[0]):
            return np.empty(0, np.int64)
        reached = Reached(self)  # kept, it would refer back to this, and the file's map could not be closed
        self._reached = reached.runs
        return reached.starts

    @property
    def outside(self) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of the words outside of unwind entries, and these words."""
        number = np.flatnonzero(self._is_outside)
        return self._addresses(number), self._words[number]

    def is_outside(self, addresses: np.ndarray) -> np.ndarray:
        """Which addresses are those of code outside of unwind entries."""
        area = holding(self._address, self._end, addresses)
        number = self._first[area] + (addresses - self._address[area] >> 2) if len(self._first) else area
        return self._is_outside[np.where(area < 0, -1, number)]

    @cached_property
    def _is_outside(self) -> np.ndarray:
        """The same for each word; and no for one behind the last."""
        starts, ends = self.layout.unwind
        behind = np.maximum.accumulate(ends)
        starts = np.maximum(starts, np.append(0, behind[:-1])[: len(starts)])
        area = holding(self._address, self._end, starts)
        held = (area >= 0) & (starts < behind)
        starts, behind, area = starts[held], behind[held], area[held]
        first = self._first[area] + (starts - self._address[area] >> 2)
        until = first + (np.minimum(behind, self._end[area]) - starts + 3 >> 2)
        edges = np.zeros(len(self._words) + 1, np.int8)
        np.add.at(edges, first, 1)
        np.add.at(edges, until, -1)
        return np.append(np.cumsum(edges[:-1], dtype=np.int8) == 0, False)

    @cached_property
    def main(self) -> np.ndarray:
        """What the start code hands to the C library: addresses that its first words build or load, or those of what it
        goes to first, as musl's does.
        """
        entry = self.layout.elf.entry
        sites, targets = self.branches
        first = targets[(sites >= entry) & (sites < entry + _START_BYTES)][:1]
        return np.concatenate([self._referred_to(start) for start in (entry, *first.tolist())])

    def _referred_to(self, start: int) -> np.ndarray:
        """Addresses that the first words from an address on build or load, as the start code has them."""
        sites, targets = self.addresses
        near = self.handed_over(targets[(sites >= start) & (sites < start + _START_BYTES)])
        pointed = self.layout.pointed(near)
        return np.concatenate([near, pointed[pointed > 0]])

    # Functions

    def index(self, addresses: np.ndarray) -> np.ndarray:
        """The function that begins at each address; -1 where none does."""
        start = self.functions.start
        if not len(start):
            return np.full(len(addresses), -1, np.int64)
        at = np.minimum(np.searchsorted(start, addresses), len(start) - 1)
        return np.where(start[at] == addresses, at, -1)

    def holding(self, addresses: np.ndarray) -> np.ndarray:
        """Marks the functions that hold one of these addresses."""
        marks = np.zeros(len(self.functions), bool)
        held = self.functions.holding(addresses)
        marks[held[held >= 0]] = True
        return marks

    def called(self, targets: np.ndarray) -> np.ndarray:
        """The function that a call of each address leads to, through a stub for functions of this file too; else -1."""
        stubs, behind = self._own_stubs
        at = np.minimum(np.searchsorted(stubs, targets), len(stubs) - 1)
        through = np.where(stubs[at] == targets, behind[at], -1) if len(stubs) else np.full(len(targets), -1)
        return np.where(through < 0, self.index(targets), through)

    @cached_property
    def _own_stubs(self) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of stubs that lead to functions of this file, sorted, and which; not those that IFUNCs choose."""
        stubs = np.array(sorted(self.stubs), np.int64)
        slots = np.array([self.stubs[stub] for stub in stubs.tolist()], np.int64)
        targets = self.layout.pointed(slots)
        chosen = np.isin(slots, list(self.chosen_slots)) | np.isin(targets, self.layout.ifuncs)
        jumping, reached = self.jumping_stubs
        stubs = np.concatenate([stubs, jumping])
        behind = np.concatenate([np.where(chosen, -1, self.index(targets)), self.index(reached)])
        order = np.argsort(stubs, kind="stable")
        order = order[behind[order] >= 0]
        return stubs[order], behind[order]

    @cached_property
    def handed(self) -> Places:
        """Words that make the address of a function which a call of another file's function, right behind, gets."""
        sites, targets = self.addresses
        words = self.word_at(sites)
        own = self.makes(words) & (self.index(targets) >= 0)
        own &= np.isin(words >> np.uint32(self.made) & np.uint32(31), self.parameters)
        sites, targets = sites[own], targets[own]
        branching, reached = self.branches
        through = within(reached, np.array(sorted(self.stubs), np.int64)) & ~within(reached, self._own_stubs[0])
        foreign, branching = np.sort(branching[through]), np.sort(branching)
        found, goes_on = np.zeros(len(sites), bool), np.ones(len(sites), bool)
        for at in (sites + 4 * step for step in range(1, _HANDING)):
            found |= goes_on & within(at, foreign)
            words = self.word_at(at)
            goes_on &= ~(within(at, branching) | self.is_end(words) | self.jumps_anywhere(words) | self.picks(words))
        return sites[found], targets[found]

    @cached_property
    def chosen_slots(self) -> frozenset[int]:
        """Slots for which resolvers choose: what the file has there is the resolver."""
        relocations = self.layout.relocations
        return frozenset(relocations["offset"][relocations["type"] == self.irelative].tolist())

    @cached_property
    def calls(self) -> Edges:
        """Calls and tail calls between functions of this file."""
        sites, targets = self.branches
        target, source = self.called(targets), self.functions.holding(sites)
        kept = (target >= 0) & (source >= 0) & (source != target)
        order = np.argsort(source[kept], kind="stable")
        return Edges(source[kept][order], target[kept][order], sites[kept][order], len(self.functions))


def of_kinds(words: np.ndarray, *kinds: Sequence[int]) -> np.ndarray:
    """Which words are of one of some kinds, each a mask and the value under it."""
    return np.logical_or.reduce([words & np.uint32(mask) == np.uint32(value) for mask, value in kinds])


def signed(values: Numbers, bits: int) -> Numbers:
    """The lowest `bits` bits of a number, or of each, as numbers with a sign."""
    return ((values & (1 << bits) - 1) ^ 1 << bits - 1) - (1 << bits - 1)
