"""The engine for machines whose instructions are 32-bit words: AArch64 and ppc64le.

Every word is an instruction, so a match by mask and value needs no decoding; what remains is to tell code from
literal pools, and to judge whether the CPU was asked. Calls are BL and B; addresses of data are built by ADRP and a
12-bit offset (AArch64), or lie at a distance from the table of contents that r2 points to (ppc64le). Encodings: Arm
A-profile A64 instruction set; Power ISA 3.1; Power Architecture 64-bit ELF V2 ABI, sections 2.3.4.1 and 3.4.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout, distinct, numbers
from imgcheck.binaries.isa.names import clones, queries
from imgcheck.binaries.isa.queries import foreign
from imgcheck.binaries.isa.reach import Edges, path_to, reach
from imgcheck.documents.facts import Isa, IsaUse
from imgcheck.knowledge.store import rules_directory

_SMALL = 64
"""Bytes of a function that only chooses between two forms of one operation (outlined atomics)."""
_IRELATIVE = {"aarch64": 1032, "ppc64le": 248}
_OPCODE = {"aarch64": 0x1F000000, "ppc64le": 0xFC000000}
"""Bits that say which kind of instruction a word is; most patterns have all of them."""
_TOC, _BASE = 2, 12
"""ppc64le: the registers of the table of contents, and of a function's own address at its global entry."""
_ADDI, _ADDIS, _LD, _STD = 14, 15, 58, 62
_LOADS, _STORES = (32, 33, 34, 40, 42, _LD), (36, 37, 38, 44, _STD)
"""Primary opcodes of loads and stores with a base and a distance."""
_CONDITIONAL = (0xFF000010, 0x54000000, 19), (0x7E000000, 0x34000000, 19), (0x7E000000, 0x36000000, 14)
"""AArch64: mask and value of B.cond, CBZ and TBZ, and how many bits from the fifth on their distance has."""
_ENDS = (0xFC000000, 0x14000000), (0xFFFFFC1F, 0xD65F0000), (0xFFFFFC1F, 0xD61F0000)
"""B, RET and BR."""
_UNALLOCATED = (0x9E000000, 0x00000000), (0x1E000000, 0x02000000), (0x1E000000, 0x06000000)
_STEPS = 5
"""Words looked at behind one that makes an address."""


@dataclass(frozen=True)
class _Shape:
    """How a machine's words tell what they do."""

    stores: Callable[[np.ndarray], np.ndarray]
    makes: Callable[[np.ndarray], np.ndarray]
    """An address, in the register at bit `made`."""
    made: int
    base: int
    """Where a load or store has the register of its address."""
    links: int
    """The bit of a branch that makes it a call."""


def _primary(*opcodes: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda words: np.isin(words >> np.uint32(26), opcodes)


_SHAPES = {
    "aarch64": _Shape(
        stores=lambda words: (words & np.uint32(0x3B400000)) == 0x39000000,
        makes=lambda words: (words & np.uint32(0x7FC00000)) == 0x11000000,
        made=0,
        base=5,
        links=0x80000000,
    ),
    "ppc64le": _Shape(
        stores=_primary(*_STORES),
        makes=_primary(_ADDI),
        made=21,
        base=16,
        links=1,
    ),
}
_MTCTR, _BRANCH = 0x7D8903A6, 0x48000000
"""`mtctr r12` before a `bctr`, and `b`: the ends of stubs by which linkers reach a function with its address in r12."""
_NEAR_STUB = 8
"""Bytes from the start of such a stub to the load of its slot, at most."""


@cache
def _patterns(machine: str) -> dict:
    path = rules_directory() / "analysis" / "isa-words.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))[machine]


def analyse(elf: Elf) -> Isa | None:
    """The Isa of an AArch64 or ppc64le file; None where it holds no code."""
    layout = Layout(elf)
    return _Words(layout).judge() if layout.areas else None


class _Words:
    """One file: its words, functions, calls and queries."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.machine = layout, layout.elf.machine
        self.rules = _patterns(self.machine)
        self._of_opcode: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.words = [(a.address, a.data[: len(a.data) & ~3].view("<u4")) for a in layout.areas if a.address % 4 == 0]
        sites, targets = self._branches
        # Only BL links; B also goes to labels within a function.
        layout.called = targets[(self._word_at(sites) & np.uint32(_SHAPES[self.machine].links)) != 0]
        self.functions = layout.functions

    # Scans

    def _matching(self, mask: int, value: int) -> np.ndarray:
        """Addresses of the words that are `value` under `mask`."""
        found = [np.flatnonzero((words & np.uint32(mask)) == np.uint32(value)) * 4 + base for base, words in self.words]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _fitting(self, mask: int, value: int) -> np.ndarray:
        """The same for one of many patterns: words of one main opcode are looked for once."""
        opcode = _OPCODE[self.machine]
        if mask & opcode != opcode:
            return self._matching(mask, value)
        if value & opcode not in self._of_opcode:
            at = self._matching(opcode, value & opcode)
            self._of_opcode[value & opcode] = at, self._word_at(at)
        at, words = self._of_opcode[value & opcode]
        return at[(words & np.uint32(mask)) == np.uint32(value)]

    def _word_at(self, addresses: np.ndarray) -> np.ndarray:
        values = np.zeros(len(addresses), np.uint32)
        for base, words in self.words:
            inside = (addresses >= base) & (addresses < base + 4 * len(words))
            values[inside] = words[(addresses[inside] - base) >> 2]
        return values

    @cached_property
    def _branches(self) -> tuple[np.ndarray, np.ndarray]:
        """Sites and targets of direct calls and jumps."""
        if self.machine == "aarch64":
            sites = self._matching(0x7C000000, 0x14000000)
            offset = (self._word_at(sites) << np.uint32(6)).view(np.int32) >> 4
        else:
            sites = self._matching(0xFC000002, 0x48000000)
            offset = ((self._word_at(sites) & np.uint32(0x03FFFFFC)) << np.uint32(6)).view(np.int32) >> 6
        return sites, sites + offset

    @cached_property
    def _addresses(self) -> tuple[np.ndarray, np.ndarray]:
        """Sites and targets of instructions that take or use the address of data."""
        return self._by_page if self.machine == "aarch64" else self._by_table

    @property
    def _by_page(self) -> tuple[np.ndarray, np.ndarray]:
        """ADRP with the 12-bit offset of the next few words that use its register."""
        sites = self._matching(0x9F000000, 0x90000000)
        word = self._word_at(sites).astype(np.int64)
        high = ((word >> 5) & 0x7FFFF) << 2 | (word >> 29) & 3
        page = (sites & ~0xFFF) + (((high ^ 0x100000) - 0x100000) << 12)
        register = word & 31
        found_sites, found_targets = [], []
        for step in range(1, 5):
            user = self._word_at(sites + 4 * step).astype(np.int64)
            same = (user >> 5) & 31 == register
            added = same & (user & 0x7FC00000 == 0x11000000)
            loads = same & (user & 0x3B000000 == 0x39000000)
            scale = np.where(loads, user >> 30 & 3, 0)
            hit = added | loads
            found_sites.append(sites[hit] + 4 * step)
            found_targets.append((page + ((user >> 10 & 0xFFF) << scale))[hit])
        return np.concatenate(found_sites), np.concatenate(found_targets)

    @property
    def _by_table(self) -> tuple[np.ndarray, np.ndarray]:
        """Distances from the table of contents: in one word from r2, or with ADDIS and the next few words."""
        table = self._table
        if table is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        near = np.concatenate([self._fitting(0xFC1F0000, op << 26 | _TOC << 16) for op in (_ADDI, *_LOADS, *_STORES)])
        found_sites, found_targets = [near], [table + self._distance(near)]
        sites = self._fitting(0xFC1F0000, _ADDIS << 26 | _TOC << 16)
        word = self._word_at(sites).astype(np.int64)
        base, high = word >> 21 & 31, table + (_signed(word) << 16)
        for step in range(1, 7):
            at = sites + 4 * step
            user = self._word_at(at).astype(np.int64)
            hit = (user >> 16 & 31 == base) & np.isin(user >> 26, (_ADDI, *_LOADS, *_STORES))
            found_sites.append(at[hit])
            found_targets.append(high[hit] + self._distance(at[hit]))
        return np.concatenate(found_sites), np.concatenate(found_targets)

    def _distance(self, addresses: np.ndarray) -> np.ndarray:
        """The distance in each word; the lowest two bits of LD and STD say more of the instruction."""
        word = self._word_at(addresses).astype(np.int64)
        return _signed(np.where(np.isin(word >> 26, (_LD, _STD)), word & ~3, word))

    @cached_property
    def _table(self) -> int | None:
        """Where r2 points: functions work it out at their global entry, from r12 or as a constant."""
        for register, added in ((_BASE, 1), (0, 0)):
            sites = self._fitting(0xFFFF0000, _ADDIS << 26 | _TOC << 21 | register << 16)
            behind = self._word_at(sites + 4)
            sites = sites[behind >> np.uint32(16) == _ADDI << 10 | _TOC << 5 | _TOC]
            high = _signed(self._word_at(sites).astype(np.int64)) << 16
            tables, counts = np.unique(added * sites + high + self._distance(sites + 4), return_counts=True)
            if len(tables):
                return int(tables[np.argmax(counts)])
        return None

    # Functions and calls

    def _index(self, addresses: np.ndarray) -> np.ndarray:
        start = self.functions.start
        if not len(start):
            return np.full(len(addresses), -1, np.int64)
        at = np.minimum(np.searchsorted(start, addresses), len(start) - 1)
        index = np.where(start[at] == addresses, at, -1)
        if self.machine == "ppc64le":  # calls inside a file go to the local entry, 8 bytes on (ELFv2 ABI)
            behind = np.minimum(np.searchsorted(start, addresses - 8), len(start) - 1)
            index = np.where((index < 0) & (start[behind] == addresses - 8), behind, index)
        return index

    @cached_property
    def calls(self) -> Edges:
        sites, targets = self._branches
        target, source = self._index(targets), self.functions.holding(sites)
        kept = (target >= 0) & (source >= 0) & (source != target)
        order = np.argsort(source[kept], kind="stable")
        return Edges(source[kept][order], target[kept][order], sites[kept][order], len(self.functions))

    # Queries

    @cached_property
    def resolvers(self) -> np.ndarray:
        relocations, symbols = self.layout.relocations, self.layout.code_symbols
        addresses = relocations["addend"][relocations["type"] == _IRELATIVE[self.machine]]
        index = self._index(np.concatenate([addresses, symbols.value[symbols.type == 10]]))
        return numbers(index, len(self.functions))

    @cached_property
    def query_names(self) -> dict[str, np.ndarray]:
        """Imported functions and data that report the CPU's features, with their slots."""
        rules = queries(self.machine)
        return foreign(self.layout, rules["functions"] + rules["data"])

    @cached_property
    def askers(self) -> np.ndarray:
        """Functions that ask the CPU or the C library, or read a variable that one of those writes."""
        marks = np.zeros(len(self.functions), bool)
        for query in self.rules["queries"]:
            self._mark(marks, self._matching(query["mask"], query["value"]))
        slots = np.concatenate([np.empty(0, np.int64), *self.query_names.values()])
        sites, targets = self._addresses
        users = sites[np.isin(targets, slots)]
        if self.machine == "aarch64":  # elsewhere stubs stand together in what looks like one function
            stubs = self.functions.holding(users)
            self._mark(marks, users)
            marks[self.calls.source[np.isin(self.calls.target, stubs[stubs >= 0])]] = True
        self._mark_plt_callers(marks, users)
        for named in self._told_by_files.values():
            marks |= named
        self._mark_readers(marks)
        marks |= self._choosers
        return marks

    @cached_property
    def _told_by_files(self) -> dict[str, np.ndarray]:
        """Files in which the kernel says what the CPU has, and the functions that name one or call one that does.

        The kernel keeps the auxiliary vector in one (proc(5)), for programs that do without getauxval.
        """
        found = {}
        sites, targets = self._addresses
        for name in queries(self.machine)["files"]:
            at = self.layout.addresses_of(name.encode() + b"\0")
            marks = np.zeros(len(self.functions), bool)
            self._mark(marks, sites[np.isin(targets, at)])
            if marks.any():
                marks[self.calls.source[marks[self.calls.target]]] = True
                found[name] = marks
        return found

    def _mark(self, marks: np.ndarray, addresses: np.ndarray) -> None:
        held = self.functions.holding(addresses)
        marks[held[held >= 0]] = True

    def _mark_plt_callers(self, marks: np.ndarray, users: np.ndarray) -> None:
        """Callers of PLT entries, which are no functions of their own: 16 bytes from ADRP to BR on AArch64."""
        sites, targets = self._branches
        if self.machine == "ppc64le":
            slots = np.sort(users)
            first = np.append(slots, np.iinfo(np.int64).max)[np.searchsorted(slots, targets)]
            self._mark(marks, sites[first - targets <= _NEAR_STUB])
            return
        near = np.isin(targets & ~15, (users - 4) & ~15) & ~np.isin(targets, self.functions.start)
        self._mark(marks, sites[near])

    def _mark_readers(self, marks: np.ndarray) -> None:
        """Functions that refer to a variable that an asking function writes to."""
        sites, targets = self._addresses
        held = self.functions.holding(sites)
        written = targets[(held >= 0) & marks[held] & self._is_stored_to(sites)]
        reads = np.isin(targets, written) & (held >= 0)
        marks[held[reads]] = True

    def _is_stored_to(self, sites: np.ndarray) -> np.ndarray:
        """Whether each of these instructions stores to its address, or makes one that the next few words store to."""
        shape = _SHAPES[self.machine]
        word = self._word_at(sites)
        found = shape.stores(word)
        made = word >> np.uint32(shape.made) & np.uint32(31)
        for step in range(1, _STEPS):
            behind = self._word_at(sites + 4 * step)
            base = behind >> np.uint32(shape.base) & np.uint32(31)
            found |= shape.makes(word) & shape.stores(behind) & (base == made)
        return found

    @cached_property
    def _choosers(self) -> np.ndarray:
        """Small functions that load a byte and branch on it before they use anything: outlined atomics."""
        marks = np.zeros(len(self.functions), bool)
        if self.machine == "aarch64":
            loads = self._matching(0xFFC00000, 0x39400000)
            tested = (self._word_at(loads + 4) & np.uint32(0x7E000000)) == 0x34000000
            self._mark(marks, loads[tested])
        return marks & (self.functions.end - self.functions.start <= _SMALL)

    @cached_property
    def asks_cpu(self) -> tuple[str, ...]:
        found = ["IFUNC"] if len(self.resolvers) else []
        if any(len(self._matching(q["mask"], q["value"])) for q in self.rules["queries"]):
            found.append("hwcap" if self.machine == "ppc64le" else "mrs")
        if self._choosers[self.used].any():
            found.append("__aarch64_have_lse_atomics")
        return tuple(found + sorted([*self.query_names, *self._told_by_files]))

    # Instructions

    @cached_property
    def found(self) -> dict[str, np.ndarray]:
        """Feature -> sorted addresses of its instructions, literal pools left out as far as they show."""
        hits: dict[str, list[np.ndarray]] = {}
        for pattern in self.rules["patterns"]:
            at = self._fitting(pattern["mask"], pattern["value"])
            others = [*pattern.get("except", ()), *((data["mask"], data["value"]) for data in self.rules["data"])]
            for mask, value in others:
                at = at[(self._word_at(at) & np.uint32(mask)) != np.uint32(value)]
            hits.setdefault(pattern["feature"], []).append(at)
        joined = {feature: distinct(np.concatenate(parts)) for feature, parts in hits.items()}
        kept = {feature: self._plausible(feature, at) for feature, at in joined.items()}
        return {feature: at for feature, at in kept.items() if len(at)}

    def _plausible(self, feature: str, at: np.ndarray) -> np.ndarray:
        """Those inside functions; of features that data resembles, those in functions that hold several."""
        held = self.functions.holding(at)
        inside = held >= 0
        if self.functions.unwind.any():
            inside &= self.functions.unwind[held] | np.isin(self.functions.start[held], self.layout.code_symbols.value)
        if self.machine == "ppc64le":  # who calls a stub decides whether its instructions run
            inside &= ~self._is_stub(at)
        if self.machine == "aarch64":
            inside &= ~self._is_pool(at)
        at, held = at[inside], held[inside]
        if feature not in self.rules["dense"] or not len(at):
            return at
        counts = np.bincount(held, minlength=len(self.functions))
        return at[counts[held] >= 2]

    def _is_pool(self, at: np.ndarray) -> np.ndarray:
        """Whether each word stands among what is no instruction, after a jump elsewhere, where no branch leads."""
        targets, ends, others = self._flow
        before = np.append(-1, ends)[np.searchsorted(ends, at)]
        entered = np.append(-1, targets)[np.searchsorted(targets, at, side="right")]
        until = np.append(targets, np.iinfo(np.int64).max)[np.searchsorted(targets, at, side="right")]
        return (before > entered) & (np.searchsorted(others, until) > np.searchsorted(others, before))

    @cached_property
    def _flow(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where branches of AArch64 and functions lead to, words that never go on, and words that are no instructions.

        Those have 0000, 0001 or 0011 in bits 28 to 25 (Arm ARM, C4.1, "A64 instruction set encoding"; 0000 with the
        highest bit set is SME).
        """
        targets = [self.functions.start, self._branches[1]]
        for mask, value, bits in _CONDITIONAL:
            at = self._matching(mask, value)
            distance = self._word_at(at).astype(np.int64) >> 5 & (1 << bits) - 1
            targets.append(at + 4 * ((distance ^ 1 << bits - 1) - (1 << bits - 1)))
        ends = np.concatenate([self._matching(mask, value) for mask, value in _ENDS])
        others = np.concatenate([self._matching(mask, value) for mask, value in _UNALLOCATED])
        return distinct(np.concatenate(targets)), np.sort(ends), np.sort(others)

    def _is_stub(self, at: np.ndarray) -> np.ndarray:
        """Whether a prefixed instruction loads the address that the next words, a linker's stub, jump to."""
        loads = self._word_at(at + 4) >> np.uint32(21) & np.uint32(31) == _BASE
        behind = self._word_at(at + 8)
        return loads & ((behind == _MTCTR) | (behind & np.uint32(0xFC000003) == _BRANCH))

    def users(self, feature: str) -> np.ndarray:
        marks = np.zeros(len(self.functions), bool)
        self._mark(marks, self.found[feature])
        return marks

    @cached_property
    def used(self) -> np.ndarray:
        marks = np.zeros(len(self.functions), bool)
        for at in self.found.values():
            self._mark(marks, at)
        return marks

    # Verdict

    @cached_property
    def _open_calls(self) -> np.ndarray:
        """Which calls are made without a test: what versions by name call belongs to them."""
        return ((~self.askers | self._starters) & ~self._clones)[self.calls.source]

    @cached_property
    def _starters(self) -> np.ndarray:
        """Functions that run at load: they may ask the CPU, but what they call they mostly call anyway."""
        marks = np.zeros(len(self.functions), bool)
        index = self._index(self._roots())
        marks[index[index >= 0]] = True
        return marks & ~self._choosers

    def _roots(self) -> np.ndarray:
        parts = [self.layout.initialisers, self.layout.named_starts(), self._main()]
        return np.concatenate([np.array([min(self.layout.elf.entry, 1 << 62)], np.int64), *parts])

    def _main(self) -> np.ndarray:
        """What the start code hands to the C library: addresses that its first words build or load."""
        entry = self.layout.elf.entry
        sites, targets = self._addresses
        near = targets[(sites >= entry) & (sites < entry + 64)]
        # On ppc64le it is the second pointer of a structure (glibc, sysdeps/powerpc/powerpc64/start.S).
        near = np.append(near, near + 8) if self.machine == "ppc64le" else near
        pointed = self.layout.pointed(near)
        return np.concatenate([near, pointed[pointed > 0]])

    @cached_property
    def _load(self) -> tuple[np.ndarray, np.ndarray]:
        roots = self._index(self._roots())
        return reach(self.calls, roots, self._open_calls)

    @cached_property
    def _exported(self) -> tuple[np.ndarray, np.ndarray]:
        roots = self._index(self.layout.exports)
        roots = numbers(roots[~np.isin(roots, self.resolvers)], len(self.functions))
        return reach(self.calls, roots, self._open_calls)

    def judge(self) -> Isa:
        uses = tuple(self._use(feature) for feature in sorted(self.found))
        return Isa(uses=uses, code_bytes=self.layout.code_bytes, asks_cpu=self.asks_cpu)

    def _use(self, feature: str) -> IsaUse:
        users = self.users(feature)
        answer, reason, shown, path = self._answer(users)
        at = self.found[feature]
        held = self.functions.holding(at)
        address = int(at[held == shown][0]) if shown >= 0 else int(at[0])
        holder = int(self.functions.holding(np.array([address]))[0])
        return IsaUse(
            feature=feature, answer=answer, reason=reason, count=len(at), address=address,
            function=self.layout.name(int(self.functions.start[holder])),
            code=self.layout.bytes_at(address, address + 4).hex(), text=self._text(address), call_path=path,
        )  # fmt: skip

    def _answer(self, users: np.ndarray) -> tuple[str, str, int, tuple[str, ...]]:
        plain = users & ~self.askers & ~self._clones
        for (seen, parent), reason in (
            (self._load, "Reached at load or start without a test of the CPU on the way."),
            (self._exported, "Exported functions reach it without a test of the CPU."),
        ):
            hit = np.flatnonzero(plain & seen)
            if len(hit):
                sure = parent is self._load[1] or not self.asks_cpu or len(hit) >= max(3, 0.02 * len(self.functions))
                path = path_to(self.layout, self.functions, parent, int(hit[0]))
                return ("required" if sure else "unknown"), reason, int(hit[0]), path
        if not self.asks_cpu:
            shown = int(np.flatnonzero(users)[0])
            return "required", "Nothing in the file asks the CPU what it has before it uses this.", shown, ()
        return "dispatched", f"Reached only behind a test of the CPU ({', '.join(self.asks_cpu[:3])}).", -1, ()

    @cached_property
    def _clones(self) -> np.ndarray:
        """Functions that use something, or call what does, and whose name says that they are one version of several."""
        marks = np.zeros(len(self.functions), bool)
        wanted = self.used.copy()
        wanted[self.calls.source[self.used[self.calls.target]]] = True
        symbols = self.layout.code_symbols
        index = self._index(symbols.value)
        looked_at = np.flatnonzero((index >= 0) & wanted[index])
        marks[index[looked_at[clones(self.layout.names(symbols, looked_at), self.machine)]]] = True
        return marks

    def _text(self, address: int) -> str:
        """Disassembly by capstone; empty where it does not know the instruction."""
        import capstone

        arch, mode = {
            "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
            "ppc64le": (capstone.CS_ARCH_PPC, capstone.CS_MODE_64 | capstone.CS_MODE_LITTLE_ENDIAN),
        }[self.machine]
        code = self.layout.bytes_at(address, address + 8)
        shown = next(capstone.Cs(arch, mode).disasm_lite(code, address, 1), None)
        return f"{shown[2]} {shown[3]}".strip() if shown else ""


def _signed(words: np.ndarray) -> np.ndarray:
    """The lowest 16 bits of each word, as numbers with a sign."""
    return ((words & 0xFFFF) ^ 0x8000) - 0x8000
