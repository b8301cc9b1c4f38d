"""Where AArch64 and ppc64le code shows signs that a program finds out what the CPU has without asking it (signs.py)."""

from collections.abc import Iterable

import numpy as np

from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.queries import foreign
from imgcheck.binaries.isa.signs import (
    MOST,
    Calls,
    Hint,
    attempts,
    jumping_back,
    own_calls,
    words,
    words_for,
)
from imgcheck.binaries.isa.words.code import Code


def hints(code: Code, features: Iterable[str]) -> tuple[Hint, ...]:
    """The signs in one file that uses some features."""
    return tuple(hint for hint in (_attempts(code), _words(code, features)) if hint)


def _attempts(code: Code) -> Hint | None:
    saving, jumping = _calls(code, "saving"), _calls(code, "jumping")
    if not len(saving[0]) or not len(jumping[0]):
        return None
    functions, sites = _calls(code, "catching")
    kept = _taking(code, jumping_back(code.calls, jumping[0]))[functions] & _handed_signal(code, functions, sites)
    return attempts(code.calls, saving, functions[kept].tolist())


def _calls(code: Code, kind: str) -> Calls:
    """Who calls library functions of a kind, of other files or linked in."""
    sites = _sites_of_imports(code, analysis()["attempts"][kind]["functions"])
    callers = code.functions.holding(sites)
    own = own_calls(code.layout, code.functions, code.calls, kind)
    return np.append(callers[callers >= 0], own[0]), np.append(sites[callers >= 0], own[1])


def _sites_of_imports(code: Code, patterns: list[str]) -> np.ndarray:
    """Direct calls of other files' functions whose names fit globs."""
    slots = foreign(code.layout, patterns)
    wanted = frozenset(np.concatenate(list(slots.values())).tolist()) if slots else frozenset()
    stubs = [stub for stub, slot in code.stubs.items() if slot in wanted] if wanted else []
    sites, targets = code.branches
    return sites[np.isin(targets, np.array(stubs, np.int64))]


def _taking(code: Code, back: np.ndarray) -> np.ndarray:
    """Marks functions that take the address of one that is marked, and those that they call, which may be given it."""
    sites, targets = code.addresses
    taken = np.maximum(code.index(targets), code.index(code.layout.pointed(targets)))
    found = code.holding(sites[(taken >= 0) & back[taken]])
    found[code.calls.target[found[code.calls.source]]] = True
    return found


def _handed_signal(code: Code, functions: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Which calls get SIGILL as their first parameter: it is made in the same function, behind the call before."""
    handing = np.sort(code.handing(analysis()["attempts"]["signal"]))
    branches = np.sort(code.branches[0])
    made = np.append(-1, handing)[np.searchsorted(handing, sites)]
    before = np.append(-1, branches)[np.searchsorted(branches, sites)]
    return (made > before) & (made >= code.functions.start[functions])


def _words(code: Code, features: Iterable[str]) -> Hint | None:
    """Functions that name features, in a file that names one of those in which the kernel lists them."""
    named = words(code.layout, words_for(features))
    if named is None:
        return None
    texts = named.texts
    sites, targets = code.addresses
    naming = sites[np.isin(targets, texts) | np.isin(code.layout.pointed(targets), texts)][:MOST]
    functions = frozenset(np.flatnonzero(code.holding(naming)).tolist())
    readers = frozenset(_sites_of_imports(code, analysis()["words"]["functions"]).tolist())
    if not functions:
        return None
    return Hint(named.file, named.reason, functions, texts=frozenset(texts.tolist()), readers=readers)
