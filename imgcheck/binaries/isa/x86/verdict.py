"""Required, dispatched or unknown: each feature's answer with its reason."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, reduce

import iced_x86 as iced
import numpy as np

from imgcheck.binaries.elf import ET_EXEC
from imgcheck.binaries.isa.conditions import NEVER, Term, implied, shielded, unshielded
from imgcheck.binaries.isa.ordered import distinct
from imgcheck.binaries.isa.reach import nearest, path_to, reach, steps_to
from imgcheck.binaries.isa.reasons import (
    AT_LOAD,
    CONTRADICTED,
    MISCHOSEN,
    MISTAKEN,
    NAMED,
    NOTHING_ASKS,
    THEIR_CALLER_MAY,
    Kinds,
    Verdict,
    in_words,
    kinds_of,
)
from imgcheck.binaries.isa.signs import Hint
from imgcheck.binaries.isa.x86.baseline import (
    EXPORTED,
    LEGACY,
    MANY,
    MIXED,
    PART,
    WIDE,
    Baseline,
    Ordinary,
    level,
)
from imgcheck.binaries.isa.x86.decode import decode_at
from imgcheck.binaries.isa.x86.encodings import BASELINE, UNDECODED, names
from imgcheck.binaries.isa.x86.exposure import CLOSE, Exposure
from imgcheck.binaries.isa.x86.findings import ON_PURPOSE, Findings
from imgcheck.documents.facts import Answer, Isa, IsaUse

_UNREAD = (
    "The code holds well-formed encodings that no decoder at hand knows, and no test of the CPU before them is seen."
)
_LEFT_OVER = "By its name it is what is left where no other implementation fits the CPU."
_BESIDE = "Only the C library is seen to ask the CPU, and to choose among versions of its own."
_LOOSE_REASON = "Called through pointers in a program that is compiled for more than x86-64."
_FAR_REASON = (
    "A long chain of calls from the start reaches it without a visible test, but ordinary code does not use it."
)
_IN_OBJECTS = "Reached from load or start past tests of members of objects, which may hold what the CPU told."
_MANY_WAYS = "Reached at load or start behind tests of the CPU, of which too many would have to be told apart."
_INEVITABLE = "Used from load or start, whatever the tests of the CPU on the way find."
_BY_EXPORT = "Exported functions reach it without a visible test of the CPU."
_BY_METHOD = "Methods of the Python module reach it without a visible test of the CPU."
_OF_FLOATS = "Used where a function with a variable argument list gets floating-point numbers, and nowhere else."
_BY_POINTER = "Code that load or start reaches takes its address, without a visible test of the CPU."
_BY_TABLE = (
    "Code that load or start reaches takes the address of a table that leads to it, without a visible test of the CPU."
)
_NOT_FOLLOWED = "Ordinary code uses it, most of it in functions that may test the CPU and are too many to follow."
_UNUSED = "Nothing in the file is seen to lead to what uses it: no call, no export and no address."
_OFFERED = "Exports offer what uses it in versions for several kinds of CPUs, by their names: who calls them takes one."
_IN_PART = "A part of the file seems to be compiled for it, and other code calls that part without a visible test."
_RECORDED = "The compiler recorded that it was free to use this everywhere, and nothing in the file asks the CPU."
_STARTS = ("exports", "methods", "pointers")
"""What else than the start may lead to code (see Exposure.reached)."""
_CLOSE_TO_MAIN = 2
"""The same from what a runtime begins as the program's own `main`: its tests are of objects more often."""
_RARE = 0.005
"""Of the functions with vectors the share that uses what next to none of a file for less was compiled for."""
_STRETCH = 64
"""Functions of such code, one behind the other, that are more than one set of kernels."""
_PATH_TRIES = 20
"""Paths that may turn out to hold a false call before reach is given up."""


def judge(found: Findings) -> Isa:
    """The answer for every feature that a confirmed instruction of the file needs."""
    verdicts = _lower_levels(_Judge(found).verdicts()) if found.features else {}
    uses = tuple(_use(found, feature, verdict) for feature, verdict in verdicts.items())
    return Isa(
        uses=uses,
        baseline=level({use.feature for use in uses if use.answer == "required" and not use.given}, found.bits),
        code_bytes=found.layout.code_bytes,
        vector_functions=found.vector_functions,
        functions=int(found.functions.unwind.sum()),
        asks_cpu=found.asks_cpu,
        refusal=found.refusal,
    )


class _Judge:
    """Weighs the evidence of one file."""

    def __init__(self, found: Findings) -> None:
        self.found, self.open = found, Exposure(found)
        self.given_up: set[str] = set()
        """Features of whose users some may still be reached by calls that are none."""
        self.doubted: set[str] = set()
        """Features of which it is open whether tests of members of objects stand before them, or far from the start."""
        self.ordinary = Ordinary.of(found, self.open.vector)

    def verdicts(self) -> dict[str, Verdict]:
        features = self.found.features
        # What others are a precondition of comes first: a doubt about it is one about them, too.
        found = {feature: self.verdict(feature) for feature in sorted(features, key=lambda f: -len(implied(f)))}
        # Uses of what has it as a precondition count there, on the paths to which tests may have stood unseen till now.
        again = [feature for feature, verdict in found.items() if verdict.reason == _INEVITABLE]
        found |= {feature: self.verdict(feature) for feature in again}
        dispatched = {feature for feature, verdict in found.items() if verdict.answer == "dispatched"}
        return {feature: self._behind_others(feature, found[feature], dispatched) for feature in features}

    def _behind_others(self, feature: str, verdict: Verdict, dispatched: set[str]) -> Verdict:
        """What is open about exports is not on CPUs without what all such code uses besides, where that is chosen.

        Who starts by himself what uses both may ask for neither.
        """
        if verdict.reason not in (_BY_EXPORT, _BY_METHOD):
            return verdict
        left = self.open.users(feature)
        left = left & reduce(np.logical_or, (self.open.reached(start, feature) for start in _STARTS))
        kinds: tuple[str, ...] = ()
        for other in sorted(dispatched, key=lambda f: (-len(implied(f)), f)):
            using = self.found.using(other)
            if feature not in implied(other) and (left & using).any():
                kinds, left = (other, *(kind for kind in kinds if other not in implied(kind))), left & ~using
        if left.any() or not kinds:
            return verdict
        given = tuple((kind,) for kind in sorted(kinds))
        return replace(verdict, reason=f"{verdict.reason[:-1]}, {in_words(given)}.", given=given)

    def verdict(self, feature: str) -> Verdict:
        """The verdict by what the CPU told; in doubt where other signs of that may stand before all of it."""
        verdict = self._verdict(feature)
        if verdict.answer == "required" and feature in UNDECODED:
            return Verdict("unknown", _UNREAD, verdict.function, verdict.path)
        for hint in self.found.hints if verdict.answer == "required" else ():
            # By attempts a program asks all the same, where it is not seen to use this in any case.
            if hint.results and verdict.reason == NOTHING_ASKS:
                return Verdict("unknown", hint.reason, verdict.function, verdict.path)
            if self.found.leads_past(hint, feature) and self._is_doubted_by(hint, feature):
                return Verdict("unknown", hint.reason, verdict.function, verdict.path)
        return verdict

    def _is_doubted_by(self, hint: Hint, feature: str) -> bool:
        """Whether all that load, start and exports lead to is tested where such signs count."""
        with self.found.trusting(hint):
            judge = _Judge(self.found)
            open_use = judge._reached("load", feature) or judge._reached("exports", feature)
            doubted = not open_use and judge._verdict(feature).answer != "required"
        self._look_anew()
        return doubted

    @property
    def _baseline(self) -> Baseline:
        return Baseline(self.found, self.open, self.ordinary)

    def _look_anew(self) -> None:
        """More is known of tests and false calls, or less once again."""
        self.open = Exposure(self.found)

    def _verdict(self, feature: str) -> Verdict:
        found = self.found
        if found.needs_floats(feature):
            return Verdict("unknown", _OF_FLOATS)
        users = found.using(feature)
        at_load = self._reached("load", feature)
        if at_load and self._is_tested_in_objects(feature, users):
            self.doubted |= implied(feature)
            return Verdict("unknown", _IN_OBJECTS, *at_load)
        if at_load and (not found.asks_cpu or len(at_load[1]) <= CLOSE or self._baseline.has(feature, users)):
            return self._on_some_cpus(feature, at_load)
        if at_load:
            self.doubted |= implied(feature)
            return Verdict("unknown", _FAR_REASON, *at_load)
        by_main = self._reached("main", feature) if len(found.graph.own_mains) else None
        if by_main and len(by_main[1]) <= _CLOSE_TO_MAIN and not self._is_tested_in_objects(feature, users):
            return self._on_some_cpus(feature, by_main, "main")
        if not found.asks_cpu:
            return self._without_query(feature, users)
        by_export = self._reached("exports", feature)
        open_users = self.open.users(feature)
        if self._baseline.has(feature, users):
            put_off = sorted(found.guards.put_off)
            if 2 * open_users[put_off].sum() > open_users.sum():
                return Verdict("unknown", _NOT_FOLLOWED, *(by_export or ()))
            return Verdict(
                "required", "The file was compiled for it as a whole: ordinary code uses it.", *(by_export or ())
            )
        # What a program exports is for the plugins that it loads itself.
        if by_export and not found.layout.is_program and self._unguarded(feature, open_users):
            return Verdict("unknown", _BY_EXPORT, *by_export)
        by_method = self._reached("methods", feature)
        if by_method and len(by_method[1]) <= CLOSE:
            return Verdict("unknown", _BY_METHOD, *by_method)
        by_pointer = self._reached("pointers", feature)
        if by_pointer and len(by_pointer[1]) <= CLOSE:
            return Verdict("unknown", _BY_POINTER, *by_pointer)
        named = self._reached_by_name(feature)
        if named:
            return Verdict("unknown", NAMED, *named)
        if self._is_beside_library(feature, users):
            return Verdict("unknown", _BESIDE)
        if feature in WIDE and self._is_wide_in_part(feature, open_users):
            return Verdict("unknown", _IN_PART, *(by_export or ()))
        picked = self._reached("choices", feature, Exposure.users) is not None
        despite = self._chosen(feature) if picked else None
        despite = despite or self._inevitable(feature)
        despite = despite or (self._doubtfully_chosen(feature) if picked else None) or self._mistaken(feature)
        if despite:
            return despite
        loose = np.flatnonzero(open_users & self._not_told_apart(feature) & ~found.called & found.pointed)
        if feature in WIDE and len(loose) and self._own_code_is_wide:
            return Verdict("unknown", _LOOSE_REASON, int(loose[0]))
        farther_on = self._farther_on(feature, open_users)
        if farther_on:
            return farther_on
        left_over = found.for_any_cpu(open_users & ~found.clones(feature) & found.alive)
        if len(left_over):
            return Verdict("unknown", _LEFT_OVER, int(left_over[0]))
        return Verdict("dispatched", f"Reached only behind a test of the CPU ({', '.join(found.asks_cpu[:3])}).")

    def _is_beside_library(self, feature: str, users: np.ndarray) -> bool:
        """Whether a static program uses a feature where no test stands, and only the C library's versions are chosen.

        The tests are the library's own then, and say nothing of the program's code.
        """
        found = self.found
        static = found.layout.is_program and not found.layout.elf.interpreter
        if not static or not len(found.resolvers) or not found.asks_before_main:
            return False
        own = users & self._not_told_apart(feature) & self.open.users(feature)
        free, guarded = self.open.callers(feature, own)
        return not guarded and bool(free or (own & found.pointed).any())

    def _is_tested_in_objects(self, feature: str, users: np.ndarray) -> bool:
        """Whether each way from a start passes a test of a member that may be one with what the CPU told."""
        if not self.found.fills_objects:
            return False
        with self.found.suspecting():
            tested = self._reached("load", feature) is None and not self._baseline.has(feature, users)
        self._look_anew()
        return tested

    def _on_some_cpus(self, feature: str, at_load: tuple[int, tuple[str, ...]], start: str = "load") -> Verdict:
        """The verdict where a start leads to the use, perhaps behind tests for something else alone."""
        found = self.open.circumstances(feature, start)
        if found is None:
            return Verdict("unknown", _MANY_WAYS, *at_load)
        given = _kinds(unshielded(found, feature))
        return Verdict("required", CONTRADICTED.format(in_words(given)) if given else AT_LOAD, *at_load, given)

    def _chosen(self, feature: str) -> Verdict | None:
        """The verdict where code that asks the CPU picks a version that uses more than it asked for."""
        condition = self.open.circumstances_of_choices(feature)
        kinds = _kinds(unshielded(condition, feature)) if condition else ()
        if not kinds:
            return None
        answer: Answer = "required" if self.found.layout.is_program else "unknown"
        return Verdict(answer, MISCHOSEN.format(in_words(kinds)), given=kinds)

    def _doubtfully_chosen(self, feature: str) -> Verdict | None:
        """The same where other code that picks it is not understood, or where it may be picked on any CPU."""
        terms = unshielded(self.open.exposing_choices(feature), feature)
        kinds = _kinds(terms)
        return Verdict("unknown", MISCHOSEN.format(in_words(kinds)), given=kinds) if terms else None

    def _mistaken(self, feature: str) -> Verdict | None:
        """The verdict where ordinary code calls what uses a feature behind tests for others alone."""
        marks = self.open.mistaken(feature)
        return Verdict("unknown", MISTAKEN) if marks.any() and self.open.callers(feature, marks)[0] else None

    def _inevitable(self, feature: str) -> Verdict | None:
        """The verdict of a program that uses a feature whichever way its tests go."""
        doubted = (self.given_up | self.doubted).intersection(self.found.resting_on(feature))
        if doubted or not self.found.layout.is_program:
            return None
        condition = self.open.inevitability(feature)
        if shielded(condition, feature):
            return None
        return Verdict("required", _INEVITABLE, given=_kinds(unshielded(condition, feature)))

    def _unguarded(self, feature: str, users: np.ndarray) -> bool:
        """Whether too much of what uses a feature is called without a test to call it dispatched."""
        # What the file calls itself, it may call behind a test; the rest is there for others.
        roots = self.found.export_roots(feature)
        if 2 * int((users & ~self.found.called)[roots].sum()) > len(roots):
            return True
        if feature in WIDE:
            density = self.ordinary.density
            dense = density.share < MIXED and (density.vector >= MANY or not density.legacy)
            dense = dense and users.sum() >= _RARE * density.vector
            return dense or self._is_wide_in_exports(feature, users) or self._is_called_plainly(feature, users)
        free, guarded = self.open.callers(feature, users)
        if free > guarded or feature not in LEGACY:
            return free > guarded
        exported = users & self.open.reached("exports", feature) & ~self.found.clones(feature)
        return int(exported.sum()) >= max(PART, EXPORTED * users.sum())

    def _is_called_plainly(self, feature: str, users: np.ndarray) -> bool:
        """Whether most users are called past any test, and neither test nor name tells one of them apart."""
        if users.sum() < PART or (users & self.found.clones(feature)).any():
            return False
        free, guarded = self.open.callers(feature, users)
        return not guarded and 2 * free > users.sum()

    def _is_wide_in_exports(self, feature: str, users: np.ndarray) -> bool:
        """Whether much of what is exported was compiled for more than the rest, and is called as any code is.

        So it is where one library of several that are linked into a file has wider options, and where the linker keeps
        that copy of a function of a header which a wide part brought.
        """
        calls = self.found.graph.calls
        exported = self.open.reached("exports", feature)
        vector, legacy = int((self.ordinary.vector & exported).sum()), int((self.ordinary.legacy & exported).sum())
        if vector < PART or 3 * vector < legacy:
            return False
        into = self._plain_calls(feature, users)
        return len(distinct(calls.source[into[exported[calls.source[into]]]])) >= PART

    def _is_wide_in_part(self, feature: str, users: np.ndarray) -> bool:
        """Whether a stretch of the file was compiled for more than the rest, and all over called as any code is.

        Linkers keep what one library is made of together, and no legacy SSE is among that. Its callers stand elsewhere:
        what calls itself alone is a set of kernels to which pointers lead.
        """
        stretch, many = self._stretches
        using = np.flatnonzero(users & self._not_told_apart(feature))
        if not (np.bincount(stretch[using], minlength=len(many)) >= many).any():  # as of most features
            return False
        calls, into = self.found.graph.calls, self._plain_calls(feature, users)
        elsewhere = into[stretch[calls.source[into]] != stretch[calls.target[into]]]

        def kinds(column: np.ndarray, over: np.ndarray) -> np.ndarray:
            """How many different ones of a column of the calls `over` lead into each stretch."""
            pairs = distinct(stretch[calls.target[over]] * len(stretch) + column[over])
            return np.bincount(pairs // len(stretch), minlength=len(many))

        return bool(((kinds(calls.source, elsewhere) >= PART) & (kinds(calls.target, into) >= many)).any())

    @cached_property
    def _stretches(self) -> tuple[np.ndarray, np.ndarray]:
        """For each function the number of the stretch without legacy SSE that it lies in, and for each stretch how many
        functions are much of it: of a short one more than there are.
        """
        stretch = np.cumsum(self.ordinary.legacy)
        size = np.bincount(stretch[self.ordinary.vector], minlength=len(stretch) + 1)
        return stretch, np.where(size >= _STRETCH, size // 4, len(stretch) + 1)

    def _plain_calls(self, feature: str, users: np.ndarray) -> np.ndarray:
        """Calls of users that no name or choice tells apart, by ordinary code that does not ask the CPU."""
        calls = self.found.graph.calls
        source = self.open.plain(feature, users) & ~self.open.asking
        into = calls.into(users & self._not_told_apart(feature))
        return into[self.open.calls(feature)[into] & source[calls.source[into]]]

    def _not_told_apart(self, feature: str) -> np.ndarray:
        """Functions that no name or choice tells apart."""
        return ~self.found.clones(feature) & ~self.open.chosen

    @cached_property
    def _own_code_is_wide(self) -> bool:
        """Whether a program itself, not only libraries linked into it, runs VEX code from its start."""
        return self.found.layout.is_program and bool(self._reached("load", "avx"))

    def _reached(
        self, start: str, feature: str, among: Callable[[Exposure, str], np.ndarray] = Exposure.unexcused
    ) -> tuple[int, tuple[str, ...]] | None:
        """An open user reached from `start`, of those that `among` marks; its path is looked at closely."""
        found = self.found
        for _ in range(_PATH_TRIES):
            seen = self.open.reached(start, feature)
            hit = np.flatnonzero(self.open.users(feature) & seen & among(self.open, feature))
            if not len(hit):
                return None
            parent = self.open.ways(start, feature)
            # Before what has the name of a version a test may stand unseen, however near it is.
            first = nearest(parent, hit) if among is Exposure.unexcused else int(hit[0])
            if not found.look_closer(steps_to(parent, first), self.open.calls(feature)):
                return first, path_to(found.layout, found.functions, parent, first)
            self._look_anew()
        self.given_up.add(feature)
        return None

    def _farther_on(self, feature: str, users: np.ndarray) -> Verdict | None:
        """The verdict of a program in which few steps lead to a user that no name or choice tells apart, over tables in
        the data: from what stands behind a test for less, or from load or start past any test, or whatever tests find.

        Libraries are full of classes that their callers choose among, and Go's types of methods found by reflection.
        """
        layout, functions = self.found.layout, self.found.functions
        unexcused = users & self._not_told_apart(feature)
        if not layout.is_program or len(layout.go.start) or not unexcused.any():
            return None
        terms = unshielded(self.open.behind_tests(feature, unexcused) or NEVER, feature)
        if terms:
            kinds = _kinds(terms)
            return Verdict("unknown", MISCHOSEN.format(in_words(kinds)), given=kinds)
        seen, parent = self.open.near(feature)
        hit = np.flatnonzero(unexcused & seen)
        if len(hit):
            first = nearest(parent, hit)
            path = path_to(layout, functions, parent, first)
            return Verdict("unknown", _BY_TABLE, first, path) if len(path) <= CLOSE else None
        condition = self.open.near_circumstances(feature, unexcused)
        if condition is None or shielded(condition, feature):
            return None
        return Verdict("unknown", _BY_TABLE, int(np.flatnonzero(unexcused)[0]))

    def _reached_by_name(self, feature: str) -> tuple[int, tuple[str, ...]] | None:
        """A version by name that load or start reaches, also by the address of a function over few steps."""
        at_load = self._reached("load", feature, Exposure.excused)
        by_pointer = at_load or self._reached("pointers", feature, Exposure.excused)
        return at_load or (by_pointer if by_pointer and len(by_pointer[1]) <= CLOSE else None)

    def _without_query(self, feature: str, users: np.ndarray) -> Verdict:
        by_export = self._reached("exports", feature) or ()
        if not (users & self.found.alive).any():
            return Verdict("unknown", _UNUSED)
        if self._baseline.is_recorded(feature):
            return Verdict("required", _RECORDED, *by_export)
        whole = self.found.layout.elf.interpreter or self.ordinary.density.share <= MIXED or feature not in WIDE
        if feature in LEGACY and "avx" in self.found.features:
            # The versions for SSE4 beside those for AVX are as little the library's baseline as these.
            whole = self._without_query("avx", self.found.using("avx")).answer == "required"
        if feature in ON_PURPOSE and users.sum() < MANY:
            whole = False
        offered = not by_export and self._is_offered_by_name(feature, users)
        if offered and self.found.is_offered_in_versions(feature):
            return Verdict("dispatched", _OFFERED)
        if offered or self.found.clones(feature)[users].all():
            whole = False
        if whole or self.found.layout.elf.type == ET_EXEC:
            return Verdict("required", NOTHING_ASKS, *by_export)
        return Verdict("unknown", THEIR_CALLER_MAY, *by_export)

    def _is_offered_by_name(self, feature: str, users: np.ndarray) -> bool:
        """Whether exports that are named for it lead to all that is used of a feature (the JDK's libsimdsort)."""
        named = self.found.named_exports(feature)
        if not len(named):  # as in most files, which are spared the rest
            return False
        return not (users & self.found.alive & ~reach(self.found.graph.leads, named)[0]).any()


def _kinds(terms: tuple[Term, ...]) -> Kinds:
    return kinds_of(terms, {*names().values()} - {*BASELINE})


def _lower_levels(verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
    """What needs AVX has what came before AVX: where the one is required, so are the others."""
    levels = [verdicts[feature] for feature in ("avx512f", "avx2", "avx") if feature in verdicts]
    if not any(verdict.answer == "required" and not verdict.given for verdict in levels):
        return verdicts
    reason, below = "The file needs AVX, and every CPU with AVX has this.", implied("avx") - {"avx"}
    return {
        feature: Verdict("required", reason) if feature in below and verdict.answer != "required" else verdict
        for feature, verdict in verdicts.items()
    }


def _use(found: Findings, feature: str, verdict: Verdict) -> IsaUse:
    address, holder = found.first_of(feature, verdict.function)
    text, code = _disassembly(found, address)
    return IsaUse(
        feature=feature, answer=verdict.answer, reason=verdict.reason, count=found.count(feature), address=address,
        code=code, text=text, function=_name(found, holder), call_path=verdict.path, given=verdict.given,
    )  # fmt: skip


def _name(found: Findings, function: int) -> str:
    return found.layout.name(int(found.functions.start[function]))


def _disassembly(found: Findings, address: int) -> tuple[str, str]:
    """Text and bytes of one instruction, the text empty where no decoder knows it."""
    instruction = decode_at(found.layout, address, found.bits)
    if instruction is None:
        return "", found.layout.bytes_at(address, address + 8).hex()
    text = iced.Formatter(iced.FormatterSyntax.INTEL).format(instruction)
    return text, found.layout.bytes_at(address, address + instruction.len).hex()
