"""How what the CPU told flows through one function of a machine whose code is made of words.

A forward pass over the blocks in reverse postorder, as for x86 (x86/flow.py), but smaller: what is known of registers,
of places on the stack and of variables, the flags, and under which condition each block runs. What instructions do is
told by a subclass for each machine.
"""

from dataclasses import replace

from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    Labels,
    as_far_as_told,
    both,
    either,
    not_understood,
    understood_wholly,
    ways_not_understood,
)
from imgcheck.binaries.isa.values import (
    BELOW,
    BELOW_OR_EQUAL,
    BORROW,
    EQUAL,
    LESS,
    LESS_OR_EQUAL,
    Comparison,
    Frame,
    Options,
    Value,
    Word,
    constant,
    numbered,
    outcome,
    summed,
    tells,
    under,
)
from imgcheck.binaries.isa.words.blocks import JUMPS_ANYWHERE, LEAVES, TESTS, Blocks, Ending
from imgcheck.binaries.isa.words.memory import Memory
from imgcheck.binaries.isa.words.state import (
    FUNCTION,
    NOTHING,
    PARAMETER,
    VARIABLE,
    Flags,
    Known,
    State,
    Test,
    Tested,
    is_variable,
    together,
)
from imgcheck.binaries.isa.words.surroundings import Flow, Given, Surroundings, Told

PARAMETERS = 8
"""Registers that hand over parameters, from `Walk.first` on; the first of them hands back the result."""
_PASSES = 3
"""Over a function with loops: what the CPU told goes around one of them, and in it another."""
_MOST_LEFT = 2000
"""Places, over all returns, of which is noted what is left there; at further ones only whether the CPU told it."""
_SIGN = 1 << 31
"""Below it a number is the same in 32 bits and in 64, with and without a sign."""
_GENERAL = 32
"""Numbers below are those of general registers."""
_MIRRORED = {BELOW: BELOW_OR_EQUAL, BELOW_OR_EQUAL: BELOW, LESS: LESS_OR_EQUAL, LESS_OR_EQUAL: LESS}
"""Of a test of how a number stands to a value the one of how the value stands to it where that is not so."""


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


class Walk(Memory):
    """One pass over a function. A subclass tells what single words do, by `ending` and `step`."""

    def __init__(
        self, start: int, words: list[int], surroundings: Surroundings, given: Given, owned: frozenset[int]
    ) -> None:
        """`owned`: variables that the function itself writes to."""
        super().__init__(start, surroundings, owned)
        self.words = words
        self.blocks = Blocks(start, [self.ending(word, start + 4 * i) for i, word in enumerate(words)])
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
        self._back: dict[int, list[State]] = {}
        """By the block that a loop begins with: the states that come back to it."""
        self._results: list[Known] = []
        self._left: list[dict[tuple[int, int], Known]] = []
        self._noted = 0
        """How many places all of these have."""
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
        loops = any(self._is_back(i, after) for i in self.blocks.tree.place for after in self.blocks.after[i])
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
            self.state = arriving.pop(number) if number in arriving else State()
            for state in back.get(number, ()):
                self.state.widen(state)
            met = self.blocks.met(number) if number and self.state.path != ALWAYS else -1
            if met >= 0:
                self.state.path = self.paths.get(met, ALWAYS)
            self.paths[number] = self.state.path
            self._pass_through(number, arriving)

    def _pass_through(self, number: int, arriving: dict[int, State]) -> None:
        first, end = self.blocks.ranges[number]
        onward = self.blocks.after[number]
        if first == end:
            arriving |= {successor: self._state_of_case(successor) for successor in onward}
            return
        self._compared.clear()
        for address in range(first, end - 4, 4):
            self.site = address
            self.step(self.words[(address - self.start) // 4])
        self.site = end - 4
        word = self.words[(self.site - self.start) // 4]
        ending = self.ending(word, self.site)
        test, labels = None, None
        if ending.kind == TESTS:
            test = self.test(word)
            labels = self._understood(test.labels, self.site) if test and test.told else None
        else:
            self.step(word)
        if ending.kind == JUMPS_ANYWHERE:
            self._note_cases(self.jumped_to(word))
        outside = ending.target >= 0 and ending.target not in self.blocks
        if outside or ending.kind == LEAVES or (ending.kind == JUMPS_ANYWHERE and not onward):
            self._leave(self.state.path if labels is None else both(self.state.path, labels[0]))
        for successor in onward:
            leaving = self.state.copy()
            if self._is_back(number, successor):
                self._back.setdefault(successor, []).append(leaving)
                continue
            if test and ending.target != end:
                self._take(leaving, successor, test, labels, self.blocks.ranges[successor][0] == ending.target)
            self._arrive(leaving, successor, arriving)

    def _is_back(self, number: int, successor: int) -> bool:
        place = self.blocks.tree.place
        return place[successor] <= place[number]

    def _take(self, leaving: State, successor: int, test: Test, labels: Labels | None, taken: bool) -> None:
        """What a test tells where the block `successor` is entered because it is met, or is not."""
        if labels is not None:
            leaving.path = both(leaving.path, labels[0 if taken else 1])
        elif test.origin >= 0 and test.labels and test.labels[0 if taken else 1] == NEVER:
            leaving.settle(test.origin)
        if test.equal is not taken:
            return
        if test.pair and test.pair[0] not in leaving.told:
            leaving.values[test.pair[0]] = constant(test.pair[1])
        if test.type is not None and self._ways[successor] == 1:
            leaving.word = self.surroundings.words(test.type)

    def _arrive(self, leaving: State, successor: int, arriving: dict[int, State]) -> None:
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
            met, missed = labels
            return (ALWAYS if met == ALWAYS else taken), (ALWAYS if missed == ALWAYS else taken)
        return ways_not_understood(address) if labels is None or NEVER in labels else labels

    def _leave(self, path: Condition) -> None:
        state = self.state
        value = state.values.get(self.first)
        behind = self.surroundings.by_tests and path != ALWAYS
        self._hand_out(value, path)
        self._results.append((behind or self.first in state.told, under(value, path)))
        left: dict[tuple[int, int], Known] = {}
        many = self._noted > _MOST_LEFT
        for place in state.values.keys() | state.told:
            if isinstance(place, tuple) and (place[0] == VARIABLE or PARAMETER <= place[0] < VARIABLE):
                told = place in state.told or (behind and is_variable(place))
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
        flow.told = Told(together(self._results), filled)

    def _in_the_end(self, place: tuple[int, int]) -> Known:
        """What is known of a place when the function has returned, by whichever way."""
        untouched = NOTHING
        if place[0] == VARIABLE:
            untouched = False, self.surroundings.initial(place[1], 4)
            if not any(place in left for left in self._left):  # in a loop: what has been stored at its end is not told
                return together([untouched, *self._stored.get(place[1], [])])
        return together([left.get(place, untouched) for left in self._left])

    # For the machines

    def held_pair(self, flags: Flags) -> tuple[int, int] | None:
        """The register that was compared, where it still has the value, and the number."""
        return flags.pair if flags.pair and self._compared.get(flags.pair[0]) == flags.site else None

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

    def note_origin(self, register: int, address: Value) -> None:
        """A register was read from an address."""
        where = address.constant if isinstance(address, Options) else None
        if where in self.owned and register not in self.state.told:
            self.state.origins[register] = where

    def call(self, target: int, register: Value = None) -> None:
        """A call of an address, or of what a register holds; afterwards nothing is known of what callees may change."""
        self._compared.clear()
        arguments = [self.state.values.get(self.first + number) for number in range(self.parameters)]
        for value in arguments[:PARAMETERS]:
            self._hand_out(value, self.state.path)
        self._hand_out(register, self.state.path)
        if isinstance(register, Options) and register.constant is not None:
            target = register.constant
        told: Told | None
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
