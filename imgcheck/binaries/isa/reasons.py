"""What the engines of all machines answer: the verdict on one feature, its reasons, and the CPUs that it is about."""

from collections.abc import Collection
from dataclasses import dataclass

from imgcheck.binaries.isa.conditions import Term
from imgcheck.documents.facts import Answer

AT_LOAD = "Reached at load or start without a test of the CPU on the way."
CONTRADICTED = "Reached at load or start {}: the tests on the way do not ask for this."
MISCHOSEN = "Code that asks the CPU picks a version that uses this {}."
MISTAKEN = "Used only where the tests of the CPU ask for something else, in code that ordinary code calls."
NAMED = "Reached at load or start without a visible test of the CPU, though by its name it is one version of several."
NOTHING_ASKS = "Nothing in the file asks the CPU what it has before it uses this."
THEIR_CALLER_MAY = "A few functions use it and nothing in this file asks the CPU; their caller may."
Kinds = tuple[tuple[str, ...], ...]
"""As IsaUse.given."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one feature of a file."""

    answer: Answer
    reason: str
    function: int = -1
    """Index of the function that shows it."""
    path: tuple[str, ...] = ()
    given: Kinds = ()


def kinds_of(terms: tuple[Term, ...], decisive: Collection[str]) -> Kinds:
    """The kinds of CPUs that terms tell apart by `decisive` features; none where there is one without any of them."""
    kinds = {tuple(sorted(literal for literal in term if literal.removeprefix("!") in decisive)) for term in terms}
    return tuple(sorted(kinds)) if all(kinds) else ()


def in_words(kinds: Kinds) -> str:
    """As in: on a CPU with avx2 and without avx512f, or with fma."""
    return "on a CPU " + ", or ".join(_kind_in_words(kind) for kind in kinds) if kinds else "on any CPU"


def _kind_in_words(kind: tuple[str, ...]) -> str:
    has = " ".join(name for name in kind if name[0] != "!")
    lacks = " ".join(name[1:] for name in kind if name[0] == "!")
    return " and ".join(filter(None, (has and f"with {has}", lacks and f"without {lacks}")))
