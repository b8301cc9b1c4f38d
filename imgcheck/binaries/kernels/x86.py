"""x86 code: how long instructions are, which bytes may begin one of interest, and where branches and operands lead.

An instruction is prefixes, opcode, ModRM with SIB and displacement, and immediate operands (Intel SDM volume 2, 2.1 to
2.3, 2.7 and the opcode maps of appendix A; AMD manual volume 3, appendix A, for XOP, 3DNow! and SSE4a; Intel APX
specification for REX2 and map 4 of EVEX). Its length follows from their form alone: what no decoder knows has one, too,
and an opcode that is none at all is one byte.
"""

import ctypes

import numpy as np

from imgcheck.binaries.kernels.arrays import Ranges, column_of
from imgcheck.binaries.kernels.library import SMALL, N, P, address, by_width, declared

_fill_behind = declared("fill_behind", None, P)
_lengths = declared("lengths", N, P, N, P, P)
_beginnings = declared("beginnings", None, P, N, N, P, P, P, N, P, N, *[P] * 5)
_screen = declared("screen", N, P, N, N, N, *[P] * 5, *[SMALL] * 4, *[P] * 4)
_confirm = declared("confirm", N, P, N, N, *[P] * 6, N, *[P] * 9)
_branches = declared("branches", N, P, N, N, N, N, P, P, P)
_behind_end = by_width("behind_end", P, P, N, SMALL, P)
_operands = declared("operands", N, P, N, N, SMALL, N, N, P, P)

_SETS = 256
PADDING = 16
"""Bytes that `branches` and `operands` may read behind those that they look at."""

# The form of an opcode, as x86.c has it: what stands behind the opcode and its ModRM byte, so many bytes, or
_NONE, _BYTE, _WORD, _FRAME = 0, 1, 2, 3
_FULL = 4
"""two or four, as the operand size says;"""
_ANY = 5
"""two, four or eight;"""
_NEAR = 6
"""the distance of a branch: four in 64-bit code, whatever the operand size;"""
_ADDRESS = 7
"""as many as an address has;"""
_FAR = 8
"""an address in 32-bit code and a selector;"""
_BYTE_OF_TEST, _FULL_OF_TEST = 9, 10
"""the same where the ModRM byte says TEST, in groups that have an operand for that alone."""
_MODRM, _PREFIX = 16, 32
_ESCAPE = 64
"""As often as there are bytes, one or two, that lead to the second table;"""
_LONG_WAY = 3 * _ESCAPE
"""of prefixes, and where more than this byte tells what there is."""
_LONGEST = 15
"""Bytes of an instruction."""


def _span(*bounds: int) -> set[int]:
    """All opcodes from each first bound to the second behind it."""
    return {opcode for first, last in zip(bounds[::2], bounds[1::2], strict=True) for opcode in range(first, last + 1)}


def _forms(modrm: set[int], operands: dict[int, set[int]]) -> np.ndarray:
    found = np.array([_MODRM * (opcode in modrm) for opcode in range(256)], np.uint8)
    for kind, opcodes in operands.items():
        found[sorted(opcodes)] |= kind
    return found


_ARITHMETIC = range(0, 64, 8)
_FIRST_32 = _forms(
    {opcode + k for opcode in _ARITHMETIC for k in range(4)}
    | _span(0x62, 0x63, 0x69, 0x69, 0x6B, 0x6B, 0x80, 0x8F, 0xC0, 0xC1, 0xC4, 0xC7, 0xD0, 0xD3, 0xD8, 0xDF)
    | _span(0xF6, 0xF7, 0xFE, 0xFF),
    {
        _BYTE: {opcode + 4 for opcode in _ARITHMETIC}
        | _span(0x6A, 0x6B, 0x70, 0x80, 0x82, 0x83, 0xA8, 0xA8, 0xB0, 0xB7, 0xC0, 0xC1, 0xC6, 0xC6, 0xCD, 0xCD)
        | _span(0xD4, 0xD5, 0xE0, 0xE7, 0xEB, 0xEB),
        _WORD: {0xC2, 0xCA},
        _FRAME: {0xC8},
        _FULL: {opcode + 5 for opcode in _ARITHMETIC} | {0x68, 0x69, 0x81, 0xA9, 0xC7},
        _ANY: _span(0xB8, 0xBF),
        _NEAR: {0xE8, 0xE9},
        _ADDRESS: _span(0xA0, 0xA3),
        _FAR: {0x9A, 0xEA},
        _BYTE_OF_TEST: {0xF6},
        _FULL_OF_TEST: {0xF7},
        _PREFIX: {0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3},
    },
)
_FIRST_32[0x0F] |= _ESCAPE
_FIRST_32[[0x62, 0x8F, 0xC4, 0xC5]] |= _LONG_WAY
_FIRST_32[_FIRST_32 == _PREFIX] |= _LONG_WAY
"""By the opcode, of 32-bit code."""
_FIRST_64 = _FIRST_32.copy()
_FIRST_64[0x40:0x50] = _PREFIX | _LONG_WAY
_FIRST_64[[0x82, 0x9A, 0xD4, 0xEA]] = _NONE
_FIRST_64[0xC5] = 2 * _ESCAPE  # VEX, and no longer LDS where its operand is in memory
_FIRST_64[0xD5] |= _LONG_WAY  # REX2
_SECOND = _forms(
    _span(0x00, 0x03, 0x0D, 0x0D, 0x0F, 0x1F, 0x28, 0x2F, 0x38, 0x38, 0x3A, 0x3A, 0x40, 0x76, 0x78, 0x7F)
    | _span(0x90, 0x9F, 0xA3, 0xA7, 0xAB, 0xC7, 0xD0, 0xFF),
    {
        # What moves control and debug registers takes its ModRM byte for registers, whatever that says.
        _BYTE: _span(0x0F, 0x0F, 0x20, 0x23, 0x70, 0x73, 0xA4, 0xA4, 0xAC, 0xAC, 0xBA, 0xBA, 0xC2, 0xC2, 0xC4, 0xC6),
        _NEAR: _span(0x80, 0x8F),
    },
)
_SECOND[[0x38, 0x3A]] |= _LONG_WAY
"""Behind 0F, and in map 1 of VEX and EVEX."""


class _Forms(ctypes.Structure):
    """The forms of a mode's opcodes, and what C makes of them."""

    _BEHIND = 2 * 32 * 256

    _fields_ = [("opcodes", P), ("behind", P), ("wide", SMALL)]

    def __init__(self, first: np.ndarray, bits: int) -> None:
        self._opcodes, self._behind = np.stack([first, _SECOND]), np.empty(self._BEHIND, np.uint8)
        super().__init__(address(self._opcodes), address(self._behind), bits == 64)
        _fill_behind(ctypes.addressof(self))


_FORMS = {32: _Forms(_FIRST_32, 32), 64: _Forms(_FIRST_64, 64)}


def lengths(code: bytes, bits: int) -> bytes:
    """Length of each instruction of `code`, read one after the other; none is longer than what is left of it.

    `bits` is 32 or 64.
    """
    found = bytearray(len(code))
    room = (ctypes.c_uint8 * len(found)).from_buffer(found)
    count = _lengths(code, len(code), ctypes.addressof(_FORMS[bits]), ctypes.addressof(room))
    return bytes(found[:count])


class Beginnings(ctypes.Structure):
    """Where instructions begin, a bit for each byte around the positions that are asked about."""

    _fields_ = [("bits", P), ("origin", N), ("count", N)]

    def __init__(self, wanted: np.ndarray) -> None:
        origin = int(wanted.min()) - _LONGEST
        self._marks = np.zeros((int(wanted.max()) - origin) // 64 + 1, np.uint64)
        super().__init__(address(self._marks), origin, 64 * len(self._marks))

    def at(self, wanted: np.ndarray) -> np.ndarray:
        """Whether an instruction begins at each of those positions."""
        bit = wanted - self.origin
        return (self._marks[bit // 64] >> (bit % 64).astype(np.uint64) & np.uint64(1)).astype(bool)


class Reader:
    """Reads functions from their starts on, and none of their code twice where what is asked about goes up."""

    def __init__(self, starts: np.ndarray, ends: np.ndarray, bits: int) -> None:
        """`starts` and `ends` bound the functions, by address. `bits` is 32 or 64."""
        if len(starts) != len(ends):
            raise ValueError("functions need as many ends as starts")
        self.starts, self._ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
        self.forms = ctypes.addressof(_FORMS[bits])
        self._place = np.full(2, -1, np.int64)
        """The function that was read last, and the address of the instruction where that stopped."""

    def read(self, data: np.ndarray, at: int, wanted: np.ndarray) -> tuple[Beginnings, np.ndarray]:
        """Where instructions begin around one or more addresses in `data`, which lies at the address `at`.

        With these positions in `data` comes the function that holds each address; -1 where none there does.
        """
        wanted = np.ascontiguousarray(wanted, np.int64)
        found, holders = Beginnings(wanted - at), np.empty(len(wanted), np.int32)
        room = np.empty((2, len(wanted)), np.int64)
        _beginnings(
            address(data), len(data), at, self.forms,
            address(self.starts), address(self._ends), len(self.starts), address(wanted), len(wanted),
            address(self._place), address(room[0]), address(room[1]), ctypes.addressof(found), address(holders),
        )  # fmt: skip
        return found, holders


class Screen:
    """The tables that lead from bytes to sets of features (numbers, 0 for none), as x86/encodings.py describes them."""

    def __init__(
        self,
        vector: np.ndarray,
        ambiguous_vector: np.ndarray,
        legacy: np.ndarray,
        ambiguous: np.ndarray,
        sets: tuple[int, int, int],
        bits: int,
    ) -> None:
        """`sets` are those of AVX, APX and AVX10 alone."""
        escaped = legacy[1].any(axis=(0, 2))
        escaped[[0x38, 0x3A]] = True
        tables = (vector, ambiguous_vector, legacy, ambiguous, escaped)
        shapes = (3, 8, 4, 256, 2, 4), (3, 8, 4, 256, 2, 4), (4, 4, 256, 8), (4, 4, 256, 8), (256,)
        if tuple(table.shape for table in tables) != shapes:
            raise ValueError("tables of another form")
        self._tables = [np.ascontiguousarray(table).view(np.uint8) for table in tables]
        avx, apx, avx10 = sets
        self._sets = avx, apx if bits == 64 else 0, avx10, bits == 64
        self.bits = bits

    @property
    def legacy_tables(self) -> tuple[np.ndarray, np.ndarray]:
        """The sets of encodings without VEX, EVEX and XOP, and which of them only a decoder can tell."""
        return self._tables[2], self._tables[3]

    def of(self, data: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, ...]:
        """Of the bytes of `data` from `start` to `stop`, those where an instruction of interest may begin.

        By their position, in columns: that position, the set, whether only a decoder can tell what it is, and how many
        bytes before it the mandatory prefix was taken from (0: none; 255: from nowhere, but there may be one).
        """
        if not 0 <= start <= stop <= len(data):
            raise ValueError("positions outside of the data")
        kinds = np.int64, np.uint8, np.bool_, np.uint8
        found = [np.empty(stop - start, kind) for kind in kinds]
        count = _screen(
            address(data), len(data), start, stop,
            *(address(table) for table in self._tables), *self._sets,
            *map(address, found),
        )  # fmt: skip
        return tuple(column[:count].copy() for column in found)


class Confirmer:
    """Tells instructions from what only looks like one, by reading code from the start of each function on.

    What it is asked about goes up the addresses, piece by piece, and no code is read twice.
    """

    def __init__(self, screen: Screen, common: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        """`starts` and `ends` bound the functions, by address; `common` marks sets of which one in each is enough."""
        if len(common) > _SETS:
            raise ValueError("sets have numbers of one byte")
        self._tables = screen.legacy_tables
        self._common = np.zeros(_SETS, bool)
        self._common[: len(common)] = common
        self._reader = Reader(starts, ends, screen.bits)
        self._last = np.full(_SETS, -1, np.int32)
        """By common set the function where it was found last."""

    def of(self, data: np.ndarray, at: int, columns: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Of what Screen.of found in `data`, which lies at the address `at`, what is an instruction of a function.

        `columns` are those of Screen.of, with addresses for positions, of one or more. Those that come back: the
        address of the first byte, the set, whether only a decoder can tell what it is, and the function. Of sets that
        are common most are left out.
        """
        kinds = np.int64, np.uint8, np.bool_, np.uint8
        pairs = zip(columns, kinds, strict=True)
        asked: list[np.ndarray] = [np.ascontiguousarray(column, kind) for column, kind in pairs]
        count = len(asked[0])
        if any(len(column) != count for column in asked):
            raise ValueError("columns of different lengths")
        beginnings, function = self._reader.read(data, at, asked[0])
        found = [function, *(np.empty(count, kind) for kind in kinds[:3])]
        number = _confirm(
            address(data), len(data), at, self._reader.forms,
            address(self._reader.starts), *map(address, asked), count,
            ctypes.addressof(beginnings), *map(address, self._tables), address(self._common), address(self._last),
            *map(address, found),
        )  # fmt: skip
        function, begin, confirmed, unsure = (column[:number].copy() for column in found)
        return begin, confirmed, unsure, function


def branches(data: np.ndarray, at: int, within: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Addresses of everything that looks like a near call or jump (E8, E9, 0F 8x), where it leads, which is `within`
    alone, and its first byte.

    `data`, which lies at the address `at`, has PADDING more bytes than are looked at. Calls of the next instruction
    are left out: noughts behind a byte of another operand, or code that wants to know where it is.
    """
    size = len(data) - PADDING
    sites, targets, opcodes = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint8)
    count = _branches(address(data), size, at, *within, address(sites), address(targets), address(opcodes))
    return sites[:count], targets[:count], opcodes[:count]


def operands(data: np.ndarray, at: int, within: tuple[int, int], bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Addresses of what looks like the ModRM byte of an operand that is a displacement alone, and its target.

    In 64-bit code that is relative to what follows, where the instruction has no immediate; in 32-bit code an address.
    `data`, `at` and `within` as for `branches`.
    """
    size = len(data) - PADDING
    sites, targets = np.empty(size, np.int64), np.empty(size, np.int64)
    count = _operands(address(data), size, at, bits == 64, *within, address(sites), address(targets))
    return sites[:count], targets[:count]


def behind_end(code: Ranges, addresses: np.ndarray, padded: bool) -> np.ndarray:
    """Whether what stands before each address ends a function, or, where it may be `padded`, what stands before a NOP.

    Such ends are RET, INT3, HLT, UD2, JMP, and CALL, which may be of what does not return.
    """
    column, found = column_of(addresses), np.empty(len(addresses), bool)
    _behind_end[column.itemsize](ctypes.addressof(code), address(column), len(column), padded, address(found))
    return found
