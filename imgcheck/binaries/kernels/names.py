"""Names in string tables: as numbers of 32 bits, and one behind the other.

A number is made by multiplication of eight bytes after the other up to the NUL. Both raise ValueError for names that
lie outside of the table, or overlap as those of no real file do: a hostile one has as many as fit, all of the same
bytes.
"""

import ctypes

import numpy as np

from imgcheck.binaries.kernels.library import N, P, address, declared

_hash_names = declared("hash_names", ctypes.c_int, P, N, P, N, N, P)
_copy_names = declared("copy_names", N, P, N, P, N, N, P)
_WORD = 8
_OFTEN = 4
"""How many names of a table may share a byte on average: linkers let a name end in another one."""


def hashes(table: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Those of the names that start in a string table."""
    starts, found = _inside(table, starts), np.empty(len(starts), np.uint32)
    room = _OFTEN * len(table) + _WORD * len(starts)
    if not _hash_names(address(table), len(table), address(starts), len(starts), room, address(found)):
        raise ValueError("names overlap more than those of any real file")
    return found


def copied(table: np.ndarray, starts: np.ndarray) -> bytes:
    """The names that start in a string table, each with a NUL behind it."""
    starts = _inside(table, starts)
    copy = np.empty(_OFTEN * len(table) + len(starts), np.uint8)  # only what is written of it takes memory
    end = _copy_names(address(table), len(table), address(starts), len(starts), len(copy), address(copy))
    if end < 0:
        raise ValueError("names overlap more than those of any real file")
    return copy[:end].tobytes()


def _inside(table: np.ndarray, starts: np.ndarray) -> np.ndarray:
    if len(starts) and not 0 <= starts.min() <= starts.max() < len(table):
        raise ValueError("a name lies outside of the table")
    return np.ascontiguousarray(starts, np.int64)
