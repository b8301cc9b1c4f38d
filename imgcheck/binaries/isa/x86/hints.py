"""Signs that a program finds out what the CPU has without asking it.

It may catch SIGILL, try an instruction and jump back from the handler; or look for names of features in what the kernel
lists in a file. What its tests tell is not understood: they turn no answer into "dispatched", but where they stand
before a use this is not "required" for certain.
"""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.elf import ET_EXEC
from imgcheck.binaries.isa.layout import numbers
from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.queries import imports
from imgcheck.binaries.isa.reach import Edges
from imgcheck.binaries.isa.x86.encodings import names
from imgcheck.binaries.isa.x86.facts import CALL, INDIRECT_CALL, facts
from imgcheck.binaries.isa.x86.handed import Hint

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

_ATTEMPT = "Reached at load or start past an attempt that catches SIGILL, and by nothing else that is seen."
_WORDS = "Reached past a test of words from {}, and by nothing else that is seen; what it tells is not followed."
_WRAPPERS = {"saving": 0, "jumping": 1, "catching": 2}
"""Functions of a static C library that are called one by another down to the one with the code."""
_ALIAS = 64
"""Bytes of functions that prepare what another one does, as setjmp for sigsetjmp."""
_LONGEST = 1 << 16
"""Bytes of a function that is read for the signal that it catches."""
_MOST = 1000
"""References to texts, and functions that are looked at, in one file."""
_PIECE, _WHOLE = 4, 8
"""Bytes of texts that one instruction brings."""
Calls = tuple[np.ndarray, np.ndarray]
"""Functions, and the sites of their calls."""


def hints(found: "Findings") -> tuple[Hint, ...]:
    """The signs in one file; none where it is too large to be decoded as a whole."""
    if found.bits != 64 or found.selected.sampled:
        return ()
    return tuple(hint for hint in (_attempts(found), _words(found)) if hint)


def _attempts(found: "Findings") -> Hint | None:
    """Functions that save where to go on, near one that catches SIGILL by a function that jumps there."""
    saving, jumping = _calls(found, "saving"), _calls(found, "jumping")
    if not len(saving[0]) or not len(jumping[0]):
        return None
    calls = found.graph.calls
    back = _marks(calls, jumping[0])
    back[calls.source[back[calls.target]]] = True
    functions, sites = _calls(found, "catching")
    taking = _taking(found, back, functions)
    chosen = set(functions[taking[functions]].tolist())
    catching = [
        function for function in chosen if _catches(found, function, set(sites[functions == function].tolist()))
    ]
    near = _near(calls, catching)
    trying = near[saving[0]]
    if not trying.any():
        return None
    return Hint("SIGILL", _ATTEMPT, frozenset(saving[0][trying].tolist()), frozenset(saving[1][trying].tolist()))


def _calls(found: "Findings", kind: str) -> Calls:
    """Who calls library functions of a kind, of other files or linked in."""
    graph, calls, rule = found.graph, found.graph.calls, analysis()["attempts"][kind]
    symbols = imports(found.layout, rule["functions"])
    callers, _, sites = graph.imported(list(symbols)) if symbols else (np.empty(0, np.int64),) * 3
    if not found.layout.elf.interpreter and found.layout.is_program:
        own = _marks(calls, found.functions.holding(found.layout.addresses_of(bytes.fromhex(rule["code"]))))
        for _ in range(_WRAPPERS[kind]):
            own[calls.source[own[calls.target]]] = True
        small = found.functions.end - found.functions.start <= _ALIAS
        own[calls.source[own[calls.target] & small[calls.source]]] = True
        callers = np.append(callers, calls.source[own[calls.target]])
        sites = np.append(sites, calls.site[own[calls.target]])
    return callers[callers >= 0], sites[callers >= 0]


def _marks(calls: Edges, functions: Iterable[int]) -> np.ndarray:
    marks = np.zeros(calls.count, bool)
    marks[numbers(np.asarray(functions, np.int64), calls.count)] = True
    return marks


def _taking(found: "Findings", back: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Marks functions that take the address of one that is marked, and those that they call, which may be given it.

    Where addresses may be stored as they are, only the functions `among` and their callers are looked at.
    """
    calls, taken, functions = found.graph.calls, found.graph.taken, found.functions
    marks = _marks(calls, taken.source[back[taken.target]])
    if found.layout.elf.type == ET_EXEC:
        near = _marks(calls, among)
        near[calls.source[near[calls.target]]] = True
        looked_at = np.flatnonzero(near & (functions.end - functions.start <= _LONGEST))[:_MOST]
        marks[[f for f in looked_at.tolist() if _names_one(found, f, functions.start[back])]] = True
    marks[calls.target[marks[calls.source]]] = True
    return marks


def _names_one(found: "Findings", function: int, addresses: np.ndarray) -> bool:
    """Whether one of the addresses stands somewhere in a function's code."""
    data = found.layout.bytes_at(int(found.functions.start[function]), int(found.functions.end[function]))
    words = np.ndarray((max(len(data) - _PIECE + 1, 0),), "<u4", data, strides=(1,))
    return bool(np.isin(words, addresses).any())


def _catches(found: "Findings", function: int, sites: set[int]) -> bool:
    """Whether a function gives SIGILL to a call at one of `sites`."""
    start, end = int(found.functions.start[function]), int(found.functions.end[function])
    if end - start > _LONGEST:
        return False
    data = found.layout.bytes_at(start, end)
    code, begun = facts(data, start, found.bits), start
    for ip, fact in zip(code.ips, code.facts, strict=True):
        if fact.kind in (CALL, INDIRECT_CALL):
            before = data[begun - start : ip - start]
            if ip in sites and any(form in before for form in _first_arguments(analysis()["attempts"]["signal"])):
                return True
            begun = ip + fact.size
    return False


@cache
def _first_arguments(number: int) -> tuple[bytes, ...]:
    """MOV, or PUSH and POP, of a number to EDI."""
    return b"\xbf" + number.to_bytes(4, "little"), bytes([0x6A, number, 0x5F])


def _near(calls: Edges, functions: Iterable[int]) -> np.ndarray:
    """Marks functions, those that call them, and those that either of these call."""
    marks = _marks(calls, list(functions))
    marks[calls.source[marks[calls.target]]] = True
    marks[calls.target[marks[calls.source]]] = True
    return marks


def _words(found: "Findings") -> Hint | None:
    """Functions that name features, in a file that names one of those in which the kernel lists them."""
    rule, layout = analysis()["words"], found.layout
    sources = [name for name in rule["files"] if len(layout.addresses_of(name.encode() + b"\0"))]
    if not sources:
        return None
    known = [rule["other"].get(name, name).encode() for name in names().values() if name in found.features]
    texts = np.concatenate([np.empty(0, np.int64), *(_occurrences(found, name) for name in known)])
    spelled = {name[:_PIECE] for name in known if len(name) >= _PIECE}
    inside = np.concatenate([np.empty(0, np.int64), *map(layout.addresses_of, spelled)])
    site, target, _ = found.graph.references
    naming = np.append(inside[layout.in_code(inside)], site[np.isin(target, texts)])[:_MOST]
    functions = frozenset(found.functions.holding(naming).tolist()) - {-1}
    if not functions:
        return None
    pieces = spelled | {name[:_WHOLE].ljust(_WHOLE, b"\0") for name in known if len(name) > _PIECE}
    numbered = frozenset(int.from_bytes(piece, "little") for piece in pieces)
    reason = _WORDS.format(sources[0])
    return Hint(sources[0], reason, functions, frozenset(), frozenset(texts.tolist()), numbered, _readers(found))


def _occurrences(found: "Findings", name: bytes) -> np.ndarray:
    """Where the name of a feature stands as a text of its own, perhaps with a blank before or behind it, and its ends.

    Compilers count from where they end.
    """
    forms = [before + name + behind for before in (b"", b" ") for behind in (b"", b" ")]
    begins = [found.layout.addresses_of(form + b"\0") for form in forms]
    return np.concatenate([*begins, *(at + len(form) for at, form in zip(begins, forms, strict=True))])


def _readers(found: "Findings") -> frozenset[int]:
    """Sites of calls of other files' functions that tell something of texts, or copy them."""
    symbols = imports(found.layout, analysis()["words"]["functions"])
    return frozenset(found.graph.imported(list(symbols))[2].tolist()) if symbols else frozenset()
