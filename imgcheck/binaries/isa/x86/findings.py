"""What the code of one file shows: confirmed instructions per function, and where it asks the CPU."""

import fnmatch
import tomllib
from functools import cache, cached_property

import numpy as np

from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.decode import confirm
from imgcheck.binaries.isa.x86.encodings import Encodings
from imgcheck.binaries.isa.x86.graph import Graph, reach
from imgcheck.binaries.isa.x86.screen import Candidates, screen
from imgcheck.knowledge.store import rules_directory

BASELINE = ("sse", "sse2")
QUERIES = ("cpuid", "xgetbv")
VECTOR = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd", "avx512_fp16",
          "fma4", "xop", "avx_vnni", "vaes", "vpclmulqdq")  # fmt: skip
_BUDGET = 6 << 20
_BUDGET_SHARE = 6
"""Code decoded: all that holds candidates up to 6 MiB, of larger files a sixth; the rest is sampled."""


@cache
def analysis() -> dict:
    """rules/analysis/isa.toml."""
    return tomllib.loads((rules_directory() / "analysis" / "isa.toml").read_text(encoding="utf-8"))


class Findings:
    """Confirmed instructions and CPU queries of one file, with its call graph."""

    def __init__(self, layout: Layout, bits: int, table: Encodings) -> None:
        self.layout, self.bits, self.table = layout, bits, table
        self.functions = layout.functions
        self.graph = Graph(layout, bits)

    # Instructions

    @cached_property
    def candidates(self) -> Candidates:
        return screen(self.layout.areas, self.bits, self.table)

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
        """Functions that are decoded, sorted: every holder of a rare candidate, as many of the others as is affordable."""
        size = self.functions.end - self.functions.start
        budget = max(_BUDGET, self.layout.code_bytes // _BUDGET_SHARE)
        chosen = np.zeros(len(self.functions), bool)
        for holders in self._holders_by_rarity():
            holders = holders[~chosen[holders]]
            cost = np.cumsum(size[holders])
            left = budget - int(size[chosen].sum())
            if len(holders) and cost[-1] > left:
                holders = _spread(holders, size, left)
                self.sampled = True
            chosen[holders] = True
        return np.flatnonzero(chosen)

    sampled = False
    """Not every function with a candidate was decoded."""

    def _holders_by_rarity(self) -> list[np.ndarray]:
        held = self.candidate_function
        groups = []
        for number in np.flatnonzero(self.interesting).tolist():
            holders = np.unique(held[(self.candidates.set == number) & (held >= 0)])
            if len(holders):
                groups.append(holders)
        return sorted(groups, key=len)

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
        present = self.table.member[np.unique(self.confirmed.set)].any(axis=0)
        skipped = set(QUERIES) | (set(BASELINE) if self.bits == 64 else set())
        return tuple(f for f, there in zip(self.table.features, present, strict=True) if there and f not in skipped)

    @cached_property
    def vector(self) -> np.ndarray:
        """Functions with VEX or EVEX vector code."""
        return self.using(*VECTOR)

    @cached_property
    def legacy(self) -> np.ndarray:
        """Functions with legacy SSE and none of it, as the screen sees them."""
        marks = np.zeros(len(self.functions), bool)
        held = self.candidate_function[self.table.holding(*BASELINE)[self.candidates.set]]
        marks[held[held >= 0]] = True
        vector = self.candidate_function[self.table.holding(*VECTOR)[self.candidates.set]]
        marks[vector[vector >= 0]] = False
        return marks

    # Queries

    @cached_property
    def resolvers(self) -> np.ndarray:
        """Functions that IRELATIVE relocations and IFUNC symbols name: the loader calls them to choose an implementation."""
        relocations, symbols = self.layout.relocations, self.layout.code_symbols
        kind = 37 if self.bits == 64 else 42
        addresses = np.concatenate(
            [relocations["addend"][relocations["type"] == kind], symbols.value[symbols.type == 10]]
        )
        index = self.graph.starting_at(np.unique(addresses))
        return index[index >= 0]

    @cached_property
    def query_imports(self) -> dict[str, np.ndarray]:
        """Imported functions and data that tell about the CPU, with the functions that use them."""
        caller, symbol, _ = self.graph.imported
        names = {i: self.layout.symbol_name(self.layout.dynamic_symbols, i) for i in np.unique(symbol).tolist()}
        wanted = {i: name for i, name in names.items() if _matches(name, analysis()["queries"]["functions"])}
        found = {name: np.unique(caller[(symbol == i) & (caller >= 0)]) for i, name in wanted.items()}
        return found | self._query_data()

    def _query_data(self) -> dict[str, np.ndarray]:
        """Data such as __cpu_model, imported or in this file, with the functions that refer to it."""
        patterns = analysis()["queries"]["data"]
        pointers, symbols = self.layout.pointers, self.layout.dynamic_symbols
        site, target, _ = self.graph.references
        found: dict[str, np.ndarray] = {}
        for i in np.unique(pointers.symbol[pointers.symbol >= 0]).tolist():
            name = self.layout.symbol_name(symbols, i)
            if _matches(name, patterns):
                slots = pointers.slot[pointers.symbol == i]
                users = self.functions.holding(site[np.isin(target, slots)])
                found[name] = np.unique(users[users >= 0])
        for table in (self.layout.static_symbols, symbols):
            for i in np.flatnonzero((table.type == 1) & (table.section != 0) & (table.size > 0)).tolist():
                name = self.layout.symbol_name(table, i)
                if _matches(name, patterns):
                    first, size = int(table.value[i]), int(table.size[i])
                    users = self.functions.holding(site[(target >= first) & (target < first + size)])
                    found[name] = np.unique(np.concatenate([found.get(name, users[:0]), users[users >= 0]]))
        return found

    @cached_property
    def askers(self) -> np.ndarray:
        """Functions that ask the CPU themselves, or read what somebody else asked."""
        parts = [np.flatnonzero(self.using(*QUERIES)), self.resolvers, *self.query_imports.values()]
        return np.unique(np.concatenate(parts)).astype(np.int64)

    @cached_property
    def asks_cpu(self) -> tuple[str, ...]:
        found = [name for name in QUERIES if self.using(name).any()]
        if len(self.resolvers):
            found.append("IFUNC")
        return tuple(found + sorted(self.query_imports))

    @cached_property
    def guards(self) -> np.ndarray:
        """Which functions decide after asking: the askers and their callers."""
        marks = np.zeros(len(self.functions), bool)
        marks[self.askers] = True
        calls = self.graph.calls
        marks[calls.source[marks[calls.target]]] = True
        return marks

    # Reach

    @cached_property
    def load_roots(self) -> np.ndarray:
        """Functions that run when the file is loaded or started."""
        addresses = np.append(self.layout.initialisers, self.layout.elf.entry if self.layout.elf.entry else -1)
        roots = self.graph.starting_at(addresses)
        taken = self.graph.taken
        started = taken.target[np.isin(taken.source, roots[-1:])]  # what _start hands to __libc_start_main
        return np.unique(np.concatenate([roots, started, self._named_roots()]))

    def _named_roots(self) -> np.ndarray:
        symbols = self.layout.code_symbols
        names = (self.layout.symbol_name(symbols, i) for i in np.flatnonzero(symbols.bind == 1).tolist())
        wanted = [i for i, name in zip(np.flatnonzero(symbols.bind == 1), names, strict=True)
                  if name == "main" or name.startswith("PyInit_")]  # fmt: skip
        return self.graph.starting_at(symbols.value[np.array(wanted, np.int64)])

    @cached_property
    def reached_at_load(self) -> tuple[np.ndarray, np.ndarray]:
        return reach(self.graph.calls, len(self.functions), self.load_roots, self.guards)

    @cached_property
    def reached_by_exports(self) -> tuple[np.ndarray, np.ndarray]:
        roots = self.graph.starting_at(self.layout.exports)
        roots = roots[~np.isin(roots, self.resolvers)]
        return reach(self.graph.calls, len(self.functions), roots, self.guards)


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _spread(holders: np.ndarray, size: np.ndarray, budget: int) -> np.ndarray:
    """An evenly spread part of `holders` that costs about `budget` bytes to decode."""
    total = int(size[holders].sum())
    if budget <= 0 or total <= 0:
        return holders[:0]
    step = max(total // budget + 1, 2)
    return holders[::step]
