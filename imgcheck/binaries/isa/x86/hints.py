"""Where x86 code shows signs that a program finds out what the CPU has without asking it (signs.py)."""

from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.elf import ET_EXEC
from imgcheck.binaries.isa.conditions import implied
from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.ordered import within
from imgcheck.binaries.isa.queries import imports
from imgcheck.binaries.isa.signs import (
    MOST,
    Calls,
    Hint,
    attempts,
    jumping_back,
    marks,
    own_calls,
    words,
    words_for,
)
from imgcheck.binaries.isa.x86.encodings import names
from imgcheck.binaries.isa.x86.facts import CALL, INDIRECT_CALL, facts
from imgcheck.binaries.isa.x86.parameters import first_arguments

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

_LONGEST = 1 << 16
"""Bytes of a function that is read for the signal that it catches."""
_PIECE, _WHOLE = 4, 8
"""Bytes of texts that one instruction brings."""


def hints(found: "Findings") -> tuple[Hint, ...]:
    """The signs in one file."""
    if found.bits != 64:
        return ()
    return tuple(hint for hint in (_attempts(found), _words(found)) if hint)


def _attempts(found: "Findings") -> Hint | None:
    """Functions that save where to go on, near one that catches SIGILL by a function that jumps there."""
    saving, jumping = _calls(found, "saving"), _calls(found, "jumping")
    if not len(saving[0]) or not len(jumping[0]):
        return None
    back = jumping_back(found.graph.calls, jumping[0])
    functions, sites = _calls(found, "catching")
    taking = _taking(found, back, functions)
    chosen = set(functions[taking[functions]].tolist())
    catching = [
        function for function in chosen if _catches(found, function, set(sites[functions == function].tolist()))
    ]
    return attempts(found.graph.calls, saving, catching)


def _calls(found: "Findings", kind: str) -> Calls:
    """Who calls library functions of a kind, of other files or linked in."""
    symbols = imports(found.layout, analysis()["attempts"][kind]["functions"])
    callers, _, sites = found.graph.imported(list(symbols)) if symbols else (np.empty(0, np.int64),) * 3
    own_callers, own_sites = own_calls(found.layout, found.functions, found.graph.calls, kind)
    callers, sites = np.append(callers, own_callers), np.append(sites, own_sites)
    return callers[callers >= 0], sites[callers >= 0]


def _taking(found: "Findings", back: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Marks functions that take the address of one that is marked, and those that they call, which may be given it.

    Where addresses may be stored as they are, only the functions `among` and their callers are looked at.
    """
    calls, taken, functions = found.graph.calls, found.graph.taken, found.functions
    found_marks = marks(taken.source[back[taken.target]], calls.count)
    if found.layout.elf.type == ET_EXEC:
        near = marks(among, calls.count)
        near[calls.source[near[calls.target]]] = True
        looked_at = np.flatnonzero(near & (functions.end - functions.start <= _LONGEST))[:MOST]
        found_marks[[f for f in looked_at.tolist() if _names_one(found, f, functions.start[back])]] = True
    found_marks[calls.target[found_marks[calls.source]]] = True
    return found_marks


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
            if ip in sites and any(form in before for form in first_arguments(analysis()["attempts"]["signal"])):
                return True
            begun = ip + fact.size
    return False


def _words(found: "Findings") -> Hint | None:
    """Functions that name features, in a file that names one of those in which the kernel lists them."""
    # Whoever looks for AVX2 may use no more than AVX.
    known = words_for(name for name in {*names().values()} if not implied(name).isdisjoint(found.features))
    spelled = {name[:_PIECE] for name in known if len(name) >= _PIECE}
    named = words(found.layout, known, spelled)
    if named is None:
        return None
    site, target, _ = found.graph.references
    inside = named.spelled[found.layout.in_code(named.spelled)]
    naming = np.append(inside, site[within(target, named.texts)])[:MOST]
    functions = frozenset(found.functions.holding(naming).tolist()) - {-1}
    if not functions:
        return None
    pieces = spelled | {name[:_WHOLE].ljust(_WHOLE, b"\0") for name in known if len(name) > _PIECE}
    numbered = frozenset(int.from_bytes(piece, "little") for piece in pieces)
    texts = frozenset(named.texts.tolist())
    return Hint(named.file, named.reason, functions, texts=texts, spelled=numbered, readers=_readers(found))


def _readers(found: "Findings") -> frozenset[int]:
    """Sites of calls of other files' functions that tell something of texts, or copy them."""
    symbols = imports(found.layout, analysis()["words"]["functions"])
    return frozenset(found.graph.imported(list(symbols))[2].tolist()) if symbols else frozenset()
