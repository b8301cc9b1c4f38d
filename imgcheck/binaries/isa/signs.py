"""What every machine has in common of the signs that a program finds out what the CPU has without asking it.

It may catch SIGILL, try an instruction and jump back from the handler; or look for names of features in what the kernel
lists in a file. What its tests tell is not understood: they turn no answer into "dispatched", but where they stand
before a use this is not "required" for certain.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from imgcheck.binaries.isa.functions import Functions
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.ordered import distinct, numbers
from imgcheck.binaries.isa.reach import Edges

ATTEMPT = "Reached at load or start past an attempt that catches SIGILL, and by nothing else that is seen."
_WORDS = "Reached past a test of words from {}, and by nothing else that is seen; what it tells is not followed."
_WRAPPERS = {"saving": 0, "jumping": 1, "catching": 2}
"""Functions of a static C library that are called one by another down to the one with the code."""
_ALIAS = 64
"""Bytes of functions that prepare what another one does, as setjmp for sigsetjmp."""
MOST = 1000
"""References to texts, and functions that are looked at, in one file."""
Calls = tuple[np.ndarray, np.ndarray]
"""Functions, and the sites of their calls."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Signs that a program finds out what the CPU has without asking it: what tests of them tell is not understood."""

    source: str
    reason: str
    """Of a use that is reached past such tests alone."""
    functions: frozenset[int]
    """Where to look for the tests first."""
    results: frozenset[int] = frozenset()
    """Sites of calls whose results are such signs."""
    texts: frozenset[int] = frozenset()
    """Where such signs lie."""
    spelled: frozenset[int] = frozenset()
    """Numbers that spell the beginning of such a text."""
    readers: frozenset[int] = frozenset()
    """Sites of calls of other files' functions that tell something of the texts that they get, or copy them."""


@dataclass(frozen=True, slots=True)
class Words:
    """Names of features in a file that names one in which the kernel lists them."""

    file: str
    """That it names."""
    reason: str
    """To give for what such words decide."""
    texts: np.ndarray
    """Where names stand as texts of their own, perhaps with a blank before or behind them, and where these end.

    Compilers count from where they end.
    """
    spelled: np.ndarray
    """Where the pieces of names are that were looked for."""


def marks(functions: Iterable[int] | np.ndarray, count: int) -> np.ndarray:
    """Marks some functions among all."""
    found = np.zeros(count, bool)
    found[numbers(np.asarray(functions, np.int64), count)] = True
    return found


def own_calls(layout: Layout, functions: Functions, calls: Edges, kind: str) -> Calls:
    """Who calls library functions of a kind that a static program has linked in."""
    if layout.elf.interpreter or not layout.is_program:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = analysis()["attempts"][kind]["code"][layout.elf.machine]
    at = np.concatenate(layout.addresses_in_code(*map(bytes.fromhex, codes)))
    own = marks(functions.holding(at), calls.count)
    for _ in range(_WRAPPERS[kind]):
        own[calls.source[own[calls.target]]] = True
    small = functions.end - functions.start <= _ALIAS
    own[calls.source[own[calls.target] & small[calls.source]]] = True
    return calls.source[own[calls.target]], calls.site[own[calls.target]]


def jumping_back(calls: Edges, jumping: np.ndarray) -> np.ndarray:
    """Marks functions that jump to where something was saved, and those that call them."""
    back = marks(jumping, calls.count)
    back[calls.source[back[calls.target]]] = True
    return back


def attempts(calls: Edges, saving: Calls, catching: Iterable[int]) -> Hint | None:
    """Functions that save where to go on, near one that catches SIGILL by a function that jumps there."""
    near = marks(list(catching), calls.count)
    near[calls.source[near[calls.target]]] = True
    near[calls.target[near[calls.source]]] = True
    trying = near[saving[0]]
    if not trying.any():
        return None
    return Hint("SIGILL", ATTEMPT, frozenset(saving[0][trying].tolist()), frozenset(saving[1][trying].tolist()))


def words_for(features: Iterable[str]) -> list[bytes]:
    """What the kernel lists where the CPU has one of some features."""
    other = analysis()["words"]["other"]
    return [word.encode() for feature in features for word in other.get(feature, [feature])]


def words(layout: Layout, known: Iterable[bytes], pieces: Iterable[bytes] = ()) -> Words | None:
    """Where the file has `known` words as texts of their own, and `pieces` of them anywhere.

    None where it names no file in which the kernel lists such words.
    """
    files = analysis()["words"]["files"]
    named = layout.addresses_of(*(name.encode() + b"\0" for name in files))
    file = next((name for name, at in zip(files, named, strict=True) if len(at)), None)
    if file is None:  # as in most files, which are spared the look for so many and shorter texts
        return None
    forms = [form for word in known for form in (word, word + b" ", b" " + word, b" " + word + b" ")]
    places = layout.addresses_of(*(form + b"\0" for form in forms), *pieces)
    begins, spelled = places[: len(forms)], places[len(forms) :]
    ends = [at + len(form) for form, at in zip(forms, begins, strict=True)]
    none = np.empty(0, np.int64)
    texts = distinct(np.concatenate([none, *begins, *ends]))
    return Words(file, _WORDS.format(file), texts, np.concatenate([none, *spelled]))
