"""Judges one AArch64 or ppc64le file: which features its code needs, and whether it asks the CPU before.

Calls are followed from where the file starts and from what it exports, except those behind a test of the CPU for what
is used (words.spread).
"""

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.arriving import Start, arriving
from imgcheck.binaries.isa.conditions import ALWAYS, unshielded
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.modules import starts_by_name
from imgcheck.binaries.isa.names import clones, matches, queries, switches
from imgcheck.binaries.isa.ordered import distinct, numbers
from imgcheck.binaries.isa.queries import foreign, resolvers
from imgcheck.binaries.isa.reach import path_to, reach, steps_to
from imgcheck.binaries.isa.reasons import (
    AT_LOAD,
    CONTRADICTED,
    MISCHOSEN,
    NAMED,
    NOTHING_ASKS,
    THEIR_CALLER_MAY,
    Verdict,
    in_words,
    kinds_of,
)
from imgcheck.binaries.isa.signs import Hint
from imgcheck.binaries.isa.words.aarch64 import AArch64
from imgcheck.binaries.isa.words.aarch64_walk import AArch64Walk
from imgcheck.binaries.isa.words.code import Code
from imgcheck.binaries.isa.words.hints import hints
from imgcheck.binaries.isa.words.ppc64le import Ppc64le
from imgcheck.binaries.isa.words.ppc64le_walk import Ppc64leWalk
from imgcheck.binaries.isa.words.spread import Guards, Spread
from imgcheck.binaries.isa.words.walk import Walk
from imgcheck.documents.facts import Isa, IsaUse
from imgcheck.knowledge.store import rules_directory

_MACHINES: dict[str, type[Code]] = {"aarch64": AArch64, "ppc64le": Ppc64le}
_WALKS: dict[str, type[Walk]] = {"aarch64": AArch64Walk, "ppc64le": Ppc64leWalk}
_PERHAPS_TESTED = "Reached only behind tests of what may rest on what the CPU told."
_EXPORTED = "Exported functions reach it without a test of the CPU."
_HANDED = "Code that load or start reaches hands its address to another library, without a visible test of the CPU."
Uses = tuple[np.ndarray, np.ndarray]
"""For each instruction its function, and the number of the condition under which that arrives there."""


@cache
def _patterns(machine: str) -> dict:
    path = rules_directory() / "analysis" / "isa-words.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))[machine]


def analyse(elf: Elf) -> Isa | None:
    """The Isa of an AArch64 or ppc64le file; None where it holds no code."""
    layout = Layout(elf)
    return _Judge(_MACHINES[elf.machine](layout)).judge() if layout.areas else None


class _Judge:
    """The verdict on one file."""

    def __init__(self, code: Code, hint: Hint | None = None, far: bool = False) -> None:
        """`hint`: signs that count as what the CPU told besides; `far`: whether what may rest on it counts."""
        self.hint, self._far = hint, far
        self.code, self.layout, self.functions = code, code.layout, code.functions
        self.machine = code.layout.elf.machine
        self.rules = _patterns(self.machine)
        self._reaches: dict[tuple[bytes, bytes], tuple[np.ndarray, np.ndarray]] = {}
        self._open: dict[str, np.ndarray] = {}

    # Queries

    @cached_property
    def resolvers(self) -> np.ndarray:
        return numbers(self.code.index(resolvers(self.layout, self.code.irelative)), len(self.functions))

    @cached_property
    def query_names(self) -> dict[str, np.ndarray]:
        """Imported functions and data that report the CPU's features, with their slots."""
        rules = queries(self.machine)
        return foreign(self.layout, rules["functions"] + rules["data"])

    @cached_property
    def _query_instructions(self) -> list[tuple[str, np.ndarray]]:
        """The names of instructions that tell what the CPU is or has, with the addresses of some."""
        return [(q["name"], self.code.matching(q["mask"], q["value"])) for q in self.rules["queries"]]

    @cached_property
    def askers(self) -> np.ndarray:
        """Marks functions that ask the CPU, the kernel or the C library by themselves."""
        slots = np.concatenate([np.empty(0, np.int64), *self.query_names.values()])
        sites, targets = self.code.addresses
        asking = np.concatenate([at for _, at in self._query_instructions])
        marks = self.code.holding(asking) | self.code.calling(sites[np.isin(targets, slots)])
        if self.hint:
            marks[list(self.hint.functions)] = True
        return marks | self._spread.askers

    @cached_property
    def _spread(self) -> Spread:
        by_file = np.zeros(len(self.functions), bool)
        for named in self._told_by_files.values():
            by_file |= named
        return Spread(self.code, _WALKS[self.machine], self.query_names, by_file, self.used, self.hint, self._far)

    @cached_property
    def guards(self) -> Guards:
        """What runs behind a test."""
        return self._spread.run(self.askers, self.resolvers)

    @cached_property
    def _keepers(self) -> np.ndarray:
        """Marks functions that ask, and keep what they learn where it is not followed to."""
        marks = self.askers.copy()
        marks[[index for index, flow in self.guards.flows.items() if not flow.hides]] = False
        return marks

    @cached_property
    def _told_by_files(self) -> dict[str, np.ndarray]:
        """Files in which the kernel says what the CPU has, with marks of functions that name one.

        The kernel keeps the auxiliary vector in one (proc(5)), for programs that do without getauxval.
        """
        found = {}
        sites, targets = self.code.addresses
        for name in queries(self.machine)["files"]:
            marks = self.code.holding(sites[np.isin(targets, self.layout.addresses_of(name.encode() + b"\0")[0])])
            if marks.any():
                found[name] = marks
        return found

    @cached_property
    def asks_cpu(self) -> tuple[str, ...]:
        found = ["IFUNC"] if len(self.resolvers) else []
        if self._spread.askers.any():
            found.append("getauxval")
        elif self.found and self.guards.finds_words:  # else nothing needs the guards
            found.append("AT_HWCAP")
        found += [name for name, at in self._query_instructions if len(at)]
        if self.code.choosers[self.used].any():
            found.append("__aarch64_have_lse_atomics")
        if self.hint:
            found.append(self.hint.source)
        return tuple(dict.fromkeys(found + sorted([*self.query_names, *self._told_by_files])))

    # Instructions

    @cached_property
    def found(self) -> dict[str, np.ndarray]:
        """Feature -> sorted addresses of its instructions, data left out as far as it shows."""
        hits: dict[str, list[np.ndarray]] = {}
        data = [(each["mask"], each["value"]) for each in self.rules["data"]]
        for pattern in self.rules["patterns"]:
            at = self.code.fitting(pattern["mask"], pattern["value"])
            for mask, value in (*pattern.get("except", ()), *data):
                at = at[(self.code.word_at(at) & mask) != value]
            hits.setdefault(pattern["feature"], []).append(at)
        joined = {feature: distinct(np.concatenate(parts)) for feature, parts in hits.items()}
        kept = {feature: self._plausible(feature, at) for feature, at in joined.items()}
        return {feature: at for feature, at in kept.items() if len(at)}

    def _plausible(self, feature: str, at: np.ndarray) -> np.ndarray:
        """Those inside functions; of features that data resembles, those in functions that hold several."""
        held = self.functions.holding(at)
        inside = (held >= 0) & ~self.code.is_data(at)
        if self.functions.unwind.any():
            bounded = self.functions.unwind[held] | np.isin(self.functions.start[held], self.layout.code_symbols.value)
            inside &= bounded | self.code.is_reached(at)
        at, held = at[inside], held[inside]
        if feature not in self.rules["dense"] or not len(at):
            return at
        counts = np.bincount(held, minlength=len(self.functions))
        return at[counts[held] >= 2]

    @cached_property
    def used(self) -> np.ndarray:
        """Marks functions that use any of the features."""
        return self.code.holding(np.concatenate([np.empty(0, np.int64), *self.found.values()]))

    @cached_property
    def _clones(self) -> np.ndarray:
        """Functions that use something, or call what does, and whose name says that they are one version of several."""
        marks = np.zeros(len(self.functions), bool)
        calls, symbols = self.code.calls, self.layout.code_symbols
        wanted = self.used.copy()
        wanted[calls.source[self.used[calls.target]]] = True
        index = self.code.index(symbols.value)
        looked_at = np.flatnonzero((index >= 0) & wanted[index])
        marks[index[looked_at[[*clones(self.layout.names(symbols, looked_at), self.machine)]]]] = True
        return marks

    # Reach

    @cached_property
    def _conditions_of_calls(self) -> np.ndarray:
        return self.guards.at(self.code.calls.source, self.code.calls.site)

    def _open_calls(self, feature: str) -> np.ndarray:
        """Which calls are made without a test that shields `feature`."""
        if feature not in self._open:
            self._open[feature] = self.guards.exposing(feature)[self._conditions_of_calls]
        return self._open[feature]

    def _reached(self, roots: np.ndarray, over: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the calls that `over` marks lead to from `roots`, as `reach` has it."""
        key = over.tobytes(), roots.tobytes()
        if key not in self._reaches:
            self._reaches[key] = reach(self.code.calls, roots, over)
        return self._reaches[key]

    def _followed_calls(self, feature: str, left_out: np.ndarray) -> np.ndarray:
        """Calls that no test shields for which `feature` is enough, without those of the functions `left_out`."""
        return self._open_calls(feature) & ~left_out[self.code.calls.source]

    @cached_property
    def _roots(self) -> np.ndarray:
        entry = np.array([min(self.layout.elf.entry, 1 << 62)], np.int64)
        named = starts_by_name(self.layout, go=False)
        addresses = np.concatenate([entry, self.layout.called_by_loader, named, self.code.main])
        return numbers(self.code.index(addresses), len(self.functions))

    @cached_property
    def _exported(self) -> np.ndarray:
        roots = self.code.index(self.layout.exports)
        return numbers(roots[~np.isin(roots, self.resolvers)], len(self.functions))

    # Verdict

    def judge(self) -> Isa:
        uses = tuple(self._use(feature) for feature in sorted(self.found))
        return Isa(uses=uses, code_bytes=self.layout.code_bytes, asks_cpu=self.asks_cpu)

    def _use(self, feature: str) -> IsaUse:
        at = self.found[feature]
        held = self.functions.holding(at)
        found = self._judged(feature, at, held)
        address = int(at[held == found.function][0]) if found.function >= 0 else int(at[0])
        holder = int(self.functions.holding(np.array([address]))[0])
        return IsaUse(
            feature=feature, answer=found.answer, reason=found.reason, count=len(at), address=address,
            function=self.layout.name(int(self.functions.start[holder])),
            code=self.layout.bytes_at(address, address + 4).hex(), text=self.code.text(address),
            call_path=found.path, given=found.given,
        )  # fmt: skip

    def _judged(self, feature: str, at: np.ndarray, held: np.ndarray) -> Verdict:
        asked_for = self._asked_for(feature, held)
        if not asked_for.all():
            return self._weighed(feature, self._answer(feature, at[~asked_for], held[~asked_for]))
        wish = switches(self.machine)[feature]["wish"]
        return Verdict("dispatched", f"Runs only behind a test of the CPU, or where it is asked for ({wish}).")

    def _asked_for(self, feature: str, held: np.ndarray) -> np.ndarray:
        """Marks those in functions that are called only where somebody asks for it, or that only these call."""
        switch = switches(self.machine).get(feature)
        if switch is None:
            return np.zeros(len(held), bool)
        start, calls = self.functions.start, self.code.calls
        asked, using = np.zeros(len(start), bool), np.zeros(len(start), bool)
        using[held[held >= 0]] = True
        near = distinct(np.append(np.flatnonzero(using), calls.source[using.take(calls.target)]))
        asked[near] = [matches(self.layout.name(int(start[index])), switch["functions"]) for index in near]
        others = ~asked
        others[calls.target] = False
        others[self._exported] = ~asked[self._exported]
        unasked = ~(asked.take(calls.source) | asked.take(calls.target))
        led, _ = reach(calls, np.flatnonzero(others), unasked)
        behind, _ = reach(calls, np.flatnonzero(asked))
        return (held >= 0) & (behind & ~led).take(held)

    def _weighed(self, feature: str, verdict: Verdict) -> Verdict:
        """The verdict; in doubt where other signs of what the CPU has stand before all that would be required."""
        for judge in self._doubting if verdict.answer == "required" else ():
            if not judge._requires(feature):
                reason = judge.hint.reason if judge.hint else _PERHAPS_TESTED
                return Verdict("unknown", reason, verdict.function, verdict.path)
        return verdict

    @cached_property
    def _doubting(self) -> list["_Judge"]:
        """Judges of the same file who also count what is no question to the CPU, but tells of it; and one who follows
        what is not understood to more callers.
        """
        judges = [_Judge(self.code, hint) for hint in hints(self.code, self.found)]
        if self.asks_cpu:
            judges.append(_Judge(self.code, far=True))
        for judge in judges:
            judge.found = self.found
        return judges

    def _requires(self, feature: str) -> bool:
        """Whether load, start or exports lead to a use past no test."""
        at = self.found[feature]
        uses = self._exposed(feature, at, self.functions.holding(at))
        return any(self._led_to(feature, uses, way, self._keepers) for way in self._ways(feature))

    def _exposed(self, feature: str, at: np.ndarray, held: np.ndarray) -> Uses:
        """Of the uses those that no test shields."""
        number = self.guards.at(held, at)
        exposed = (held >= 0) & self.guards.exposing(feature)[number]
        return held[exposed], number[exposed]

    def _answer(self, feature: str, at: np.ndarray, held: np.ndarray) -> Verdict:
        uses = self._exposed(feature, at, held)
        for way in self._ways(feature):
            for kept in (self._keepers, self._nobody):
                found = self._led_to(feature, uses, way, kept)
                if found:
                    return found
        found = self._in_a_version(feature, uses[0])
        if found:
            return found
        if not self.asks_cpu:
            users = held[held >= 0]
            named = bool(reach(self.code.calls, np.flatnonzero(self._clones))[0][users].all())
            return Verdict("unknown", THEIR_CALLER_MAY) if named else Verdict("required", NOTHING_ASKS, int(users[0]))
        return Verdict("dispatched", f"Reached only behind a test of the CPU ({', '.join(self.asks_cpu[:3])}).")

    def _ways(self, feature: str) -> tuple["_Way", ...]:
        chosen = self.guards.handed_out(feature)
        index = self.code.index(np.array(list(chosen), np.int64))
        choices = [(told, index[i : i + 1]) for i, told in enumerate(chosen.values()) if index[i] >= 0]
        return (
            _Way([(ALWAYS, self._roots)], AT_LOAD, CONTRADICTED),
            _Way(choices, "Chosen by a test of the CPU that is for less.", MISCHOSEN, is_choice=True),
            _Way([(ALWAYS, self._handed(feature))], _HANDED, _HANDED, loads=False),
            _Way([(ALWAYS, self._exported)], _EXPORTED, _EXPORTED, loads=False),
        )

    def _handed(self, feature: str) -> np.ndarray:
        """Functions whose addresses code hands to other files' functions that load or start reaches past the tests."""
        sites, targets = self.code.handed
        holders = self.functions.holding(sites)
        seen, _ = self._reached(self._roots, self._followed_calls(feature, self._nobody))
        handing = (holders >= 0) & seen[holders] & self.guards.exposing(feature)[self.guards.at(holders, sites)]
        return distinct(self.code.index(targets[handing]))

    @cached_property
    def _nobody(self) -> np.ndarray:
        return np.zeros(len(self.functions), bool)

    def _led_to(self, feature: str, uses: Uses, way: "_Way", kept: np.ndarray) -> Verdict | None:
        """The answer where something leads to a use past the tests; versions by name and what they call are left out.

        Past functions that keep what they learn, and from exports, it is sure only where very many uses are met.
        """
        versions = self._nobody if way.is_choice else self._clones
        plain = ~versions[uses[0]]
        uses = uses[0][plain], uses[1][plain]
        over = self._followed_calls(feature, versions | kept)
        seen, parent = self._reached(way.roots, over)
        hit = distinct(uses[0][seen[uses[0]]])
        if not len(hit):
            return None
        sure = (way.loads and kept is self._keepers) or not self.asks_cpu or len(hit) >= self._many
        told = arriving(self.code.calls, self.guards.conditions, self._conditions_of_calls, over, uses, way.starts)
        given = kinds_of(unshielded(told, feature), self._decisive) if told is not None else ()
        reason = way.reason_on_some.format(in_words(given)) if given else way.reason
        path = path_to(self.layout, self.functions, parent, int(hit[0]))
        return Verdict("required" if sure else "unknown", reason, int(hit[0]), path, given)

    @cached_property
    def _many(self) -> float:
        return max(3, 0.02 * len(self.functions))

    @cached_property
    def _decisive(self) -> set[str]:
        """Features that not every CPU has."""
        return {pattern["feature"] for pattern in self.rules["patterns"]}

    def _in_a_version(self, feature: str, users: np.ndarray) -> Verdict | None:
        """The answer where only functions that are versions by name lead to a use."""
        seen, parent = self._reached(self._roots, self._followed_calls(feature, self._clones | self._keepers))
        behind, lead = reach(self.code.calls, np.flatnonzero(self._clones & seen), self._open_calls(feature))
        hit = distinct(users[behind[users]])
        if not len(hit):
            return None
        path = path_to(self.layout, self.functions, parent, steps_to(lead, int(hit[0]))[0])
        return Verdict("unknown", NAMED, int(hit[0]), path)


@dataclass(frozen=True, slots=True)
class _Way:
    """What may lead to a use, and the reasons to give where it does: on every CPU, and on those of some kinds alone."""

    starts: list[Start]
    reason: str
    reason_on_some: str
    loads: bool = True
    """Whether it runs when the file is loaded or started."""
    is_choice: bool = False
    """Whether code that asks the CPU picks it: versions by name are meant then."""

    @property
    def roots(self) -> np.ndarray:
        return distinct(np.concatenate([np.empty(0, np.int64), *(roots for _, roots in self.starts)]))
