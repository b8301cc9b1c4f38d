"""Who asks the CPU, who passes the answer on, and which calls happen only behind a test of it.

Knowledge spreads from `cpuid`, `xgetbv` and library functions that report CPU features to the variables that they
are stored in, to the functions that return them and to the parameters that they are passed in; each round looks at
the functions that the round before made interesting, until nothing new appears.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from weakref import proxy

import numpy as np

from imgcheck.binaries.elf import ET_EXEC, PF_W, PT_GNU_RELRO, PT_LOAD, PT_TLS, Elf, Segment
from imgcheck.binaries.isa.conditions import ALWAYS, Condition, bit_conditions, understood_wholly
from imgcheck.binaries.isa.guarded import Guarded, Pieces
from imgcheck.binaries.isa.kernels.arrays import close_before
from imgcheck.binaries.isa.layout import numbers, within
from imgcheck.binaries.isa.names import analysis, queries
from imgcheck.binaries.isa.queries import imports
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.signs import Hint
from imgcheck.binaries.isa.values import (
    Options,
    Value,
    constant,
    has_alternatives,
    in_part,
    joined,
    shifted,
    tells,
    word,
)
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.dominance import merged
from imgcheck.binaries.isa.x86.encodings import QUERIES
from imgcheck.binaries.isa.x86.endings import Endings
from imgcheck.binaries.isa.x86.facts import ARGUMENTS, LEA, RAX, THREAD, Code, facts
from imgcheck.binaries.isa.x86.flow import follow
from imgcheck.binaries.isa.x86.graph import LARGEST_TABLE, LEA_OPCODE, LONGEST_IMMEDIATE
from imgcheck.binaries.isa.x86.handed import (
    NO_MEMBER,
    NOTHING,
    STRUCT,
    Arguments,
    Callee,
    Context,
    Flow,
    Given,
    Member,
    Members,
    add_member,
    for_callee,
)
from imgcheck.binaries.isa.x86.parameters import ANY, Parameters, compared, parameters, takes_result

_POINTER = 8
_ROUNDS = 8
_FUNCTION_BYTES = 1 << 16
_TOTAL_BYTES = 300_000
"""Code followed in all, so that a file made of CPU queries costs no more than a second."""
_HINTED_BYTES = 40_000
"""The same where signs are followed, which programs keep near to where they find them."""
_TELLING_ROUNDS = 3
_HANDED_ON = 2
"""Calls over which a parameter is traced that a function does nothing with itself."""
_LOOKS = 10_000
"""Calls looked at in a round to see whether their results are wanted; those of all others are taken to be."""
_BEHIND_CALL = 64
"""Bytes from a call on that are read to see whether its result is wanted."""
_NOTHING = Given()
_BY_TYPE = Callee(returns=RAX, obeys=True)
"""What a call for a word of the auxiliary vector brings where its type is open."""
_A_SIGN = Callee(returns=RAX)
"""What a call brings whose result is a sign of what the CPU has."""
_FEATURES, _MODEL = 12, 16
"""Where the word of features lies in struct __processor_model of libgcc and compiler-rt, and the size of that."""
_FURTHER = (0, 4, 8)
"""Words of __cpu_features2, which has what that one has no room for."""
_SMALLEST_FIELD = 64
"""Smaller displacements occur in every structure: a member there may be any structure's."""
_LARGEST_FIELD = 1 << 32
"""From here on they are those of the thread's block, to which a register adds the variable's place."""
_DEEPEST_QUERY, _MOST_QUERIES, _LONGEST_QUERY = 3, 512, 1024
"""Calls from one to the next of functions whose answers depend on what callers say, such calls that are followed in a
file, and bytes of such a function."""
_ACCESSOR = 256
_READERS = 3000
"""A variable that more functions read is no CPU flag but, say, a size derived from one; so is the result of a function
that is called from more places."""


def _no_member(_: int) -> tuple[bool, Value]:
    return NO_MEMBER


@dataclass
class Guards:
    """Per function: `asks` (asks or tests), and what is necessary for its calls and uses to happen."""

    flows: dict[int, Flow] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    """Functions that ask but were too long to follow: all they do counts as behind a test."""

    def asks(self, count: int) -> np.ndarray:
        marks = np.zeros(count, bool)
        marks[list(self.flows)] = True
        marks[list(self.skipped)] = True
        return marks

    def tests(self, count: int) -> np.ndarray:
        """Which functions do something behind a test, or may."""
        marks = np.zeros(count, bool)
        marks[[function for function, flow in self.flows.items() if flow.guarded]] = True
        marks[list(self.skipped)] = True
        return marks

    @property
    def conditions(self) -> list[Condition]:
        """What the numbers of `at` stand for."""
        return self._pieces.conditions

    def at(self, functions: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """The number of the condition under which each address, inside the function of the same row, is reached.

        The addresses are sorted, and far more than what is known of them.
        """
        out = np.zeros(len(addresses), np.int32)
        for rows, number in self._inside(addresses):
            out[rows] = number
        if self.skipped:
            out[np.isin(functions, np.array(list(self.skipped), functions.dtype))] = 1
        return out

    def known(self, functions: np.ndarray, addresses: np.ndarray, count: int) -> np.ndarray:
        """Which of all functions hold addresses of whose conditions something is known, as `at` gets them."""
        marks = np.zeros(count, bool)
        for rows, _ in self._inside(addresses):
            marks[functions[rows]] = True
        marks[list(self.skipped)] = True
        return marks

    def _inside(self, addresses: np.ndarray) -> Iterator[tuple[slice, int]]:
        """Which of the sorted addresses each piece holds that holds any, and the number of its condition."""
        pieces = self._pieces
        # Numbers of another type would have all addresses copied into theirs.
        bounds = (column.astype(addresses.dtype) for column in (pieces.start, pieces.end))
        first, last = (np.searchsorted(addresses, column) for column in bounds)
        for at in np.flatnonzero(first < last).tolist():
            yield slice(first[at], last[at]), pieces.number[at]

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces.of(piece for flow in self.flows.values() for piece in flow.guarded)

    @property
    def understood(self) -> np.ndarray:
        """Which conditions, by number, tell of features and of nothing else."""
        return self._pieces.understood

    def exposing(self, feature: str) -> np.ndarray:
        """Which conditions, by number, do not shield `feature`."""
        return self._pieces.exposing(feature)

    def guarded(self) -> dict[int, list[Guarded]]:
        """What is known of each function, for `restore`."""
        return {function: flow.guarded for function, flow in self.flows.items()}

    def restore(self, guarded: dict[int, list[Guarded]]) -> None:
        """Forget what closer looks have shown since."""
        for function, flow in self.flows.items():
            flow.guarded = guarded.get(function, [])
        self.__dict__.pop("_pieces", None)

    def narrow(self, function: int, more: list[Guarded]) -> bool:
        """Adds what a closer look at a function shows; whether anything is new."""
        known = self.flows.setdefault(function, Flow())
        together = merged(known.guarded, more)
        if together == known.guarded:
            return False
        known.guarded = together
        self.__dict__.pop("_pieces", None)
        return True


class Spread:
    """The rounds. `found` is the file's Findings."""

    def __init__(self, found, hint: Hint | None = None) -> None:
        """`hint`: follow this instead of what the CPU tells."""
        # The findings own this: a reference back would keep the file's bytes, whose map could then not be closed.
        self.found = proxy(found)
        self.graph, self.functions = found.graph, found.functions
        self.hint = hint
        self.guards = Guards()
        self.returns: set[int] = set()
        self.outputs: set[int] = set()
        self.stacked: set[int] = set()
        self.given: dict[int, Given] = {}
        self.variables: set[int] = set()
        self.budget = self.unread = _HINTED_BYTES if hint else _TOTAL_BYTES
        """Bytes of functions that may still be followed, and of those that may be read for their parameters alone."""
        self.round = 0
        self.askers: set[int] = set()
        self.resolvers: set[int] = set()
        self._data = [
            (s.vaddr, s.vaddr + s.memsz)
            for s in found.layout.elf.segments
            if s.type == PT_LOAD and s.flags & PF_W and s.vaddr + s.memsz < 1 << 62
        ]
        relro = (s for s in found.layout.elf.segments if s.type == PT_GNU_RELRO)
        self._settled = next((range(s.vaddr, s.vaddr + s.memsz) for s in relro), range(0))
        """Where the loader alone stores."""
        self._thread = _thread_block(found.layout.elf)
        if self._thread:
            self._data.append((self._thread[0], THREAD))
        self._codes: dict[int, Code] = {}
        self._charted: dict[int, ControlFlow] = {}
        self._endings = Endings(self.found)
        self._parameters: dict[int, Parameters] = {}
        self._asked: dict[tuple, Callee] = {}
        """What calls bring that were followed by themselves, by function and arguments."""
        self._questions = _MOST_QUERIES
        self._put_off: set[int] = set()
        """Functions that would have been followed, had bytes been left for that."""
        self._called_at: dict[int, dict[int, int]] = {}
        self._looked_at: dict[tuple, tuple[Flow, list[list[Guarded]]]] = {}
        """Steps of paths that were looked at again, by function and what it is handed."""
        self._records: dict[int, str] = {}
        """Words of the compilers' own record, by address, and what each is called in rules/analysis/isa.toml."""
        self._restated: set[int] = set()
        """Variables of which something else is known than when their readers were looked at."""
        self._retold: set[int] = set()
        """Functions that bring something else than when their callers were looked at."""
        self._initials: dict[tuple[int, int], Value] = {}
        self._assigned: dict[int, dict[int, Value]] = {}
        """Address of a variable -> what each function that writes to it leaves there."""
        self._behind: set[int] = set()
        """Functions that are called behind tests alone: what they do happens under conditions that they do not show."""
        self._called_freely: dict[int, int] = {}
        """Functions that are called without a test -> the round in which that was seen."""
        self._calls: Edges = self.graph.calls
        known = [] if hint else list(found.query_symbols)
        self._imports = set(self.graph.imported(known)[2].tolist()) if known else set()
        self._vector_calls = set() if hint else set(found.vector_calls[1].tolist())

    def run(self) -> Guards:
        self.variables |= set() if self.hint else self._query_slots()
        self.askers = set(self.hint.functions) if self.hint else set(self.found.askers.tolist())
        self.resolvers = set(self.found.resolvers.tolist())
        pending = self.askers
        for self.round in range(_ROUNDS):
            tellers, variables = self._tellers(), set(self.variables)
            changed = self._follow_all(pending - self.resolvers)
            pending = changed | self._callers((self._tellers() - tellers) | self._retold)
            self._retold.clear()
            pending |= self._worth_following(self._readers((self.variables - variables) | self._restated))
            self._restated.clear()
            if not pending:
                break
        if self.hint:
            return self.guards
        # Resolvers of IFUNCs only hand out addresses: nothing for other functions follows from them.
        asking = set(np.flatnonzero(self.found.using(*QUERIES)).tolist())
        last = self.resolvers if self._understands else self.resolvers & asking
        self._follow_all(last - self.guards.flows.keys())
        return self.guards

    @property
    def _understands(self) -> bool:
        """Whether some variable of the file is known to tell of certain features."""
        return bool(self._records) or any(tells(v) for known in self._assigned.values() for v in known.values())

    def _worth_following(self, pending: set[int]) -> set[int]:
        """Those that lead to a use of an extension or choose one, and those as small as what hands knowledge on."""
        chosen = np.array(sorted(pending), np.int64)
        size = self.functions.end[chosen] - self.functions.start[chosen]
        return set(chosen[self._deciding[chosen] | (size <= _ACCESSOR)].tolist())

    @cached_property
    def _deciding(self) -> np.ndarray:
        """Functions that lead to a use, or take the address of one that does, or of a table of such."""
        leads = self.found.leads_to_use
        marks = leads.copy()
        taken = self.graph.taken
        marks[taken.source[leads.take(taken.target)]] = True
        pointers = self.found.layout.pointers
        index = self.graph.starting_at(pointers.target)
        site, target, kind = self.graph.references
        named = np.flatnonzero(kind == LEA_OPCODE)
        users = pointers.slot[(index >= 0) & leads[index]]
        tables = named[_leads_to(target[named], users, LARGEST_TABLE)]
        marks[numbers(self.functions.holding(site[tables]), len(self.functions))] = True
        return marks

    def _query_slots(self) -> set[int]:
        return {int(a) & ~3 for a in self.found.query_addresses.tolist()}

    def _follow_all(self, pending: set[int]) -> set[int]:
        """Follows the functions; those whose parameters a caller's hand-over marked come back."""
        marked: set[int] = set()
        sizes = {i: int(self.functions.end[i] - self.functions.start[i]) for i in pending}
        leads = self.found.leads_to_use
        for index, size in sorted(sizes.items(), key=lambda item: (not leads[item[0]], item[1])):
            if size > _FUNCTION_BYTES or size > self.budget:
                self._put_off.add(index)
                if index in self.askers and index not in self.guards.flows:
                    self.guards.skipped.add(index)
                continue
            self.budget -= size
            flow = self._follow(index)
            before = self.guards.flows.get(index)
            if before and (before.result, before.second) != (flow.result, flow.second):
                self._retold.add(index)
            self.guards.flows[index] = flow
            if flow.returns:
                self.returns.add(index)
            if flow.outputs:
                self.outputs.add(index)
            if flow.stack:
                self.stacked.add(index)
            self._assign(index, flow)
            if flow.model:
                self._note_record(flow.model, index)
            self._remember(flow.stores)
            if not self.hint:
                self._remember({(a & ~3) + i for a in flow.structures for i in range(0, STRUCT, 4)})
            marked |= self._hand_over(index, flow)
        return marked

    def _note_record(self, model: int, function: int) -> None:
        """The function fills the compilers' own record, whose first part, __cpu_model, lies at the address `model`.

        The other part, __cpu_features2, is filled bit by bit, as no store shows. It belongs to the same object file:
        libgcc's stands before the model, compiler-rt's behind it, and some functions there name it.
        """
        self._records[model + _FEATURES] = "__cpu_model.12"
        before, behind = model - _MODEL, model + _MODEL
        site, target, _ = self.graph.references
        near = np.flatnonzero((target >= before) & (target <= behind + _FURTHER[-1]))
        callees = self._calls.target[self._calls.among(function)]
        filling = np.isin(self.functions.holding(site[near]), [function, *callees.tolist()])
        named = set(target[near[filling]].tolist())
        for at in _FURTHER:
            if before in named:
                self._records[before + at] = f"__cpu_features2.{at}"
            elif behind + at in named:
                self._records[behind + at] = f"__cpu_features2.{at}"
        self._remember(set(self._records))

    def _assign(self, index: int, flow: Flow) -> None:
        for address, value in flow.assigned.items():
            before = self._value(address) if self._holds(address) else None
            known = self._assigned.setdefault(address, {})
            if known.get(index) != value:
                known[index] = value
                self._asked.clear()  # what was told may rest on what was known of it
            if before is not None and before != self._value(address):
                self._restated.add(address & ~3)

    def _put_behind(self, function: int) -> None:
        if function not in self._behind and not self._is_called_freely(function):
            self._behind.add(function)
            self._restated |= {a & ~3 for a in self.guards.flows.get(function, Flow()).assigned if self._holds(a)}

    def _is_called_freely(self, function: int) -> bool:
        """Whether some call of a function is behind no test, as far as is seen; looked up once in a round."""
        if self._called_freely.get(function) == self.round:
            return True
        calls = self._calls.backwards
        own = calls.among(function)
        called = zip(calls.target[own].tolist(), calls.site[own].tolist(), strict=True)
        freely = not all(self._is_behind_test(source, site) for source, site in called)
        if freely:
            self._called_freely[function] = self.round
        return freely

    def _is_behind_test(self, function: int, site: int) -> bool:
        guarded = self.guards.flows.get(function, Flow()).guarded
        before = bisect_right(guarded, site, key=lambda piece: piece[0]) - 1
        return before >= 0 and site < guarded[before][1]

    def _remember(self, addresses: set[int]) -> None:
        """Code cannot be stored to, and what lies outside the file's segments is a miscalculated address."""
        for first, end in self._data:
            self.variables |= {a for a in addresses if first <= a < end}

    def _hand_over(self, index: int, flow: Flow) -> set[int]:
        marked = set()
        for site, target in self._sites(index).items():
            if self._is_behind_test(index, site - 1):
                self._put_behind(target)
            known = self.given.get(target, _NOTHING)
            more = self._together(target, known, flow.passes[site]) if site in flow.passes else known
            if more != known:
                self.given[target] = more
                # What exactly is handed down is settled in a few rounds, or changes with each.
                if self.round < _TELLING_ROUNDS or _what(more) != _what(known):
                    marked.add(target)
        return marked

    def _together(self, function: int, known: Given, more: Given) -> Given:
        """What is given to a function, by this call too. A pointer that is not always the same is knowledge itself."""
        pointers = {r: at for r, at in {**more.pointers, **known.pointers}.items() if more.pointers.get(r, at) == at}
        changing = (sum(more.pointers) | sum(known.pointers)) & ~sum(pointers)
        new = (more.knowledge | changing) & ~known.knowledge
        knowledge = known.knowledge | self.expected(function, new)
        expected = sum(known.pointers) | self.expected(function, sum(pointers) & ~sum(known.pointers))
        pointers = {r: at for r, at in pointers.items() if r & expected & ~knowledge}
        registers = {register for register, _ in more.objects}
        wanted = self.expected(function, sum(registers)) if registers else 0
        objects = {key: value for key, value in more.objects.items() if key[0] & wanted}
        return Given(knowledge, pointers, _values(known, more, knowledge), _objects(known, objects))

    def expected(self, function: int, registers: int, steps: int = _HANDED_ON) -> int:
        """Those of `registers` that the function, or one that it hands them on to, takes for parameters."""
        if not registers:
            return 0
        taken = self._taken(function)
        expected = registers & taken.read
        for site, target in self._sites(function).items() if steps else ():
            handed_on = registers & ~expected & taken.passed.get(site, 0)
            expected |= self.expected(target, handed_on, steps - 1)
        return expected

    def hands_out(self, function: int, registers: int) -> int:
        """Those of `registers` that the function leaves as they are for one of another file, as atexit does."""
        sites = self._sites(function)
        passed = (kept for site, kept in self._taken(function).passed.items() if site not in sites)
        return registers & reduce(or_, passed, 0)

    def _taken(self, function: int) -> Parameters:
        """The parameters of a function; of one that is too long to read all that there can be."""
        if function not in self._parameters:
            read = self._affords(function)
            self._parameters[function] = parameters(self._chart(function).code) if read else ANY
        return self._parameters[function]

    def _sites(self, index: int) -> dict[int, int]:
        """Next address of each call in a function -> the function called."""
        if index not in self._called_at:
            self._called_at[index] = self._read_sites(index)
        return self._called_at[index]

    def _read_sites(self, index: int) -> dict[int, int]:
        own = self._calls.among(index)
        sites, targets = self._calls.site[own].tolist(), self._calls.target[own].tolist()
        # A call or jump is 5 bytes, a conditional jump or a call through memory 6.
        return {s + size: t for s, t in zip(sites, targets, strict=True) for size in (6, 5)}

    def retrace(self, steps: list[int], suspecting: bool) -> bool:
        """Follows a path from its root with what each call hands down; whether tests show that stood unseen before.

        Knowledge that lies in objects on the heap is looked for here alone: to follow it everywhere would take every
        structure with a member at the same place for one that holds it. Members near the beginning of one count where
        a test of them is understood, and the others where any is suspected.
        """
        handed = _NOTHING
        new = False
        for index, after in zip(steps, [*steps[1:], -1], strict=True):
            if self.functions.end[index] - self.functions.start[index] > _FUNCTION_BYTES:
                handed = _NOTHING
                continue
            flow, tests = self._look_closer(index, handed, suspecting)
            for guarded in tests:
                new |= self.guards.narrow(index, guarded)
            sites = self._sites(index)
            handed = _NOTHING
            for site in (s for s, t in sites.items() if t == after and s in flow.passes):
                handed = self._together(after, handed, flow.passes[site])
        return new

    def _look_closer(self, index: int, handed: Given, suspecting: bool) -> tuple[Flow, list[list[Guarded]]]:
        """What a step of a path does with what it is handed, and the tests in it; kept, as paths share their steps."""
        key = index, handed.key, suspecting
        if key not in self._looked_at:
            far, near = self._suspects[suspecting]
            is_new = handed.key != _NOTHING.key or self._may_be_unseen(index) or self._reads(index, far)
            flow = self._follow(index, handed, far) if is_new else self.guards.flows.get(index, Flow())
            tests = [flow.guarded]
            if self._reads(index, near):
                closer = self._follow(index, handed, near)
                tests.append([piece for piece in closer.guarded if suspecting or understood_wholly(piece[2])])
                flow = closer if suspecting else flow
            self._looked_at[key] = flow, tests
        return self._looked_at[key]

    def _may_be_unseen(self, function: int) -> bool:
        """Whether the rounds had no bytes left for a function, or no reason to follow it though it may know something.

        Where a program names variables by their addresses alone, nobody knows which functions do.
        """
        named = self.found.layout.elf.type == ET_EXEC
        return named or function in self._put_off or function in self._informed

    @cached_property
    def _informed(self) -> set[int]:
        """Functions that refer to a variable where something is seen to be stored, or to a structure with one."""
        variables, pointers = np.array(sorted(self._assigned), np.int64), self.found.layout.pointers
        site, target, _ = self._data_references
        near = _leads_to(target, variables, STRUCT)
        near |= within(target, pointers.slot[_leads_to(pointers.target, variables, STRUCT)])
        return set(numbers(self.functions.holding(site[near]), len(self.functions)).tolist())

    def _reads(self, function: int, member: Member) -> bool:
        """Whether a function reads what may be one of those members."""
        if member is _no_member:
            return False
        code = self._read(function)
        loads = (memory for fact in code.facts for memory in fact.loads)
        elsewhere = {memory.displacement for memory in loads if not memory.relative and not memory.base & code.stack}
        return any(member(displacement)[0] for displacement in elsewhere)

    @cached_property
    def _suspects(self) -> tuple[tuple[Member, Member], ...]:
        """Members of objects that the rounds have seen filled with knowledge: those far from the beginning, and all.

        First where what is known of them has to be understood, then where any is suspected.
        """
        members: Members = {}
        for flow in self.guards.flows.values():
            for place, value in flow.members.items():
                add_member(members, place, value)
        far = {place: value for place, value in members.items() if _SMALLEST_FIELD <= place[0] < _LARGEST_FIELD}
        told = {place: value for place, value in far.items() if value is not None}
        return tuple((_member_of(seen), _member_of({} if seen == members else members)) for seen in (told, far))

    def _follow(
        self,
        index: int,
        handed: Given = _NOTHING,
        member: Member = _no_member,
        arguments: Arguments | None = None,
        depth: int = 0,
    ) -> Flow:
        sites = self._sites(index)
        imports, hint = self._imports, self.hint

        def callee(after: int, target: int) -> Callee:
            if after - 5 in imports or after - 6 in imports:
                return Callee(returns=RAX, outputs=True)
            if self._asks_for_word(after):
                return _BY_TYPE
            if hint and not hint.results.isdisjoint((after - 5, after - 6)):
                return _A_SIGN
            called = sites.get(after, -1)
            if called in self.resolvers:  # what is called through a slot that a resolver fills is what it has chosen
                return NOTHING
            if called in self.returns or called in self.outputs or called in self.stacked:
                flow = self.guards.flows[called]
                told = flow.returns, flow.obeys, called in self.outputs, called in self.stacked
                return Callee(*told, flow.result, filled=flow.stack_results)
            return NOTHING

        def asked(after: int, given: Arguments) -> Callee | None:
            if self._asks_for_word(after):
                return _word_of_vector(given)
            return self._ask(sites[after], given, depth + 1) if after in sites else None

        def reads(after: int, places: bool) -> bool:
            if not (hint and (hint.texts or hint.spelled)):
                return False
            return (places and after in sites) or not hint.readers.isdisjoint((after - 5, after - 6))

        spelled = hint.spelled if hint else frozenset()
        values = self._value, self._initial, self._fixed
        context = Context(callee, self._holds, self._pointee, *values, asked, member, reads, spelled)
        # What follows from a test alone is knowledge near the query; further on it is any result at all.
        near = not self.found.leads_to_use[index] or bool(hint and index in hint.functions)
        tells = near and self.round < _TELLING_ROUNDS
        graph = self._chart(index)
        given = self._together(index, self.given.get(index, _NOTHING), handed)
        flow = follow(graph, context, given, tells, arguments or {}) if graph.blocks else Flow()
        by_number = has_alternatives(flow.result) and compared(graph.code) & ~_settled_by(arguments or {})
        flow.obeys |= bool(by_number)
        if by_number or index in self._asked_by_name:
            flow.result = in_part(flow.result, int(self.functions.start[index]))
        return flow

    def _asks_for_word(self, after: int) -> bool:
        """Whether the call before an address asks for a word of the auxiliary vector."""
        return after - 5 in self._vector_calls or after - 6 in self._vector_calls

    @cached_property
    def _asked_by_name(self) -> set[int]:
        """Functions that compare texts: what they tell, they tell of the feature that their caller names."""
        symbols = imports(self.found.layout, analysis()["texts"]["functions"])
        return set(self.graph.imported(list(symbols))[0].tolist())

    def _ask(self, function: int, arguments: Arguments, depth: int) -> Callee | None:
        """What one call of a function brings, followed with its arguments; None where they leave open what it asks."""
        expected = self.expected(function, sum(place for place in arguments if isinstance(place, int)))
        arguments = {at: value for at, value in arguments.items() if isinstance(at, tuple) or at & expected}
        key = function, frozenset(arguments.items())
        if key not in self._asked:
            size = int(self.functions.end[function] - self.functions.start[function])
            if depth > _DEEPEST_QUERY or not self._questions or size > _LONGEST_QUERY:
                return None
            self._questions -= 1
            flow = self._follow(function, arguments=for_callee(arguments), depth=depth)
            self._asked[key] = Callee(
                flow.returns,
                flow.obeys,
                flow.outputs,
                flow.stack,
                flow.result,
                flow.second,
                flow.filled | flow.stack_results,
                flow.assigned,
                flow.stores,
                flow.told,
            )
        found = self._asked[key]
        return None if found.obeys else found

    def _chart(self, index: int) -> ControlFlow:
        if index not in self._charted:
            self._charted[index] = ControlFlow(self._endings.marked(self._read(index), self._sites(index)))
        return self._charted[index]

    def _read(self, index: int) -> Code:
        """The instructions of a function, where nobody asks which calls return."""
        if index not in self._codes:
            start, end = int(self.functions.start[index]), int(self.functions.end[index])
            self._codes[index] = facts(self.found.layout.bytes_at(start, end), start, self.found.bits)
        return self._codes[index]

    def _value(self, address: int) -> Value:
        """What is known of a variable once those functions that write to it have run."""
        if address in self._records:
            return word(bit_conditions(self._records[address]))
        writers = self._assigned.get(address)
        if not writers or not self._behind.isdisjoint(writers):
            return None
        value, *others = writers.values()
        for other in others:
            value = joined(value, ALWAYS, other, ALWAYS)
        return value

    def _initial(self, address: int, size: int) -> Value:
        """The number that lies at an address when the file is loaded."""
        key = address, size
        if key not in self._initials:
            self._initials[key] = self._loaded(address, size)
        return self._initials[key]

    def _fixed(self, address: int, size: int) -> Value:
        writable = any(first <= address < end for first, end in self._data)
        if writable and address not in self._settled:
            return None
        pointer = self._pointee(address) if size == _POINTER else 0
        return constant(pointer) if pointer else self._initial(address, size)

    def _loaded(self, address: int, size: int) -> Value:
        if self._thread and self._thread[0] <= address < THREAD:
            first, segment = self._thread
            address += segment.vaddr - first
        number = self.found.layout.number_at(address, size)
        return None if number is None else constant(number)

    def _holds(self, address: int) -> bool:
        return (address & ~3) in self.variables or (self.hint is not None and address in self.hint.texts)

    def _pointee(self, address: int) -> int:
        pointers = self.found.layout.pointers
        at = int(np.searchsorted(pointers.slot, address)) if address < 1 << 62 else len(pointers.slot)
        if at < len(pointers.slot) and pointers.slot[at] == address and pointers.target[at] > 0:
            return int(pointers.target[at])
        return 0

    def _tellers(self) -> set[int]:
        return self.returns | self.outputs | self.stacked

    def _callers(self, tellers: set[int]) -> set[int]:
        """Functions that call one of `tellers` and do something with what it tells."""
        tells, returns = np.zeros(len(self.functions), bool), np.zeros(len(self.functions), bool)
        tells[list(tellers)] = True
        returns[list(tellers - self.outputs - self.stacked)] = True
        calls = self._calls
        callers = set(numbers(calls.source[(tells & ~returns).take(calls.target)], calls.count).tolist())
        returns &= np.bincount(calls.target, minlength=len(returns)) <= _READERS
        doubtful = np.flatnonzero(returns.take(calls.target))
        looked_at = doubtful[:_LOOKS]
        for source, site in zip(calls.source[looked_at].tolist(), calls.site[looked_at].tolist(), strict=True):
            if source not in callers and self._takes_result(source, site):
                callers.add(source)
        return callers | set(calls.source[doubtful[_LOOKS:]].tolist())

    def _takes_result(self, function: int, site: int) -> bool:
        """Whether code behind a call reads the register of its result: functions without one leave anything there."""
        end = min(int(self.functions.end[function]), site + _BEHIND_CALL)
        code = facts(self.found.layout.bytes_at(site, end), site, self.found.bits)
        return takes_result(code)

    @cached_property
    def _data_references(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sites and targets of the references that may be to variables, and which take an address.

        Most references are to code and constants.
        """
        site, target, kind = self.graph.references
        taken = kind == LEA_OPCODE
        if self._thread:
            more = self.graph.thread_references
            site, target = np.append(site, more[0]), np.append(target, more[1])
            taken = np.append(taken, np.zeros(len(more[0]), bool))
        inside = np.zeros(len(target), bool)
        for first, end in self._data:
            inside |= (target >= first - LONGEST_IMMEDIATE) & (target < end)
        return site[inside], target[inside], taken[inside]

    def _readers(self, held: set[int]) -> set[int]:
        """Functions that refer to one of the variables `held`, directly or through a pointer to it.

        Those that use or choose something may refer to a structure that has it as a member, where it is understood.
        """
        variables = np.array(sorted(held), np.int64)
        if not len(variables):
            return set()
        site, target, _ = self._data_references
        near = np.zeros(len(target), bool)
        for shift in (0, 1, LONGEST_IMMEDIATE):  # the scan does not know the immediate behind the operand
            near |= within((target + shift) & ~3, variables)
        pointers = self.found.layout.pointers
        near |= within(target, pointers.slot[within(pointers.target & ~3, variables)])
        readers = set(numbers(self.functions.holding(site[near]), len(self.functions)).tolist())
        readers |= self._readers_of_members(variables) | self._pointing_into(variables)
        return readers if len(readers) <= _READERS else set()

    def _readers_of_members(self, variables: np.ndarray) -> set[int]:
        """Functions that use or choose something and take the address of a structure, one of whose members they read.

        Only of members that are understood: any address comes before some variable.
        """
        told = {v for v in variables.tolist() if any(tells(self._value(v + i)) for i in range(4))}
        found: set[int] = set()
        for function, distances in self._distances(told, self._deciding).items():
            if self._affords(function) and self._reads(function, lambda d, among=distances: (d in among, None)):
                found.add(function)
        return found

    def _pointing_into(self, variables: np.ndarray) -> set[int]:
        """Small functions that work out where an element of an array in such a structure lies.

        What they return leads to what the CPU told, as glibc's __x86_get_cpuid_feature_leaf does.
        """
        small = self.functions.end - self.functions.start <= _ACCESSOR
        structures = self._distances(set(variables.tolist()), small)
        return {f for f, distances in structures.items() if self._affords(f) and self._points_to_element(f, distances)}

    def _points_to_element(self, function: int, distances: set[int]) -> bool:
        """Whether a function takes the address of an element of an array that lies so far from some base."""
        made = (fact.loads[0] for fact in self._read(function).facts if fact.kind == LEA)
        return any(memory.base and memory.index and memory.displacement in distances for memory in made)

    def _distances(self, variables: set[int], among: np.ndarray) -> dict[int, set[int]]:
        """How far the `variables` lie from addresses that functions take, by those of the functions that are marked."""
        site, target, taken = self._data_references
        before = np.flatnonzero(taken & _leads_to(target, np.array(sorted(variables), np.int64), STRUCT))
        holder = self.functions.holding(site[before])
        structures: dict[int, set[int]] = defaultdict(set)
        for function, address in zip(holder.tolist(), target[before].tolist(), strict=True):
            if function >= 0 and among[function]:
                structures[function].update(d for d in range(STRUCT) if (address + d) & ~3 in variables)
        return structures

    def _affords(self, function: int) -> bool:
        """Whether a function may be read, besides those that are followed."""
        size = int(self.functions.end[function] - self.functions.start[function])
        known = function in self._codes
        affordable = known or size <= min(_FUNCTION_BYTES, self.unread)
        self.unread -= size if affordable and not known else 0
        return affordable


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


def _leads_to(addresses: np.ndarray, variables: np.ndarray, span: int) -> np.ndarray:
    """Whether one of the sorted variables lies within so many bytes from each address on."""
    return close_before(variables, span, addresses) >= 0


def _member_of(members: Members) -> Member:
    """What is known of a member, also of one that begins inside another: compilers test one byte of a word."""
    if not members:
        return _no_member

    def member(displacement: int) -> tuple[bool, Value]:
        holders = [(at, size) for at, size in members if at <= displacement < at + size]
        if not holders:
            return NO_MEMBER
        at, size = max(holders)
        return True, shifted(members[at, size], -8 * (displacement - at), 8 * size)

    return member


def _thread_block(elf: Elf) -> tuple[int, Segment] | None:
    """Where a program's thread-local variables begin, and the segment with what they hold at first."""
    segment = next((s for s in elf.segments if s.type == PT_TLS and 0 < s.memsz < THREAD), None)
    if segment is None:
        return None
    align = max(segment.align, 1)
    return THREAD - -(-segment.memsz // align) * align, segment


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
    found = {}
    for register in one.values.keys() | other.values.keys():
        given = [each.values.get(register) for each in (one, other) if register & each.knowledge]
        value = joined(given[0], ALWAYS, given[-1], ALWAYS)
        if register & knowledge and value is not None:
            found[register] = value
    return found
