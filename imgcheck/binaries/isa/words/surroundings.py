"""What a function of words gets from the rest of its file while it is followed, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass, field

from imgcheck.binaries.isa.conditions import NEVER, Condition, either
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.values import Value
from imgcheck.binaries.isa.words.code import Convention
from imgcheck.binaries.isa.words.state import NOTHING, Known


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
