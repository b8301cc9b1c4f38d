"""What a function has done when it has returned, by whichever way: what it tells, and what it leaves where."""

from collections.abc import Callable
from dataclasses import dataclass, field

from imgcheck.binaries.isa.conditions import ALWAYS, Condition, understood
from imgcheck.binaries.isa.values import Options, Value, Word, constant, joined, low, under
from imgcheck.binaries.isa.x86.facts import ARGUMENTS, RAX, RDX, RSP
from imgcheck.binaries.isa.x86.handed import WORDS, Filled, Flow
from imgcheck.binaries.isa.x86.operands import WORD
from imgcheck.binaries.isa.x86.state import CALLER, Initial, State, address_of, is_pointer

SIGNATURES = {(0x756E6547,), (0x68747541,)}
"""The beginnings of GenuineIntel and AuthenticAMD, as CPUID tells them; as in Fact.comparison."""
_COREI7 = constant(3)
"""INTEL_COREI7, a type of CPU in struct __processor_model of libgcc and compiler-rt, between vendor and subtype."""
_FEWEST_TYPES = 8
"""Numbers that the type there is at least set to; all releases have some 30."""


@dataclass(slots=True)
class Notes:
    """What is noted on the way through a function."""

    written: list[tuple[int, int, int]] = field(default_factory=list)
    """Stores to variables: the instruction's address, the variable's, bytes."""
    stored: dict[int, list[Value]] = field(default_factory=dict)
    """What is stored to each variable, wherever that happens."""
    kept_in_loops: set[int] = field(default_factory=set)
    """Variables to which a loop stores."""
    pointed: list[int] = field(default_factory=list)
    """Where numbers are stored to objects that only a pointer leads to."""
    signatures: set[tuple[int, ...]] = field(default_factory=set)
    """Those of SIGNATURES that something is compared with."""
    types: set[int] = field(default_factory=set)
    """Variables that get the number of a type of CPU."""
    has_result: bool = False
    """Some way out returns what no version has returned that was chosen here."""
    returned: list[Value] = field(default_factory=list)
    """For each way out what is known of RAX,"""
    seconds: list[Value] = field(default_factory=list)
    """of RDX,"""
    left: list[dict[int, Value]] = field(default_factory=list)
    """of the variables that were written on it,"""
    filled: list[Filled] = field(default_factory=list)
    """of places on the caller's stack,"""
    stack_results: list[Filled] = field(default_factory=list)
    """and of those counted from WORDS."""

    def store(self, where: int, value: Value, path: Condition) -> None:
        """A variable gets a value on a way through the function."""
        self.stored.setdefault(where, []).append(under(value, path))
        if low(value, 8 * WORD) == _COREI7:  # often together with the subtype
            self.types.add(where)

    def leave(self, state: State, value: Value, path: Condition) -> None:
        """The function ends, on the way `path`, and returns `value`."""
        known = state.values
        self.returned.append(under(value, path))
        self.seconds.append(under(known.get(RDX), path))
        places = [place for place in known if isinstance(place, tuple) and _is_callers(place)]
        self.filled.append({(base - CALLER, at): under(known[base, at], path) for base, at in places})
        variables = [place for place in known if isinstance(place, int) and place < 0]
        self.left.append({address_of(place): under(known[place], path) for place in variables})

    def leave_words(self, state: State, path: Condition, pushed: int) -> None:
        """What Go's assembly leaves behind its arguments; `pushed`: bytes of the return address before them."""
        places = (place for place in (*state.values, *state.slots) if isinstance(place, tuple) and place[0] == RSP)
        above = {at for _, at in places if at >= pushed}
        self.stack_results.append({(WORDS, at - pushed): under(state.values.get((RSP, at)), path) for at in above})


def told_to_caller(state: State) -> set[tuple[int, int]]:
    """Places on the caller's stack, as the caller counts them, that hold knowledge."""
    return {(base - CALLER, at) for base, at in filter(_is_callers, state.slots)}


def _is_callers(place: tuple[int, int]) -> bool:
    """Whether a place lies on the caller's stack, and not in an object that a parameter points to."""
    return place[0] >= CALLER and place[0] - CALLER not in ARGUMENTS


def summarise(flow: Flow, notes: Notes, first: Callable[[int, int], Value], initial: Initial) -> None:
    """What is known of the result and of the variables when the function has returned.

    `first` tells what lies in a variable before, `initial` what lies at any address when the file is loaded.
    """
    flow.result, flow.second = _joined(notes.returned), _joined(notes.seconds)
    flow.filled, flow.stack_results = _left(notes.filled), _left(notes.stack_results)
    for where, stored in notes.stored.items():
        before = first(where, WORD)
        known = _joined([left.get(where, before) for left in notes.left])
        if where in notes.kept_in_loops:  # no order of its stores is known
            known = None if None in stored else _joined([before, *stored])
        flow.assigned[where] = known
        is_told = isinstance(known, Options) and any(understood(condition) for _, condition in known.numbers)
        if is_told and (not is_pointer(known, initial) or _may_be_none(known)):
            flow.stores.add(where & ~3)
    if notes.signatures >= SIGNATURES:
        flow.model = _model(notes)


def tell(flow: Flow, notes: Notes, initial: Initial) -> None:
    """What a function that tests in order to tell returns, stores or has stored behind a test is knowledge, too."""
    inside = {ip for first, end, _ in flow.guarded for ip in range(first, end)}
    # Whether something went well, whatever the CPU has.
    is_status = isinstance(flow.result, Options) and all(told == ALWAYS for _, told in flow.result.numbers)
    if notes.has_result and not is_status:
        flow.returns |= RAX
    flow.outputs |= not inside.isdisjoint(notes.pointed)
    for ip, where, size in notes.written:
        # Which address is kept tells of a version at most: those of code are chosen (see Flow), and no data is a test.
        if ip in inside and not all(is_pointer(value, initial) for value in notes.stored[where]):
            flow.stores.update(range(where & ~3, where + size, 4))


def _joined(values: list[Value]) -> Value:
    """What is known where any of some paths was taken."""
    found = values[0] if values else None
    for value in values[1:]:
        found = joined(found, ALWAYS, value, ALWAYS)
    return found


def _may_be_none(pointer: Value) -> bool:
    """Whether a pointer may be 0: who asks whether it leads anywhere tests what it rests on."""
    return isinstance(pointer, Options) and not all(number for number, _ in pointer.numbers)


def _left(places: list[Filled]) -> Filled:
    """What is known of each place where some path has left something."""
    found = {place for filled in places for place in filled}
    return {place: _joined([filled[place] for filled in places if place in filled]) for place in found}


def _model(notes: Notes) -> int:
    """The address of the compilers' own record, __cpu_model, where the function fills it; else 0."""
    for where in sorted(notes.types):
        vendor, subtype = notes.stored.get(where - WORD), notes.stored.get(where + WORD)
        kinds = {low(value, 8 * WORD) for value in notes.stored[where] if isinstance(value, Options)}
        if vendor is None or subtype is None or len(kinds) < _FEWEST_TYPES:
            continue
        if not any(isinstance(value, Word) for value in vendor):  # those are words of features
            return where - WORD
    return 0
