"""Reads /etc/ld.so.cache in both of its formats.

Old: `ld.so-1.7.0`, a count, entries of (flags, key, value), strings behind them. New: `glibc-ld.so.cache1.1`, counts,
entries of (flags, key, value, osversion, hwcap), offsets from the header's own start; it stands alone (glibc 2.32 and
later by default) or behind the old one, aligned to 8. Layouts: glibc's sysdeps/generic/dl-cache.h.
"""

import struct

from imgcheck.documents.image import CacheEntry

_OLD_MAGIC, _NEW_MAGIC = b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"
_OLD_HEADER, _NEW_HEADER, _OLD_ENTRY, _NEW_ENTRY = 16, 48, 12, 24
_BIG_ENDIAN = 3
_STRING_LIMIT = 4096


def read_cache(data: bytes) -> tuple[CacheEntry, ...]:
    """The entries of `data` in stored order, which is the order of preference; empty where it is no cache."""
    start = _new_start(data)
    if start is not None:
        return _read_new(data[start:])
    return _read_old(data) if data.startswith(_OLD_MAGIC) else ()


def _new_start(data: bytes) -> int | None:
    if data.startswith(_NEW_MAGIC):
        return 0
    if data.startswith(_OLD_MAGIC) and len(data) >= _OLD_HEADER:
        for order in "<>":
            count = struct.unpack_from(order + "I", data, 12)[0]
            start = _OLD_HEADER + count * _OLD_ENTRY + 7 & ~7
            if data[start : start + len(_NEW_MAGIC)] == _NEW_MAGIC:
                return start
    return None


def _read_new(data: bytes) -> tuple[CacheEntry, ...]:
    if len(data) < _NEW_HEADER:
        return ()
    order = ">" if data[28] & 3 == _BIG_ENDIAN or _swapped(data, 20, _NEW_HEADER, _NEW_ENTRY) else "<"
    count = struct.unpack_from(order + "I", data, 20)[0]
    table = data[_NEW_HEADER : _NEW_HEADER + count * _NEW_ENTRY]
    table = table[: len(table) // _NEW_ENTRY * _NEW_ENTRY]
    return tuple(
        CacheEntry(_text(data, key), _text(data, value), flags, hwcap)
        for flags, key, value, _, hwcap in struct.iter_unpack(order + "iIIIQ", table)
    )


def _read_old(data: bytes) -> tuple[CacheEntry, ...]:
    if len(data) < _OLD_HEADER:
        return ()
    order = ">" if _swapped(data, 12, _OLD_HEADER, _OLD_ENTRY) else "<"
    count = struct.unpack_from(order + "I", data, 12)[0]
    table = data[_OLD_HEADER : _OLD_HEADER + count * _OLD_ENTRY]
    table = table[: len(table) // _OLD_ENTRY * _OLD_ENTRY]
    strings = data[_OLD_HEADER + count * _OLD_ENTRY :]
    return tuple(
        CacheEntry(_text(strings, key), _text(strings, value), flags)
        for flags, key, value in struct.iter_unpack(order + "iII", table)
    )


def _swapped(data: bytes, at: int, header: int, entry: int) -> bool:
    """Whether the count makes sense as a big-endian number alone: older caches do not name their byte order."""
    fits = [header + struct.unpack_from(order + "I", data, at)[0] * entry <= len(data) for order in "<>"]
    return fits == [False, True]


def _text(data: bytes, at: int) -> str:
    raw = data[at : at + _STRING_LIMIT].partition(b"\0")[0]
    return raw.decode("utf-8", "backslashreplace")
