"""The engine for machines whose instructions are 32-bit words: AArch64 and ppc64le.

Every word is an instruction, so a match by mask and value needs no decoding; what remains is to tell code from
literal pools, and to judge whether the CPU was asked. Calls are BL and B; addresses of data are built by ADRP and a
12-bit offset (AArch64). Encodings: Arm A-profile A64 instruction set; Power ISA 3.1.
"""

import tomllib
from functools import cache, cached_property

import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout, distinct, numbers
from imgcheck.binaries.isa.names import is_clone, queries
from imgcheck.binaries.isa.queries import foreign
from imgcheck.binaries.isa.reach import Edges, path_to, reach
from imgcheck.documents.facts import Isa, IsaUse
from imgcheck.knowledge.store import rules_directory

_SMALL = 64
"""Bytes of a function that only chooses between two forms of one operation (outlined atomics)."""
_IRELATIVE = {"aarch64": 1032, "ppc64le": 248}


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
        self.words = [(a.address, a.data[: len(a.data) & ~3].view("<u4")) for a in layout.areas if a.address % 4 == 0]
        sites, targets = self._branches
        # Only BL links; B also goes to labels within a function.
        links = 0x80000000 if self.machine == "aarch64" else 1
        layout.called = targets[(self._word_at(sites) & np.uint32(links)) != 0]
        self.functions = layout.functions

    # Scans

    def _matching(self, mask: int, value: int) -> np.ndarray:
        """Addresses of the words that are `value` under `mask`."""
        found = [np.flatnonzero((words & np.uint32(mask)) == np.uint32(value)) * 4 + base for base, words in self.words]
        return np.concatenate(found) if found else np.empty(0, np.int64)

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
        """Sites and targets of ADRP with the 12-bit offset of the next few words that use its register."""
        if self.machine != "aarch64":
            return np.empty(0, np.int64), np.empty(0, np.int64)
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
        stubs = self.functions.holding(users)
        self._mark(marks, users)
        marks[self.calls.source[np.isin(self.calls.target, stubs[stubs >= 0])]] = True
        self._mark_plt_callers(marks, users)
        self._mark_readers(marks)
        marks |= self._choosers
        return marks

    def _mark(self, marks: np.ndarray, addresses: np.ndarray) -> None:
        held = self.functions.holding(addresses)
        marks[held[held >= 0]] = True

    def _mark_plt_callers(self, marks: np.ndarray, users: np.ndarray) -> None:
        """Callers of PLT entries, which are no functions of their own: 16 bytes from ADRP to BR."""
        sites, targets = self._branches
        near = np.isin(targets & ~15, (users - 4) & ~15) & ~np.isin(targets, self.functions.start)
        self._mark(marks, sites[near])

    def _mark_readers(self, marks: np.ndarray) -> None:
        """Functions that refer to a variable that an asking function refers to for writing."""
        sites, targets = self._addresses
        word = self._word_at(sites)
        stores = (word & np.uint32(0x3B400000)) == 0x39000000
        held = self.functions.holding(sites)
        written = targets[stores & (held >= 0) & marks[held]]
        reads = np.isin(targets, written) & (held >= 0)
        marks[held[reads]] = True

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
        return tuple(found + sorted(self.query_names))

    # Instructions

    @cached_property
    def found(self) -> dict[str, np.ndarray]:
        """Feature -> sorted addresses of its instructions, literal pools left out as far as they show."""
        hits: dict[str, list[np.ndarray]] = {}
        for pattern in self.rules["patterns"]:
            at = self._matching(pattern["mask"], pattern["value"])
            for mask, value in pattern.get("except", ()):
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
        at, held = at[inside], held[inside]
        if feature not in self.rules["dense"] or not len(at):
            return at
        counts = np.bincount(held, minlength=len(self.functions))
        return at[counts[held] >= 2]

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
        """Which calls are made without a test."""
        return (~self.askers | self._starters)[self.calls.source]

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
        plain = users & ~self.askers & ~self._clones(users)
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

    def _clones(self, users: np.ndarray) -> np.ndarray:
        marks = np.zeros(len(users), bool)
        for i in np.flatnonzero(users).tolist():
            marks[i] = is_clone(self.layout.name(int(self.functions.start[i])), self.machine)
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
