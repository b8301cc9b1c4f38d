"""Who calls whom, read from raw bytes: near calls and jumps whose target is a known function, PLT stubs, pointers.

`E8`, `E9` and `0F 8x` with a 32-bit displacement to the first byte of a function are calls or tail calls; a false hit
needs 32 matching bits in data or in an operand. So is `EB` with an 8-bit one, once it is decoded. `mod=00 rm=101`
operands are relative to the next instruction in 64-bit code; taken without an immediate they name the address that
`lea` takes or `mov` reads.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.elf import ET_EXEC, SEGMENT
from imgcheck.binaries.isa.columns import Columns
from imgcheck.binaries.isa.functions import ALIGNMENT, Boundaries, Functions
from imgcheck.binaries.isa.layout import Area, Layout
from imgcheck.binaries.isa.modules import starts_by_name
from imgcheck.binaries.isa.ordered import distinct, numbers, within
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.x86.decode import are_instructions, instructions
from imgcheck.binaries.isa.x86.facts import ADDRESSES, THREAD
from imgcheck.binaries.isa.x86.position import Position
from imgcheck.binaries.kernels import arrays, x86

LEA_OPCODE = 0x8D
LARGEST_TABLE = 512
"""Bytes of a table of versions."""
_POINTER = 8
_LOADS = {
    0x8B: (0,),  # MOV
    **dict.fromkeys((0x7E, 0x16), (0,)),  # MOVQ and MOVHPS
    **dict.fromkeys((0x6F, 0x28, 0x10), (0, _POINTER)),  # MOVDQA, MOVAPS and MOVUPS read two pointers at once
    0x22: (1,),  # PINSRQ, which has an immediate
}
"""Last opcode bytes of what reads pointers, in SSE and VEX alike, and where they lie from the target on."""
_CALL, _JUMP, _SHORT_JUMP, _INT3, _GS = 0xE8, 0xE9, 0xEB, 0xCC, 0x65
_GROUP, _CALLING, _JUMPING, _PUSHING = 0xFF, 2, 4, 6
"""The opcode whose operation is the middle of its ModRM byte (Intel SDM volume 2, A.4: group 5), and some of those."""
_LENGTHS = np.full(256, 5, np.uint8)
_LENGTHS[[_SHORT_JUMP, 0x0F, _GROUP]] = 2, 6, 6
"""By its opcode, bytes of a call or jump from there on: with an 8-bit distance, 0F 8x, through memory; any other."""
_START_BYTES = 64
"""The C library's start code is no longer than this up to its call."""
_CALLS = iced.FlowControl.CALL, iced.FlowControl.INDIRECT_CALL
_LEAVING = iced.FlowControl.RETURN, iced.FlowControl.UNCONDITIONAL_BRANCH, iced.FlowControl.INDIRECT_BRANCH
_IMMEDIATES = (iced.OpKind.IMMEDIATE32, iced.OpKind.IMMEDIATE32TO64, iced.OpKind.IMMEDIATE64)
_PIECE = 1 << 18
"""Bytes of code looked at together."""
LONGEST_IMMEDIATE = 4
"""Bytes: the operand of an instruction that has one seems to name an address so much lower."""
_STUB_REACH = 12
"""A PLT stub jumps through its slot within this many bytes: ENDBR64 (4), BND (1), FF 25."""


def _operand_bytes() -> np.ndarray:
    """By the ModRM byte of C7: how many bytes that, SIB and displacement take; 0 where it is another instruction.

    Intel SDM volume 2, 2.1.5. The base in a SIB byte is taken to be a register.
    """
    modrm = np.arange(256)
    mod, rm = modrm >> 6, modrm & 7
    displacement = np.select([mod == 1, (mod == 2) | ((mod == 0) & (rm == 5))], [1, 4], 0)
    return np.where(modrm >> 3 & 7 == 0, 1 + displacement + ((rm == 4) & (mod < 3)), 0)


_OPERAND_BYTES = _operand_bytes()


@dataclass(frozen=True, slots=True)
class Branches(Columns):
    """What looks like a near call or jump (E8, E9, 0F 8x): its address, where it leads, and its first byte."""

    site: np.ndarray
    target: np.ndarray
    opcode: np.ndarray

    @property
    def calls(self) -> tuple[np.ndarray, np.ndarray]:
        """Sites and targets of those that are calls."""
        return self._of(_CALL)

    @property
    def jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """Those of jumps without a condition."""
        return self._of(_JUMP)

    def _of(self, opcode: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = self.opcode == opcode
        return self.site[chosen], self.target[chosen]


class Graph:
    """Calls and references of one file."""

    def __init__(self, layout: Layout, bits: int) -> None:
        self.layout = layout
        self.bits = bits
        self._boundaries = Boundaries(layout)
        self.position = Position(layout, *Branches.joined(self._branching()).calls) if bits == 32 else None
        branches, self._through_slots = self._branches()
        """Sites of calls through the PLT and the GOT, and the pointer that each goes through."""
        called = self._boundaries.outside(self._called(branches))
        self._started = started(layout, bits, self.position)
        self._certain = np.concatenate([layout.called_by_loader, self._started])
        """Addresses that the loader or the C library calls: starts of functions beyond doubt."""
        self.functions = self._boundaries.functions(called, self._certain)
        tail_called = self._tail_called(branches)
        if len(tail_called):
            self.functions = self._boundaries.functions(np.append(called, tail_called), self._certain)
        self.tables = self._tables(branches.target)
        """Where tables stand among the code: first addresses, and those behind."""
        self.calls = self._find_calls(branches)
        """Calls and tail calls between functions of this file, those through the PLT to its own functions included."""

    def _called(self, branches: Branches) -> np.ndarray:
        """Targets of calls and of `lea`: where functions without unwind entries begin."""
        _, target, kind = self.references
        taken = target[kind == LEA_OPCODE]
        _, called = branches.calls  # jumps also go to labels within a function
        first, end = self.layout.unwind
        if 2 * (end - first).sum() < self.layout.code_bytes:  # Go's functions jump to others, and stand apart by INT3
            _, jumped = branches.jumps
            called = np.append(called, jumped[self.layout.bytes_before(jumped) == _INT3])
        return np.concatenate([called, taken[self.layout.in_code(taken)]])

    def _tail_called(self, branches: Branches) -> np.ndarray:
        """Targets of jumps out of a function into another one without unwind entry, where something begins there.

        One that nobody calls otherwise would seem to be a part of the one before it. Out of functions without unwind
        entry jumps lead where these are not aligned, as in code for size.
        """
        functions = self.functions
        loose = np.append(~functions.unwind, False)
        if not loose.any():
            return functions.start[:0]
        site, target = branches.jumps
        leaving = np.append(functions.unwind, False)
        if (functions.start[loose[:-1]] % ALIGNMENT).any():
            leaving[:-1] = True
            short_site, short_target = self._short_jumping
            site, target = np.append(site, short_site), np.append(target, short_target)
        other = functions.holding(target)
        into = np.flatnonzero(loose[other])
        into = into[functions.start[other[into]] != target[into]]
        site, target, other = site[into], target[into], other[into]
        source = functions.holding(site)
        leaves = np.flatnonzero(leaving[source] & (source != other))
        begun = self.layout.is_behind_end(target[leaves]) | self.layout.is_landing_pad(target[leaves])
        leaves = leaves[begun]
        return distinct(target[leaves[self._is_instruction(site[leaves], functions)]])

    def _tables(self, branched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those that code names ends where a function begins, or what a branch leads to."""
        *_, site, target = self._named
        start = distinct(target[self._is_instruction(site - 1, self.functions)])
        if not len(start):
            return start, start
        bounds = distinct(np.concatenate([self.functions.start, self.functions.end, branched]))
        return start, np.append(bounds, bounds[-1])[np.searchsorted(bounds, start, side="right")]

    # Raw scans

    def _branches(self) -> tuple[Branches, tuple[np.ndarray, np.ndarray]]:
        """What looks like a near call or jump to other code than a PLT stub; sites and pointers of what goes through
        a pointer, by a stub or at once.
        """
        jumps, pointers = self._stubs
        stubs = arrays.Sorted(jumps)
        others, sites, through = [], [self._none], [pointers[:0]]
        for part in self._branching():
            stub = stubs.at(part.target, _STUB_REACH)
            leading = np.flatnonzero(stub >= 0)
            others.append(part.take(np.flatnonzero(stub < 0)))
            sites.append(part.site[leading])
            through.append(pointers[stub[leading]])
        direct_site, direct_pointer = self._slot_jumps
        direct = ~within(direct_site, jumps)
        sites.append(direct_site[direct])
        through.append(direct_pointer[direct].astype(np.int32))
        return Branches.joined(others), (np.concatenate(sites), np.concatenate(through))

    def _branching(self) -> Iterator[Branches]:
        """Everything that looks like a near call or jump with a target in code, piece by piece."""
        first = min((area.address for area in self.layout.spans), default=0)
        last = max((area.end for area in self.layout.spans), default=0)
        yield Branches(self._none, self._none, np.empty(0, np.uint8))
        for _, address, data in self._pieces():
            site, target, opcode = x86.branches(data, address, (first, last))
            yield Branches(self._kept(site), self._kept(target), opcode.copy())

    @property
    def references(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Address of the ModRM byte, target, and kind of every RIP-relative operand.

        In 32-bit code those of operands that are an address, or lie at a distance from the file's own (position.py).

        A position-dependent program also names addresses as immediates of MOV; they count as `lea`.

        The target is right for instructions without an immediate. The kind is the byte before the ModRM byte.
        """
        site, target, kind, *_ = self._named
        return site, target, kind

    @cached_property
    def _named(self) -> tuple[np.ndarray, ...]:
        """The references, and of those to tables among the code, which are no functions, the sites and targets."""
        sites, targets, kinds = [self._none], [self._none], [np.empty(0, np.uint8)]
        naming, tables = [self._none], [self._none]
        distances = self.position.distances(self._boundaries.functions()) if self.position else None
        for area, address, data in self._pieces():
            site, target = x86.operands(data, address, self._near, self.bits)
            sites.append(self._kept(site))
            targets.append(self._kept(target))
            kinds.append(_before(area, site))
            if distances:
                site, target, table = distances.operands(data, address, self._near)
                sites.append(self._kept(site[~table]))
                targets.append(self._kept(target[~table]))
                kinds.append(_before(area, site[~table]))
                naming.append(self._kept(site[table]))
                tables.append(self._kept(target[table]))
            if self.layout.elf.type == ET_EXEC:
                site, target = self._within(*_immediates(data, address))
                sites.append(self._kept(site))
                targets.append(self._kept(target))
                kinds.append(np.full(len(site), LEA_OPCODE, np.uint8))
        return tuple(map(np.concatenate, (sites, targets, kinds, naming, tables)))

    @cached_property
    def thread_references(self) -> tuple[np.ndarray, np.ndarray]:
        """The same for operands in the thread's own block, which are a displacement alone.

        In 64-bit code of FS, with ModRM rm=100 and SIB 25, in 32-bit code of GS. The address is that of the byte before
        the displacement.
        """
        sites, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for area, address, data in self._pieces():
            if self.bits == 32:
                at = _in_thread(data)
            else:
                at = arrays.find_bytes(data[: -x86.PADDING], 0xFF, 0x25)
                at = at[(_before(area, at + address) & 0xC7) == 0x04]
            distance = arrays.words_at(data, at + 1)
            below = distance < 0
            sites.append(at[below] + address)
            targets.append(distance[below] + THREAD)
        return np.concatenate(sites), np.concatenate(targets)

    def _pieces(self) -> Iterator[tuple[Area, int, np.ndarray]]:
        """The code piece by piece, each with its span, its address and PADDING bytes behind what is looked at.

        What is worked out for a piece stays in the processor's cache.
        """
        for area in self.layout.spans:
            for offset in range(0, len(area.data), _PIECE):
                data = area.data[offset : offset + _PIECE + x86.PADDING]
                missing = min(_PIECE, len(area.data) - offset) + x86.PADDING - len(data)
                # A last jump is shorter than what is read from there on.
                yield area, area.address + offset, np.append(data, np.zeros(missing, np.uint8)) if missing else data

    def _within(self, site: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lowest, highest = self._near
        inside = (target >= lowest) & (target < highest)
        return site[inside], target[inside]

    @property
    def _near(self) -> tuple[int, int]:
        """The bounds of what references lead to: what the file holds, or lies next to it."""
        lowest, highest = self.layout.extent
        return lowest - LONGEST_IMMEDIATE, highest

    @property
    def _none(self) -> np.ndarray:
        return np.empty(0, self.layout.address_type)

    def _kept(self, addresses: np.ndarray) -> np.ndarray:
        """Addresses of the file as they are kept."""
        return addresses.astype(self.layout.address_type)

    # Calls

    def starting_at(self, addresses: np.ndarray) -> np.ndarray:
        """Index of the function that starts at each address, or -1."""
        return self._starts.at(addresses)

    @cached_property
    def _starts(self) -> arrays.Sorted:
        return arrays.Sorted(self.functions.start)

    @cached_property
    def load_roots(self) -> np.ndarray:
        """Functions that run when the file is loaded or started, and when the program ends."""
        ending = self.starting_at(self.layout.finalisers)
        return numbers(np.append(self.first_roots, ending), len(self.functions))

    @cached_property
    def first_roots(self) -> np.ndarray:
        """Those that run when the file is loaded or started.

        What runs at the end takes addresses to tell libraries apart by (__dso_handle), beside which tables lie.
        """
        first = np.concatenate([self.layout.initialisers, self._started, starts_by_name(self.layout, go=True)])
        return numbers(self.starting_at(first), len(self.functions))

    @cached_property
    def mains(self) -> list[int]:
        """`main`, as start code hands it to the C library; that of old ones gets what initialises and ends, too."""
        found = self.starting_at(self._started[1:])
        return found[found >= 0].tolist()

    @cached_property
    def own_mains(self) -> np.ndarray:
        """What runtimes begin as the program's own `main`, those of Rust and D."""
        return np.array([function for main in self.mains for function in self._run_for(main)], np.int32)

    def _run_for(self, main: int) -> list[int]:
        """The one function that `main` hands to the one that it calls, where that is all it does: the program's own.

        So what compilers of Rust and D bring as `main` has their runtimes begin.
        """
        taken = set(self.taken.target[self.taken.among(main)].tolist())
        if len(taken) != 1:
            return []
        start, end = int(self.functions.start[main]), int(self.functions.end[main])
        calls = 0
        for i in instructions(self.layout, start, end, self.bits):
            calls += i.flow_control not in (iced.FlowControl.NEXT, iced.FlowControl.RETURN)
            if not _goes_on(i):
                return [*taken] if i.flow_control in _LEAVING and calls == 1 else []
        return []

    def _find_calls(self, branches: Branches) -> Edges:
        near = branches.site, self.starting_at(branches.target)
        slot_site, pointer = self._through_slots
        through = slot_site, self.starting_at(self.layout.pointers.target[pointer])
        return self._between([near, through, self._short_jumps])

    def _between(self, parts: list[tuple[np.ndarray, np.ndarray]]) -> Edges:
        """The calls of `parts`, each sites and the functions that they lead to (-1: none), that lead to another one."""
        parts = [(site[index >= 0], index[index >= 0]) for site, index in parts]
        site, index = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(site, kind="stable")
        site, index = site[order], index[order]
        source = self.functions.holding(site)
        kept = np.flatnonzero((source >= 0) & (source != index))
        return Edges(source[kept], index[kept], site[kept], len(self.functions))

    @property
    def _short_jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """Sites of `EB` with an 8-bit displacement that leads to the start of another function, and its index.

        So few bits often match by chance, so that the functions they stand in are decoded.
        """
        site, target = self._short_jumping
        index = self.starting_at(target)
        site, index = site[index >= 0], index[index >= 0]
        source = self.functions.holding(site)
        kept = (source >= 0) & (source != index)
        site, index = site[kept], index[kept]
        real = self._is_instruction(site, self.functions)
        return site[real], index[real]

    @cached_property
    def _short_jumping(self) -> tuple[np.ndarray, np.ndarray]:
        """Sites and targets of everything that looks like `EB` with an 8-bit displacement."""
        sites, targets = [self._none], [self._none]
        for _, address, data in self._pieces():
            at = arrays.find_bytes(data[: -x86.PADDING], 0xFF, _SHORT_JUMP)
            sites.append(self._kept(at + address))
            targets.append(self._kept(at + (2 + address) + data[at + 1].view(np.int8)))
        return np.concatenate(sites), np.concatenate(targets)

    def _is_instruction(self, sites: np.ndarray, functions: Functions) -> np.ndarray:
        """Whether an instruction begins at each address, where decoding begins with the function that holds it."""
        order = np.argsort(sites, kind="stable")
        site, source = sites[order], functions.holding(sites[order])
        holder = source[np.flatnonzero(np.diff(source, prepend=-1))]
        holder = holder[holder >= 0]
        real = np.empty(len(sites), bool)
        real[order] = are_instructions(self.layout, functions.start[holder], functions.end[holder], site, self.bits)
        return real

    def behind(self, sites: np.ndarray) -> np.ndarray:
        """The next address behind each call or jump at `sites`, where its opcode is."""
        return sites + _LENGTHS.take(self.layout.bytes_behind(sites))

    def imported(self, symbols: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Function index, dynamic symbol index and site of calls to those of `symbols`, of other files."""
        site, pointer = self._through_slots
        pointers = self.layout.pointers
        kept = arrays.marked(pointer, (pointers.target < 0) & np.isin(pointers.symbol, symbols))
        return self.functions.holding(site[kept]), pointers.symbol[pointer[kept]], site[kept]

    def _of_group(self, *operations: int) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of the ModRM bytes and targets of the references of `FF` with one of these operations."""
        site, target, kind = self.references
        at = np.flatnonzero(kind == _GROUP)
        at = at[np.isin(self.layout.bytes_behind(site[at]) >> 3 & 7, operations)]
        return site[at], target[at]

    @cached_property
    def _slot_jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """Sites of `FF 25` and `FF 15` (jump and call through memory), in order, and the pointer each goes through."""
        site, target = self._of_group(_CALLING, _JUMPING)
        pointer = self.layout.pointers.at(target)
        through = np.flatnonzero(pointer >= 0)
        through = through[np.argsort(site[through], kind="stable")]
        return site[through] - 1, pointer[through]

    @cached_property
    def _stubs(self) -> tuple[np.ndarray, np.ndarray]:
        """Jumps through a slot that form the PLT: those in a `.plt*` section, or a run of them at one distance."""
        site, pointer = self._slot_jumps
        names = [area for area in self.layout.areas if area.name.startswith((".plt", ".iplt"))]
        if any(area.name != SEGMENT for area in self.layout.areas):
            inside = np.zeros(len(site), bool)
            for area in names:
                inside |= (site >= area.address) & (site < area.end)
        else:
            gap = np.diff(site, append=site[-1:])
            inside = (gap == 16) | (gap == 8) | (np.roll(gap, 1) == 16) | (np.roll(gap, 1) == 8)
        return site[inside], pointer[inside].astype(np.int32)

    # Addresses taken

    @cached_property
    def taken(self) -> Edges:
        """Functions whose address another function takes: by `lea`, or from pointers that it reads, one or two."""
        return self._between([(site, self.starting_at(target)) for site, target in self.addresses_taken])

    @cached_property
    def addresses_taken(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Sites where code takes an address, and that: by `lea`, or from pointers that it reads."""
        site, target, kind = self.references
        pointers, named = self.layout.pointers, kind == LEA_OPCODE
        parts = [(site[named], target[named])]
        reads = [self._of_group(_PUSHING)]
        for opcode, offsets in _LOADS.items():
            reading = kind == opcode
            reads += [(site[reading], target[reading] + offset) for offset in offsets]
        for site, target in reads:
            pointer = pointers.at(target)
            parts.append((site[pointer >= 0], pointers.target[pointer[pointer >= 0]]))
        return parts

    # Both

    @cached_property
    def leads(self) -> Edges:
        """The calls with the addresses taken, by the functions that they stand in."""
        calls, taken, order = self.calls, self.taken, self._order_of_leads
        source = np.concatenate([calls.source, taken.source]).take(order)
        target = np.concatenate([calls.target, taken.target]).take(order)
        return Edges(source, target, np.concatenate([calls.site, taken.site]).take(order), calls.count)

    @cached_property
    def parts_of_leads(self) -> tuple[np.ndarray, np.ndarray]:
        """The number among `leads` of each of `calls`, and of each of `taken`."""
        order = self._order_of_leads
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return place[: len(self.calls.site)], place[len(self.calls.site) :]

    @cached_property
    def times_led_to(self) -> np.ndarray:
        """How many of `leads` lead to each function."""
        return np.bincount(self.leads.target, minlength=len(self.functions))

    @cached_property
    def _order_of_leads(self) -> np.ndarray:
        source = np.concatenate([self.calls.source, self.taken.source])
        return np.argsort(source, kind="stable").astype(np.int32)


def started(layout: Layout, bits: int, position: Position | None) -> np.ndarray:
    """The entry point, and what its first instructions hand to the C library: main."""
    entry = layout.elf.entry
    if not entry or entry >= 1 << 62 or not layout.can_be_started:
        return np.empty(0, np.int64)
    found = [entry]
    base = position.base_within(entry, entry + _START_BYTES) if position else 0
    for i in instructions(layout, entry, entry + _START_BYTES, bits):
        if i.flow_control == iced.FlowControl.CONDITIONAL_BRANCH:  # where that leads to is the same function
            break
        found += [base + i.memory_displacement & ADDRESSES[bits]] if i.memory_displacement else []
        found += [i.immediate(k) for k in range(i.op_count) if i.op_kind(k) in _IMMEDIATES]
        if not _goes_on(i):
            break
    named = np.array([address for address in found if address < 1 << 62], np.int64)
    named = np.concatenate([named, layout.pointed(named[1:])])
    return named[layout.in_code(named)]


def _goes_on(instruction: iced.Instruction) -> bool:
    """Whether what stands behind an instruction runs next, or when a callee has returned."""
    return instruction.flow_control == iced.FlowControl.NEXT or instruction.flow_control in _CALLS


def _in_thread(data: np.ndarray) -> np.ndarray:
    """Positions before displacements of operands with GS: behind MOV to or from EAX, or behind a ModRM byte."""
    at = arrays.find_bytes(data[: -x86.PADDING], 0xFF, _GS)
    alone = at[data[at + 1] & 0xFD == 0xA1] + 1
    behind = [at[data[at + k] & 0xC7 == 0x05] + k for k in (2, 3)]
    return np.concatenate([alone, *behind])


def _before(area: Area, addresses: np.ndarray) -> np.ndarray:
    """The byte before each address of a span; of its first address that one itself."""
    return np.take(area.data, addresses - (area.address + 1), mode="clip")


def _immediates(data: np.ndarray, address: int) -> tuple[np.ndarray, np.ndarray]:
    """Sites and values of the 32-bit immediates of `mov r32, imm32` (B8+r) and `mov r/m, imm32` (C7 /0)."""
    short = arrays.find_bytes(data[: -x86.PADDING], 0xF8, 0xB8)
    long = arrays.find_bytes(data[: -x86.PADDING], 0xFF, 0xC7)
    operand = _OPERAND_BYTES[data[long + 1]]
    long = (long + operand)[operand > 0]
    at = np.concatenate([short, long])
    return at + address, arrays.words_at(data, at + 1)
