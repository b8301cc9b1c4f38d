"""What a file's tables tell of CPU queries: functions and data of other files that report features, and IFUNCs."""

import numpy as np

from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.names import matching, queries
from imgcheck.binaries.isa.ordered import distinct

_COPY = 5
"""R_X86_64_COPY and R_386_COPY."""
IRELATIVE = {64: 37, 32: 42}
_LARGEST_DATA = 1 << 12
"""Bytes of a variable that may hold CPU flags."""


def named_imports(layout: Layout) -> dict[int, str]:
    """Undefined dynamic symbols whose names are those of functions that report what the CPU has."""
    return imports(layout, queries(layout.elf.machine)["functions"])


def foreign(layout: Layout, patterns: list[str]) -> dict[str, np.ndarray]:
    """Names that a glob of `patterns` fits, of functions and data in other files -> the slots that point to each."""
    named = imports(layout, patterns)
    if not named:  # as in most files, which then need no look at their pointers
        return {}
    pointers = layout.pointers
    slots = ((name, pointers.slot[pointers.symbol == i]) for i, name in named.items())
    return {name: found for name, found in slots if len(found)}


def data(layout: Layout) -> dict[str, np.ndarray]:
    """Names of data such as __cpu_model -> its words in this x86 file, or the slots that point to it elsewhere."""
    patterns, symbols = queries(layout.elf.machine)["data"], layout.dynamic_symbols
    found = foreign(layout, patterns)
    # A position-dependent program gets its own copy of such data, and the C library fills that.
    copied = layout.relocations["symbol"][layout.relocations["type"] == _COPY]
    if not len(copied):  # as in nearly all files
        return found
    copied = distinct(copied[(copied > 0) & (copied < len(symbols.value))])
    for i, name in _fitting(layout, copied, patterns).items():
        first = int(symbols.value[i])
        found[name] = np.arange(first, first + min(int(symbols.size[i]), _LARGEST_DATA), 4)
    return found


def resolvers(layout: Layout, irelative: int) -> np.ndarray:
    """Addresses of IRELATIVE relocations, whose type is given, and of IFUNC symbols.

    The loader calls them to choose a version.
    """
    relocations = layout.relocations
    called = relocations["addend"][relocations["type"] == irelative]
    return distinct(np.concatenate([called, layout.ifuncs]))


def imports(layout: Layout, patterns: list[str]) -> dict[int, str]:
    """The undefined dynamic symbols whose name fits a glob of `patterns`."""
    indices, names = layout.imports
    return {int(indices[i]): name for i, name in matching(names, patterns).items()}


def _fitting(layout: Layout, indices: np.ndarray, patterns: list[str]) -> dict[int, str]:
    """Those of the dynamic symbols `indices` whose name fits a glob of `patterns`."""
    named = matching(layout.names(layout.dynamic_symbols, indices), patterns)
    return {int(indices[i]): name for i, name in named.items()}
