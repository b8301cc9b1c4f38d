"""The variables of one file: which hold what the CPU told, what lies in them at first, what functions leave there."""

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from imgcheck.binaries.elf import PF_W, PT_GNU_RELRO, PT_LOAD, PT_TLS, Elf, Segment
from imgcheck.binaries.isa.conditions import ALWAYS, bit_conditions
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.values import Value, constant, joined, tells, word
from imgcheck.binaries.isa.x86.facts import THREAD
from imgcheck.binaries.isa.x86.graph import Graph

_FEATURES, _MODEL = 12, 16
"""Where the word of features lies in struct __processor_model of libgcc and compiler-rt, and the size of that."""
_FURTHER = (0, 4, 8)
"""Words of __cpu_features2, which has what that one has no room for."""


class Variables:
    """By address. Those that hold what the CPU told are words of 4 bytes; thread-local ones lie below THREAD."""

    def __init__(self, layout: Layout, texts: frozenset[int] = frozenset()) -> None:
        """`texts`: addresses that count as holding what the CPU told, besides."""
        self._layout, self._texts = layout, texts
        self._pointer = layout.elf.bits // 8
        self.held: set[int] = set()
        """Those that hold what the CPU told."""
        self.restated: set[int] = set()
        """Those of which something else is known than when their readers were looked at."""
        self.thread = _thread_block(layout.elf)
        """Where a program's thread-local variables begin, and the segment with what they hold at first."""
        self.writable = [
            (s.vaddr, s.vaddr + s.memsz)
            for s in layout.elf.segments
            if s.type == PT_LOAD and s.flags & PF_W and s.vaddr + s.memsz < 1 << 62
        ]
        """Beginnings and ends of where variables lie."""
        if self.thread:
            self.writable.append((self.thread[0], THREAD))
        relro = (s for s in layout.elf.segments if s.type == PT_GNU_RELRO)
        self._settled = next((range(s.vaddr, s.vaddr + s.memsz) for s in relro), range(0))
        """Where the loader alone stores."""
        self._left: dict[int, dict[int, Value]] = {}
        """Address of a variable -> what each function that writes to it leaves there."""
        self.doubtful: set[int] = set()
        """Functions of which it is not known under what conditions they write."""
        self._records: dict[int, str] = {}
        """Words of the compilers' own record, by address, and what each is called in rules/analysis/isa.toml."""
        self._values: dict[int, Value] = {}
        """What `value` has told."""
        self._initials: dict[tuple[int, int], Value] = {}

    # What is known

    @property
    def written(self) -> list[int]:
        """Those that functions that were followed write to, in order."""
        return sorted(self._left)

    @property
    def understood(self) -> bool:
        """Whether some variable is known to tell of certain features."""
        return bool(self._records) or any(tells(value) for left in self._left.values() for value in left.values())

    def holds(self, address: int) -> bool:
        """Whether an address lies in a variable that holds what the CPU told."""
        return (address & ~3) in self.held or address in self._texts

    def telling(self, addresses: Iterable[int]) -> set[int]:
        """Those of some words in one byte of which something is understood."""
        return {address for address in addresses if any(tells(self.value(address + i)) for i in range(4))}

    def value(self, address: int) -> Value:
        """What is known of a variable once those functions that write to it have run."""
        if address not in self._values:
            self._values[address] = self._all_left(address)
        return self._values[address]

    def _all_left(self, address: int) -> Value:
        if address in self._records:
            return word(bit_conditions(self._records[address]))
        left = self._left.get(address)
        if not left or not self.doubtful.isdisjoint(left):
            return None
        value, *others = left.values()
        for other in others:
            value = joined(value, ALWAYS, other, ALWAYS)
        return value

    def initial(self, address: int, size: int) -> Value:
        """The number that lies at an address when the file is loaded."""
        key = address, size
        if key not in self._initials:
            self._initials[key] = self._loaded(address, size)
        return self._initials[key]

    def _loaded(self, address: int, size: int) -> Value:
        if self.thread and self.thread[0] <= address < THREAD:
            first, segment = self.thread
            address += segment.vaddr - first
        number = self._layout.number_at(address, size)
        return None if number is None else constant(number)

    def fixed(self, address: int, size: int) -> Value:
        """The same of what nothing but the loader can store to."""
        if self._can_be_stored_to(address) and address not in self._settled:
            return None
        pointer = self.pointee(address) if size == self._pointer else 0
        return constant(pointer) if pointer else self.initial(address, size)

    def _can_be_stored_to(self, address: int) -> bool:
        return any(first <= address < end for first, end in self.writable)

    def pointee(self, address: int) -> int:
        """What the pointer at an address points to, 0 where it is none."""
        pointers = self._layout.pointers
        at = int(np.searchsorted(pointers.slot, address)) if address < 1 << 62 else len(pointers.slot)
        if at < len(pointers.slot) and pointers.slot[at] == address and pointers.target[at] > 0:
            return int(pointers.target[at])
        return 0

    def pointing_at_first(self, function: int) -> list[int]:
        """Variables that the file may store to and that hold the address of a function when it is loaded."""
        slot, target = self._first_pointers
        first, end = np.searchsorted(target, [function, function + 1])
        return slot[first:end].tolist()

    @cached_property
    def _first_pointers(self) -> tuple[np.ndarray, np.ndarray]:
        """Such variables with the code that they point to, by its address."""
        pointers = self._layout.pointers
        code = np.flatnonzero(self._layout.in_code(pointers.target))
        slot, target = pointers.slot[code], pointers.target[code]
        kept = np.zeros(len(slot), bool)
        for first, end in self.writable:
            kept |= (slot >= first) & (slot < end)
        kept &= (slot < self._settled.start) | (slot >= self._settled.stop)
        order = np.argsort(target[kept], kind="stable")
        return slot[kept][order], target[kept][order]

    # What is learnt

    def remember(self, addresses: set[int]) -> None:
        """These hold what the CPU told.

        Code cannot be stored to, and what lies outside the file's segments is a miscalculated address.
        """
        for first, end in self.writable:
            self.held |= {a for a in addresses if first <= a < end}

    def assign(self, function: int, left: dict[int, Value]) -> bool:
        """A function leaves something in variables; whether that is other than it was.

        As in `remember`, nothing is left outside of the file's segments. Object files have none.
        """
        changed = False
        for address, value in left.items():
            if self.writable and not self._can_be_stored_to(address):
                continue
            before = self.value(address) if self.holds(address) else None
            known = self._left.setdefault(address, {})
            if known.get(function) != value:
                self._leave(address, function, value)
                changed = True
            if before is not None and before != self.value(address):
                self.restated.add(address & ~3)
        return changed

    def _leave(self, address: int, function: int, value: Value) -> None:
        """What a function leaves in a variable; hundreds may leave something in one, so that each adds its own."""
        known, before = self._left[address], self._values.pop(address, None)
        adds = before is not None and function not in known
        if adds and function not in self.doubtful and address not in self._records:
            self._values[address] = joined(before, ALWAYS, value, ALWAYS)
        known[function] = value

    def doubt(self, function: int) -> None:
        """It is not known under what conditions a function writes to variables."""
        self.doubtful.add(function)
        self._values.clear()
        self.restated |= {a & ~3 for a, left in self._left.items() if function in left and self.holds(a)}

    def note_record(self, graph: Graph, model: int, function: int) -> None:
        """The function fills the compilers' own record, whose first part, __cpu_model, lies at the address `model`.

        The other part, __cpu_features2, is filled bit by bit, as no store shows. It belongs to the same object file:
        libgcc's stands before the model, compiler-rt's behind it, and some functions there name it.
        """
        self._records[model + _FEATURES] = "__cpu_model.12"
        before, behind = model - _MODEL, model + _MODEL
        site, target, _ = graph.references
        near = np.flatnonzero((target >= before) & (target <= behind + _FURTHER[-1]))
        callees = graph.calls.target[graph.calls.among(function)]
        filling = np.isin(graph.functions.holding(site[near]), [function, *callees.tolist()])
        named = set(target[near[filling]].tolist())
        for at in _FURTHER:
            if before in named:
                self._records[before + at] = f"__cpu_features2.{at}"
            elif behind + at in named:
                self._records[behind + at] = f"__cpu_features2.{at}"
        self._values.clear()
        self.remember(set(self._records))


def _thread_block(elf: Elf) -> tuple[int, Segment] | None:
    segment = next((s for s in elf.segments if s.type == PT_TLS and 0 < s.memsz < THREAD), None)
    if segment is None:
        return None
    align = max(segment.align, 1)
    return THREAD - -(-segment.memsz // align) * align, segment
