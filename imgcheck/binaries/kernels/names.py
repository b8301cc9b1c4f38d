"""Names of symbols as numbers of 32 bits, by multiplication of eight bytes after the other up to the NUL."""

import ctypes

import numpy as np

from imgcheck.binaries.kernels.library import N, P, address, declared

_hash_names = declared("hash_names", ctypes.c_int, P, N, P, N, N, P)
_WORD = 8
_OFTEN = 4
"""How many names of a table may share a byte on average: linkers let a name end in another one."""


def hashes(table: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Those of the names that start in a string table; ValueError where they overlap as those of no real file do."""
    starts, found = np.ascontiguousarray(starts, np.int64), np.empty(len(starts), np.uint32)
    if len(starts) and not 0 <= starts.min() <= starts.max() < len(table):
        raise ValueError("a name lies outside of the table")
    room = _OFTEN * len(table) + _WORD * len(starts)
    if not _hash_names(address(table), len(table), address(starts), len(starts), room, address(found)):
        raise ValueError("names overlap more than those of any real file")
    return found
