"""Functions of an extension module that Python calls and that no call in the file leads to.

PyInit_NAME may hand a PyModuleDef back, and Python then runs what its slots name (PEP 489). On a machine with words of
W bytes (CPython's Include/moduleobject.h): PyModuleDef_Base 5 W, m_name W, m_doc W, m_size W, m_methods W, m_slots W,
and more; a slot is a number of 4 bytes, padded to W, and a pointer, and a slot with number 0 ends them.

What a module or a type offers stands in PyMethodDefs (Include/methodobject.h): ml_name W, ml_meth W, ml_flags 4 bytes,
padded to W, ml_doc W.
"""

import numpy as np

from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.ordered import distinct

_NAME, _SLOTS = 5, 9
"""Where m_name and m_slots lie, in words."""
_CREATE, _EXEC = 1, 2
"""Slots that name functions: Py_mod_create and Py_mod_exec."""
_LARGEST, _MOST_SLOTS = 64, 16
"""Far above the number of any slot, and of slots that a module has."""


_FLAGS = 0x3FF
"""What ml_flags may have: METH_VARARGS (1) to METH_METHOD (0x200). One of them says how arguments are handed over."""
_METHOD = 4
"""Words of a PyMethodDef."""
_OF_MODULE, _OF_TYPE = 8, 29
"""Where m_methods of a PyModuleDef and tp_methods of a PyTypeObject lie, in words."""


def methods(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Addresses of the functions that method definitions of an extension module name, and for each where the table of
    these begins.
    """
    width, pointers = layout.elf.bits // 8, layout.pointers
    if layout.is_program or not len(layout.module_starts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    name = pointers.slot[layout.in_code(pointers.target)] - width
    at = pointers.at(name)
    name = name[(at >= 0) & ~layout.in_code(pointers.target[at])]
    flags = layout.pointed(name + 2 * width)
    name = name[(flags > 0) & (flags <= _FLAGS)]
    first = np.diff(name, prepend=-1) != _METHOD * width
    return layout.pointed(name + width), name[np.maximum.accumulate(np.where(first, np.arange(len(name)), 0))]


def offering(layout: Layout, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Addresses whose taking may offer what is in method tables: of these, and of modules and types that have them.

    With the table of each, sorted by address.
    """
    width, pointers = layout.elf.bits // 8, layout.pointers
    holder = np.flatnonzero(np.isin(pointers.target, tables))
    slot, table = pointers.slot[holder], pointers.target[holder]
    address = np.concatenate([tables, slot - _OF_MODULE * width, slot - _OF_TYPE * width])
    order = np.argsort(address, kind="stable")
    return address[order], np.concatenate([tables, table, table])[order]


def starts_by_name(layout: Layout, go: bool) -> np.ndarray:
    """As Layout.named_starts, with what the slots of the modules name whose PyInit functions are among these."""
    named = layout.named_starts(go)
    return named if layout.is_program or not len(named) else np.append(named, _module_functions(layout))


def _module_functions(layout: Layout) -> np.ndarray:
    """Addresses of the functions that the slots of the file's modules name."""
    width, pointers = layout.elf.bits // 8, layout.pointers
    has_name = pointers.at(pointers.slot - (_SLOTS - _NAME) * width) >= 0
    lists = distinct(pointers.target[has_name & (pointers.target > 0)])
    number = layout.pointed(lists)
    lists = lists[(number > 0) & (number <= _LARGEST) & layout.in_code(layout.pointed(lists + width))]
    found = [address for first in lists.tolist() for address in _functions(layout, first, width)]
    return np.array(found, np.int64)


def _functions(layout: Layout, first: int, width: int) -> list[int]:
    """The functions named by the slots that begin at an address; none where those are no slots."""
    found: list[int] = []
    for at in range(first, first + _MOST_SLOTS * 2 * width, 2 * width):
        number = layout.number_at(at, 4)
        if number == 0:
            return found
        if number in (_CREATE, _EXEC):
            found.append(int(layout.pointed(np.array([at + width]))[0]))
    return []
