"""How what the CPU told flows through one function of a machine whose code is made of words.

A forward pass over the blocks in reverse postorder, as for x86 (x86/flow.py), but smaller: what is known of registers,
of places on the stack and of variables, the flags, and under which condition each block runs. What instructions do is
told by a subclass for each machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise

from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    Labels,
    as_far_as_told,
    both,
    either,
    not_understood,
    opposite,
    understood_wholly,
)
from imgcheck.binaries.isa.dominators import Tree, met, postdominators, tree
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.values import (
    BELOW,
    BELOW_OR_EQUAL,
    BORROW,
    EQUAL,
    LESS,
    LESS_OR_EQUAL,
    SETTLED,
    Comparison,
    Frame,
    Options,
    Value,
    Word,
    added,
    constant,
    joined,
    low,
    mapped,
    numbered,
    outcome,
    replaced,
    shifted,
    summed,
    tells,
    truth,
    under,
)
from imgcheck.binaries.isa.words.code import Convention

STACK, QUERIED, FUNCTION, VARIABLE, PARAMETER = -1, -2, -3, -4, -16
"""Bases of places and addresses: the stack, data that tell of the CPU, functions that do, variables (by address), and
from the last on what the parameters point to, by their number."""
PARAMETERS = 8
"""Registers that hand over parameters, from `Walk.first` on; the first of them hands back the result."""
OBJECT = 64
"""Bytes of an object that a call gets by its address which are looked at."""
_EXIT = -1
_ABSENT = object()
_PASSES = 3
"""Over a function with loops: what the CPU told goes around one of them, and in it another."""
_MOST_PLACES = 400
"""Registers and other places of which something is known at once: each has a price at each return."""
_MOST_LEFT = 2000
"""Places, over all returns, of which is noted what is left there; at further ones only whether the CPU told it."""
_WIDEST = 8
_SIGN = 1 << 31
"""Below it a number is the same in 32 bits and in 64, with and without a sign."""
_GENERAL = 32
"""Numbers below are those of general registers."""
Place = int | tuple[int, int]
"""A register by its number, or a base and a displacement."""
Known = tuple[bool, Value]
"""Whether it rests on what the CPU told, and what is known of it."""
NOTHING: Known = False, None
Tested = Callable[[Comparison, int], Labels | None]
"""What holds where a test of a comparison is met, and where not: `outcome` or `mirrored`."""
Part = tuple[int, int, Known]
"""Something that the CPU told and that lies in an object: its distance from there, its bytes, and what is known."""
_MIRRORED = {BELOW: BELOW_OR_EQUAL, BELOW_OR_EQUAL: BELOW, LESS: LESS_OR_EQUAL, LESS_OR_EQUAL: LESS}
"""Of a test of how a number stands to a value the one of how the value stands to it where that is not so."""
_BIT, _EITHER = Word((), 1), truth(ALWAYS, ALWAYS)
"""A bit that has nothing to do with the CPU: as one of two numbers it can be told from others on another way."""
GOES_ON, TESTS, JUMPS, LEAVES, JUMPS_ANYWHERE = range(5)
"""What the end of a block does; leaving may be by a jump to another function."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What a word does to the order of things, and the address where it may go on besides the next."""

    kind: int = GOES_ON
    target: int = -1


@dataclass(frozen=True, slots=True)
class Told:
    """What a call of a function brings."""

    result: Known = NOTHING
    filled: dict[int, dict[int, Known]] = field(default_factory=dict)
    """By the number of a parameter that is an address: what lies at which distance from there afterwards."""


@dataclass(frozen=True, slots=True)
class Given:
    """What callers hand to a function: by the number of the parameter what it is, and what lies where it points to."""

    values: dict[int, Known] = field(default_factory=dict)
    objects: dict[int, dict[int, Known]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the file knows when one of its functions is looked at."""

    called: Callable[[int, Value], Told | None]
    """(address, first argument) -> what a call of that address brings, None where nothing is known of it."""
    asked: Callable[[int, Value], Told]
    """(number, first argument) -> the same for a function of another file that reports features."""
    variable: Callable[[int, int, int], Known | None]
    """(address, distance, start of a function) -> what other functions (with -1 all of them) leave in the variable at
    an address, which is longer than the distance in bytes; None where the CPU has no part in it."""
    initial: Callable[[int, int], Value]
    """(address, bytes) -> what lies there when the file is loaded."""
    pointer: Callable[[int], Value]
    """What the loader writes to an address."""
    holds: Callable[[int | None], bool]
    """Whether something that the CPU told lies in the object at an address."""
    fixed: Callable[[int, int], int | None]
    """(address, bytes) -> the number that lies there as long as the program runs; for all that can be told."""
    is_data: Callable[[int], bool]
    """Whether something can be stored at an address."""
    is_code: Callable[[int], bool]
    """Whether a function begins at an address."""
    table: int
    """Where the table of contents lies, on machines that have one in a register."""
    convention: Convention
    """What the function's language does with registers."""
    words: Callable[[int], Known]
    """What the word of the auxiliary vector tells that has a type."""
    is_sign: Callable[[int, int, list[Known]], bool] | None
    """(site, address, arguments) -> whether what a call of that address hands back is a sign of what the CPU has; None
    where none is looked for."""
    keeps_registers: Callable[[int], bool]
    """Whether what begins at an address only saves or restores registers for the function that goes there."""
    changed: Callable[[int], frozenset[int] | None]
    """General registers that a call of an address may change at most; None where that is open."""
    compares: Callable[[int], bool]
    """Whether a call of an address compares texts that it gets."""
    by_tests: bool = False
    """Whether what a function does behind a test of what the CPU told counts as told, too."""


@dataclass
class Flow:
    """What one function does with what the CPU told."""

    guarded: list[Guarded] = field(default_factory=list)
    """Ranges of addresses, sorted, and what is necessary for them to run; others run always."""
    told: Told = field(default_factory=Told)
    assigned: dict[int, Known] = field(default_factory=dict)
    """Variables that it writes to, by address, and what it leaves there."""
    widths: dict[int, int] = field(default_factory=dict)
    """How many bytes of each it writes, where that is known."""
    passes: dict[int, list[Given]] = field(default_factory=dict)
    """By the address of a function that it calls: what it hands over."""
    chosen: dict[int, Condition] = field(default_factory=dict)
    """Addresses of code that somebody may call from now on, and what is necessary for each to be handed out."""
    hides: bool = False
    """Whether it keeps what the CPU told where it is not followed to."""

    def add(self, other: "Flow", among: set[int]) -> None:
        """What is known of another part of the same code, whose blocks begin at the addresses `among`."""
        self.guarded = sorted([*self.guarded, *(piece for piece in other.guarded if piece[0] in among)])
        self.hides |= other.hides
        self.assigned = other.assigned | self.assigned
        self.widths = other.widths | self.widths
        for target, given in other.passes.items():
            self.passes.setdefault(target, []).extend(given)
        for address, condition in other.chosen.items():
            self.chosen[address] = either(self.chosen.get(address, NEVER), condition)


@dataclass(frozen=True, slots=True)
class Flags:
    """What the flags tell: the labels of each condition by its number, where they are understood."""

    told: bool
    labels: Callable[[int], Labels | None]
    origin: int = -1
    """The variable that is compared, if one is."""
    type: int | None = None
    """The number that something unknown is compared with: it may be the type of a word of the auxiliary vector."""
    site: int = -1
    """The address of the instruction that set them."""
    pair: tuple[int, int] | None = None
    """The register and the number that it compares."""


@dataclass(frozen=True, slots=True)
class Test:
    """What a conditional branch tests."""

    told: bool
    """It rests on what the CPU told."""
    labels: Labels | None
    origin: int
    type: int | None = None
    """As of the flags."""
    equal: bool | None = None
    """Whether it is met where what is compared is equal, if it asks for that."""
    pair: tuple[int, int] | None = None
    """A register that is the number then."""


@dataclass
class State:
    """What is known at one place of a function."""

    values: dict[Place, Value] = field(default_factory=dict)
    told: set[Place] = field(default_factory=set)
    """Places that hold what rests on what the CPU told."""
    flags: dict[int, Flags] = field(default_factory=dict)
    """By the number of the condition register's field, where there are several."""
    path: Condition = ALWAYS
    """What is necessary to arrive here."""
    word: Known = NOTHING
    """What a word of the auxiliary vector tells, where its type has just been found."""
    origins: dict[int, int] = field(default_factory=dict)
    """By a register's number the variable that it was read from, which the function writes to as well."""
    copied: dict[int, list["Part"]] = field(default_factory=dict)
    """By a register's number what was read into it as a whole, up to the end of the block."""

    def copy(self) -> "State":
        return State(dict(self.values), set(self.told), dict(self.flags), self.path, origins=dict(self.origins))

    def join(self, other: "State", initial: Callable[[int, int], Value], by_tests: bool = False) -> None:
        """The state where another way arrives too; `by_tests`: what differs then tells which of the two was taken."""
        parted = by_tests and self.path != other.path
        mine, theirs = self.values, other.values
        differing = [place for place, value in mine.items() if theirs.get(place, _ABSENT) is not value]
        for place in differing + [place for place in theirs if place not in mine]:
            one, two = self._at(self, place, initial), self._at(other, place, initial)
            value = joined(one, self.path, two, other.path) if one is not None and two is not None else None
            if (value != one and tells(value)) or (parted and value is None):
                self.told.add(place)
            if value is None and not _is_variable(place):
                mine.pop(place, None)
            else:
                mine[place] = value
        self.told |= other.told
        self.origins = {k: v for k, v in self.origins.items() if other.origins.get(k) == v}
        self._keep_flags(other)
        self.path = either(self.path, other.path)

    def widen(self, other: "State") -> None:
        """What is known at the beginning of a loop where `other` comes back to: of what changes, if the CPU told it."""
        kept = self.origins.keys()  # what was read from a variable is what it holds at first, or what some run has left
        for place in [place for place in self.values if place not in kept]:
            one, two = self.values[place], other.values.get(place)
            if one != two:
                told = place in self.told or place in other.told
                value = joined(one, ALWAYS, two, ALWAYS) if told and two is not None and one is not None else None
                if value is None and not _is_variable(place):
                    del self.values[place]
                else:
                    self.values[place] = value
        self.told |= {place for place in other.told - kept if not _is_variable(place) or place in self.values}
        self._keep_flags(other)

    def _keep_flags(self, other: "State") -> None:
        """Of the flags those that one instruction has set, whichever way one came."""
        before = other.flags
        self.flags = {k: v for k, v in self.flags.items() if k in before and before[k].site == v.site >= 0}

    def settle(self, variable: int) -> None:
        """A variable is seen not to hold what it held at first: it holds what some run has left."""
        self.values[VARIABLE, variable] = SETTLED
        for register in [register for register, origin in self.origins.items() if origin == variable]:
            self.values[register] = SETTLED

    @staticmethod
    def _at(state: "State", place: Place, initial: Callable[[int, int], Value]) -> Value:
        """What is known of a place; a variable that was not written on the way holds what it held at first."""
        if _is_variable(place) and place not in state.values:
            return initial(place[1], 4)
        return state.values.get(place)


def _is_variable(place: Place) -> bool:
    return isinstance(place, tuple) and place[0] == VARIABLE


class Blocks:
    """The basic blocks of a function, from the endings of its words."""

    def __init__(self, start: int, endings: list[Ending]) -> None:
        self.start, self.end = start, start + 4 * len(endings)
        inside = {e.target for e in endings if start <= e.target < self.end}
        behind = {start + 4 * (i + 1) for i, e in enumerate(endings) if e.kind != GOES_ON}
        edges = sorted({start, *inside, *(at for at in behind if at < self.end), self.end})
        self.ranges = list(pairwise(edges))
        number = {first: i for i, (first, _) in enumerate(self.ranges)}
        self.after: dict[int, list[int]] = {}
        anywhere = []
        for i, (_, end) in enumerate(self.ranges):
            ending = endings[(end - start) // 4 - 1]
            onward = [number[end]] if ending.kind in (GOES_ON, TESTS) and end in number else []
            if ending.kind in (TESTS, JUMPS) and ending.target in number:
                onward.append(number[ending.target])
            if ending.kind == JUMPS_ANYWHERE:
                anywhere.append(i)
            self.after[i] = list(dict.fromkeys(onward))
        entered = {0}.union(*self.after.values())
        cases = [i for i in self.after if i not in entered] if anywhere else []
        if cases:  # a table of jumps leads to what nothing else leads to: all of them over one empty block
            hub = len(self.ranges)
            self.ranges.append((self.end, self.end))
            self.after |= {i: [hub] for i in anywhere} | {hub: cases}
        self.jumps_inside = bool(cases)
        """Whether jumps by a register stay in the function."""
        self.tree: Tree = tree(0, self.after)
        self._back = self._postdominators(endings)

    def _postdominators(self, endings: list[Ending]) -> Tree:
        ends = {i: endings[(self.ranges[i][1] - self.start) // 4 - 1] for i in self.tree.order}
        leaves = (i for i, end in ends.items() if not self.after[i] or (end.target >= 0 and end.target not in self))
        return postdominators(self.tree, leaves, _EXIT)

    @property
    def unreached(self) -> list[int]:
        """Addresses of the blocks to which no way leads from the first: of other functions, or exception handlers."""
        return [first for i, (first, end) in enumerate(self.ranges) if i not in self.tree.place and first < end]

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end

    def met(self, number: int) -> int:
        """As dominators.met."""
        return met(number, self.tree, self._back)


def moved(address: Value, distance: int) -> Value:
    """An address and a distance from there."""
    return added(address, distance, 64) if isinstance(address, Frame | Options) else None


def inserted(value: Value, part: Value, at: int, bits: int) -> Value:
    """A value of 64 bits with a part in place of the bits from `at` on; of either nothing may be known."""
    value, part = (each if isinstance(each, Options | Word) else None for each in (value, part))
    return replaced(value, Word((), (1 << bits) - 1) if part is None else part, at, bits)


def mirrored(compared: Comparison, test: int) -> Labels | None:
    """What holds where the number stands so to the value that it is compared with, and where not."""
    if test == EQUAL:
        return outcome(compared, EQUAL)
    found = outcome(compared, _MIRRORED[test]) if test in _MIRRORED else None
    return found[::-1] if found else None


def compared(value: Value, other: Value, bits: int) -> tuple[Comparison | None, Tested]:
    """How one value stands to another of which either is a number, and how to test that."""
    for one, number, tested in ((value, other, outcome), (other, value, mirrored)):
        if isinstance(number, Options) and number.constant is not None:
            return Comparison(one, number.constant, bits, BORROW), tested
    return None, outcome


class Walk:
    """One pass over a function. A subclass tells what single words do, by `ending` and `step`."""

    def __init__(
        self, start: int, words: list[int], surroundings: Surroundings, given: Given, owned: frozenset[int]
    ) -> None:
        """`owned`: variables that the function itself writes to."""
        self.start, self.words, self.surroundings, self.owned = start, words, surroundings, owned
        self.flow = Flow()
        self.blocks = Blocks(start, [self.ending(word, start + 4 * i) for i, word in enumerate(words)])
        self.state = State()
        self.prepare()
        self._clear()
        for number in range(self.parameters):
            base = PARAMETER + number
            told, value = given.values.get(number, NOTHING)
            self._keep(self.first + number, (told, Frame((base, 0)) if value is None and not told else value))
            for at, known in given.objects.get(number, {}).items():
                self._keep((base, at), known)
        for register in surroundings.convention.handing:
            self._keep(register, given.values.get(register - self.first, NOTHING))
        self.site = start
        """The address of the instruction that is looked at."""
        self._handed = {place: self.known(place) for place in self.state.told if isinstance(place, tuple)}
        self.paths: dict[int, Condition] = {}
        tree = self.blocks.tree
        self._ways = {number: len(tree.before[at]) for number, at in tree.place.items()}
        """How many blocks lead to each."""
        self._widths: dict[tuple[int, int], int] = {}
        """Bytes that were stored to a place."""
        self._back: dict[int, list[State]] = {}
        """By the block that a loop begins with: the states that come back to it."""
        self._results: list[Known] = []
        self._left: list[dict[Place, Known]] = []
        self._noted = 0
        """How many places all of these have."""
        self._stored: dict[int, list[Known]] = {}
        """What is stored to each variable, wherever that happens."""
        self._compared: dict[int, int] = {}
        """Registers whose value was compared in this block, and has not changed since, by the address of that."""
        self._cases: dict[int, Condition] = {}
        """Where jumps over a table lead to that the CPU has a part in, and what is necessary for each."""

    # What machines tell

    first: int
    """The first parameter's register, and the result's."""
    parameters: int = PARAMETERS
    """The same, and where there is one the register with the address of a structure that is handed back."""
    clobbered: tuple[int, ...]
    """Registers that a callee may change."""
    kept_flags: tuple[int, ...] = ()
    """Fields of the condition register that it may not."""

    def prepare(self) -> None:
        """Note what registers hold at the beginning of any function."""
        raise NotImplementedError

    @staticmethod
    def ending(word: int, address: int) -> Ending:
        """What a word does to the order of things."""
        raise NotImplementedError

    def step(self, word: int) -> None:
        """Do to `state` what an instruction at `site` does that ends no block."""
        raise NotImplementedError

    def test(self, word: int) -> Test | None:
        """What a conditional branch tests, where something is known of that."""
        raise NotImplementedError

    def jumped_to(self, word: int) -> Value:
        """Where a jump by a register goes."""
        raise NotImplementedError

    # The pass

    def run(self) -> Flow:
        """Follows the function; again where it has loops, with what comes back to their beginnings."""
        place = self.blocks.tree.place
        loops = any(place[after] <= place[i] for i in place for after in self.blocks.after[i])
        entry = self.state
        for _ in range(_PASSES if loops else 1):
            self.flow, self.paths, self._results, self._left, self._stored = Flow(), {}, [], [], {}
            self._noted = 0
            self._follow(entry.copy())
        self._summarise()
        return self.flow

    def _follow(self, entry: State) -> None:
        arriving, back = {0: entry}, self._back
        self._back = {}
        for number in self.blocks.tree.order:
            self.state = arriving.pop(number, None) or State()
            for state in back.get(number, ()):
                self.state.widen(state)
            met = self.blocks.met(number) if number and self.state.path != ALWAYS else -1
            if met >= 0:
                self.state.path = self.paths.get(met, ALWAYS)
            self.paths[number] = self.state.path
            self._pass_through(number, arriving)

    def _pass_through(self, number: int, arriving: dict[int, State]) -> None:
        first, end = self.blocks.ranges[number]
        at = self.blocks.tree.place
        self._compared.clear()
        for address in range(first, end - 4, 4):
            self.site = address
            self.step(self.words[(address - self.start) // 4])
        if first == end:
            arriving |= {successor: self._state_of_case(successor) for successor in self.blocks.after[number]}
            return
        self.site = last = end - 4
        word = self.words[(last - self.start) // 4]
        ending = self.ending(word, last)
        test = self.test(word) if ending.kind == TESTS else None
        labels = self._understood(test.labels, last) if test and test.told else None
        if ending.kind != TESTS:
            self.step(word)
        if ending.kind == JUMPS_ANYWHERE:
            self._note_cases(self.jumped_to(word))
        onward = self.blocks.after[number]
        outside = ending.target >= 0 and ending.target not in self.blocks
        if outside or ending.kind == LEAVES or (ending.kind == JUMPS_ANYWHERE and not onward):
            self._leave(self.state.path if labels is None else both(self.state.path, labels[0]))
        for successor in onward:
            leaving = self.state.copy()
            if at[successor] <= at[number]:
                self._back.setdefault(successor, []).append(leaving)
                continue
            if test and ending.target != end:
                taken = self.blocks.ranges[successor][0] == ending.target
                if labels is not None:
                    leaving.path = both(leaving.path, labels[0 if taken else 1])
                elif test.origin >= 0 and test.labels and test.labels[0 if taken else 1] == NEVER:
                    leaving.settle(test.origin)
                if test.pair and test.equal is taken and test.pair[0] not in leaving.told:
                    leaving.values[test.pair[0]] = constant(test.pair[1])
                if test.type is not None and test.equal is taken and self._ways[successor] == 1:
                    leaving.word = self.surroundings.words(test.type)
            if successor in arriving:
                arriving[successor].join(leaving, self.surroundings.initial, self.surroundings.by_tests)
            else:
                arriving[successor] = leaving

    def _note_cases(self, target: Value) -> None:
        """A jump over a table: each number that chooses an entry has a condition, and so has the entry."""
        if isinstance(target, Options) and tells(target):
            for address, condition in target.numbers:
                told = both(condition, self.state.path)
                self._cases[address] = either(self._cases.get(address, NEVER), told)

    def _state_of_case(self, number: int) -> State:
        """What is known where an entry of such a table leads to; those that no number chooses count as tested."""
        state, first = self.state.copy(), self.blocks.ranges[number][0]
        if self._cases:
            condition = self._cases.get(first, NEVER)
            state.path = both(state.path, condition if condition != NEVER else not_understood(first))
        return state

    def _understood(self, labels: Labels | None, address: int) -> Labels:
        """The labels of a test that rests on what the CPU told; of one whose outcome is sure, that says nothing."""
        taken = not_understood(address)
        if labels and NEVER in labels and ALWAYS in labels:
            return tuple(ALWAYS if label == ALWAYS else taken for label in labels)
        return (taken, opposite(taken)) if labels is None or NEVER in labels else labels

    def _hand_out(self, value: Value, path: Condition) -> None:
        for number, condition in value.numbers if isinstance(value, Options) else ():
            if self.surroundings.is_code(number):
                told = both(condition, path)
                self.flow.chosen[number] = either(self.flow.chosen.get(number, NEVER), told)

    def _leave(self, path: Condition) -> None:
        state = self.state
        value = state.values.get(self.first)
        behind = self.surroundings.by_tests and path != ALWAYS
        self._hand_out(value, path)
        self._results.append((behind or self.first in state.told, under(value, path)))
        left, many = {}, self._noted > _MOST_LEFT
        for place in state.values.keys() | state.told:
            if isinstance(place, tuple) and (place[0] == VARIABLE or PARAMETER <= place[0] < VARIABLE):
                told = place in state.told or (behind and _is_variable(place))
                left[place] = told, None if many else under(state.values.get(place), path)
        self._left.append(left)
        self._noted += len(left)

    def _summarise(self) -> None:
        flow, conditions = self.flow, self.paths
        found = ((self.blocks.ranges[i], as_far_as_told(condition)) for i, condition in conditions.items())
        flow.guarded = sorted((first, end, path) for (first, end), path in found if path != ALWAYS)
        filled: dict[int, dict[int, Known]] = {}
        stored = {(VARIABLE, address) for address in self._stored}
        for place in {place for left in self._left for place in left} | stored:
            known = self._in_the_end(place)
            if place[0] == VARIABLE:
                flow.assigned[place[1]] = known
            elif (known[0] or tells(known[1])) and known != self._handed.get(place):
                filled.setdefault(place[0] - PARAMETER, {})[place[1]] = True, known[1]
        flow.told = Told(_together(self._results), filled)

    def _in_the_end(self, place: tuple[int, int]) -> Known:
        """What is known of a place when the function has returned, by whichever way."""
        untouched = NOTHING
        if place[0] == VARIABLE:
            untouched = False, self.surroundings.initial(place[1], 4)
            if not any(place in left for left in self._left):  # in a loop: what has been stored at its end is not told
                return _together([untouched, *self._stored.get(place[1], [])])
        return _together([left.get(place, untouched) for left in self._left])

    # For the machines

    def known(self, place: Place) -> Known:
        """What is known of a register or another place."""
        value = self.state.values.get(place)
        return (True, None) if value is SETTLED else (place in self.state.told, value)

    def put(self, place: Place, known: Known) -> None:
        """A register or another place gets a value."""
        self.state.told.discard(place)
        self.state.values.pop(place, None)
        if isinstance(place, int):
            self.state.origins.pop(place, None)
            self.state.copied.pop(place, None)
            self._compared.pop(place, None)
        self._keep(place, known)

    def held_pair(self, flags: Flags) -> tuple[int, int] | None:
        """The register that was compared, where it still has the value, and the number."""
        return flags.pair if flags.pair and self._compared.get(flags.pair[0]) == flags.site else None

    def _keep(self, place: Place, known: Known) -> None:
        told, value = known
        if isinstance(place, tuple) and len(self.state.values) + len(self.state.told) > _MOST_PLACES:
            self.flow.hides |= told
            return
        if told:
            self.state.told.add(place)
        elif value == _BIT:
            value = _EITHER
        if value is not None or _is_variable(place):
            self.state.values[place] = value

    def load(self, address: Value, size: int) -> Known:
        """What lies at an address."""
        if isinstance(address, Frame):
            if address.place[0] in (QUERIED, FUNCTION):
                return True, None
            return self._load_place(address.place, size)
        if not isinstance(address, Options):
            return self.state.word
        if address.constant is None:
            return self._load_entry(address, size) if tells(address) else self.state.word
        where = address.constant
        found = self._assembled((VARIABLE, where), size)
        if found:
            return found
        if (VARIABLE, where) not in self.state.values and where in self.owned:
            return False, self.surroundings.initial(where, size)
        return False, self.surroundings.pointer(where) if size == _WIDEST else None

    def _load_entry(self, address: Options, size: int) -> Known:
        """What lies in a table at one of some addresses, which tell the same as what is there."""
        on_path = under(address, self.state.path)
        addresses = on_path.numbers if isinstance(on_path, Options) else ()
        entries = {at: self.surroundings.fixed(at, size) for at, _ in addresses}
        inside = tuple(each for each in addresses if entries[each[0]] is not None)
        return True, mapped(Options(inside), entries.__getitem__) if inside else None

    @staticmethod
    def is_one(address: Value) -> bool:
        """Whether an address can be but one."""
        return isinstance(address, Frame) or (isinstance(address, Options) and address.constant is not None)

    def note_comparison(self, field: int, register: int, known: Known, number: int | None, bits: int) -> None:
        """A register was compared with a number, and the flags set."""
        unknown = not known[0] and not isinstance(known[1], Options | Word)
        if unknown and bits == 64 and number is not None and self.surroundings.words(number)[0]:
            self.state.flags[field] = replace(self.state.flags[field], type=number)
        if unknown and number is not None and 0 <= number < _SIGN:
            self._compared[register] = self.site
            self.state.flags[field] = replace(self.state.flags[field], pair=(register, number))

    def as_selected(self, flags: Flags, value: Known, otherwise: Known) -> Known:
        """What is known where one of two values is taken, this one if something is equal to the type of a word."""
        if flags.type is None or value[0] or isinstance(value[1], Options | Word):
            return otherwise
        return self.surroundings.words(flags.type)

    def element(self, base: Value, index: Value) -> Value:
        """The address of an element of an array, where that can be one of few."""
        return self.sum(base, numbered(index) if isinstance(index, Word) else index, 64)

    @staticmethod
    def sum(one: Value, other: Value, bits: int) -> Value:
        """The sum of two values."""
        found = summed(one, other, bits)
        if found is None and {type(one), type(other)} == {Word, Options}:
            return summed(numbered(one), numbered(other), bits)
        return found

    def is_object(self, value: Value) -> bool:
        """Whether a value is the address of an object in which something lies that the CPU told."""
        if isinstance(value, Frame):
            base, first = value.place
            return any((base, first + at) in self.state.told for at in range(OBJECT))
        return isinstance(value, Options) and self.surroundings.holds(value.constant)

    def note_origin(self, register: int, address: Value) -> None:
        """A register was read from an address."""
        where = address.constant if isinstance(address, Options) else None
        if where in self.owned and register not in self.state.told:
            self.state.origins[register] = where

    def _covering(self, base: int, at: int) -> int | None:
        """How far below a place the one begins that was written and reaches there."""
        for distance in range(_WIDEST):
            held = base, at - distance
            if distance < self._widths.get(held, _WIDEST):
                value = self.state.values.get(held)
                if held in self.state.told or value not in (None, SETTLED):
                    return distance
        return None

    def _load_place(self, place: tuple[int, int], size: int) -> Known:
        return self._assembled(place, size) or (self.state.word if PARAMETER <= place[0] < VARIABLE else NOTHING)

    def _assembled(self, place: tuple[int, int], size: int) -> Known | None:
        """What lies at a place; where it was written in parts, what these make together."""
        width, known = self._piece(place, size)
        if width == size:
            return known
        base, at = place
        if known is None and not any((base, at + i) in self.state.told for i in range(1, size)):
            return None
        told, value, done = False, None, 0
        while done < size:
            width, known = self._piece((base, at + done), size - done)
            part_told, part = known or NOTHING
            told, value = told or part_told, inserted(value, part, 8 * done, 8 * width)
            done += width
        return told, low(value, 8 * size)

    def _piece(self, place: tuple[int, int], size: int) -> tuple[int, Known | None]:
        """What is known of what lies at a place, and of how many bytes; None where nothing is."""
        base, at = place
        distance = self._covering(base, at)
        if distance is None:
            return self._left_by_others(at, size) if base == VARIABLE else (1, None)
        held = base, at - distance
        value, width = self.state.values.get(held), min(size, self._widths.get(held, _WIDEST) - distance)
        if not isinstance(value, Frame):
            value = low(shifted(value, -8 * distance, 64), 8 * width)
        elif distance or width < _WIDEST:
            value = None
        return width, (held in self.state.told, value)

    def _left_by_others(self, where: int, size: int) -> tuple[int, Known | None]:
        """The same of what other functions leave in a variable."""
        variable = self.surroundings.variable
        apart = -1 if self.state.values.get((VARIABLE, where)) is SETTLED else self.start
        for distance in range(_WIDEST):
            known = variable(where - distance, distance, apart)
            if known:
                width = size
                while not variable(where - distance, distance + width - 1, apart):
                    width -= 1
                return width, (True, low(shifted(known[1], -8 * distance, 64), 8 * width))
        return 1, None

    def store(self, address: Value, known: Known, size: int) -> None:
        """A value is stored at an address."""
        told, value = known
        if self.state.word[0] and not told and not isinstance(value, Options | Word) and size >= 4:
            told, value = self.state.word
        if size == _WIDEST:
            self._hand_out(value, self.state.path)
        value = value if size == _WIDEST else None if isinstance(value, Frame) else low(value, 8 * size)
        if isinstance(address, Frame):
            base, at = address.place
            for distance in range(-size + 1, size):
                self.put((base, at + distance), NOTHING)
            self.put((base, at), (told, value))
            self._widths[base, at] = size
        elif isinstance(address, Options) and address.constant and self.surroundings.is_data(address.constant):
            self.put((VARIABLE, address.constant), (told, value))
            self._widths[VARIABLE, address.constant] = self.flow.widths[address.constant] = size
            self._stored.setdefault(address.constant, []).append((told, under(value, self.state.path)))
        else:
            self.flow.hides |= told

    def forget(self, address: Value, size: int) -> None:
        """Something unknown is stored at an address."""
        if not self.is_one(address):
            return
        base, first = address.place if isinstance(address, Frame) else (VARIABLE, address.constant)
        for at in range(first - _WIDEST + 1, first + size):
            if at + self._widths.get((base, at), _WIDEST) > first:
                self.put((base, at), NOTHING)
                self.state.values.pop((base, at), None)

    def parts(self, address: Value, size: int) -> list[Part]:
        """What the CPU told that lies in the bytes at an address."""
        if not self.is_one(address):
            return []
        base, first = address.place if isinstance(address, Frame) else (VARIABLE, address.constant)
        held = [at for at in range(size) if (base, first + at) in self.state.told or self._is_left(base, first + at)]
        found = []
        for at, behind in pairwise([*held, size]):
            width = min(self._widths.get((base, first + at), _WIDEST), behind - at)
            found.append((at, width, self.load(moved(address, at), width)))
        return found

    def _is_left(self, base: int, at: int) -> bool:
        """Whether other functions leave something that the CPU told in a variable, and this one nothing yet."""
        if base != VARIABLE or self._covering(base, at) is not None:
            return False
        return self.surroundings.variable(at, 0, self.start) is not None

    def copy_out(self, register: int, address: Value, size: int) -> None:
        """A register is stored that holds what was read as a whole, or nothing that is known."""
        self.forget(address, size)
        for at, width, known in self.state.copied.get(register, ()):
            if at + width <= size:
                self.store(moved(address, at) if self.is_one(address) else None, known, width)

    def store_to_element(self, parts: list[Value], known: Known) -> None:
        """A value is stored to some element of an array, one of `parts` of whose address may be where that lies."""
        if not known[0]:
            return
        for value in parts:
            for at in range(0, OBJECT, _WIDEST):
                if isinstance(value, Frame):
                    self.put((value.place[0], value.place[1] + at), (True, None))
                elif isinstance(value, Options) and value.constant and self.surroundings.is_data(value.constant):
                    self.put((VARIABLE, value.constant + at), (True, None))

    def call(self, target: int, register: Value = None) -> None:
        """A call of an address, or of what a register holds; afterwards nothing is known of what callees may change."""
        self._compared.clear()
        arguments = [self.state.values.get(self.first + number) for number in range(self.parameters)]
        for value in arguments[:PARAMETERS]:
            self._hand_out(value, self.state.path)
        self._hand_out(register, self.state.path)
        if isinstance(register, Options) and register.constant is not None:
            target = register.constant
        if isinstance(register, Frame) and register.place[0] == FUNCTION:
            told = self.surroundings.asked(register.place[1], arguments[0])
        else:
            told = self.surroundings.called(target, arguments[0])
        if told is None and self._gets_told() and self.surroundings.compares(target):
            told = Told((True, None))
        is_sign = self.surroundings.is_sign
        if is_sign and is_sign(self.site, target, [self.known(self.first + i) for i in range(PARAMETERS)]):
            told = replace(told or Told(), result=(True, None))
        self._hand_over(target)
        if target < 0 and told is None and self._is_behind_what_is_not_understood():
            self.store_to_element(arguments, (True, None))
        changed = self.surroundings.changed(target)
        state = self.state
        for number in self.clobbered:
            kept = changed is not None and number < _GENERAL and number not in changed
            if not kept and (number in state.values or number in state.told or number in state.origins):
                self.put(number, NOTHING)
        self._clear()
        self.state.copied.clear()
        self.state.flags = {field: flags for field, flags in self.state.flags.items() if field in self.kept_flags}
        self._let_others_write()
        if told is None:
            return
        if changed is None or self.first in changed:
            self.put(self.first, told.result)
        for number, filled in told.filled.items():
            for at, known in filled.items():
                self._fill(arguments[number], at, known)

    def _gets_told(self) -> bool:
        return any(self.known(self.first + number)[0] for number in range(PARAMETERS))

    def _clear(self) -> None:
        for register in self.surroundings.convention.zero:
            self.state.values[register] = constant(0)

    def _is_behind_what_is_not_understood(self) -> bool:
        """Whether the function that is called here, whichever it is, is chosen or told something by such a test.

        Those that a table lists are called so for each bit, to set a member of an object that they get.
        """
        path = self.state.path
        told = any(self.known(self.first + number)[0] for number in range(1, PARAMETERS))
        return told or (path != ALWAYS and not understood_wholly(path))

    def _let_others_write(self) -> None:
        """After a call, a variable may hold what another function leaves there."""
        for place in [place for place in self.state.values.keys() | self.state.told if _is_variable(place)]:
            left = self.surroundings.variable(place[1], 0, self.start)
            if left and self.state.values.get(place) is not SETTLED:
                self.put(place, _together([self.known(place), left]))

    def _fill(self, address: Value, at: int, known: Known) -> None:
        if isinstance(address, Frame):
            self.put((address.place[0], address.place[1] + at), known)
        elif isinstance(address, Options) and address.constant and self.surroundings.is_data(address.constant):
            self.put((VARIABLE, address.constant + at), known)
        else:
            self.flow.hides = True

    def _hand_over(self, target: int) -> None:
        """Notes what a call hands over, if the CPU has told some of it."""
        if not self.state.told:
            return
        values, objects = {}, {}
        for number in range(self.parameters):
            known = self.known(self.first + number)
            address = known[1]
            if number >= PARAMETERS and not isinstance(address, Frame):
                continue
            if known[0] or (isinstance(address, Options) and address.constant is not None):
                values[number] = known
            if isinstance(address, Frame) and (held := self._object(address)):
                objects[number] = held
        for register in self.surroundings.convention.handing:
            if self.known(register)[0]:
                values[register - self.first] = self.known(register)
        if objects or any(told for told, _ in values.values()):
            self.flow.passes.setdefault(target, []).append(Given(values, objects))

    def _object(self, address: Frame) -> dict[int, Known]:
        """What the CPU told that lies in an object, by the distance from its beginning."""
        base, first = address.place
        held = [place for place in self.state.told if isinstance(place, tuple) and place[0] == base]
        return {at - first: self.known((base, at)) for _, at in held if 0 <= at - first < OBJECT}


def _together(all_known: list[Known]) -> Known:
    """What is known where any of some ways was taken."""
    if not all_known:
        return NOTHING
    value = reduce(lambda one, other: joined(one, ALWAYS, other, ALWAYS), (value for _, value in all_known))
    return any(told for told, _ in all_known) or tells(value), value
