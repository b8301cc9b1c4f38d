"""Opens the compiled loops and hands arrays to them.

C gets bare addresses. So each wrapper in this folder brings its arrays into the form that its loop reads, makes those
it writes, and lets no index or size pass that lies outside of them.
"""

import ctypes
from typing import cast

import numpy as np

from imgcheck.binaries.kernels import LIBRARY

P, N, SMALL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
"""Parameters: a pointer, a size or an address, and a small number."""
_library = ctypes.CDLL(str(LIBRARY))
_NO_BYTES = ctypes.c_char * 0


def declared(name: str, result: type | None, *parameters: type) -> "ctypes._NamedFuncPointer":
    """The loop `name`, whose parameters are pointers and numbers."""
    loop = _library[name]
    loop.restype, loop.argtypes = result, parameters
    return loop


def by_width(name: str, *parameters: type) -> dict[int, "ctypes._NamedFuncPointer"]:
    """The loop for columns of addresses of 4 and of 8 bytes: most files lie so low that the former do."""
    return {size: declared(f"{name}_{8 * size}", None, *parameters) for size in (4, 8)}


def address(array: np.ndarray) -> int:
    """Where its elements begin."""
    flags = array.flags
    if not flags.c_contiguous:
        raise TypeError("a loop in C wants the elements of an array side by side")
    if not flags.writeable:
        return array.ctypes.data
    # Four times as fast, which shows where arrays are small. numpy's types do not say that arrays are buffers.
    return ctypes.addressof(_NO_BYTES.from_buffer(cast("memoryview", array)))
