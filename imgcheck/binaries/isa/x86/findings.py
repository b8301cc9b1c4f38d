"""What the code of one file shows: confirmed instructions per function, and where it asks the CPU."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, reduce
from itertools import pairwise
from weakref import proxy

import numpy as np

from imgcheck.binaries.isa import queries
from imgcheck.binaries.isa.arriving import Start
from imgcheck.binaries.isa.conditions import ALWAYS, Condition, implied, understood_wholly
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.modules import methods, offering
from imgcheck.binaries.isa.names import analysis, clones, family, family_for_any_cpu, generation, generations
from imgcheck.binaries.isa.names import queries as rules_of_queries
from imgcheck.binaries.isa.ordered import distinct, numbers, spread_out, within
from imgcheck.binaries.isa.reach import reach
from imgcheck.binaries.isa.signs import Hint
from imgcheck.binaries.isa.values import literals
from imgcheck.binaries.isa.x86.arms import arms
from imgcheck.binaries.isa.x86.bodies import LONGEST
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.decode import are_instructions, instructions
from imgcheck.binaries.isa.x86.demands import refusal
from imgcheck.binaries.isa.x86.encodings import BASELINE, PACKED, QUERIES, UNDECODED, VECTOR, Encodings
from imgcheck.binaries.isa.x86.endings import Endings
from imgcheck.binaries.isa.x86.facts import CALL, COMPUTE, INDIRECT_CALL, LEA, PARAMETERS, RSP, Code, Fact, facts
from imgcheck.binaries.isa.x86.graph import LARGEST_TABLE, LEA_OPCODE, LONGEST_IMMEDIATE, Graph
from imgcheck.binaries.isa.x86.guards import Guards
from imgcheck.binaries.isa.x86.handed import Flow
from imgcheck.binaries.isa.x86.hints import hints
from imgcheck.binaries.isa.x86.instructions import Instructions
from imgcheck.binaries.isa.x86.parameters import first_arguments
from imgcheck.binaries.isa.x86.readers import leads_to
from imgcheck.binaries.isa.x86.recorded import Recorded, recorded
from imgcheck.binaries.isa.x86.retrace import Retrace
from imgcheck.binaries.isa.x86.screen import pairs
from imgcheck.binaries.isa.x86.spread import Spread
from imgcheck.binaries.isa.x86.variables import Variables
from imgcheck.documents.facts import Refusal

ON_PURPOSE = ("aes", "pclmulqdq", "sha_ni", "vaes", "vpclmulqdq", "rdrand", "rdseed")
"""No compiler emits them by itself: a few functions with them are for callers that know their CPU."""
_MANY = 32
"""One function marked of so many symbols is enough to look at all of these."""
_NAMED_USERS = 5_000
_ORDINARY = ("sse3", "ssse3", "avx")
"""Where very many functions use what a compiler writes everywhere, no names tell them apart."""
_NEAR_CALL = 64
"""Bytes from where an address is taken up to a call that gets it."""
_RARE = 16
"""One function in so many that use a feature are few of them."""
_PREFIXES = [*range(0x40, 0x50), 0x2E, 0x3E, 0x66, 0x67, 0xF2, 0xF3]
"""What may stand before the opcode of a call or jump: REX, hints of branches and NOTRACK, sizes, BND."""
_CHECKED = 8
"""Functions looked at to tell new instructions from data."""
_NAMED_EXPORTS = 30_000
"""Exports whose names are looked at; libraries with more are C++ ones, whose variants show where they are used."""
_MOST_OFFERS = 1000
"""Places where a file offers methods to Python that are looked at."""
_FEW, _TOGETHER = 4, 256
"""Instructions of an extension that tables which are alike may show within these bytes; code that uses it has more."""
_CHANCE = 128 << 10
"""Bytes of data that show no more than one instruction of an extension when they are read as code."""


class Findings:
    """Confirmed instructions and CPU queries of one file, with its call graph."""

    def __init__(self, graph: Graph, table: Encodings, instructions: Instructions) -> None:
        """`instructions` are all above the baseline, and of that at least one of each function that holds any."""
        self.graph, self.table, self.instructions = graph, table, instructions
        self.firsts = instructions.firsts()
        """The numbers of the first of its kind in each function, and"""
        self.first = instructions.take(self.firsts)
        """those themselves: the same features, in fewer rows."""
        self.layout, self.bits, self.functions = graph.layout, graph.bits, graph.functions
        self.false_sites: set[int] = set()
        """Of calls that closer looks have shown to be none."""
        self._suspecting = False
        self._trusted: Hint | None = None
        self._handed: dict[int, bool] = {}
        self._using: dict[tuple[str, ...], np.ndarray] = {}
        self._clones: dict[int, np.ndarray] = {}
        self._behind_signs: dict[Hint, dict[int, list[Guarded]]] = {}

    # Instructions

    def using(self, *features: str) -> np.ndarray:
        """Which functions hold an instruction of one of `features`."""
        if features not in self._using:
            marks = np.zeros(len(self.functions), bool)
            marks[self.first.function[self.first.needing(self.table.holding(*features))]] = True
            marks.flags.writeable = False
            self._using[features] = marks
        return self._using[features]

    def features_of(self, function: int) -> set[str]:
        """The features that one function uses."""
        return {feature for feature in self.features if self.using(feature)[function]}

    def chart(self, function: int) -> ControlFlow | None:
        """The control flow of a function; None where it is too long to be read."""
        bodies = self._spread.bodies
        return bodies.chart(function) if bodies.size(function) <= LONGEST else None

    def count(self, feature: str) -> int:
        """How many instructions need it; those for floating-point numbers of va_arg count where there are no others."""
        usual, of_floats = self._counts[:, np.flatnonzero(self.table.holding(feature))].sum(axis=1).tolist()
        return usual or of_floats

    @cached_property
    def _counts(self) -> np.ndarray:
        return self.instructions.counts()

    def needs_floats(self, feature: str) -> bool:
        """Whether `feature` is used for floating-point numbers in variable argument lists alone."""
        return bool(self.first.of_floats[self.first.needing(self.table.holding(feature))].all())

    def first_of(self, feature: str, function: int) -> tuple[int, int]:
        """Address of the first instruction that needs `feature`, in `function` if that has any, and which holds it."""
        at = self.first.needing(self.table.holding(feature))
        inside = at[self.first.function[at] == function]
        found = inside[0] if len(inside) else at[0]
        return int(self.first.address[found]), int(self.first.function[found])

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Features with at least one confirmed instruction, queries and baseline left out."""
        present = self.table.member[distinct(self.first.set)].any(axis=0)
        skipped = {*QUERIES, PACKED} | (set(BASELINE) if self.bits == 64 else set()) | self._implausible()
        found = (f for f, there in zip(self.table.features, present, strict=True) if there and f not in skipped)
        return tuple(feature for feature in found if not self._is_chance(feature))

    def _is_chance(self, feature: str) -> bool:
        """Whether it shows only here and there in code and data that no unwind entry bounds, and nothing asks for it.

        Some compilers put tables between functions (GHC: info tables); one instruction in 128 KiB of such is chance,
        and so may be what seems to ask, unless what it would be asked for stands together as code does.
        """
        if not set(self.asks_cpu) <= set(QUERIES) or self.count(feature) * _CHANCE > self._unbounded:
            return False
        return self._is_in_data(feature) and (not self.asks_cpu or self._is_scattered(feature))

    def _is_scattered(self, feature: str) -> bool:
        """Whether but few of its instructions stand together, and those that ask the CPU may be data as well."""
        found = self.instructions
        address = np.sort(found.address[found.needing(self.table.holding(feature))])
        return not (address[_FEW:] - address[:-_FEW] < _TOGETHER).any() and self._is_in_data(*QUERIES)

    def _is_in_data(self, *features: str) -> bool:
        """Whether each function that uses one of `features` may be data that was read as code."""
        held = np.flatnonzero(self.using(*features))
        return not self.functions.unwind[held].any() and all(map(self._is_mixed_with_data, held.tolist()))

    @cached_property
    def _unbounded(self) -> int:
        """Bytes of code that no unwind entry bounds."""
        size = self.functions.end - self.functions.start
        return int(size[~self.functions.unwind].sum())

    def _is_mixed_with_data(self, function: int) -> bool:
        start = int(self.functions.start[function])
        end = min(int(self.functions.end[function]), start + _CHANCE)
        return any(instruction.is_invalid for instruction in instructions(self.layout, start, end, self.bits))

    def _implausible(self) -> set[str]:
        """Undecoded features that show only in data read as code: never twice in a function that decodes cleanly."""
        return {feature for feature in UNDECODED if not self._plausible(feature)}

    def _plausible(self, feature: str) -> bool:
        if feature not in self.table.features or not self.using(feature).any():
            return False
        found = self.instructions
        held = found.function[found.needing(self.table.holding(feature))]
        functions, counts = np.unique(held, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        chosen = functions[order][(counts[order] >= 2) & self.functions.unwind[functions[order]]][:_CHECKED]
        return any(self._decodes_cleanly(int(function)) for function in chosen)

    def _decodes_cleanly(self, function: int) -> bool:
        """Whether nothing but vector instructions newer than the decoder is unreadable in the function."""
        start, end = int(self.functions.start[function]), int(self.functions.end[function])
        found = self.instructions
        known = set(found.address[found.needing(self.table.holding(*UNDECODED))].tolist())
        return all(i.ip in known for i in instructions(self.layout, start, end, self.bits) if i.is_invalid)

    @cached_property
    def vector(self) -> np.ndarray:
        """Functions with VEX or EVEX vector code."""
        return self.using(*VECTOR)

    @cached_property
    def legacy(self) -> np.ndarray:
        """Functions with legacy SSE and no VEX or EVEX vector code."""
        return self.using(*BASELINE) & ~self.vector

    @property
    def vector_functions(self) -> int:
        """How many functions compute on several numbers at once."""
        return int(self.using(PACKED).sum())

    @cached_property
    def pairing(self) -> tuple[int, int]:
        """How often two 64-bit registers become one vector by PINSRQ (SSE4.1), and how often by PUNPCKLQDQ (SSE2)."""
        found = [self.functions.holding(address) for address in pairs(self.layout.spans)]
        insert, unpack = (int(((held >= 0) & self.functions.unwind[held]).sum()) for held in found)
        return insert, unpack

    # Queries

    @cached_property
    def resolvers(self) -> np.ndarray:
        """Functions that the loader calls to choose an implementation."""
        index = self.graph.starting_at(queries.resolvers(self.layout, queries.IRELATIVE[self.bits]))
        return index[index >= 0]

    @cached_property
    def leads_to_use(self) -> np.ndarray:
        """Functions that use a feature above the baseline or call, over any number of steps, one that does."""
        return self._leading_to(self.any_use)

    def _leading_to(self, functions: np.ndarray) -> np.ndarray:
        """The marked `functions` and those that call one of them over any number of steps."""
        return reach(self.graph.calls.backwards, np.flatnonzero(functions))[0]

    @cached_property
    def query_symbols(self) -> dict[int, str]:
        """Dynamic symbols, imported and called, whose functions report what the CPU has."""
        named = queries.named_imports(self.layout)
        # Only few files import one: the others need no look at who is called through which slot.
        called = set(self.graph.imported(list(named))[1].tolist()) if named else set()
        return {i: name for i, name in named.items() if i in called}

    @cached_property
    def vector_calls(self) -> tuple[np.ndarray, np.ndarray]:
        """Functions and sites of their calls that ask for words of the auxiliary vector, some of them for features.

        Most programs that call such a function ask for something else: who wants features says so by a number.
        """
        named = queries.imports(self.layout, rules_of_queries("x86_64")["vector"]) if self.bits == 64 else {}
        callers, _, sites = self.graph.imported(list(named)) if named else (np.empty(0, np.int64),) * 3
        wanting = [caller for caller in set(callers.tolist()) - {-1} if self._names_word(caller)]
        kept = np.isin(callers, wanting)
        return callers[kept], sites[kept]

    def _names_word(self, function: int) -> bool:
        """Whether a function brings the type of a word that tells of features into the register of a parameter."""
        code = self.layout.bytes_at(int(self.functions.start[function]), int(self.functions.end[function]))
        return bool(_types_of_words().search(code))

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
        callers = np.append(callers, self.vector_calls[0])
        parts = [np.flatnonzero(self.using(*QUERIES)), self.resolvers, callers, readers[readers >= 0]]
        return distinct(np.concatenate(parts)).astype(np.int64)

    @property
    def asks_cpu(self) -> tuple[str, ...]:
        """By what the file asks the CPU: instructions, means of the loader, names of functions and of variables."""
        return (*self._queries, self._trusted.source) if self._trusted else self._queries

    @cached_property
    def _queries(self) -> tuple[str, ...]:
        found = [name for name in QUERIES if self.using(name).any()]
        if len(self.resolvers):
            found.append("IFUNC")
        if len(self.vector_calls[0]):
            found.append("getauxval")
        return (*found, *sorted({*self.query_symbols.values(), *self.query_data}))

    @cached_property
    def guards(self) -> Guards:
        return self._spread.run() if len(self.askers) else Guards()

    @property
    def refusal(self) -> Refusal | None:
        """With which features lacking the program ends by itself, by the tests in its start code."""
        if not self.layout.is_program:
            return None
        return refusal(self.graph, self.guards.flows, self._spread.bodies, self.endings)

    @cached_property
    def _spread(self) -> Spread:
        return Spread(self)

    @cached_property
    def endings(self) -> Endings:
        """Which calls never return."""
        return Endings(proxy(self))  # as in Spread a reference back would keep the file's bytes

    @cached_property
    def calls_of_comparing(self) -> tuple[np.ndarray, list[str], np.ndarray]:
        """Functions that call a library function that compares texts, its name, and the sites of the calls."""
        symbols = queries.imports(self.layout, analysis()["texts"]["functions"])
        function, symbol, site = self.graph.imported(list(symbols))
        return function, [symbols[number] for number in symbol.tolist()], site

    @cached_property
    def references(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sites and targets of the references that may be to variables, and which take an address.

        Most references are to code and constants.
        """
        site, target, kind = self.graph.references
        parts, variables = [(site, target, kind == LEA_OPCODE)], Variables(self.layout)
        if variables.thread:
            site, target = self.graph.thread_references
            parts.append((site, target, np.zeros(len(site), bool)))
        # Joined once few are left: those in the thread's block have wider addresses than most of the rest.
        inside = [_into(target, variables.writable) for _, target, _ in parts]
        kept = [[column.take(at) for column in part] for part, at in zip(parts, inside, strict=True)]
        site, target, taken = map(np.concatenate, zip(*kept, strict=True))
        return site, target, taken

    @cached_property
    def deciding(self) -> np.ndarray:
        """Functions that lead to a use, or take the address of one that does, or of a table of such."""
        leads = self.leads_to_use
        marks = leads.copy()
        taken, pointers = self.graph.taken, self.layout.pointers
        marks[taken.source[taken.into(leads)]] = True
        index = self.graph.starting_at(pointers.target)
        site, target, kind = self.graph.references
        named = np.flatnonzero(kind == LEA_OPCODE)
        users = pointers.slot[(index >= 0) & leads[index]]
        tables = named[leads_to(target[named], users, LARGEST_TABLE)]
        marks[numbers(self.functions.holding(site[tables]), len(self.functions))] = True
        return marks

    @cached_property
    def _retrace(self) -> Retrace:
        return Retrace(self._spread)

    def is_handed(self, site: int) -> bool:
        """Whether the next call gets the address that is taken at `site` (see Graph.references)."""
        if site not in self._handed:
            self._handed[site] = self._follows_to_call(site)
        return self._handed[site]

    def _follows_to_call(self, site: int) -> bool:
        is_lea = self.layout.bytes_at(site - 1, site) == bytes([LEA_OPCODE])
        start = site - (2 if self.bits == 64 else 1) if is_lea else site
        code = facts(self.layout.bytes_at(start, site + _NEAR_CALL), start, self.bits)
        target, registers = _next_call(code) if code.facts else (0, 0)
        return bool(registers) and self._takes(target, registers)

    def _takes(self, target: int, registers: int) -> bool:
        """Whether the function at `target` takes one of `registers` as a parameter; of another file's all that pass."""
        (function,) = self.graph.starting_at(np.array([target])).tolist()
        if function < 0:
            return bool(registers)
        bodies = self._spread.bodies
        return bool(bodies.expected(function, registers) or bodies.hands_out(function, registers))

    @cached_property
    def choices(self) -> list[Start]:
        """Functions whose addresses code that asks the CPU hands out, by the condition under which it does."""
        return self._choices_of(self.guards.flows.values())

    @cached_property
    def clear_choices(self) -> list[Start]:
        """The same of code all of whose choices are understood."""
        flows = self.guards.flows.values()
        clear = [f for f in flows if all(c == ALWAYS or understood_wholly(c) for c in f.chosen.values())]
        return self._choices_of(clear)

    def _choices_of(self, flows: Iterable[Flow]) -> list[Start]:
        chosen = [(c, a) for flow in flows for a, c in flow.chosen.items() if c != ALWAYS]
        addresses = np.array([a for _, a in chosen], np.int64)
        index = self.graph.starting_at(addresses)
        tables = self._tables(distinct(addresses[index < 0]))
        found: dict[Condition, set[int]] = defaultdict(set)
        for (condition, address), function in zip(chosen, index.tolist(), strict=True):
            found[condition] |= {function} if function >= 0 else tables[address]
        return [(condition, np.array(sorted(functions))) for condition, functions in found.items() if functions]

    def _tables(self, addresses: np.ndarray) -> dict[int, set[int]]:
        """The functions in the table of pointers at each address, as virtual classes have them.

        A table ends where the next thing begins: another of them, or what code or another pointer refers to.
        """
        if not len(addresses):
            return {}
        pointers, (_, referred, _) = self.layout.pointers, self.graph.references
        meant = (at[(at > addresses[0]) & (at < addresses[-1] + LARGEST_TABLE)] for at in (referred, pointers.target))
        near = np.concatenate([addresses, *meant])
        bounds = np.append(distinct(near), np.iinfo(np.int64).max)
        ends = np.minimum(bounds[np.searchsorted(bounds, addresses, side="right")], addresses + LARGEST_TABLE)
        first, last = np.searchsorted(pointers.slot, addresses), np.searchsorted(pointers.slot, ends)
        held = [self.graph.starting_at(pointers.target[i:k]) for i, k in zip(first, last, strict=True)]
        return {at: set(index[index >= 0].tolist()) for at, index in zip(addresses.tolist(), held, strict=True)}

    def look_closer(self, steps: list[int], open_calls: np.ndarray) -> bool:
        """Whether a closer look at the path `steps` shows an open call that is none, or a test that stands before one.

        Then what is open is other than it was thought to be (Exposure).
        """
        false = self._false_calls(steps, open_calls)
        if len(steps) > 1 and self.asks_cpu:
            false |= arms(self, steps[-2], steps[-1], by_members=self._suspecting)
        self.false_sites |= false
        tested = bool(len(self.askers)) and self._retrace.retrace(steps, self._suspecting)
        return bool(false) or tested

    @property
    def fills_objects(self) -> bool:
        """Whether knowledge of the CPU is stored where only a pointer leads."""
        return any(flow.members for flow in self.guards.flows.values())

    @cached_property
    def kept_in_objects(self) -> frozenset[str]:
        """Features of which it is stored whether the CPU has them where only a pointer leads."""
        members = (value for flow in self.guards.flows.values() for value in flow.members.values())
        return frozenset(feature for value in members for told in literals(value) for feature in implied(told))

    @contextmanager
    def suspecting(self) -> Iterator[None]:
        """Meanwhile a member of any object counts as knowledge where one at the same place is filled with such, and a
        flag in one where some is, wherever it lies.
        """
        narrowed, false_sites = dict(self.guards.narrowed), set(self.false_sites)
        self._suspecting = True
        try:
            yield
        finally:
            self._suspecting, self.false_sites = False, false_sites
            self.guards.restore(narrowed)

    @cached_property
    def hints(self) -> tuple[Hint, ...]:
        """Signs that the file finds out by other means what the CPU has."""
        return hints(self)

    def resting_on(self, feature: str) -> tuple[str, ...]:
        """Those of the features that have this one as a precondition, itself among them."""
        return tuple(other for other in self.features if feature in implied(other))

    def leads_past(self, hint: Hint, feature: str) -> bool:
        """Whether a test of such signs stands before a use of `feature`, or before what leads to one.

        A CPU without the feature lacks what has it as a precondition, so that uses of that count, too.
        """
        wider = self.resting_on(feature)
        using = self._leading_to(self.using(*wider))
        calls, taken = self.graph.calls, self.graph.taken
        if hint.results and using[taken.target[self._calling(hint.functions).take(taken.source)]].any():
            return True  # the instruction to try may be handed over as a function
        found, needing = self.instructions, self.table.holding(*wider)
        guarded = [(first, end) for pieces in self._hinted(hint).values() for first, end, _ in pieces]
        bounds = np.array(guarded, self.layout.address_type).reshape(-1, 2)
        columns = (
            (calls.site, lambda rows: using.take(calls.target[rows])),
            (taken.site, lambda rows: using.take(taken.target[rows])),
            (found.address, lambda rows: needing.take(found.set[rows]) & ~found.of_floats[rows]),
        )
        return any(
            leads(slice(*rows)).any() for sites, leads in columns for rows in np.searchsorted(sites, bounds).tolist()
        )

    def _calling(self, functions: Iterable[int]) -> np.ndarray:
        """Marks the functions that call one of `functions`."""
        calls = self.graph.calls
        marks = np.zeros(len(self.functions), bool)
        marks[calls.source[np.isin(calls.target, list(functions))]] = True
        return marks

    def _hinted(self, hint: Hint) -> dict[int, list[Guarded]]:
        """What of each function runs only behind a test of such signs."""
        if hint not in self._behind_signs:
            self._behind_signs[hint] = {i: flow.guarded for i, flow in Spread(self, hint).run().flows.items()}
        return self._behind_signs[hint]

    @contextmanager
    def trusting(self, hint: Hint) -> Iterator[None]:
        """Meanwhile tests of such signs count as tests of the CPU."""
        narrowed, false_sites = dict(self.guards.narrowed), set(self.false_sites)
        for function, pieces in self._hinted(hint).items():
            self.guards.narrow(function, pieces)
        self._trusted = hint
        try:
            yield
        finally:
            self._trusted, self.false_sites = None, false_sites
            self.guards.restore(narrowed)

    def _false_calls(self, steps: list[int], open_calls: np.ndarray) -> set[int]:
        """Sites of open calls along a path where no instruction begins."""
        calls = self.graph.calls
        false: set[int] = set()
        for source, target in pairwise(steps):
            own = calls.among(source)
            sites = calls.site[own][open_calls[own] & (calls.target[own] == target)]
            span = self.functions.start[source : source + 1], self.functions.end[source : source + 1]
            # The site is the opcode byte: a prefix before it belongs to the instruction.
            prefixed = sites[np.isin(self.layout.bytes_behind(sites - 1), _PREFIXES)] - 1
            if not any(are_instructions(self.layout, *span, places, self.bits).any() for places in (sites, prefixed)):
                false.update(sites.tolist())
        return false

    def clones(self, feature: str) -> np.ndarray:
        """Functions whose name says that they are one implementation of several, and one that may use `feature`.

        What is named for SSE or AVX may not use AVX-512: nobody who calls it would ask for that.
        """
        least = first_using(feature)
        if least not in self._clones:
            self._clones[least] = self._generation >= least
        return self._clones[least]

    @cached_property
    def named(self) -> np.ndarray:
        """Functions whose name says that they are one implementation of several, whatever they may use."""
        return self._generation >= 0

    def for_any_cpu(self, marks: np.ndarray) -> np.ndarray:
        """Those of the marked functions that are named for the implementation which is left where no other fits.

        A version for certain CPUs has to be named alike. Of several with one name, as where one source is compiled for
        many CPUs (volk), all have to be marked.
        """
        looked_at = self._symbols_of(marks)[:_NAMED_USERS]
        families = {
            i: family_for_any_cpu(name) for i, name in zip(looked_at.tolist(), self._names(looked_at), strict=True)
        }
        named = {i: each for i, each in families.items() if each and each in self._families}
        if not named:  # as in nearly all files, which are spared the names of the rest
            return looked_at[:0]
        others = {family_for_any_cpu(name) for name in self._names(self._symbols_of(~marks))}
        return distinct(self._of_symbols[[i for i, each in named.items() if each not in others]])

    @cached_property
    def _families(self) -> frozenset[str]:
        """Those of the versions for certain CPUs, also without a first word, as FFmpeg has it: `ff_add_bytes_avx2`."""
        found = {family(name, "x86_64") for name in self._names(self._symbols_of(self.named))}
        return frozenset(found | {each.partition("_")[2] for each in found})

    def _symbols_of(self, marks: np.ndarray) -> np.ndarray:
        """Indices of the layout's symbols of code with which a marked function begins."""
        index, marked = self._of_symbols, np.flatnonzero(marks)
        if len(marked) > len(index) // _MANY:
            return np.flatnonzero((index >= 0) & marks[np.maximum(index, 0)])
        value, starts = self.layout.code_symbols.value, self.functions.start[marked]
        found, _ = spread_out(np.searchsorted(value, starts, "left"), np.searchsorted(value, starts, "right"))
        return found

    def _names(self, symbols: np.ndarray) -> list[str]:
        return [name.decode("utf-8", "replace") for name in self.layout.names(self.layout.code_symbols, symbols)]

    @cached_property
    def _of_symbols(self) -> np.ndarray:
        """The function that begins at each of the layout's symbols of code; -1 where none does."""
        return self.graph.starting_at(self.layout.code_symbols.value)

    @cached_property
    def _generation(self) -> np.ndarray:
        """The generation of CPUs that each function is named for (names.clones), -1 of those without such a name."""
        symbols, index = self.layout.code_symbols, self._of_symbols
        generation = np.full(len(self.functions), -1, np.int8)
        wanted = self.any_use.copy()
        if wanted.sum() > _NAMED_USERS:
            wanted = self.using(*(f for f in self.features if f not in _ORDINARY)).copy()
        wanted[self.graph.calls.source[wanted[self.graph.calls.target]]] = True
        exports = self.graph.starting_at(self.layout.exports)
        if len(exports) <= _NAMED_EXPORTS:  # of those that lead to no vector code the names tell nothing
            exports = exports[exports >= 0]
            wanted[exports[self._leading_to(self.any_use | self.legacy)[exports]]] = True
        looked_at = np.flatnonzero((index >= 0) & wanted[np.maximum(index, 0)])
        named = clones(self.layout.names(symbols, looked_at), "x86_64")
        np.maximum.at(generation, index[looked_at[list(named)]], np.array([*named.values()], np.int8))
        return generation

    @cached_property
    def asks_before_main(self) -> bool:
        """Whether nobody asks the CPU but a C library that is linked in, and that before it calls `main`.

        It calls that, and constructors, through pointers (glibc's csu/libc-start.c).
        """
        entry = self.graph.starting_at(np.array([self.layout.elf.entry]))
        before, _ = reach(self.graph.calls, entry[entry >= 0], np.ones(len(self.graph.calls.site), bool))
        return not (self.using(*QUERIES) & ~before).any()

    @property
    def set_anyway(self) -> np.ndarray:
        """Functions that code which asks the CPU makes the version to call whatever it is told, or before that."""
        flows = {i: flow for i, flow in self.guards.flows.items() if i not in self.resolvers}
        handed_out = [a for flow in flows.values() for a, condition in flow.chosen.items() if condition == ALWAYS]
        index = self.graph.starting_at(np.array(handed_out, np.int64))
        return index[index >= 0]

    @cached_property
    def recorded(self) -> Recorded | None:
        return recorded(self.layout.elf)

    @cached_property
    def called(self) -> np.ndarray:
        """Functions with a direct caller."""
        marks = np.zeros(len(self.functions), bool)
        marks[self.graph.calls.target] = True
        return marks

    @cached_property
    def pointed(self) -> np.ndarray:
        """Functions whose address code takes or data holds: without a caller either, a function never runs."""
        marks = np.zeros(len(self.functions), bool)
        marks[self.graph.taken.target] = True
        index = self.graph.starting_at(self.layout.pointers.target)
        marks[index[index >= 0]] = True
        return marks

    @cached_property
    def apart(self) -> np.ndarray:
        """Functions that are versions by name, or use what few do: other code is the same for all features."""
        rare = (self.using(feature) for feature in self.features)
        return reduce(np.logical_or, (marks for marks in rare if marks.sum() <= len(marks) // _RARE), self.named)

    @cached_property
    def alive(self) -> np.ndarray:
        """Functions that load, start, exports or an address lead to."""
        exported = numbers(self.graph.starting_at(self.layout.exports), len(self.functions))
        roots = np.concatenate([self.graph.load_roots, exported, np.flatnonzero(self.pointed)])
        return reach(self.graph.calls, roots)[0]

    @cached_property
    def any_use(self) -> np.ndarray:
        return self.using(*self.features) if self.features else np.zeros(len(self.functions), bool)

    # Reach

    def export_roots(self, feature: str) -> np.ndarray:
        """Exported functions, but for those that choose an implementation or are one that may use `feature`.

        One is what uses it on purpose, in a file that asks the CPU (OpenSSL's OPENSSL_ia32_rdrand_bytes).
        """
        versions = self.clones(feature)
        if feature in ON_PURPOSE and self.asks_cpu:
            versions = versions | self.using(feature)
        return self._exported_without(versions, [functions for told, functions in self._offers if feature in told])

    @cached_property
    def export_roots_of_all(self) -> np.ndarray:
        """Those that `export_roots` has whatever the feature is."""
        versions = self.named | self.using(*ON_PURPOSE)
        return self._exported_without(versions, [functions for _, functions in self._offers])

    def _exported_without(self, versions: np.ndarray, asked_for: list[np.ndarray]) -> np.ndarray:
        roots = self._exported[~versions[self._exported]]
        return roots[~within(roots, distinct(np.concatenate(asked_for)))] if asked_for else roots

    def told_by_exports(self, feature: str) -> tuple[int, str]:
        """All that `export_roots` rests on: most features have the same."""
        own = (feature in ON_PURPOSE and bool(self.asks_cpu)) or any(feature in told for told, _ in self._offers)
        return first_using(feature), feature if own else ""

    @cached_property
    def _offers(self) -> list[tuple[set[str], np.ndarray]]:
        """Features with the exported functions of which another one tells whether they may be called on such a CPU."""
        ends, found = analysis()["offers"]["predicates"], list[tuple[set[str], np.ndarray]]()
        exported = set(self._exported.tolist())
        for function, flow in self.guards.flows.items():
            told = {feature for literal in literals(flow.result) for feature in implied(literal)}
            name = self.layout.name(int(self.functions.start[function])) if told and function in exported else ""
            end = next((end for end in ends if name.endswith(end)), None)
            if end is not None:
                stem = name.removesuffix(end) + "_"
                alike = [address for address, one in self._names_of_exports if one.startswith(stem)]
                found.append((told, self.graph.starting_at(np.array(alike, np.int64))))
        return found

    def named_exports(self, feature: str) -> np.ndarray:
        """Exported functions that are an implementation for CPUs with `feature` by their names."""
        return self._exported[self.clones(feature)[self._exported]]

    def is_offered_in_versions(self, feature: str) -> bool:
        """Whether each of `named_exports` has a sibling that is named alike for other kinds of CPUs."""
        wanted = set(self.functions.start[self.named_exports(feature)].tolist())
        generations: dict[str, set[int]] = defaultdict(set)
        asked: set[str] = set()
        for address, name in self._names_of_exports:
            number = generation(name, "x86_64")
            if number is not None:
                stem = family(name, "x86_64")
                generations[stem].add(number)
                asked |= {stem} if address in wanted else set()
        return bool(asked) and all(len(generations[stem]) > 1 for stem in asked)

    @cached_property
    def _names_of_exports(self) -> list[tuple[int, str]]:
        """Addresses and names of exported functions, each name once."""
        symbols = self.layout.dynamic_symbols
        at = np.flatnonzero(np.isin(symbols.value, self.layout.exports))
        names = self.layout.names(symbols, at)
        return [(int(symbols.value[i]), name.decode("utf-8", "replace")) for i, name in zip(at, names, strict=True)]

    @cached_property
    def _exported(self) -> np.ndarray:
        """Exported functions, but for those that choose an implementation."""
        roots = self.graph.starting_at(self.layout.exports)
        return roots[(roots >= 0) & ~np.isin(roots, self.resolvers)]

    @cached_property
    def methods(self) -> tuple[np.ndarray, np.ndarray]:
        """Functions that are methods of Python's, and for each where the table begins that it stands in."""
        named, table = methods(self.layout)
        function = self.graph.starting_at(named)
        return function[function >= 0], table[function >= 0]

    @cached_property
    def offered(self) -> tuple[np.ndarray, np.ndarray]:
        """Tables of methods, and functions that take the address of one, or of a module or a type that has it."""
        address, offered = offering(self.layout, distinct(self.methods[1]))
        site, target, kind = self.graph.references
        taking = np.flatnonzero((kind == LEA_OPCODE) & within(target, address))[:_MOST_OFFERS]
        giver = self.functions.holding(site[taking])
        return offered[np.searchsorted(address, target[taking[giver >= 0]])], giver[giver >= 0]


def _into(targets: np.ndarray, ranges: list[tuple[int, int]]) -> np.ndarray:
    """The numbers of the targets that may lie in one of some ranges, or are counted from there."""
    inside = np.zeros(len(targets), bool)
    for first, end in ranges:
        inside |= (targets >= first - LONGEST_IMMEDIATE) & (targets < end)
    return np.flatnonzero(inside)


@cache
def first_using(feature: str) -> int:
    """The number of the first generation of CPUs whose implementations may use `feature`."""
    needed = implied(feature)
    return next(i for i, one in enumerate(generations("x86_64")) if one.get("below") not in needed)


@cache
def _types_of_words() -> re.Pattern[bytes]:
    """What makes a type of the auxiliary vector's words that tell of features the first argument of a call."""
    types = map(int, rules_of_queries("x86_64")["words"])
    return re.compile(b"|".join(re.escape(form) for number in types for form in first_arguments(number)))


def _next_call(code: Code) -> tuple[int, int]:
    """Target of the first call, 0 where it is not direct, and the registers that bring it what the code begins with.

    That may lie in a register or, as what runs Rust's `main` gets it, on the stack where a register points to.
    """
    holding, unchanged = code.facts[0].written, PARAMETERS
    kept: set[int] = set()
    """Distances from RSP where it is stored."""
    pointing: dict[int, int] = {}
    """Registers, and the distance of the place that each points to."""
    for ip, fact in zip(code.ips[1:], code.facts[1:], strict=True):
        if fact.kind in (CALL, INDIRECT_CALL):
            # What got its value before may point there as well.
            by_reference = sum(register for register, place in pointing.items() if place in kept)
            by_reference |= unchanged if kept else 0
            return code.targets.get(ip, 0), (holding | by_reference) & PARAMETERS
        copied = fact.moves and not fact.stores and fact.source & holding
        stored = fact.moves and [memory.displacement for memory in fact.stores if memory.base == RSP]
        if fact.kind not in (COMPUTE, LEA) or (fact.read & holding and not copied and not stored):
            break
        if stored and fact.read & holding:
            kept.update(stored)
        holding = holding | fact.written if copied else holding & ~fact.written
        unchanged &= ~fact.written
        pointing = {register: place for register, place in pointing.items() if not register & fact.written}
        if (place := _place_pointed_to(fact)) is not None:
            pointing[fact.written] = place
    return 0, 0


def _place_pointed_to(fact: Fact) -> int | None:
    """The distance from RSP of the place whose address a register gets."""
    if fact.kind == LEA:
        (memory,) = fact.loads
        return memory.displacement if memory.base == RSP and not memory.index else None
    return 0 if fact.moves and fact.source == RSP else None
