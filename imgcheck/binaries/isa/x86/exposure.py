"""What is open in one file: uses and calls before which no test of the CPU is seen, and what is reached over them."""

from collections.abc import Callable
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np

from imgcheck.binaries.isa.arriving import Start, arriving
from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    UNTOLD,
    Condition,
    either,
    shielded,
    understood_wholly,
)
from imgcheck.binaries.isa.names import matches, switches
from imgcheck.binaries.isa.ordered import distinct, spread_out, within
from imgcheck.binaries.isa.reach import Edges, reach
from imgcheck.binaries.isa.x86.encodings import VECTOR
from imgcheck.binaries.isa.x86.findings import Findings, first_using
from imgcheck.binaries.isa.x86.guards import Conditioned
from imgcheck.binaries.isa.x86.instructions import Instructions
from imgcheck.binaries.isa.x86.tabled import Tabled

_RECENT = 8
"""Answers about all functions or calls that are kept: with fewer, many would be worked out again."""
_MOST_TESTED_CALLS = 200
"""Calls behind tests in a file that is small enough to look at all ways through it."""
CLOSE = 5
"""Functions on a path that are few enough for a test on the way to have been seen: flags that travel further do so in
objects and parameters that are not followed."""
_BEHIND_TESTS = 2
"""Steps from a call behind a test to what it is for."""
_MOST_HANDED = 1000
"""Addresses taken of which it is looked at where they go."""


class _Led(NamedTuple):
    """Where some functions lead."""

    edges: Edges
    numbers: np.ndarray
    """Of the conditions under which each is taken, and"""
    by_table: np.ndarray
    """whether it goes by a table in the data."""


class Exposure:
    """By the tests and false calls that `found` knows of: where it learns of more, verdict._Judge makes another one."""

    def __init__(self, found: Findings) -> None:
        self.found, self.graph, self.guards, self.table = found, found.graph, found.guards, found.table
        self._answers: dict[tuple, Any] = {}
        self._users: dict[str, np.ndarray] = {}
        self._counted: dict[bytes, tuple[int, int]] = {}
        self._nearby: dict[bytes, _Led] = {}
        self._begun: dict[tuple, tuple[np.ndarray, bytes]] = {}
        """Where `reached` begins, and the same as bytes, by all that it rests on."""

    # Conditions

    @cached_property
    def _tested(self) -> Instructions:
        """All instructions of functions with tests, of others the first of each kind: no use is open but by them."""
        instructions = self.found.instructions
        known = self.guards.known(instructions.function, instructions.address)
        first, end = (np.searchsorted(instructions.function, known, side).tolist() for side in ("left", "right"))
        marks = np.zeros(len(instructions.address), bool)
        for rows in map(slice, first, end):
            marks[rows] = True
        marks[self.found.firsts] = True
        return instructions.take(np.flatnonzero(marks))

    @cached_property
    def _conditions_of_tested(self) -> np.ndarray:
        """For each of `_tested` the number of the condition (see Guards) under which its function arrives there."""
        return self.guards.at(self._tested.function, self._tested.address)

    @cached_property
    def _tested_calls(self) -> Conditioned:
        """Those calls of the graph at which their functions arrive under a condition."""
        return self.guards.conditioned(self.graph.calls.source, self.graph.calls.site)

    @cached_property
    def _conditions_of_calls(self) -> np.ndarray:
        """For each call of the graph the number of that condition."""
        return self._tested_calls.of_all(len(self.graph.calls.site))

    @cached_property
    def _tested_leads(self) -> Conditioned:
        """The same for Graph.leads."""
        taken, calls = self.graph.taken, self._tested_calls
        tested = self.guards.conditioned(taken.source, taken.site)
        of_calls, of_taken = self.graph.parts_of_leads
        rows = np.concatenate([of_calls.take(calls.row), of_taken.take(tested.row)])
        return Conditioned(rows, np.concatenate([calls.number, tested.number]))

    @cached_property
    def _false(self) -> np.ndarray:
        """The calls of the graph that a closer look has shown to be none."""
        return np.searchsorted(self.graph.calls.site, sorted(self.found.false_sites))

    # Uses

    def users(self, feature: str) -> np.ndarray:
        """Which functions use `feature` without a test of their own before it."""
        if feature not in self._users:
            self._users[feature] = self._open(feature, feature)
            self._users[feature].flags.writeable = False
        return self._users[feature]

    @cached_property
    def vector(self) -> np.ndarray:
        """Functions that use vector code of any kind with no test for AVX before it."""
        return self._open("avx", *VECTOR)

    def _open(self, shielded: str, *features: str) -> np.ndarray:
        """Functions with an instruction of one of `features` where no test shields another one."""
        marks = np.zeros(len(self.found.functions), bool)
        at = self._tested.needing(self.table.holding(*features))
        marks[self._tested.function[self._shielded_by_none(shielded, at)]] = True
        return marks

    def _shielded_by_none(self, feature: str, at: np.ndarray) -> np.ndarray:
        """Those of `at`, numbers of `_tested`, before which no test of their functions shields `feature`."""
        return at[self.guards.exposing(feature)[self._conditions_of_tested[at]]]

    # Calls

    def calls(self, feature: str) -> np.ndarray:
        """Which calls and tail calls of the graph stand in a function without a test for `feature` before them."""
        closed = self._tested_calls.under(~self.guards.exposing(feature))
        return _all_but(len(self.graph.calls.site), closed, self._false)

    def _leads(self, feature: str) -> np.ndarray:
        """The same for each of Graph.leads."""
        closed = self._tested_leads.under(~self.guards.exposing(feature))
        return _all_but(len(self.graph.leads.site), closed, self.graph.parts_of_leads[0].take(self._false))

    def reached(self, start: str, feature: str) -> np.ndarray:
        """Marks what is reached by open calls.

        `start` is "load", "main" (Graph.own_mains), "exports", "methods" (those that an extension module offers to
        Python), "choices" (those that code picks by tests that do not shield `feature`) or "pointers": from load, where
        code also leads to functions whose addresses it takes.
        """
        if start != "exports":
            return self._search(start, feature)[0]
        own, told = self._begin(start, feature)
        return self._by_exposure(("marks", told), feature, lambda: self._reached_by_exports(feature, own))

    def ways(self, start: str, feature: str) -> np.ndarray:
        """For each function that is reached the one that it is reached from (see `reach`)."""
        return self._search(start, feature)[1]

    def _search(self, start: str, feature: str) -> tuple[np.ndarray, np.ndarray]:
        # By conditions and names of their own, features that the same calls expose start elsewhere.
        own, told = self._begin(start, feature)
        return self._by_exposure((start, told), feature, lambda: self._reached(start, feature, own))

    def _begin(self, start: str, feature: str) -> tuple[np.ndarray, bytes]:
        """`own` of _reached, and what tells it from that of other features."""
        if start == "pointers":
            return self._kept_once((start, first_using(feature)), lambda: self._versions(feature))
        if start == "exports":
            return self._kept_once(
                (start, *self.found.told_by_exports(feature)), lambda: self.found.export_roots(feature)
            )
        own = self._roots(start, feature)
        return own, own.tobytes()

    def _kept_once(self, key: tuple, work: Callable[[], np.ndarray]) -> tuple[np.ndarray, bytes]:
        """What is the same for many features, with its bytes, which are large."""
        if key not in self._begun:
            found = work()
            self._begun[key] = found, found.tobytes()
        return self._begun[key]

    def _reached(self, start: str, feature: str, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`own`: the functions where that begins; of "pointers" those of Graph.leads that may choose a version."""
        if start == "pointers":
            over = self._leads(feature)
            over[own] = False
            return reach(self.graph.leads, self.graph.first_roots, over)
        return reach(self.graph.calls, own, self.calls(feature))

    def _reached_by_exports(self, feature: str, own: np.ndarray) -> np.ndarray:
        calls, known = self.graph.calls, self._reached_by_all_exports
        onward = calls.source[self._tested_calls.row]
        begin = np.append(own[~known[own]], onward[known[onward]])
        return reach(calls, begin, self.calls(feature), known=known)[0]

    @cached_property
    def _reached_by_all_exports(self) -> np.ndarray:
        """What is reached from exports whatever the feature is: these may be hundreds of thousands."""
        free = _all_but(len(self.graph.calls.site), self._tested_calls.row, self._false)
        return reach(self.graph.calls, self.found.export_roots_of_all, free)[0]

    def _roots(self, start: str, feature: str) -> np.ndarray:
        if start == "methods":
            return self._methods(feature)
        if start == "choices":
            return self._picked(feature)
        if start == "main":
            return self.graph.own_mains
        return self.graph.load_roots if start == "load" else self.found.export_roots(feature)

    def _picked(self, feature: str) -> np.ndarray:
        picked = [functions for condition, functions in self.found.choices if not shielded(condition, feature)]
        return distinct(np.concatenate([self.graph.load_roots[:0], *picked]))

    def _methods(self, feature: str) -> np.ndarray:
        """What Python may call of an extension module: methods that code offers which the import reaches openly."""
        (method, table), (offered, giver) = self.found.methods, self.found.offered
        return distinct(method[within(table, distinct(offered[self.reached("load", feature)[giver]]))])

    def _versions(self, feature: str) -> np.ndarray:
        """Those of Graph.leads that may be the choice of a version: by its name, or because it seems to be kept."""
        by_name = self.found.clones(feature).take(self.graph.taken.target)
        return self.graph.parts_of_leads[1][self._kept | by_name]

    @cached_property
    def _kept(self) -> np.ndarray:
        """Which of the addresses taken are of what uses a feature itself, or taken by code with tests of the CPU,
        unless the next call gets them, as that of a comparison for qsort.
        """
        taken, found = self.graph.taken, self.found
        choosing = self.guards.tests(len(found.functions))
        choosing[found.resolvers] = True
        kept = found.any_use.take(taken.target) | choosing.take(taken.source)
        looked_at = np.flatnonzero(kept)[:_MOST_HANDED]
        kept[looked_at] = [not found.is_handed(site) for site in taken.site[looked_at].tolist()]
        return kept

    def plain(self, feature: str, users: np.ndarray) -> np.ndarray:
        """Ordinary code: what only users of a feature lead to, and all that it calls, belongs to them."""
        own = users | self.found.clones(feature)
        key = "led", np.packbits(own).tobytes()
        led = self._by_exposure(key, feature, lambda: self._led_past(own, feature))
        return led & ~users

    def _led_past(self, own: np.ndarray, feature: str) -> np.ndarray:
        """Functions to which those that nothing leads to lead, past the marked `own`.

        Code leads to what it calls, and to what it takes the address of, with no test for `feature` before that.
        """
        begin, known = ~own & ~self._led, None
        if not (own & ~self.found.apart).any():
            known, onward = self._led_past_all
            begin = (begin | (known & ~own)) & onward
        return reach(self.graph.leads, np.flatnonzero(begin), self._leads(feature), own, known)[0]

    @cached_property
    def _led_past_all(self) -> tuple[np.ndarray, np.ndarray]:
        """The same past all that is Findings.apart whatever the feature is, and which functions may lead on from there
        for some feature.
        """
        leads, onward = self.graph.leads, self.found.apart.copy()
        free = _all_but(len(leads.site), self._tested_leads.row, self.graph.parts_of_leads[0].take(self._false))
        known = reach(leads, np.flatnonzero(~onward & ~self._led), free, onward)[0]
        onward[leads.source[self._tested_leads.row]] = True
        return known, onward

    @cached_property
    def _led(self) -> np.ndarray:
        """Functions that something leads to."""
        times = self.graph.times_led_to.copy()
        np.subtract.at(times, self.graph.calls.target[self._false], 1)
        return times > 0

    def callers(self, feature: str, users: np.ndarray) -> tuple[int, int]:
        """How many users have a direct caller that neither tests nor uses it, and are called only behind a test."""
        key = self.guards.exposing(feature).tobytes() + users.tobytes()
        if key not in self._counted:
            self._counted[key] = self._count_callers(feature, users)
        return self._counted[key]

    def _count_callers(self, feature: str, users: np.ndarray) -> tuple[int, int]:
        calls = self.graph.calls
        of_users = calls.into(users)
        plainly = self.calls(feature)[of_users] & self.plain(feature, users).take(calls.source[of_users])
        free = np.zeros(len(users), bool)
        free[calls.target[of_users[plainly]]] = True
        return int(free.sum()), int((users & self.found.called & ~free).sum())

    def _by_exposure(self, what: tuple[str | bytes, ...], feature: str, work: Callable[[], Any]) -> Any:
        """Most features are exposed by the same conditions, so that the answer for one serves for others.

        It is asked for again soon or never, so that few answers are kept.
        """
        key = what, self.guards.exposing(feature).tobytes()
        answer = self._answers.pop(key) if key in self._answers else work()
        while len(self._answers) >= _RECENT:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = answer
        return answer

    # Choices

    @cached_property
    def asking(self) -> np.ndarray:
        """Which functions ask the CPU or test what another one asked."""
        return self.guards.asks(len(self.found.functions))

    @cached_property
    def chosen(self) -> np.ndarray:
        """Functions that an IFUNC's resolver, or code that asks the CPU, may choose: it takes their address."""
        marks = np.zeros(len(self.found.functions), bool)
        taken = self.graph.taken
        asking = self.asking.copy()
        asking[self.found.resolvers] = True
        marks[taken.target[asking[taken.source]]] = True
        for _, functions in self.found.choices:
            marks[functions] = True
        marks[self.found.set_anyway] = False
        return marks

    def excused(self, feature: str) -> np.ndarray:
        """Versions by name that some test unseen may pick: none is seen to, nor one for others before a call of them.

        Where a test for `feature` stands before one call, it may stand unseen before others.
        """
        unpicked, told = self._kept_once(
            ("excused", first_using(feature)), lambda: self.found.clones(feature) & ~self._picked_by_code
        )
        return self._by_exposure(("excused", told), feature, lambda: self._excused(feature, unpicked))

    def _excused(self, feature: str, unpicked: np.ndarray) -> np.ndarray:
        unseen = unpicked.copy()
        mistaken = self.guards.understood & self.guards.exposing(feature)
        unseen[self.graph.calls.target[self._tested_calls.under(mistaken)]] = False
        return unseen

    def unexcused(self, feature: str) -> np.ndarray:
        """All other functions."""
        return ~self.excused(feature)

    @cached_property
    def _picked_by_code(self) -> np.ndarray:
        """Functions that code which asks the CPU is seen to pick."""
        marks = np.zeros(len(self.found.functions), bool)
        for _, functions in self.found.choices:
            marks[functions] = True
        return marks

    # What is necessary to arrive

    def circumstances(self, feature: str, start: str = "load") -> Condition | None:
        """What is necessary, as far as tests tell, to arrive at an open use of `feature` from `start` (see `reached`).

        None where there are too many ways to tell; then there is none without a test.
        """
        return self._arriving_openly(feature, self._outside_clones(feature), [(ALWAYS, self._roots(start, feature))])

    def circumstances_of_choices(self, feature: str) -> Condition | None:
        """The same for versions that code that asks the CPU picks: these are meant, whatever their names are.

        Only where it is understood: of what else is asked on the way, the rest may be no more than a part.
        """
        at = self._unasked(feature)
        for choices in (self.found.choices, self.found.clear_choices):
            condition = self._arriving_openly(feature, at, choices)
            if condition is not None and (condition == NEVER or understood_wholly(condition)):
                return condition
        return None

    def exposing_choices(self, feature: str) -> Condition:
        """Under what conditions that are understood, and do not shield `feature`, code picks what uses it by itself.

        Whatever else picks it, or picks beside it, may not be understood.
        """
        at = self._unasked(feature)
        at = self._shielded_by_none(feature, at)
        using = distinct(self._tested.function[at])
        clear = (
            condition
            for condition, functions in self.found.choices
            if understood_wholly(condition) and not shielded(condition, feature) and within(functions, using).any()
        )
        return reduce(either, clear, NEVER)

    def _unasked(self, feature: str) -> np.ndarray:
        """Those of `_tested` that need `feature`, but for what is in functions that a user has to ask for."""
        at, switch = self._tested.needing(self.table.holding(feature)), switches("x86").get(feature)
        if switch is None:
            return at
        layout, start = self.found.layout, self.found.functions.start
        held = self._tested.function[at]
        inside = distinct(held)
        names = [layout.name(int(start[index])) for index in inside]
        asked_for = inside[np.array([matches(name, switch["functions"]) for name in names], bool)]
        return at[~np.isin(held, asked_for)]

    def _arriving_openly(self, feature: str, at: np.ndarray, starts: list[Start]) -> Condition | None:
        at = self._shielded_by_none(feature, at)
        starts = [start for start in starts if not shielded(start[0], feature)]
        return self._arriving(at, self.calls(feature), starts)

    def inevitability(self, feature: str) -> Condition:
        """As `circumstances`, of all uses and choices: those behind both directions of one test are behind none.

        A CPU without the feature lacks what has it as a precondition, so that code that needs this dies there too.
        """
        if len(self._tested_calls.row) > _MOST_TESTED_CALLS:
            return UNTOLD
        wider = [self._outside_clones(other) for other in self.found.resting_on(feature)]
        starts = [(ALWAYS, self.graph.load_roots), *self.found.choices]
        over = _all_but(len(self.graph.calls.site), self._false)
        condition = self._arriving(distinct(np.concatenate(wider)), over, starts)
        return UNTOLD if condition is None else condition

    def _outside_clones(self, feature: str) -> np.ndarray:
        """Those of `_tested` that need `feature`, without those of versions by name that some test unseen may pick."""
        at = self._tested.needing(self.table.holding(feature))
        return at[self.unexcused(feature)[self._tested.function[at]]]

    def _arriving(self, at: np.ndarray, over: np.ndarray, starts: list[Start]) -> Condition | None:
        """What is necessary to arrive at one of `_tested`, by their numbers `at`, over those calls that `over` marks.

        None where it is too much to tell.
        """
        uses = self._tested.function[at], self._conditions_of_tested[at]
        return arriving(self.graph.calls, self.guards.conditions, self._conditions_of_calls, over, uses, starts)

    def mistaken(self, feature: str) -> np.ndarray:
        """Marks functions that use `feature`, or call what does, where a test of their own tells of others alone.

        None is marked where it is used anywhere else, too: there somebody may have asked for it.
        """
        found, tested, calls = self.found, self._tested, self.graph.calls
        told = self.guards.understood & self.guards.exposing(feature)
        at = tested.needing(self.table.holding(feature))
        wrongly = told[self._conditions_of_tested[at]]
        marks, elsewhere = np.zeros(len(found.functions), bool), np.zeros(len(found.functions), bool)
        marks[tested.function[at[wrongly]]] = True
        elsewhere[tested.function[at[~wrongly]]] = True
        behind = np.setdiff1d(self._tested_calls.under(told), self._false)
        behind = behind[elsewhere[calls.target[behind]]]
        if not wrongly.any() and not len(behind):  # as in most files, which are spared the rest
            return marks
        asked = np.zeros(len(calls.site), bool)
        asked[behind] = asked[self._false] = True
        sites = calls.into(elsewhere)
        sites = sites[~asked[sites]]
        elsewhere &= ~marks  # a function that asks for it before some of its uses needs nobody else to
        unasked = elsewhere & ~found.pointed & found.called
        unasked[calls.target[sites]] = False
        marks[calls.source[behind]] = True
        return marks if not (elsewhere & ~unasked).any() else np.zeros(len(found.functions), bool)

    # Over few steps

    def near(self, feature: str) -> tuple[np.ndarray, np.ndarray]:
        """What load or start openly reaches over few steps, and from where: by calls, and by addresses that code takes,
        also of tables in the data.
        """
        led = self._near(feature)
        return reach(led.edges, self.graph.first_roots, self.guards.exposing(feature).take(led.numbers))

    def near_circumstances(self, feature: str, marks: np.ndarray) -> Condition | None:
        """What is necessary to arrive at a use of `feature` in one of the marked functions over the same few steps.

        None where it is too much to tell.
        """
        return self._arriving_over(self._near(feature), feature, marks, [(ALWAYS, self.graph.first_roots)])

    def behind_tests(self, feature: str, marks: np.ndarray) -> Condition | None:
        """The same from what stands behind tests that are understood and do not shield it, few steps from there: of
        those functions to which tables lead.
        """
        told = self.guards.understood & self.guards.exposing(feature)
        behind = np.setdiff1d(self._tested_calls.under(told), self._false)
        called, number = self.graph.calls.target[behind], self._conditions_of_calls[behind]
        source, target, site = self._tabled.led_to(np.flatnonzero(self.asking))
        condition = self.guards.at(source, site)
        chosen = told[condition]
        tabled, number = target[chosen], np.append(number, condition[chosen])
        function = np.append(called, tabled)
        if not len(function):
            return NEVER
        led = self._led_from(distinct(function), _BEHIND_TESTS, self._versions(feature))
        by_table = distinct(np.append(tabled, led.edges.target[led.by_table]))
        marks = marks & reach(led.edges, by_table)[0]
        starts = [(self.guards.conditions[k], distinct(function[number == k])) for k in distinct(number).tolist()]
        return self._arriving_over(led, feature, marks, starts)

    def _arriving_over(self, led: _Led, feature: str, marks: np.ndarray, starts: list[Start]) -> Condition | None:
        at = self._tested.needing(self.table.holding(feature))
        at = at[marks[self._tested.function[at]]]
        uses = self._tested.function[at], self._conditions_of_tested[at]
        over = np.ones(len(led.edges.site), bool)
        return arriving(led.edges, self.guards.conditions, led.numbers, over, uses, starts)

    def _near(self, feature: str) -> _Led:
        """Where load and start lead over few steps."""
        versions = self._versions(feature)
        key = versions.tobytes()
        if key not in self._nearby:
            self._nearby = {key: self._led_from(self.graph.first_roots, CLOSE - 1, versions)}
        return self._nearby[key]

    def _led_from(self, roots: np.ndarray, most: int, versions: np.ndarray) -> _Led:
        """Where functions lead over `most` steps, but for what `versions`, numbers of Graph.leads, may be."""
        leads, first = self.graph.leads, self.graph.leads.network.first
        counted = _all_but(len(leads.site), versions, self.graph.parts_of_leads[0].take(self._false))
        numbers = self._tested_leads.of_all(len(leads.site))
        seen = np.zeros(len(self.found.functions), bool)
        front, steps = roots, list[tuple[np.ndarray, ...]]()
        for _ in range(most):
            seen[front] = True
            row, _ = spread_out(first[front], first[front + 1])
            row = row[counted[row]]
            steps.append(
                (leads.source[row], leads.target[row], leads.site[row], numbers[row], np.zeros(len(row), bool))
            )
            source, target, site = self._tabled.led_to(front)
            steps.append((source, target, site, self.guards.at(source, site), np.ones(len(source), bool)))
            targets = np.concatenate([leads.target[row], target])
            front = distinct(targets[~seen[targets]])
        source, target, site, number, by_table = map(np.concatenate, zip(*steps, strict=True))
        order = np.argsort(source, kind="stable")
        edges = Edges(source[order], target[order], site[order], leads.count)
        return _Led(edges, number[order], by_table[order])

    @cached_property
    def _tabled(self) -> Tabled:
        return Tabled(self.graph, self.asking, self.guards.tests(len(self.found.functions)))


def _all_but(count: int, *numbers: np.ndarray) -> np.ndarray:
    """Marks of `count` rows, without some."""
    marks = np.ones(count, bool)
    for some in numbers:
        marks[some] = False
    return marks
