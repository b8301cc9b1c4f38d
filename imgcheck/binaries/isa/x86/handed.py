"""What functions hand each other of what the CPU told: as parameters, results and variables, and behind pointers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from imgcheck.binaries.isa.conditions import Condition, Labels
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.values import Frame, Value, completed
from imgcheck.binaries.isa.x86.facts import RSP
from imgcheck.binaries.isa.x86.state import CALLER, Place

STRUCT = 64
"""Bytes of a structure that a callee fills through a pointer, as far as they are taken for CPU knowledge."""


@dataclass(frozen=True, slots=True)
class Callee:
    """What a call brings: knowledge of the CPU as its result, or through pointers that it gets."""

    returns: int = 0
    """Registers, as bits."""
    obeys: bool = False
    """What it tells depends on what its callers say: it runs CPUID for a leaf, or looks for a bit or an element."""
    outputs: bool = False
    stack: bool = False
    """Its results lie behind its arguments on the stack (the calling convention of Go's assembly)."""
    value: Value = None
    """What is known of its result."""
    second: Value = None
    """What is known of the other register of a result of two."""
    filled: "Filled" = field(default_factory=dict)
    """What it has left on the caller's stack, by the caller's places and by those counted from WORDS."""
    assigned: dict[int, Value] = field(default_factory=dict)
    """What this call leaves in variables whose addresses it got."""
    stores: set[int] = field(default_factory=set)
    """Those of them that it leaves knowledge in, understood or not."""
    told: set[tuple[int, int]] = field(default_factory=set)
    """The same of places on the caller's stack."""
    echoes: bool = False
    """It tells nothing but what it gets from its caller."""
    compares: str = ""
    """The name of the library function that it is, where that compares texts."""


NOTHING = Callee()
Filled = dict[tuple[int, int], Value]
Arguments = dict[Place, Value]
"""By the register, or where Go's assembly gets them by the place counted from WORDS: numbers, and addresses on the
stack."""
WORDS = CALLER << 1
"""Stands for RSP in places that are counted from the first word which a call hands over on the stack."""
NO_MEMBER = False, None


def no_member(_: int, __: int) -> tuple[bool, Value]:
    """Of no member of a structure anything is known."""
    return NO_MEMBER


Member = Callable[[int, int], tuple[bool, Value]]
Members = dict[tuple[int, int], Value]
"""Displacement and size of members of structures -> what is known of their value."""


@dataclass(slots=True)
class Context:
    """What the file knows about its surroundings when a function is looked at."""

    callee: Callable[[int], Callee]
    """(call site's next address) -> what the call brings."""
    holds: Callable[[int], bool]
    """Whether a global address holds knowledge of the CPU."""
    pointee: Callable[[int], int]
    """What the pointer at an address points to, 0 where it is none."""
    value: Callable[[int], Value]
    """What is known of the variable at a global address."""
    initial: Callable[[int, int], Value]
    """(global address, bytes) -> what lies there when the file is loaded."""
    fixed: Callable[[int, int], Value]
    """The same of what nothing can be stored to."""
    asked: Callable[[int, Arguments], Callee | None]
    """(call site's next address, arguments) -> what this very call brings, where that depends on what callers say
    or point to; None where it cannot be told."""
    member: Member
    """(displacement in a structure, wherever that lies, bytes) -> whether they hold knowledge, and which."""
    reads: Callable[[int, bool], bool]
    """(call site's next address, whether it gets where knowledge lies) -> whether a call that gets knowledge brings
    such, too, whatever it does."""
    spelled: frozenset[int] = frozenset()
    """Numbers that are knowledge."""


@dataclass(frozen=True, slots=True)
class Given:
    """What callers hand to a function."""

    knowledge: int = 0
    """Registers that bring knowledge, as bits."""
    pointers: dict[int, int] = field(default_factory=dict)
    """Registers that point to knowledge, and the global address in each."""
    values: dict[int, Value] = field(default_factory=dict)
    """What is known of that knowledge, by the register."""
    objects: dict[tuple[int, int], Value] = field(default_factory=dict)
    """What is known of knowledge in objects of the caller's, on the stack or elsewhere, by the register that points to
    one and the distance from there."""

    @property
    def key(self) -> tuple:
        """The same for what is equal, for use in a dict."""
        return self.knowledge, *(frozenset(told.items()) for told in (self.pointers, self.values, self.objects))


NOTHING_GIVEN = Given()


@dataclass(slots=True)
class Flow:
    """What one function does with what the CPU told."""

    returns: int = 0
    """Registers in which it returns knowledge, as bits."""
    outputs: bool = False
    stack: bool = False
    stores: set[int] = field(default_factory=set)
    """Global addresses that it fills with CPU knowledge."""
    structures: set[int] = field(default_factory=set)
    """Global addresses that it hands to a callee which fills them."""
    passes: dict[int, Given] = field(default_factory=dict)
    """Next address of a call -> what it hands to the callee."""
    guarded: list[Guarded] = field(default_factory=list)
    """Address ranges that run only behind a test, and what it tells."""
    tests: dict[int, Labels] = field(default_factory=dict)
    """Address of each branch that tests the CPU -> what holds where it is taken, and where it is not."""
    result: Value = None
    """What is known of what it returns."""
    assigned: dict[int, Value] = field(default_factory=dict)
    """Global address -> what is known of the value that it leaves there."""
    chosen: dict[int, Condition] = field(default_factory=dict)
    """Addresses that it returns, stores or calls, each under a condition: those of code are implementations."""
    obeys: bool = False
    """It runs CPUID for a leaf, or picks a bit or an element, that is not known here: its callers say which."""
    second: Value = None
    """What is known of RDX when it returns."""
    filled: Filled = field(default_factory=dict)
    """What it leaves on the stack of its caller, by the caller's places."""
    told: set[tuple[int, int]] = field(default_factory=set)
    """Those of them that it leaves knowledge in, understood or not."""
    stack_results: Filled = field(default_factory=dict)
    """What it leaves where its caller pushed arguments, by places counted from WORDS (the calling convention of Go's
    assembly)."""
    model: int = 0
    """Where it keeps what the compiler's run-time library found out: the address of __cpu_model."""
    members: Members = field(default_factory=dict)
    """Where it stores CPU knowledge in structures that it knows by a pointer alone, and what is known of that."""


def add_member(members: Members, place: tuple[int, int], value: Value) -> None:
    """A store of knowledge to a member, beside those that are known."""
    members[place] = completed(members[place], value) if place in members else value


def for_callee(arguments: Arguments, pushed: int) -> Arguments:
    """The arguments of a call as the callee sees them: places on the stack become those of its caller.

    `pushed`: bytes of the return address, which lies between the callee's RSP and the words that it gets.
    """
    return {
        _for_callee(place, pushed): Frame((value.place[0] + CALLER, value.place[1]))
        if isinstance(value, Frame)
        else value
        for place, value in arguments.items()
    }


def _for_callee(place: Place, pushed: int) -> Place:
    return (RSP, place[1] + pushed) if isinstance(place, tuple) else place
