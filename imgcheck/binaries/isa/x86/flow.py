"""How what the CPU told flows through one function: which branches test it, and which code runs only behind a test.

A forward pass over the decoded function marks registers, stack slots and flags that come from `cpuid`, `xgetbv`, a
function known to return such knowledge, or a variable known to hold it. A conditional branch on marked flags is a
test. Beside the marks goes what is known of each value, bit by bit or number by number (see values.py); where a test
is of such a value, both its directions say what they tell of the CPU.
"""

from collections import Counter
from collections.abc import Mapping, Set
from functools import cached_property, reduce
from types import MappingProxyType

from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    Labels,
    as_far_as_told,
    bit_conditions,
    both,
    either,
    not_understood,
)
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.values import SETTLED, Options, outcome, tells, word
from imgcheck.binaries.isa.x86.branches import Branches, narrow
from imgcheck.binaries.isa.x86.calls import Calls
from imgcheck.binaries.isa.x86.control import Block, ControlFlow, Loop
from imgcheck.binaries.isa.x86.dominance import guarded, merged
from imgcheck.binaries.isa.x86.facts import (
    BRANCH,
    CALL,
    CALLS,
    COMPUTE,
    CPUID,
    INDIRECT_CALL,
    INDIRECT_JUMP,
    LEA,
    RAX,
    RDX,
    RETURN,
    STOP,
    SWAP,
    XGETBV,
    Fact,
)
from imgcheck.binaries.isa.x86.handed import Arguments, Context, Flow, Given
from imgcheck.binaries.isa.x86.state import State, variable
from imgcheck.binaries.isa.x86.summary import summarise, tell

_RESULTS = RAX | RDX


class _Walk(Calls):
    """One pass over the blocks of a function."""

    def __init__(self, graph: ControlFlow, context: Context, given: Given, arguments: Arguments) -> None:
        super().__init__(graph, context, given, arguments)
        self.branches = Branches(graph, context, self.operands)
        self.block = graph.blocks[0]
        """The one that is looked at."""
        self.tests: dict[int, Labels] = {}
        self.cases: dict[int, dict[int, Condition]] = {}
        """Address of a jump by a table -> where it leads to, and under what condition."""
        self.alike: dict[tuple, list[int]] = {}
        """What is compared -> the tests of it."""
        self.paths: dict[int, Condition] = {}
        """What is necessary to arrive at a block, by its number."""
        self.closed: set[int] = set()
        """Blocks that are not come to with the arguments that are known, by number, and"""
        self.unused: set[tuple[int, int]] = set()
        """the ways between two blocks that are not taken."""
        self.carried: dict[int, tuple[int, set[tuple[int, int]]]] = {}
        """Registers and places with knowledge that later code brings back to the first block of a loop."""

    def run(self, carried: Mapping[int, tuple[int, Set[tuple[int, int]]]] = MappingProxyType({})) -> None:
        """Go through all blocks; `carried` is what another walk found to be brought back to loops."""
        graph = self.graph
        arriving = {0: self.state}
        for number in graph.order:
            if number not in arriving and self._is_closed(number):
                self.closed.add(number)
                continue
            self.block = block = graph.blocks[number]
            self.state = state = arriving.pop(number, None) or State(0, set(), {}, path=self._way_by_calls(block.first))
            state.keep(graph.live[number])
            if number in graph.loops:
                self._enter_loop(graph.loops[number])
                marked, slots = carried.get(number, (0, ()))
                state.marked |= marked & graph.live[number]
                state.slots.update(slots)
            if state.path != ALWAYS and graph.before[number]:
                met = graph.met(number) if len(graph.before[number]) > 1 else graph.left(number)
                state.path = self.paths.get(met, ALWAYS) if met >= 0 else state.path
            if state.path != ALWAYS:
                self.paths[number] = state.path
            self._pass_through(block)
            self._go_on(number, block, arriving)

    def arrivals(self) -> list[Guarded]:
        """Blocks to which several ways lead, each over a test: what these have in common, or that each has one."""
        blocks = self.graph.blocks
        told = ((blocks[number], as_far_as_told(path)) for number, path in sorted(self.paths.items()))
        return [(block.first, block.end, path) for block, path in told if path != ALWAYS]

    def _way_by_calls(self, address: int) -> Condition:
        """What is necessary to arrive at a block that nothing but calls in the function itself leads to."""
        calls = self.called.get(address, [])
        # Before all calls have been passed nobody knows what is necessary for the others.
        return reduce(either, calls, NEVER) if calls and len(calls) == self._named[address] else ALWAYS

    @cached_property
    def _named(self) -> Counter[int]:
        """How many calls and branches lead to each address."""
        return Counter(self.code.targets.values())

    def _is_closed(self, number: int) -> bool:
        """Whether no way leads to a block, as arguments that are known go others."""
        before = self.graph.before[number]
        return bool(before) and all(one in self.closed or (one, number) in self.unused for one in before)

    def _pass_through(self, block: Block) -> None:
        state, numbers = self.state, slice(block.numbers.start, block.numbers.stop)
        closely = self.exact or self.asks or bool(self.context.spelled)
        for ip, fact in zip(self.code.ips[numbers], self.code.facts[numbers], strict=True):
            if fact.kind != COMPUTE:
                self._special(fact.kind, ip, fact)
            # Most code is far from any knowledge: what then concerns registers alone changes nothing.
            elif not fact.plain or state.marked or state.flags or state.addresses or state.bases or closely:
                self._compute(ip, fact)
            else:
                if fact.writes_flags:
                    state.equal = fact.with_number
                elif state.equal and fact.written & state.equal[0]:
                    state.equal = None
                if fact.brings is not None:
                    state.values[fact.written] = fact.brings
                elif fact.source in state.values:
                    state.values[fact.written] = state.values[fact.source]
                elif state.values:
                    state.forget(fact.written)

    def _go_on(self, number: int, block: Block, arriving: dict[int, State]) -> None:
        """The state at the end of a block goes on at those that it leads to."""
        ip, place, blocks = block.control, self.graph.place, self.graph.blocks
        fact = self.code.facts[block.numbers.stop - 1]
        target = self.code.targets.get(ip, -1)
        if fact.kind == BRANCH and not self.code.inside(target):
            self._leave_by(ip, fact, both(self.state.path, self.tests[ip][0]) if ip in self.tests else self.state.path)
        onward = [one for one in block.successors if place.get(one, 0) > place[number]]  # no loop closed, no padding
        if self.context.spelled and (self.state.marked or self.state.slots):
            for back in (one for one in block.successors if one in place and place[one] <= place[number]):
                marked, slots = self.carried.get(back, (0, set()))
                self.carried[back] = marked | self.state.marked, slots | self.state.slots
        cases = self.cases.get(ip)
        if cases:
            self.unused |= {(number, one) for one in onward if blocks[one].first not in cases}
            onward = [one for one in onward if blocks[one].first in cases]
        if self.exact and fact.kind == BRANCH and fact.condition >= 0 and target != block.end:
            onward = [one for one in onward if self._may_go(number, one, blocks[one].first == target, fact)]
        for successor in onward:
            leaving = self.state if successor == onward[-1] else self.state.copy()
            if cases:
                leaving.path = both(leaving.path, cases[blocks[successor].first])
            taken = blocks[successor].first == target
            if fact.kind == BRANCH and target != block.end and fact.condition >= 0:
                narrow(leaving, fact.condition >> 1, taken != bool(fact.condition & 1))
            if fact.kind == BRANCH and ip in self.tests and target != block.end:
                leaving.path = both(leaving.path, self.tests[ip][0 if taken else 1])
                self.branches.settle(leaving, fact, taken)
            elif fact.kind == INDIRECT_JUMP and ip in self.tests:
                leaving.path = both(leaving.path, self.tests[ip][0])
            if successor in arriving:
                arriving[successor].join(leaving, self.operands.initial)
            else:
                arriving[successor] = leaving

    def _may_go(self, number: int, successor: int, taken: bool, fact: Fact) -> bool:
        """Whether a branch may go from one block to another, where it may rest on arguments alone."""
        found = outcome(self.state.told, fact.condition >> 1) if not self.state.flags else None
        if found is None or found[0 if taken != bool(fact.condition & 1) else 1] != NEVER:
            return True
        self.unused.add((number, successor))
        return False

    def _enter_loop(self, loop: Loop) -> None:
        """Forget what later code that comes back to here may have changed."""
        state, changed = self.state, loop.writes
        state.told = None
        if not loop.natural:
            state.path = ALWAYS  # nobody knows who comes here
        if state.values or self.graph.variables:
            held = state.bases | sum(place for place in state.values if isinstance(place, int) and place > 0)
            lost = self.graph.changed(changed, held)
            state.forget(lost)
            state.lose(lost)
            for slot in (changed.slots & state.values.keys()).union(state.members_of(state.bases)):
                state.values.pop(slot, None)
            self.notes.kept_in_loops |= changed.variables.keys()
            for where in changed.variables:
                state.values[variable(where)] = SETTLED if self.context.value(where) is not None else None

    def _special(self, kind: int, ip: int, fact: Fact) -> None:
        state = self.state
        if kind == BRANCH:
            if state.flags:
                self.tests[ip] = self.branches.labels(state, ip, fact, self.block)
                if state.compared and fact.condition >= 0:
                    self.alike.setdefault((*state.compared, fact.condition >> 1), []).append(ip)
        elif kind == LEA:
            self._lea(ip, fact)
        elif kind in CALLS:
            self._call(ip, fact)
        elif kind == RETURN:
            # Anything may be left in RDX where a result has no second word.
            if state.marked & RAX or tells(state.values.get(RDX)):
                self.flow.returns |= state.marked & _RESULTS
            self.notes.has_result |= not self._returns_as_version()
            self._leave(state.values.get(RAX), state.path)
        elif kind == SWAP:
            state.swap(fact.read)
        elif kind == CPUID:
            self._query(fact.written)
        elif kind == XGETBV:
            state.mark(RAX | RDX, True)
            state.values[RAX], state.values[RDX] = word(bit_conditions("xcr0")), word({})
        elif kind == STOP:
            self._brings(ip, fact)  # a call that never returns gets what it is handed all the same
        else:
            self._jump(ip, fact)

    def _jump(self, ip: int, fact: Fact) -> None:
        if fact.kind == INDIRECT_JUMP:
            self._jump_by_table(ip, fact)
        if not self.block.successors:
            self._leave_by(ip, fact, self.state.path)

    def _returns_as_version(self) -> bool:
        """Whether the block leaves in RAX what a function has returned that it has called as one of some."""
        for number in reversed(self.block.numbers):
            fact = self.code.facts[number]
            if fact.kind == INDIRECT_CALL:
                return self.code.ips[number] in self.versions
            if fact.kind == CALL or fact.written & RAX:
                return False
        return False

    def _jump_by_table(self, ip: int, fact: Fact) -> None:
        called = self._called(ip, fact)
        if isinstance(called, Options) and all(self.code.inside(number) for number, _ in called.numbers):
            self.cases[ip] = dict(called.numbers)
            return
        if fact.read & self.state.marked:
            taken = not_understood(ip)
            self.tests[ip] = taken, taken
        self._go_to(ip, called)


def follow(graph: ControlFlow, context: Context, given: Given, tells: bool, arguments: Arguments) -> Flow:
    """What a function does with CPU knowledge, where it is called with these arguments.

    `tells`: the function leads to no code that a test could protect, so it tests in order to tell: what it returns,
    stores or has stored behind a test is knowledge too, even where it is a constant.
    """
    walk = _Walk(graph, context, given, arguments)
    walk.run()
    if walk.carried:  # lines of a file are read in a loop, and what it finds is tested behind that
        walk, carried = _Walk(graph, context, given, arguments), walk.carried
        walk.run(carried)
    flow, notes = walk.flow, walk.notes
    if walk.tests or walk.cases:
        changed = {where & ~3 for _, where, _ in notes.written}
        alike = [ips for key, ips in walk.alike.items() if len(ips) > 1 and key[0] & ~3 not in changed]
        flow.guarded = merged(guarded(graph, walk.tests, alike), walk.arrivals())
        flow.tests = walk.tests
    summarise(flow, notes, walk.operands.initial, context.initial)
    if tells and any(labels != (ALWAYS, ALWAYS) for labels in walk.tests.values()):
        tell(flow, notes, context.initial)
    return flow
