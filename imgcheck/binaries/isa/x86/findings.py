"""What the code of one file shows: confirmed instructions per function, and where it asks the CPU."""

from functools import cached_property
from itertools import pairwise

import numpy as np

from imgcheck.binaries.isa import queries
from imgcheck.binaries.isa.layout import Layout, distinct
from imgcheck.binaries.isa.names import clones
from imgcheck.binaries.isa.reach import Edges, reach
from imgcheck.binaries.isa.x86.decode import boundaries, bytes_at, confirm, instructions
from imgcheck.binaries.isa.x86.encodings import BASELINE, UNDECODED, Encodings
from imgcheck.binaries.isa.x86.graph import Graph
from imgcheck.binaries.isa.x86.guards import Guards, Spread
from imgcheck.binaries.isa.x86.screen import Candidates

QUERIES = ("cpuid", "xgetbv")
VECTOR = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd", "avx512_fp16",
          "fma4", "xop", "avx_vnni", "vaes", "vpclmulqdq")  # fmt: skip
_SAMPLE = 4_000
"""Functions that say how dense an extension is in a file too large to decode."""
_NAMED_USERS = 5_000
_ORDINARY = ("sse3", "ssse3", "avx")
"""Where very many functions use what a compiler writes everywhere, no names tell them apart."""
_CHOOSER = 64
_JUMP, _CONDITIONAL = 0xE9, 0x0F
_CHECKED = 8
"""Functions looked at to tell new instructions from data."""
_NAMED_EXPORTS = 30_000
"""Exports whose names are looked at; libraries with more are C++ ones, whose variants show where they are used."""
_BUDGET = 6 << 20
_BUDGET_SHARE = 12
"""Code decoded for what is above the baseline: all that may hold it up to 6 MiB, of larger files a twelfth."""


class Findings:
    """Confirmed instructions and CPU queries of one file, with its call graph."""

    def __init__(self, layout: Layout, bits: int, table: Encodings, candidates: Candidates) -> None:
        self.layout, self.bits, self.table, self.candidates = layout, bits, table, candidates
        self._false_sites: set[int] = set()
        self.graph = Graph(layout, bits)
        self.functions = layout.functions

    # Instructions

    @cached_property
    def candidate_function(self) -> np.ndarray:
        return self.functions.holding(self.candidates.address)

    @cached_property
    def interesting(self) -> np.ndarray:
        """Sets that are more than the baseline of x86-64. 32-bit code starts from less, so SSE counts there."""
        baseline = self.table.holding(*BASELINE) if self.bits == 64 else np.zeros(len(self.table.sets), bool)
        wanted = ~baseline
        wanted[0] = False
        return wanted

    @cached_property
    def decoded(self) -> np.ndarray:
        """Functions that are decoded: all that weigh the file or may ask, of the others as many as is affordable."""
        size = self.functions.end - self.functions.start
        chosen = np.zeros(len(self.functions), bool)
        chosen[self.population] = True
        left = self._budget
        if self.sampled:
            left = max(left - int(size[chosen].sum()), left // 2)
        chosen[self._askers_at_first_sight] = True
        for holders in self._holders_by_rarity():
            holders = holders[~chosen[holders]]
            if int(size[holders].sum()) > left:
                holders = _spread(holders, size, left)
            chosen[holders] = True
            left -= int(size[holders].sum())
        return np.flatnonzero(chosen)

    @property
    def _askers_at_first_sight(self) -> np.ndarray:
        """Functions that seem to hold a query: one of them overlooked would make the file one that never asks."""
        held = self.candidate_function[self.table.holding(*QUERIES)[self.candidates.set]]
        return held[held >= 0]

    @cached_property
    def population(self) -> np.ndarray:
        """Functions by which the file is weighed: all that seem to hold vector code of any kind, or an even sample."""
        holders = self._vector_candidates
        return holders[:: len(holders) // _SAMPLE + 1] if self.sampled else holders

    @cached_property
    def _vector_candidates(self) -> np.ndarray:
        wanted = self.table.holding(*VECTOR, *BASELINE)[self.candidates.set]
        held = self.candidate_function[wanted]
        return distinct(held[held >= 0])

    @property
    def vector_functions(self) -> int:
        """How many functions hold vector code of any kind, estimated from the sample in large files."""
        seen = int((self.vector | self.legacy)[self.population].sum())
        return seen * len(self._vector_candidates) // max(len(self.population), 1)

    @cached_property
    def sampled(self) -> bool:
        """Not every function with a candidate of interest can be decoded."""
        size = self.functions.end - self.functions.start
        held = self.candidate_function[self.interesting[self.candidates.set]]
        cost = int(size[distinct(held[held >= 0])].sum())
        return cost > self._budget

    @property
    def _budget(self) -> int:
        return max(_BUDGET, self.layout.code_bytes // _BUDGET_SHARE)

    def _holders_by_rarity(self) -> list[np.ndarray]:
        held = self.candidate_function
        wanted = np.flatnonzero(self.interesting[self.candidates.set] & (held >= 0))
        count = max(len(self.functions), 1)
        pairs = distinct(self.candidates.set[wanted].astype(np.int64) * count + held[wanted])
        number, holders = pairs // count, pairs % count
        return sorted(np.split(holders, np.flatnonzero(number[1:] != number[:-1]) + 1), key=len)

    @cached_property
    def confirmed(self) -> Candidates:
        """Instructions of interest, and legacy SSE, that really begin where they seem to."""
        chosen = np.zeros(len(self.functions) + 1, bool)
        chosen[self.decoded] = True
        inside = np.flatnonzero(chosen[self.candidate_function])
        return confirm(self.layout, self.candidates.take(inside), self.functions, self.decoded, self.bits, self.table)

    @cached_property
    def confirmed_function(self) -> np.ndarray:
        return self.functions.holding(self.confirmed.address)

    def instructions_of(self, *features: str) -> np.ndarray:
        """Indices into `confirmed` of the instructions that need one of `features`."""
        return np.flatnonzero(self.table.holding(*features)[self.confirmed.set])

    def using(self, *features: str) -> np.ndarray:
        """Which functions hold a confirmed instruction of one of `features`."""
        marks = np.zeros(len(self.functions), bool)
        held = self.confirmed_function[self.instructions_of(*features)]
        marks[held[held >= 0]] = True
        return marks

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Features with at least one confirmed instruction, queries and baseline left out."""
        present = self.table.member[distinct(self.confirmed.set)].any(axis=0)
        skipped = set(QUERIES) | (set(BASELINE) if self.bits == 64 else set()) | self._implausible()
        return tuple(f for f, there in zip(self.table.features, present, strict=True) if there and f not in skipped)

    def _implausible(self) -> set[str]:
        """Undecoded features that show only in data read as code: never twice in a function that decodes cleanly."""
        return {feature for feature in UNDECODED if not self._plausible(feature)}

    def _plausible(self, feature: str) -> bool:
        if feature not in self.table.features:
            return False
        held = self.confirmed_function[self.instructions_of(feature)]
        functions, counts = np.unique(held[held >= 0], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        chosen = functions[order][(counts[order] >= 2) & self.functions.unwind[functions[order]]][:_CHECKED]
        return any(self._decodes_cleanly(int(function)) for function in chosen)

    def _decodes_cleanly(self, function: int) -> bool:
        """Whether nothing but vector instructions newer than the decoder is unreadable in the function."""
        start, end = int(self.functions.start[function]), int(self.functions.end[function])
        strange = [i.ip for i in instructions(self.layout, start, end, self.bits) if i.is_invalid]
        known = set(self.confirmed.address[self.instructions_of(*UNDECODED)].tolist())
        return all(address in known for address in strange)

    @cached_property
    def vector(self) -> np.ndarray:
        """Functions with VEX or EVEX vector code."""
        return self.using(*VECTOR)

    @cached_property
    def legacy(self) -> np.ndarray:
        """Functions with legacy SSE and no VEX or EVEX vector code."""
        return self.using(*BASELINE) & ~self.vector

    @cached_property
    def pairing(self) -> tuple[int, int]:
        """How often two 64-bit registers become one vector by PINSRQ (SSE4.1), and how often by PUNPCKLQDQ (SSE2)."""
        inside = self.candidate_function
        address = self.candidates.address[(inside >= 0) & self.functions.unwind[inside]]
        second, third = bytes_at(self.layout, address + 1), bytes_at(self.layout, address + 2)
        wide = (bytes_at(self.layout, address - 1) & 0xF8) == 0x48
        first = bytes_at(self.layout, address) == 0x0F
        return int((first & (second == 0x3A) & (third == 0x22) & wide).sum()), int((first & (second == 0x6C)).sum())

    # Queries

    @cached_property
    def resolvers(self) -> np.ndarray:
        """Functions that the loader calls to choose an implementation."""
        index = self.graph.starting_at(queries.resolvers(self.layout, self.bits))
        return index[index >= 0]

    @cached_property
    def leads_to_use(self) -> np.ndarray:
        """Functions that use a feature above the baseline or call, over any number of steps, one that does."""
        return self._leading_to(self.any_use)

    def _leading_to(self, functions: np.ndarray) -> np.ndarray:
        """The marked `functions` and those that call one of them over any number of steps."""
        return reach(self._backwards, len(self.functions), np.flatnonzero(functions))[0]

    @cached_property
    def _backwards(self) -> Edges:
        """The calls from the called to the caller."""
        calls = self.graph.calls
        order = np.argsort(calls.target, kind="stable")
        return Edges(calls.target[order], calls.source[order], calls.site[order])

    @cached_property
    def query_symbols(self) -> dict[int, str]:
        """Dynamic symbols, imported and called, whose functions report what the CPU has."""
        named = queries.named_imports(self.layout)
        # Only few files import one: the others need no look at who is called through which slot.
        called = set(self.graph.imported(list(named))[1].tolist()) if named else set()
        return {i: name for i, name in named.items() if i in called}

    @cached_property
    def query_data(self) -> dict[str, np.ndarray]:
        return queries.data(self.layout)

    @cached_property
    def query_addresses(self) -> np.ndarray:
        return distinct(np.concatenate([np.empty(0, np.int64), *self.query_data.values()]))

    @cached_property
    def askers(self) -> np.ndarray:
        """Functions that ask the CPU themselves, call a library that does, or choose for an IFUNC."""
        callers = np.empty(0, np.int64)
        if self.query_symbols:
            callers = self.graph.imported(list(self.query_symbols))[0]
            callers = callers[callers >= 0]
        site, target, _ = self.graph.references
        readers = self.functions.holding(site[np.isin(target & ~3, self.query_addresses & ~3)])
        parts = [np.flatnonzero(self.using(*QUERIES)), self.resolvers, callers, readers[readers >= 0]]
        return distinct(np.concatenate(parts)).astype(np.int64)

    @cached_property
    def asks_cpu(self) -> tuple[str, ...]:
        found = [name for name in QUERIES if self.using(name).any()]
        if len(self.resolvers):
            found.append("IFUNC")
        return (*found, *sorted({*self.query_symbols.values(), *self.query_data}))

    @cached_property
    def guards(self) -> Guards:
        return self._spread.run() if len(self.askers) else Guards()

    @cached_property
    def _spread(self) -> Spread:
        return Spread(self)

    @cached_property
    def asking(self) -> np.ndarray:
        """Which functions ask the CPU or test what another one asked."""
        return self.guards.asks(len(self.functions))

    @cached_property
    def open_instructions(self) -> np.ndarray:
        """Which of `confirmed` run without a test inside their own function."""
        return ~self.guards.guarded(self.confirmed_function, self.confirmed.address)

    @cached_property
    def open_vector(self) -> np.ndarray:
        return self.open_users(*VECTOR)

    def open_users(self, *features: str) -> np.ndarray:
        """Which functions use one of `features` without a test of their own before it."""
        marks = np.zeros(len(self.functions), bool)
        at = self.instructions_of(*features)
        held = self.confirmed_function[at[self.open_instructions[at]]]
        marks[held[held >= 0]] = True
        return marks

    @cached_property
    def open_calls(self) -> Edges:
        """Calls and tail calls that happen without a test before them in the calling function."""
        calls = self.graph.calls
        closed = self.guards.guarded(calls.source, calls.site) | np.isin(calls.site, list(self._false_sites))
        return calls.take(np.flatnonzero(~closed))

    def refutes(self, steps: list[int]) -> bool:
        """Whether a closer look at the path `steps` shows a call that is none, or a test that stands before one.

        What is reached is then computed anew without it.
        """
        false = self._false_calls(steps) | self._choice(steps)
        self._false_sites |= false
        tested = bool(len(self.askers)) and self._spread.retrace(steps)
        if false or tested:
            for stale in ("open_calls", "open_instructions", "open_vector", "reached_at_load", "reached_by_exports"):
                self.__dict__.pop(stale, None)
        return bool(false) or tested

    def _choice(self, steps: list[int]) -> set[int]:
        """Sites of the last call of a path, where it is one arm of a function that only chooses between two others.

        `if (flag) f_bmi2(); else f();`: the flag comes as a parameter, down from an object that somebody filled.
        """
        if len(steps) < 2 or not self.asks_cpu:
            return set()
        source, target = steps[-2:]
        calls = self.graph.calls
        first, last = np.searchsorted(calls.source, [source, source + 1])
        others = calls.target[first:last][calls.target[first:last] != target]
        small = self.functions.end[source] - self.functions.start[source] <= _CHOOSER
        if not small or not len(others) or self.any_use[others].all():
            return set()
        sites = calls.site[first:last]
        jumps = np.isin(bytes_at(self.layout, sites), (_JUMP, _CONDITIONAL)).all()
        return set(sites[calls.target[first:last] == target].tolist()) if jumps else set()

    def _false_calls(self, steps: list[int]) -> set[int]:
        """Sites of calls along a path where no instruction begins."""
        calls = self.open_calls
        false: set[int] = set()
        for source, target in pairwise(steps):
            first, last = np.searchsorted(calls.source, [source, source + 1])
            sites = calls.site[first:last][calls.target[first:last] == target]
            span = self.functions.start[source : source + 1], self.functions.end[source : source + 1]
            begin = boundaries(self.layout, *span, self.bits)
            # The site is the opcode byte: a prefix before it belongs to the instruction.
            if not (np.isin(sites, begin) | np.isin(sites - 1, begin)).any():
                false.update(sites.tolist())
        return false

    @cached_property
    def clones(self) -> np.ndarray:
        """Functions whose name says that they are one implementation of several."""
        symbols = self.layout.code_symbols
        marks = np.zeros(len(self.functions), bool)
        index = self.graph.starting_at(symbols.value)
        wanted = self.any_use.copy()
        if wanted.sum() > _NAMED_USERS:
            wanted = self.using(*(f for f in self.features if f not in _ORDINARY))
        wanted[self.graph.calls.source[wanted[self.graph.calls.target]]] = True
        exports = self.graph.starting_at(self.layout.exports)
        if len(exports) <= _NAMED_EXPORTS:  # of those that lead to no vector code the names tell nothing
            exports = exports[exports >= 0]
            wanted[exports[self._leading_to(self.any_use | self.legacy)[exports]]] = True
        looked_at = np.flatnonzero((index >= 0) & wanted[np.maximum(index, 0)])
        marks[index[looked_at[clones(self.layout.names(symbols, looked_at), "x86_64")]]] = True
        return marks

    @cached_property
    def chosen(self) -> np.ndarray:
        """Functions whose address is taken by an IFUNC's resolver or by code that asks the CPU."""
        marks = np.zeros(len(self.functions), bool)
        taken = self.graph.taken
        asking = self.asking.copy()
        asking[self.resolvers] = True
        marks[taken.target[asking[taken.source]]] = True
        return marks

    @cached_property
    def called(self) -> np.ndarray:
        """Functions with a direct caller."""
        marks = np.zeros(len(self.functions), bool)
        marks[self.graph.calls.target] = True
        return marks

    @cached_property
    def any_use(self) -> np.ndarray:
        return self.using(*self.features) if self.features else np.zeros(len(self.functions), bool)

    # Reach

    @cached_property
    def load_roots(self) -> np.ndarray:
        """Functions that run when the file is loaded or started."""
        roots = self.graph.starting_at(self.layout.certain)
        roots = distinct(np.append(roots, self.graph.starting_at(self.layout.named_starts())))
        return roots[roots >= 0]

    @cached_property
    def reached_at_load(self) -> tuple[np.ndarray, np.ndarray]:
        return reach(self.open_calls, len(self.functions), self.load_roots)

    @cached_property
    def reached_by_exports(self) -> tuple[np.ndarray, np.ndarray]:
        roots = self.graph.starting_at(self.layout.exports)
        roots = roots[(roots >= 0) & ~np.isin(roots, self.resolvers)]
        return reach(self.open_calls, len(self.functions), roots[~self.clones[roots]])


def _spread(holders: np.ndarray, size: np.ndarray, budget: int) -> np.ndarray:
    """An evenly spread part of `holders` that costs about `budget` bytes to decode."""
    total = int(size[holders].sum())
    if budget <= 0 or total <= 0:
        return holders[:0]
    step = max(total // budget + 1, 2)
    return holders[::step]
