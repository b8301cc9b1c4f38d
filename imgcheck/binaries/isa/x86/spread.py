"""Who asks the CPU, who passes the answer on, and which calls happen only behind a test of it.

Knowledge spreads from `cpuid`, `xgetbv` and library functions that report CPU features to the variables that they
are stored in, to the functions that return them and to the parameters that they are passed in; each round looks at
the functions that the round before made interesting, until nothing new appears.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import proxy

import numpy as np

from imgcheck.binaries.isa.conditions import ALWAYS, bit_conditions
from imgcheck.binaries.isa.names import queries
from imgcheck.binaries.isa.ordered import numbers
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.signs import Hint
from imgcheck.binaries.isa.values import Options, Value, has_alternatives, in_part, joined, word
from imgcheck.binaries.isa.x86.bodies import LONGEST, Bodies
from imgcheck.binaries.isa.x86.encodings import QUERIES
from imgcheck.binaries.isa.x86.facts import ARGUMENTS, PARAMETERS, RAX, RCX, facts
from imgcheck.binaries.isa.x86.flow import follow
from imgcheck.binaries.isa.x86.guards import Guards
from imgcheck.binaries.isa.x86.handed import (
    NOTHING,
    NOTHING_GIVEN,
    STRUCT,
    Arguments,
    Callee,
    Context,
    Flow,
    Given,
    Member,
    for_callee,
    no_member,
)
from imgcheck.binaries.isa.x86.parameters import compared, takes_result
from imgcheck.binaries.isa.x86.readers import ACCESSOR, MOST_READERS, Readers
from imgcheck.binaries.isa.x86.variables import Variables

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

_ROUNDS = 8
_TOTAL_BYTES = 300_000
"""Code followed in all, so that a file made of CPU queries costs no more than a second."""
_CHOOSERS_BYTES = 30_000
"""And besides of functions that choose versions, once all is known."""
_HINTED_BYTES = 40_000
"""The same where signs are followed, which programs keep near to where they find them."""
_WORKING_BYTES = 10_000
"""And of functions that read what is understood, but neither use nor choose anything and are no small ones."""
_TELLING_ROUNDS = 3
_LOOKS = 10_000
"""Calls looked at in a round to see whether their results are wanted; those of all others are taken to be."""
_BEHIND_CALL = 64
"""Bytes from a call on that are read to see whether its result is wanted."""
_WHEN_ASKED = Callee(returns=RAX, obeys=True)
"""What a call brings that has to be looked at by itself: for a word of the auxiliary vector, or a member of an object
that only a pointer leads to."""
_A_SIGN = Callee(returns=RAX)
"""What a call brings whose result is a sign of what the CPU has."""
_TOLD = PARAMETERS & ~RCX
"""Where callers may say what they ask for."""
_DEEPEST_QUERY, _MOST_QUERIES, _LONGEST_QUERY = 3, 512, 1024
"""Calls from one to the next of functions whose answers depend on what callers say, such calls that are followed in a
file, and bytes of such a function."""


class Spread:
    """The rounds over one file, and what they have learnt."""

    def __init__(self, found: "Findings", hint: Hint | None = None) -> None:
        """`hint`: follow this instead of what the CPU tells."""
        # The findings own this: a reference back would keep the file's bytes, whose map could then not be closed.
        self.found = proxy(found)
        self._graph, self._functions = found.graph, found.functions
        self._hint = hint
        self.guards = Guards()
        self._returns: set[int] = set()
        self._outputs: set[int] = set()
        self._stacked: set[int] = set()
        """Functions that tell something: as their result, through a pointer, and on the stack as Go's assembly does."""
        self._by_themselves: set[int] = set()
        """Those of them that tell more than what they are given, as memcpy does not."""
        self._given: dict[int, Given] = {}
        self._budget = _HINTED_BYTES if hint else _TOTAL_BYTES
        """Bytes of functions that may still be followed."""
        self._working = _WORKING_BYTES
        """The same of those that work something out of what is understood,"""
        self._workers: set[int] = set()
        """and these, whose tests alone tell nothing."""
        self.bodies = Bodies(self.found, self._budget)
        self.variables = Variables(found.layout, hint.texts if hint else frozenset())
        self.readers = Readers(self.found, self.bodies, self.variables)
        self._round = 0
        self._askers: set[int] = set()
        self._resolvers: set[int] = set()
        self._asked: dict[tuple, Callee] = {}
        """What calls bring that were followed by themselves, by function and arguments."""
        self._questions = _MOST_QUERIES
        self._retold: set[int] = set()
        """Functions that bring something else than when their callers were looked at."""
        self._called_freely: dict[int, int] = {}
        """Functions that are called without a test -> the round in which that was seen."""
        self._calls: Edges = self._graph.calls
        known = [] if hint else list(found.query_symbols)
        self._reporting = self._behind(self._graph.imported(known)[2]) if known else frozenset()
        """Next addresses of calls of library functions that report features,"""
        self._vector_calls = frozenset() if hint else self._behind(found.vector_calls[1])
        """of those that ask for words of the auxiliary vector,"""
        self._signing = self._behind(hint.results) if hint else frozenset()
        """of those whose results are signs of what the CPU has,"""
        self._reading = self._behind(hint.readers) if hint else frozenset()
        """and of those that read or copy texts."""

    def run(self) -> Guards:
        """Follow whoever asks the CPU, and all to whom what it tells gets."""
        found, variables = self.found, self.variables
        variables.held |= set() if self._hint else {a & ~3 for a in found.query_addresses.tolist()}
        self._askers = set(self._hint.functions) if self._hint else set(found.askers.tolist())
        self._resolvers = set(found.resolvers.tolist())
        pending = self._askers
        for self._round in range(_ROUNDS):
            tellers, held = self._tellers(), set(variables.held)
            changed = self._follow_all(pending - self._resolvers)
            pending = changed | self._callers((self._tellers() - tellers) | self._retold)
            self._retold.clear()
            pending |= self._worth_following((variables.held - held) | variables.restated)
            variables.restated.clear()
            if not pending:
                break
        if self._hint:
            return self.guards
        # Resolvers of IFUNCs only hand out addresses: nothing for other functions follows from them.
        last = self._resolvers if variables.understood else self._resolvers & self._asking
        self._follow_all(last - self.guards.flows.keys())
        self._follow_choosers_anew()
        return self.guards

    @cached_property
    def _asking(self) -> frozenset[int]:
        """Functions that ask the CPU themselves."""
        return frozenset(np.flatnonzero(self.found.using(*QUERIES)).tolist())

    def _follow_choosers_anew(self) -> None:
        """Those that were put off when more came to be known choose by that, too."""
        flows, budget = self.guards.flows, _CHOOSERS_BYTES
        choosers = (index for index in self.guards.put_off & flows.keys() if flows[index].chosen)
        for index in sorted(choosers, key=self.bodies.size):
            budget -= self.bodies.size(index)
            if budget < 0:
                break
            flows[index] = self.follow(index)

    def _worth_following(self, held: set[int]) -> set[int]:
        """Of those that read variables those that lead to a use of an extension or choose one, and those that hand
        knowledge on: small ones, and some that read what is understood, as what works out a level from it.
        """
        chosen = np.array(sorted(self.readers.readers(held)), np.int64)
        size = self._functions.end[chosen] - self._functions.start[chosen]
        worth = self.found.deciding[chosen] | (size <= ACCESSOR)
        others = chosen[~worth].tolist()
        return set(chosen[worth].tolist()).union(filter(self._returns_address, others), self._working_out(others, held))

    def _working_out(self, functions: list[int], held: set[int]) -> Iterator[int]:
        """Those of the functions that read what is understood of some variables, the smallest first."""
        told = self.variables.telling(held) if functions else set()
        reading = self.readers.readers(told)
        for function in sorted(reading.intersection(functions), key=self.bodies.size):
            self._working -= self.bodies.size(function)
            if self._working < 0:
                return
            self._workers.add(function)
            yield function

    def _returns_address(self, function: int) -> bool:
        """Whether a function was seen to return where knowledge lies, or a record with it: its own static object."""
        flow = self.guards.flows.get(function)
        found = flow.result.numbers if flow and isinstance(flow.result, Options) else ()
        return any(self.variables.holds(address + i) for address, _ in found for i in range(0, STRUCT, 4))

    def _follow_all(self, pending: set[int]) -> set[int]:
        """Follows the functions; those whose parameters a caller's hand-over marked come back."""
        marked: set[int] = set()
        sizes = {index: self.bodies.size(index) for index in pending}
        uses, leads = self.found.any_use, self.found.leads_to_use
        for index, size in sorted(sizes.items(), key=lambda item: (not uses[item[0]], not leads[item[0]], item[1])):
            if size > LONGEST or size > self._budget:
                self.guards.put_off.add(index)
                if index in self._askers and index not in self.guards.flows:
                    self.guards.skipped.add(index)
                continue
            self._budget -= size
            marked |= self._learn(index, self.follow(index))
        return marked

    def _learn(self, index: int, flow: Flow) -> set[int]:
        """Takes in what a function was seen to do; whose parameters that marks."""
        before = self.guards.flows.get(index)
        if before and (before.result, before.second) != (flow.result, flow.second):
            self._retold.add(index)
        self.guards.flows[index] = flow
        for tells, among in ((flow.returns, self._returns), (flow.outputs, self._outputs), (flow.stack, self._stacked)):
            if tells:
                among.add(index)
        if _tells(flow) and index not in self._by_themselves and self._tells_alone(index):
            self._by_themselves.add(index)
        lazily = self._kept_lazily(index) - flow.assigned.keys() if flow.returns else set[int]()
        self.variables.remember({address & ~3 for address in lazily})
        if self.variables.assign(index, flow.assigned | dict.fromkeys(lazily, flow.result)):
            self._asked.clear()  # what was told may rest on what was known of them
        if flow.model:
            self.variables.note_record(self._graph, flow.model, index)
        self.variables.remember(flow.stores)
        if not self._hint:
            self.variables.remember({(a & ~3) + i for a in flow.structures for i in range(0, STRUCT, 4)})
        if self._returns_address(index):
            self._returns.add(index)
            self._by_themselves.add(index)
        return self._hand_over(index, flow)

    def _kept_lazily(self, index: int) -> set[int]:
        """Variables that at first point to a function: if it tells, they hold afterwards what it has told (LazyLock).

        Unless the function stores there by itself, as one does that replaces itself.
        """
        return set(self.variables.pointing_at_first(int(self._functions.start[index])))

    def _tells_alone(self, index: int) -> bool:
        """Whether a function that tells something does so where it is given nothing, too."""
        return index not in self._given or _tells(self.follow(index, alone=True))

    def _put_behind(self, function: int) -> None:
        """What is called behind tests alone happens under conditions that it does not show."""
        if function not in self.variables.doubtful and not self._is_called_freely(function):
            self.variables.doubt(function)

    def _is_called_freely(self, function: int) -> bool:
        """Whether some call of a function is behind no test, as far as is seen; looked up once in a round."""
        if self._called_freely.get(function) == self._round:
            return True
        calls = self._calls.backwards
        own = calls.among(function)
        called = zip(calls.target[own].tolist(), calls.site[own].tolist(), strict=True)
        freely = not all(self._is_behind_test(source, site) for source, site in called)
        if freely:
            self._called_freely[function] = self._round
        return freely

    def _is_behind_test(self, function: int, site: int) -> bool:
        guarded = self.guards.flows.get(function, Flow()).guarded
        before = bisect_right(guarded, site, key=lambda piece: piece[0]) - 1
        return before >= 0 and site < guarded[before][1]

    def _hand_over(self, index: int, flow: Flow) -> set[int]:
        marked = set()
        for site, target in self.bodies.sites(index).items():
            if self._is_behind_test(index, site - 1):
                self._put_behind(target)
            known = self._given.get(target, NOTHING_GIVEN)
            more = self.together(target, known, flow.passes[site]) if site in flow.passes else known
            if more != known:
                self._given[target] = more
                # What exactly is handed down is settled in a few rounds, or changes with each.
                if self._round < _TELLING_ROUNDS or _what(more) != _what(known):
                    marked.add(target)
        return marked

    def together(self, function: int, known: Given, more: Given) -> Given:
        """What is given to a function, by this call too. A pointer that is not always the same is knowledge itself."""
        pointers = {r: at for r, at in {**more.pointers, **known.pointers}.items() if more.pointers.get(r, at) == at}
        changing = (sum(more.pointers) | sum(known.pointers)) & ~sum(pointers)
        new = (more.knowledge | changing) & ~known.knowledge
        knowledge = known.knowledge | self.bodies.expected(function, new)
        expected = sum(known.pointers) | self.bodies.expected(function, sum(pointers) & ~sum(known.pointers))
        pointers = {r: at for r, at in pointers.items() if r & expected & ~knowledge}
        registers = {register for register, _ in more.objects}
        wanted = self.bodies.expected(function, sum(registers)) if registers else 0
        objects = {key: value for key, value in more.objects.items() if key[0] & wanted}
        return Given(knowledge, pointers, _values(known, more, knowledge), _objects(known, objects))

    def follow(
        self,
        index: int,
        handed: Given = NOTHING_GIVEN,
        member: Member = no_member,
        arguments: Arguments | None = None,
        depth: int = 0,
        alone: bool = False,
    ) -> Flow:
        """What a function does with what is known by now, and with what this call hands it.

        `member` tells of objects that only pointers lead to, `arguments` are those of one call that is followed by
        itself, `depth` calls below the function that is looked at. `alone`: with what no other call hands it, either.
        """
        sites = self.bodies.sites(index)
        hint = self._hint

        def callee(after: int) -> Callee:
            if after in self._reporting:
                return Callee(returns=RAX, outputs=True)
            if after in self._vector_calls:
                return _WHEN_ASKED
            if after in self._signing:
                return _A_SIGN
            if after in self._comparisons:
                return Callee(compares=self._comparisons[after])
            called = sites.get(after, -1)
            if called in self._resolvers:  # what is called through a slot that a resolver fills is what it has chosen
                return NOTHING
            if called in self._returns or called in self._outputs or called in self._stacked:
                flow = self.guards.flows[called]
                return Callee(
                    returns=flow.returns,
                    obeys=flow.obeys,
                    outputs=called in self._outputs,
                    stack=called in self._stacked,
                    value=flow.result,
                    second=flow.second,
                    filled=flow.stack_results,
                    echoes=called not in self._by_themselves,
                )
            return _WHEN_ASKED if called >= 0 and self.tells_of(called, member) else NOTHING

        def asked(after: int, given: Arguments) -> Callee | None:
            if after in self._vector_calls:
                return _word_of_vector(given)
            return self._ask(sites[after], given, member, depth + 1) if after in sites else None

        def reads(after: int, places: bool) -> bool:
            if not (hint and (hint.texts or hint.spelled)):
                return False
            return (places and after in sites) or after in self._reading

        variables = self.variables
        context = Context(
            callee=callee,
            holds=variables.holds,
            pointee=variables.pointee,
            value=variables.value,
            initial=variables.initial,
            fixed=variables.fixed,
            asked=asked,
            member=member,
            reads=reads,
            spelled=hint.spelled if hint else frozenset(),
        )
        # What follows from a test alone is knowledge near the query; further on it is any result at all.
        near = not self.found.leads_to_use[index] or bool(hint and index in hint.functions)
        tells = near and self._round < _TELLING_ROUNDS and index not in self._workers
        graph = self.bodies.chart(index)
        by_others = NOTHING_GIVEN if alone else self._given.get(index, NOTHING_GIVEN)
        given = self.together(index, by_others, handed)
        flow = follow(graph, context, given, tells, arguments or {}) if graph.blocks else Flow()
        if not self._hint and index in self._asking and not flow.returns and self.bodies.ends_elsewhere(index):
            flow.returns = RAX  # what it has found out is made its result there, in whatever form
        by_number = has_alternatives(flow.result) and compared(graph.code) & ~_settled_by(arguments or {})
        flow.obeys = (flow.obeys or bool(by_number)) and self._is_told(index)
        if by_number or index in self._comparing:
            flow.result = in_part(flow.result, int(self._functions.start[index]))
        return flow

    def _is_told(self, function: int) -> bool:
        """Whether a function, or one that obeys and that it hands on to, gets anything from its callers.

        CPUID reads ECX, which most leaves leave open. Go's functions get what they are told on the stack.
        """
        found, flows = self.found, self.guards.flows
        if found.bits == 32 or found.layout.is_go(int(self._functions.start[function])):
            return True
        if self.bodies.chart(function).reads & _TOLD:
            return True
        handed_on = self.bodies.handed_on(function).items()
        return any(registers & _TOLD and flows.get(target, Flow()).obeys for target, registers in handed_on)

    def _behind(self, sites: np.ndarray | Iterable[int]) -> frozenset[int]:
        """The next addresses of calls."""
        return frozenset(self._graph.behind(np.array(list(sites), np.int64)).tolist())

    @cached_property
    def _comparisons(self) -> dict[int, str]:
        """Next addresses of the calls of library functions that compare texts -> the names of these."""
        _, names, sites = self.found.calls_of_comparing
        return dict(zip(self._graph.behind(sites).tolist(), names, strict=True))

    @cached_property
    def _comparing(self) -> set[int]:
        """Functions that compare texts: what they tell, they may tell of the feature that their caller names."""
        return set(self.found.calls_of_comparing[0].tolist())

    def tells_of(self, function: int, member: Member) -> bool:
        """Whether a function reads what may be such a member and is small enough to do so for its callers."""
        return member is not no_member and self.bodies.size(function) <= _LONGEST_QUERY and self.reads(function, member)

    def reads(self, function: int, member: Member) -> bool:
        """Whether a function reads what may be such a member of an object that only a pointer leads to."""
        return member is not no_member and any(
            member(at, size)[0] for at, size in self.bodies.loads_elsewhere(function)
        )

    def _ask(self, function: int, arguments: Arguments, member: Member, depth: int) -> Callee | None:
        """What one call of a function brings, followed with its arguments; None where they leave open what it asks."""
        expected = self.bodies.expected(function, sum(place for place in arguments if isinstance(place, int)))
        arguments = {at: value for at, value in arguments.items() if isinstance(at, tuple) or at & expected}
        key = function, frozenset(arguments.items()), member
        if key not in self._asked:
            size = self.bodies.size(function)
            if depth > _DEEPEST_QUERY or not self._questions or size > _LONGEST_QUERY:
                return None
            self._questions -= 1
            handed = for_callee(arguments, self.found.bits // 8)
            flow = self.follow(function, member=member, arguments=handed, depth=depth)
            self._asked[key] = Callee(
                returns=flow.returns,
                obeys=flow.obeys,
                outputs=flow.outputs,
                stack=flow.stack,
                value=flow.result,
                second=flow.second,
                filled=flow.filled | flow.stack_results,
                assigned=flow.assigned,
                stores=flow.stores,
                told=flow.told,
            )
        found = self._asked[key]
        return None if found.obeys else found

    def _tellers(self) -> set[int]:
        return self._returns | self._outputs | self._stacked

    def _callers(self, tellers: set[int]) -> set[int]:
        """Functions that call one of `tellers` and do something with what it tells."""
        echoing = tellers - self._by_themselves
        tellers = tellers & self._by_themselves
        tells, returns = np.zeros(len(self._functions), bool), np.zeros(len(self._functions), bool)
        tells[list(tellers)] = True
        returns[list(tellers - self._outputs - self._stacked)] = True
        calls = self._calls
        callers = set(numbers(calls.source[calls.into(tells & ~returns)], calls.count).tolist())
        returns &= np.bincount(calls.target, minlength=len(returns)) <= MOST_READERS
        doubtful = calls.into(returns)
        looked_at = doubtful[:_LOOKS]
        columns = (column[looked_at].tolist() for column in (calls.source, calls.target, calls.site))
        for source, target, site in zip(*columns, strict=True):
            if source not in callers and self._takes_result(source, site, self.guards.flows[target].returns | RAX):
                callers.add(source)
        callers |= set(calls.source[doubtful[_LOOKS:]].tolist())
        return callers.union(*map(self._giving, echoing))

    def _giving(self, function: int) -> Iterator[int]:
        """Functions that were seen to hand knowledge to this one."""
        flows, calls = self.guards.flows, self._calls.backwards
        for caller in set(calls.target[calls.among(function)].tolist()) & flows.keys():
            passes = flows[caller].passes
            if any(target == function and site in passes for site, target in self.bodies.sites(caller).items()):
                yield caller

    def _takes_result(self, function: int, site: int, registers: int) -> bool:
        """Whether code behind a call reads the registers of its result: functions without one leave anything there."""
        end = min(int(self._functions.end[function]), site + _BEHIND_CALL)
        code = facts(self.found.layout.bytes_at(site, end), site, self.found.bits)
        return takes_result(code, registers)


def _tells(flow: Flow) -> bool:
    """Whether a function was seen to tell its callers something."""
    return bool(flow.returns or flow.outputs or flow.stack)


def _word_of_vector(given: Arguments) -> Callee | None:
    """What a word of the auxiliary vector tells, by its type in the first parameter; None where that is open."""
    number = given.get(ARGUMENTS[0])
    if not isinstance(number, Options) or number.constant is None:
        return None
    name = queries("x86_64")["words"].get(str(number.constant))
    if name is None:
        return NOTHING
    bits = bit_conditions(name)
    return Callee(returns=RAX, value=word(bits) if bits else None)


def _settled_by(arguments: Arguments) -> int:
    """The parameters that are known to be one number."""
    known = (at for at, value in arguments.items() if isinstance(value, Options) and value.constant is not None)
    return sum(at for at in known if isinstance(at, int))


def _what(given: Given) -> tuple:
    """Where knowledge is handed down, apart from what it is."""
    return given.knowledge, given.pointers, given.objects.keys()


def _objects(known: Given, more: dict[tuple[int, int], Value]) -> dict[tuple[int, int], Value]:
    """What is known of objects that calls hand down: where not all hand one down, that it may hold knowledge."""
    if not (known.objects and more):
        return known.objects or more
    found = dict.fromkeys(known.objects.keys() | more.keys())
    for key in known.objects.keys() & more.keys():
        one, other = known.objects[key], more[key]
        # What a callee leaves of an object is not known; hardly one changes what the CPU told.
        found[key] = (one or other) if one is None or other is None else joined(one, ALWAYS, other, ALWAYS)
    return found


def _values(one: Given, other: Given, knowledge: int) -> dict[int, Value]:
    """What is known of the knowledge that two calls hand down: of what both do, what is known of each."""
    found: dict[int, Value] = {}
    for register in one.values.keys() | other.values.keys():
        given = [each.values.get(register) for each in (one, other) if register & each.knowledge]
        value = joined(given[0], ALWAYS, given[-1], ALWAYS)
        if register & knowledge and value is not None:
            found[register] = value
    return found
