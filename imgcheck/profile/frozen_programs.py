"""Programs that PyInstaller made of Python applications: where their libraries lie, and those that they unpack.

Behind the starter, an ELF file, lies an archive (CArchive: bootloader/src/pyi_archive.h of PyInstaller), in a section
`pydata` or after the end. Its cookie, all numbers big-endian: magic (8 bytes), size of the archive with the cookie,
offset of the table of contents in it and its size, version of Python, name of its library (64 bytes). An entry of the
table: its own size, offset in the archive, packed size and size, a byte whether it is packed (zlib), a letter for its
type, and the name, filled up with zeros.

With `--onefile` everything is unpacked into one directory. Else the files lie beside the starter, since PyInstaller 6
in a directory `_internal` there, or what the option `pyi-contents-directory` names. With either LD_LIBRARY_PATH begins
with that directory when the program starts itself anew (bootloader/src/pyi_main.c).
"""

import io
import posixpath
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from imgcheck.binaries.analyse import ELF_MAGIC, is_named_as_library
from imgcheck.layers.entry import Entry
from imgcheck.profile.packed import Allowance, ArchiveError, Found, Read, Take, is_plain

_MAGIC = b"MEI\014\013\012\013\016"
_COOKIE = struct.Struct(">8sIIII64s")
_ENTRY = struct.Struct(">IIIIBc")
_BEHIND = 1 << 18
"""Bytes that are searched for the cookie: behind it come the table of sections and their names, or a signature."""
_LARGEST_TABLE = 4 << 20
"""Bytes: some hundred thousand members, of which large applications have some ten thousand."""
_LONGEST_LINK = 4096
_LIBRARY, _DATA, _LINK, _OPTION = b"b", b"x", b"n", b"o"
"""Types of members: what PyInstaller found to be a library, another file, a symbolic link, an option of the starter."""
_UNPACKED = {_LIBRARY, _DATA, _LINK, b"Z"}
"""Those that make it a program which unpacks what it needs; the last is a ZIP file."""
_CONTENTS = "pyi-contents-directory "
_STEP = 1 << 16


class Frozen(NamedTuple):
    """A program that PyInstaller made."""

    home: str
    """Where its libraries lie, from its own directory; empty where it unpacks them."""
    libraries: tuple[tuple[str, str], ...]
    """Those that it unpacks, and links to them: the path of each, and the key of its facts."""


class _Member(NamedTuple):
    """A file in the archive; `offset` counts from the beginning of the program."""

    name: str
    type: bytes
    offset: int
    packed: int
    size: int
    is_packed: bool


def read_frozen(size: int, read: Read, take: Take) -> Frozen | None:
    """What the program of `size` bytes is, which `read` reads, its libraries handed to `take`; None where no such one.

    What is damaged is passed over. Raises ArchiveError.
    """
    members = list(_members(size, read))
    if any(member.type in _UNPACKED for member in members):
        return Frozen("", tuple(_libraries(size, members, read, take)))
    named = [member.name.removeprefix(_CONTENTS) for member in members if member.name.startswith(_CONTENTS)]
    return Frozen(next(iter(named), "."), ()) if members else None


def _libraries(size: int, members: Iterable[_Member], read: Read, take: Take) -> Found:
    allowance, found, links = Allowance(size), dict[str, str](), dict[str, str]()
    for member in members:
        if member.type == _LINK and member.packed <= _LONGEST_LINK:
            target = read(member.packed, member.offset).decode("utf-8", "backslashreplace").rstrip("\0")
            links[member.name] = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), target))
        elif member.type == _LIBRARY or (member.type == _DATA and is_named_as_library(member.name)):
            allowance.take(member.packed)
            content = io.BufferedReader(_Content(member, read))
            try:
                head = content.read(len(ELF_MAGIC) * 2)
                if head.startswith(ELF_MAGIC):
                    allowance.take(member.size)
                    found[member.name] = take(Entry(member.name, "file", size=member.size), head, content)
            except zlib.error:
                continue
    yield from found.items()
    yield from ((name, found[target]) for name, target in links.items() if target in found and name not in found)


def _members(size: int, read: Read) -> Iterator[_Member]:
    """Those of the archive that lie within the file."""
    start = max(size - _BEHIND, 0)
    tail = read(size - start, start)
    at = tail.rfind(_MAGIC)
    if at < 0 or len(tail) < at + _COOKIE.size:
        return
    _, length, table, table_size, _, _ = _COOKIE.unpack_from(tail, at)
    begin = start + at + _COOKIE.size - length
    if begin < 0 or table + table_size > length:
        return
    if table_size > _LARGEST_TABLE:
        raise ArchiveError(f"its table of contents has {table_size} bytes, at most {_LARGEST_TABLE} are read")
    yield from _entries(read(table_size, begin + table), begin, length)


def _entries(table: bytes, begin: int, length: int) -> Iterator[_Member]:
    at = 0
    while at + _ENTRY.size <= len(table):
        size, offset, packed, unpacked, is_packed, kind = _ENTRY.unpack_from(table, at)
        name = table[at + _ENTRY.size : at + size].partition(b"\0")[0].decode("utf-8", "backslashreplace")
        if size <= _ENTRY.size:
            return
        at += size
        if is_plain(name) and offset + packed <= length:
            yield _Member(name, kind, begin + offset, packed, unpacked if is_packed else packed, bool(is_packed))


class _Content(io.RawIOBase):
    """What a member unpacks to, no more than the size that it has by the table. Raises zlib.error."""

    def __init__(self, member: _Member, read: Read) -> None:
        self._read_at = read
        self._at, self._packed_left = member.offset, member.packed
        self._left = member.size
        self._inflate = zlib.decompressobj() if member.is_packed else None
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._next(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        if not data and self._left and len(buffer):
            raise zlib.error("shorter than the table tells")
        if data and not self._left:
            self._end()
        return len(data)

    def _end(self) -> None:
        """See to it that nothing follows, and that the checksum is right."""
        inflate = self._inflate
        if inflate and (inflate.decompress(self._waiting + self._packed(_STEP), 1) or not inflate.eof):
            raise zlib.error("longer than the table tells")

    def _next(self, most: int) -> bytes:
        """Up to `most` bytes; none at the end alone."""
        if self._inflate is None:
            return self._packed(most)
        data = b""
        while most and not data and not self._inflate.eof:
            packed = self._waiting or self._packed(_STEP)
            data = self._inflate.decompress(packed, most)
            self._waiting = self._inflate.unconsumed_tail
            if not packed and not data:
                break
        return data

    def _packed(self, most: int) -> bytes:
        data = self._read_at(min(most, self._packed_left), self._at)
        self._at += len(data)
        self._packed_left -= len(data)
        return data
