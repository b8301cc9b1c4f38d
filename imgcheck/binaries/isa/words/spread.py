"""How what the CPU told spreads through a file whose code is made of words, and what runs only behind a test of it.

As for x86 (x86/guards.py): from functions that report features and instructions that read them to the variables that
hold them, to callers and to parameters. Each round follows the functions that the round before made interesting.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from imgcheck.binaries.elf import PF_W
from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    bit_conditions,
    either,
    opposite,
    shielded,
    understood,
    understood_wholly,
)
from imgcheck.binaries.isa.guarded import Pieces
from imgcheck.binaries.isa.names import analysis, matches, queries
from imgcheck.binaries.isa.ordered import distinct, numbers, within
from imgcheck.binaries.isa.queries import foreign
from imgcheck.binaries.isa.reach import reach
from imgcheck.binaries.isa.signs import Hint
from imgcheck.binaries.isa.values import Frame, Options, Value, Word, constant, joined, tells
from imgcheck.binaries.isa.words.code import Code, Convention
from imgcheck.binaries.isa.words.memory import OBJECT
from imgcheck.binaries.isa.words.state import FUNCTION, NOTHING, QUERIED, Known
from imgcheck.binaries.isa.words.surroundings import Flow, Given, Surroundings, Told
from imgcheck.binaries.isa.words.walk import Walk
from imgcheck.binaries.kernels.arrays import holding

_ROUNDS, _NEAR, _FAR = 8, 2, 4
"""Rounds in all, and those in which what is not understood is passed on as well; in doubt it is handed back in a few
more, not in all: in a static program, anything may come of what the C library asks.
"""
_LONGEST = 1 << 15
_TOTAL = 200_000
"""Bytes of a function, and of all functions, that are followed."""
_ACCESSOR, _INITIALISER = 256, 2048
"""Bytes of functions that hand on what the CPU told as a result, and that keep it in variables."""
_PARTS = 16
"""Entries of a function that are followed besides its first."""
_HANDED = 64
"""Bytes before a call in which its parameters are made."""
_READERS = 3000
"""A variable that more functions read is no CPU flag."""
_ALL_BITS = (1 << 64) - 1
_END = 1 << 63
"""No address is beyond; sums of what is known may be."""
_POINTER = 8
_LEAF = 2048
"""Bytes of a function without calls whose registers are looked at."""
_ANCHORED = 1 << 12
"""Bytes that one address stands for, at most, in code that uses it for several variables."""


@dataclass
class Guards:
    """What is known of functions that ask the CPU or are told what it has."""

    flows: dict[int, Flow] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    """Functions that ask but are not followed: all that they do counts as behind a test."""
    finds_words: bool = False
    """Whether one that walks over the auxiliary vector keeps what it finds there."""

    def handed_out(self, feature: str) -> dict[int, Condition]:
        """Addresses of code that is chosen by tests which are understood, and do not shield `feature`."""
        found: dict[int, Condition] = {}
        for flow in self.flows.values():
            for address, condition in flow.chosen.items():
                found[address] = either(found.get(address, NEVER), condition)
        return {at: told for at, told in found.items() if understood_wholly(told) and not shielded(told, feature)}

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces.of(piece for flow in self.flows.values() for piece in flow.guarded)

    @property
    def conditions(self) -> list[Condition]:
        """What the numbers of `at` stand for."""
        return self._pieces.conditions

    def at(self, functions: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """The number of the condition under which each address, inside the function of the same row, is reached."""
        pieces = self._pieces
        at = holding(pieces.start, pieces.end, addresses)
        out = np.zeros(len(addresses), np.int64)
        out[at >= 0] = pieces.number[at[at >= 0]]
        if self.skipped:
            out[np.isin(functions, list(self.skipped))] = 1
        return out

    def exposing(self, feature: str) -> np.ndarray:
        """Which conditions, by number, do not shield `feature`."""
        return self._pieces.exposing(feature)


class Spread:
    """The rounds, for one file."""

    def __init__(
        self,
        code: Code,
        walk: type[Walk],
        imported: dict[str, np.ndarray],
        by_file: np.ndarray,
        users: np.ndarray,
        hint: Hint | None = None,
        far: bool = False,
    ) -> None:
        """`imported`: names of functions and data of other files that report features, with their slots; `by_file`
        marks functions that read them from a file, which are not followed, as those are not that choose by themselves;
        `users` marks those that use a feature; `hint`: what else to take for something that the CPU told; `far`:
        whether what is not understood is handed back to more callers.
        """
        self.code, self.layout, self.functions, self._walk = code, code.layout, code.functions, walk
        self.machine = code.layout.elf.machine
        self.guards = Guards(skipped=set(np.flatnonzero(by_file | code.choosers).tolist()))
        self._users, self._hint = users, hint
        self._near = _FAR if far else _NEAR
        self._names = list(imported)
        self._slots = {int(slot): i for i, slots in enumerate(imported.values()) for slot in slots.tolist()}
        self._variables: dict[int, dict[int, Known]] = defaultdict(dict)
        """Address -> what each function that writes to it leaves there."""
        self._owned: dict[int, frozenset[int]] = defaultdict(frozenset)
        """Function -> variables that it writes to."""
        self._widths: dict[int, int] = {}
        """Address of a variable -> the bytes that are written to it."""
        self._results: dict[int, Told] = {}
        self._given: dict[int, Given] = {}
        self._distances_in: dict[int, np.ndarray] = {}
        """Function -> how far it goes from bases."""
        self._changing: dict[int, frozenset[int] | None] = {}
        """Function -> general registers that it may change at most."""
        self._keeping: dict[int, bool] = {}
        """Addresses that are branched to, and whether only registers are saved or restored there."""
        self._budget = _TOTAL
        self._round = 0
        self._by_file = set(np.flatnonzero(by_file).tolist())
        self._starts = set(self.functions.start.tolist())

    @cached_property
    def askers(self) -> np.ndarray:
        """Marks functions that ask a function of this file that reports features as the C library's does."""
        marks = np.zeros(len(self.functions), bool)
        marks[list(self._callers(self._reporters))] = True
        return marks

    def _take_as_told(self) -> set[int]:
        """Takes what those that read a file return and store for what the CPU told; what functions this concerns."""
        sites, targets = self.code.addresses
        held = self.functions.holding(sites)
        stored = np.isin(held, list(self._by_file)) & self.code.is_stored_to(sites)
        for index, address in zip(held[stored].tolist(), targets[stored].tolist(), strict=True):
            self._variables[address][index] = True, None
        self._results |= dict.fromkeys(self._by_file, Told((True, None)))
        return self._callers(self._by_file) | self._readers(set(targets[stored].tolist()))

    def run(self, askers: np.ndarray, resolvers: np.ndarray) -> Guards:
        """Follows the functions that `askers` marks, the resolvers of IFUNCs, and those that they lead to."""
        for index in resolvers.tolist():
            self._given[index] = self._of_resolver
        pending = set(np.flatnonzero(askers).tolist()) | set(resolvers.tolist()) | self._take_as_told()
        pending |= set(np.flatnonzero(self._seekers).tolist()) | (self._hint.functions if self._hint else set())
        for self._round in range(_ROUNDS):
            pending = self._worth_following(self._follow_all(pending - self.guards.skipped))
            if not pending:
                break
        keepers = self._results.keys() | {index for written in self._variables.values() for index in written}
        self.guards.finds_words = bool(self._seekers[list(keepers)].any())
        return self.guards

    def _worth_following(self, pending: set[int]) -> set[int]:
        """Those that lead to a use of a feature or choose one, and those as small as what hands knowledge on."""
        chosen = np.array(sorted(pending), np.int64)
        size = self.functions.end[chosen] - self.functions.start[chosen]
        small = size <= np.where(self._storing[chosen], _INITIALISER, _ACCESSOR)
        return set(chosen[self._deciding[chosen] | small].tolist())

    @cached_property
    def _storing(self) -> np.ndarray:
        """Functions that store to variables."""
        sites, _ = self.code.addresses
        return self.code.holding(sites[self.code.is_stored_to(sites)])

    @cached_property
    def _deciding(self) -> np.ndarray:
        """Functions that lead to a use, or take the address of one that does."""
        sites, targets = self.code.addresses
        leads, _ = reach(self.code.calls.backwards, np.flatnonzero(self._users))
        taken = self.code.index(targets)
        return leads | self.code.holding(sites[(taken >= 0) & leads[taken]])

    def _follow_all(self, pending: Iterable[int]) -> set[int]:
        """Follows functions; those that what is new concerns come back."""
        told, stored, given = set(), set(), set()
        size = (self.functions.end - self.functions.start).tolist()
        kept = self._budget // 2  # for what these lead to
        for index in sorted(pending, key=lambda index: (not self._deciding[index], size[index], index)):
            start, end = int(self.functions.start[index]), int(self.functions.end[index])
            if end - start > _LONGEST or end - start > self._budget - kept:
                self.guards.skipped.add(index)
                continue
            self._budget -= end - start
            words = self.code.word_at(np.arange(start, end - 3, 4)).tolist()
            if not words:
                continue
            flow = self.guards.flows[index] = self._follow(index, start, words)
            stored |= self._assign(index, flow)
            if self._tells(flow.told) and self._results.get(index) != flow.told:
                self._results[index] = flow.told
                told.add(index)
            given |= self._hand_over(flow)
        return self._callers(told) | self._readers(stored) | given

    def _follow(self, index: int, start: int, words: list[int]) -> Flow:
        """What is known of a function, and of what else stands in its place: few functions of stripped files are told
        apart where nothing is unwound.
        """
        flow, unreached = self._walked(index, start, words, self._given.get(index, Given()))
        for _ in range(_PARTS):
            if not unreached:
                break
            first = unreached[0]
            self._budget -= start + 4 * len(words) - first
            if self._budget < 0:
                break
            part, left = self._walked(index, first, words[(first - start) // 4 :], Given())
            flow.add(part, set(unreached))
            unreached = [address for address in left if address in unreached]
        return flow

    def _walked(self, index: int, start: int, words: list[int], given: Given) -> tuple[Flow, list[int]]:
        """What is known of one part of it, and the blocks of code that are not reached."""
        for _ in range(2):  # the first time it is not known yet which variables it writes to
            walk = self._walk(start, words, self._surroundings(index), given, self._owned[index])
            flow = walk.run()
            if flow.assigned.keys() <= self._owned[index]:
                break
            self._owned[index] |= flow.assigned.keys()
        return flow, [address for address in walk.blocks.unreached if words[(address - start) // 4]]

    def _tells(self, told: Told) -> bool:
        """Whether a function hands back what the CPU told, or the address of an object with it."""
        is_told, value = told.result
        filled = [known for places in told.filled.values() for _, known in places.values()]
        results = [*filled, *([value] if is_told else [])]
        if any(self._is_knowledge(result, self._near) for result in results):
            return True
        return isinstance(value, Options) and self._holds(value.constant)

    def _is_knowledge(self, value: Value, near: int = _NEAR) -> bool:
        """Whether something that rests on what the CPU told is passed on: far from the query only what is understood.

        What is not may be any result at all there.
        """
        if self._round < near:
            return not isinstance(value, Options) or tells(value)
        if isinstance(value, Options):
            return any(understood(condition) for _, condition in value.numbers)
        return isinstance(value, Word) and any(understood(held) or understood(clear) for _, held, clear in value.bits)

    def _holds(self, address: int | None) -> bool:
        """Whether something that the CPU told lies in the object at an address."""
        if self._hint and address in self._hint.texts:
            return True
        return address is not None and any(address + at in self._variables for at in range(OBJECT))

    def _assign(self, index: int, flow: Flow) -> set[int]:
        """Variables of which something else is known than before."""
        changed = set()
        self._widths |= flow.widths
        for address, (told, value) in flow.assigned.items():
            knows = told and self._is_knowledge(value)
            if not knows and address not in self._variables:
                continue
            if self._variables[address].get(index) != (told, value):
                self._variables[address][index] = told, value
                changed.add(address)
        return changed

    def _hand_over(self, flow: Flow) -> set[int]:
        """Notes what calls hand over; the functions that are handed something new."""
        changed = set()
        for target, handed in flow.passes.items():
            index = self._function(target)
            if index < 0 or target in self.code.stubs:  # they jump to other files' functions, and do nothing else
                continue
            before = self._given.get(index)
            known = before
            for given in handed:
                known = given if known is None else _joined(known, given)
            if known is not None and known != before:
                self._given[index] = known
                changed.add(index)
        return changed

    def _callers(self, called: set[int]) -> set[int]:
        calls = self.code.calls
        marks = np.zeros(len(self.functions) + 1, bool)
        marks[list(called)] = True
        return set(calls.source[marks[calls.target]].tolist())

    def _readers(self, variables: set[int]) -> set[int]:
        """Functions that refer to one of these variables, directly or through a pointer to it.

        Those that use or choose something, and small ones that may hand it on, may refer to the beginning of an object
        that has it as a member.
        """
        if not variables:
            return set()
        widths = ((address, self._widths.get(address, _POINTER)) for address in variables)
        held = np.array(sorted({address + i for address, width in widths for i in range(width)}), np.int64)
        known = ((address, self._variable(address, 0, -1)) for address in variables)
        told = {address for address, held in known if held and self._is_knowledge(held[1])}
        before = np.array(sorted({address - i for address in told for i in range(OBJECT)}), np.int64)
        sites, targets = self.code.addresses
        pointers = self.layout.pointers
        near = within(targets, held) | within(targets, pointers.slot[within(pointers.target, held)])
        holder = self.functions.holding(sites)
        for followed in (self._deciding | self._is_small)[holder], self._deciding[holder]:
            further = followed & within(targets, before)
            further |= self._by_anchor(holder, targets, followed, np.array(sorted(told), np.int64))
            readers = numbers(holder[near | further], len(self.functions))
            if len(readers) <= _READERS:
                return set(readers.tolist())
        return set()

    @cached_property
    def _is_small(self) -> np.ndarray:
        """Functions as small as what hands on what it reads."""
        return self.functions.end - self.functions.start <= _ACCESSOR

    def _by_anchor(
        self, holder: np.ndarray, targets: np.ndarray, followed: np.ndarray, variables: np.ndarray
    ) -> np.ndarray:
        """Which of the references that `followed` marks are to an address from which their function may go on to one of
        the variables.

        GCC refers to several variables by one address that it keeps (-fsection-anchors).
        """
        found = np.zeros(len(targets), bool)
        first, until = np.searchsorted(variables, targets), np.searchsorted(variables, targets + _ANCHORED)
        at = np.flatnonzero((until > first) & followed)
        at = at[np.argsort(~self._deciding[holder[at]], kind="stable")]
        for i in at[:_READERS].tolist():
            distances = variables[first[i] : until[i]] - targets[i]
            found[i] = np.isin(distances, self._distances(int(holder[i]))).any()
        return found

    def _distances(self, index: int) -> np.ndarray:
        if index not in self._distances_in:
            start, end = int(self.functions.start[index]), int(self.functions.end[index])
            words = self.code.word_at(np.arange(start, min(end - 3, start + _LONGEST), 4))
            self._distances_in[index] = distinct(self.code.distances(words))
        return self._distances_in[index]

    # What the walks ask

    def _surroundings(self, index: int) -> Surroundings:
        """Those of one function, made anew for each walk: kept, they would refer back to this, and the file's map could
        not be closed.
        """
        near = self._hint is not None and (index in self._hint.functions or not self._deciding[index])
        return Surroundings(
            called=self._called,
            asked=self._asked,
            variable=self._variable,
            initial=self._initial,
            pointer=self._pointer,
            holds=self._holds,
            fixed=self._fixed,
            is_data=self._is_data,
            is_code=self._starts.__contains__,
            table=self.code.table or 0,
            convention=self.code.go if self.layout.is_go(int(self.functions.start[index])) else Convention(),
            words=lambda number: self._words.get(number, Told()).result,
            is_sign=partial(self._is_sign, self._hint) if self._hint else None,
            keeps_registers=self._keeps_registers,
            changed=self._changed,
            compares=self._compares,
            by_tests=near and self._round < _NEAR,
        )

    @cached_property
    def _reporters(self) -> set[int]:
        """Functions of this file that are told the type of a word of the auxiliary vector: a static getauxval.

        glibc's knows both types with features; musl's knows one of its own, and is asked for theirs.
        """
        compared = [self.code.comparing(word, first=True) for word in self._words]
        known = np.logical_and.reduce(compared)
        for type_ in analysis()["queries"]["others"]["own"]:
            known |= self.code.comparing(type_, first=True) & self._is_small & self._handed_types
        return set(np.flatnonzero(known).tolist())

    @cached_property
    def _handed_types(self) -> np.ndarray:
        """Marks functions that are called with the type of a word with features as their first parameter."""
        handing = np.sort(np.concatenate([self.code.handing(word) for word in self._words]))
        sites, targets = self.code.branches
        before = np.append(-1, handing)[np.searchsorted(handing, sites)]
        marks = np.zeros(len(self.functions) + 1, bool)
        marks[self.code.index(targets[(before >= 0) & (sites - before <= _HANDED)])] = True
        return marks[:-1]

    @cached_property
    def _seekers(self) -> np.ndarray:
        """Marks functions that compare types of words of the auxiliary vector with those that tell of features."""
        first, *others = self._words
        compared = [self.code.comparing(n, first=False) for n in (*others, *analysis()["queries"]["others"]["types"])]
        return self.code.comparing(first, first=False) & np.logical_or.reduce(compared)

    def _called(self, target: int, first: Value) -> Told | None:
        slot = self.code.stubs.get(target)
        if slot in self._slots:
            return self._asked(self._slots[slot], first)
        index = self._function(target)
        if index in self._reporters:
            return self._word_of(first)
        return self._results.get(index)

    def _keeps_registers(self, target: int) -> bool:
        if target not in self._keeping:
            self._keeping[target] = self.code.keeps_registers(target)
        return self._keeping[target]

    def _compares(self, target: int) -> bool:
        return self.code.stubs.get(target) in self._comparing

    @cached_property
    def _comparing(self) -> frozenset[int]:
        """Slots of functions of other files that compare texts, as the name of the CPU with others."""
        slots = foreign(self.layout, analysis()["texts"]["functions"]).values()
        return frozenset(slot for each in slots for slot in each.tolist())

    def _changed(self, target: int) -> frozenset[int] | None:
        """What a function without calls names; compilers keep other registers over its calls (-fipa-ra)."""
        index = self._function(target)
        if index not in self._changing:
            self._changing[index] = self._named_in(index) if index >= 0 else None
        return self._changing[index]

    def _named_in(self, index: int) -> frozenset[int] | None:
        start, end = int(self.functions.start[index]), int(self.functions.end[index])
        if end - start > _LEAF:
            return None
        words = self.code.word_at(np.arange(start, end, 4))
        targets = self._branched_to(start, end, words)
        if np.any((targets < start) | (targets >= end)):
            return None
        return self.code.named(words)

    def _branched_to(self, start: int, end: int, words: np.ndarray) -> np.ndarray:
        """Where the direct branches between two addresses go, of the words that lie there."""
        number, distances = self.code.conditional(words)
        sites, targets = self.code.branches
        first, until = np.searchsorted(sites, (start, end))
        return np.append(targets[first:until], start + 4 * number + distances)

    def _is_sign(self, hint: Hint, site: int, target: int, arguments: list[Known]) -> bool:
        """Whether a call saves where to go on, or is one of what may tell something of texts and gets such a sign."""
        if site in hint.results:
            return True
        slot = self.code.stubs.get(target)
        if slot is not None and slot not in self.code.chosen_slots and site not in hint.readers:
            return False
        named = any(isinstance(value, Options) and value.constant in hint.texts for _, value in arguments)
        return named or (site in hint.readers and any(told for told, _ in arguments))

    def _function(self, target: int) -> int:
        return int(self.code.called(np.array([target]))[0]) if 0 <= target < _END else -1

    def _asked(self, number: int, first: Value) -> Told:
        name = self._names[number]
        if matches(name, queries(self.machine)["filling"]):
            return Told(filled={1: {0: self._word_of(first).result}})
        return self._word_of(first) if "auxv" in name else Told((True, None))

    def _word_of(self, type_: Value) -> Told:
        """What getauxval returns, by the type of the word that it is asked for."""
        number = type_.constant if isinstance(type_, Options) else None
        if number is None or number in queries(self.machine)["named"]:
            return Told((True, None))
        return self._words.get(number, Told())

    @cached_property
    def _words(self) -> dict[int, Told]:
        """The words of the auxiliary vector that tell of features, by their types."""
        found = {}
        for number, name in analysis()["queries"]["words"].items():
            bits = bit_conditions(name, self.machine)
            told = tuple((at, held, opposite(held)) for at, held in sorted(bits.items()))
            found[int(number)] = Told((True, Word(told, _ALL_BITS & ~sum(1 << at for at in bits))))
        return found

    @cached_property
    def _of_resolver(self) -> Given:
        """What the loader hands to an IFUNC's resolver: both words, the second in a structure (glibc, sys/ifunc.h)."""
        first, second = (told.result for told in self._words.values())
        return Given({0: first}, {1: {8: first, 16: second}})

    def _variable(self, address: int, distance: int, apart: int) -> Known | None:
        if self._hint and not distance and address in self._hint.texts:
            return True, None
        written = self._variables.get(address)
        if not written or distance >= self._widths.get(address, _POINTER):
            return None
        left = [value for index, (_, value) in written.items() if self.functions.start[index] != apart]
        if not left:
            return None
        value, *others = left
        for other in others:
            value = joined(value, ALWAYS, other, ALWAYS)
        return True, value

    def _is_data(self, address: int) -> bool:
        return any(s.vaddr <= address < s.vaddr + s.memsz for s in self.layout.elf.segments if s.flags & PF_W)

    def _initial(self, address: int, size: int) -> Value:
        number = self.layout.number_at(address, size)
        return None if number is None else constant(number)

    def _fixed(self, address: int, size: int) -> int | None:
        """A number in a segment that is not written to, or the address of a function in any."""
        pointer = self._pointer(address) if size == _POINTER else None
        if isinstance(pointer, Options):
            return pointer.constant
        number = self.layout.number_at(address, size)
        return number if number in self._starts or not self._is_data(address) else None

    def _pointer(self, address: int) -> Value:
        if address in self._slots:
            number = self._slots[address]
            is_function = matches(self._names[number], queries(self.machine)["functions"])
            return Frame((FUNCTION if is_function else QUERIED, number))
        pointers = self.layout.pointers
        is_one = 0 <= address < _END and address not in self.code.chosen_slots
        found = int(pointers.at(np.array([address]))[0]) if is_one else -1
        target = int(pointers.target[found]) if found >= 0 else -1
        return constant(target) if target > 0 else None


def _joined(one: Given, other: Given) -> Given:
    """What two calls hand over together: what both do, and that what one does may be what the CPU told."""

    def together(mine: dict[int, Known], theirs: dict[int, Known]) -> dict[int, Known]:
        found = {}
        for key in mine.keys() | theirs.keys():
            (a, x), (b, y) = mine.get(key, NOTHING), theirs.get(key, NOTHING)
            found[key] = a or b, joined(x, ALWAYS, y, ALWAYS) if x is not None and y is not None else None
        return {key: known for key, known in found.items() if known != NOTHING}

    parameters = one.objects.keys() | other.objects.keys()
    objects = {number: together(one.objects.get(number, {}), other.objects.get(number, {})) for number in parameters}
    return replace(one, values=together(one.values, other.values), objects=objects)
