"""Named groups of dynamic symbols and texts: implementations told apart, Python modules, functions of the driver."""

from functools import cache
from typing import Literal

import msgspec
import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.kernels.arrays import Texts
from imgcheck.binaries.linkage.symbols import DynamicSymbols
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data

_READ_ONLY = (".rodata", ".lrodata")


class Marker(Data, frozen=True):
    """Dynamic symbols that tell what a file is, or what it was linked with."""

    id: str
    prefixes: tuple[str, ...]
    """The file has the marker where a symbol begins with one of these."""
    side: Literal["defined", "undefined", "any"]
    sources: tuple[str, ...]


class TextMarker(Data, frozen=True):
    """Texts of a Python extension module that tell what it was built with."""

    id: str
    any: tuple[str, ...]
    """The module has the marker where it holds one of these, of three bytes or more each,"""
    none: tuple[str, ...]
    """and none of these."""
    sources: tuple[str, ...]


class DriverFunctions(Data, frozen=True):
    """How a function of the CUDA driver library is known by its name."""

    library: str
    prefixes: tuple[str, ...]
    """Families of the driver interface."""
    others: tuple[str, ...]
    """Families that begin alike and that other libraries give."""
    sources: tuple[str, ...]


class _Rules(Data, frozen=True):
    marker: tuple[Marker, ...]
    text: tuple[TextMarker, ...]
    driver: DriverFunctions


@cache
def _rules() -> _Rules:
    return msgspec.convert(Knowledge().table("analysis/markers.toml"), _Rules)


def markers_of(symbols: DynamicSymbols) -> tuple[str, ...]:
    """Ids of the markers of rules/analysis/markers.toml that `symbols` shows."""
    found = []
    for marker in _rules().marker:
        sides = [side for side in ("defined", "undefined") if marker.side in (side, "any")]
        if any(len(symbols.starting(p, getattr(symbols, side))) for p in marker.prefixes for side in sides):
            found.append(marker.id)
    return tuple(found)


@cache
def _texts() -> tuple[tuple[str, ...], Texts]:
    """All texts that are looked for, once each, and what finds them."""
    texts = tuple(dict.fromkeys(text for marker in _rules().text for text in (*marker.any, *marker.none)))
    return texts, Texts([text.encode() for text in texts])


def text_markers(elf: Elf) -> tuple[str, ...]:
    """Ids of the text markers of a Python extension module, by its read-only data; none where it has no sections."""
    texts, finder = _texts()
    there = set[str]()
    for data in elf.areas_beginning(*_READ_ONLY):
        places = finder.find(np.frombuffer(data, np.uint8), 1)
        there.update(text for text, found in zip(texts, places, strict=True) if len(found))
    return tuple(
        marker.id for marker in _rules().text if there.intersection(marker.any) and there.isdisjoint(marker.none)
    )


def driver_functions(symbols: DynamicSymbols, needed: tuple[str, ...]) -> tuple[str, ...]:
    """Undefined, non-weak functions that the CUDA driver library would give, sorted.

    A file that names the library needs every `cu` + capital letter of it; one that does not (the library is loaded by
    somebody else) only what belongs to a family of the driver interface. The driver library has no symbol versions,
    so that a versioned symbol belongs to another.
    """
    rules = _rules().driver
    wanted = symbols.unversioned(symbols.strong(symbols.undefined))
    candidates = symbols.names(symbols.starting("cu", wanted))
    if rules.library in needed:
        chosen = [name for name in candidates if name[2:3].isupper()]
    else:
        chosen = [name for name in candidates if name.startswith(rules.prefixes)]
    return tuple(sorted({name for name in chosen if not name.startswith(rules.others)}))


def is_python_module(symbols: DynamicSymbols) -> bool:
    """True for a PyInit_* entry (Python 3), or an init* entry beside a call of Py_InitModule4 (Python 2)."""
    if len(symbols.starting("PyInit_", symbols.defined)):
        return True
    return bool(
        len(symbols.starting("Py_InitModule", symbols.undefined)) and len(symbols.starting("init", symbols.defined))
    )
