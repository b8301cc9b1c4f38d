"""Libraries in ZIP archives, which what they are for takes out and loads: found by an archive's central directory.

A JAR is a ZIP file (JAR File Specification; APPNOTE.TXT of PKWARE). Libraries lie in it by system and machine, as
`org/xerial/snappy/native/Linux/x86_64/libsnappyjava.so`, and in archives of Spring Boot in further ones inside. A
zipped application of Python has a `#!` line before the archive (PEP 441); those with compiled modules (PEX, shiv)
unpack themselves when they start, since Python loads none from an archive.
"""

import re
import struct
import zipfile
import zlib
from contextlib import closing
from typing import cast

from imgcheck.binaries.analyse import ELF_MAGIC, is_named_as_library
from imgcheck.documents.image import IN_ARCHIVE, JAVA_ARCHIVES
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content
from imgcheck.profile.packed import Allowance, ArchiveError, Found, Take, is_plain
from imgcheck.profile.worker import Memory

_MAGIC = b"PK\x03\x04"
_PYTHON = (".pex", ".pyz")
_WANTED = re.compile(rb"\.so|\.[jwe]ar")
"""What stands in the central directory of an archive with libraries or archives."""
_DEEPEST = 3
"""Archives in one another."""
_LARGEST = 4 << 30
_MOST_NAMES = 32 << 20
"""Bytes of a central directory: some hundreds of thousands of entries."""
_END = struct.Struct("<4s4xHHIIH")
"""End of central directory record: signature, disks (4 bytes), entries here and in all, size and offset of the central
directory, length of the comment behind."""
_END_MAGIC = b"PK\x05\x06"
_LONGEST_COMMENT = (1 << 16) - 1
_STEP = 1 << 20
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error)
"""What `zipfile` raises for what it cannot read."""


def is_archive(head: bytes, path: str) -> bool:
    """Whether the file at `path` that begins with `head` is an archive of Java, or a zipped application of Python."""
    return head.startswith(_MAGIC) and path.endswith((*JAVA_ARCHIVES, *_PYTHON))


def is_application(data: bytes) -> bool:
    """Whether a file that begins with `data` is a zipped application with a `#!` line."""
    return data.startswith(b"#!") and data.partition(b"\n")[2].startswith(_MAGIC)


def libraries(entry: Entry, head: bytes, content: Content, take: Take) -> Found:
    """Those in the archive that begins with `head`, each handed to `take`. What is damaged is passed over.

    Raises ArchiveError, and MemoryError where there is none to hold it.
    """
    return _Archives(entry.size, take).read(entry.size, head, content)


class _Archives:
    """An archive with those in it."""

    def __init__(self, size: int, take: Take) -> None:
        self._take = take
        self._allowance = Allowance(size)

    def read(self, size: int, head: bytes, content: Content, depth: int = 1) -> Found:
        if size > _LARGEST:
            raise ArchiveError(f"too large to be looked into: {size} bytes, at most {_LARGEST}")
        with closing(Memory(size)) as memory:
            memory.write(memoryview(head))
            while piece := content.read(_STEP):
                memory.write(memoryview(piece))
            yield from self._members(memory, depth)

    def _members(self, memory: Memory, depth: int) -> Found:
        if not _WANTED.search(_central_directory(memory)):
            return
        try:
            with open(memory.fileno(), "rb", closefd=False) as file, zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    yield from self._member(archive, member, depth)
        except _DAMAGE:
            return

    def _member(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, depth: int) -> Found:
        name = member.filename
        is_library, is_further = is_named_as_library(name), name.endswith(JAVA_ARCHIVES) and depth < _DEEPEST
        if not (is_library or is_further) or not is_plain(name):
            return
        try:
            with cast("zipfile.ZipExtFile", archive.open(member)) as content:
                head = content.read(len(ELF_MAGIC) * 2)
                if head.startswith(ELF_MAGIC if is_library else _MAGIC):
                    self._allowance.take(member.file_size)
                    if is_library:
                        yield name, self._take(Entry(name, "file", size=member.file_size), head, content)
                    else:
                        found = self.read(member.file_size, head, content, depth + 1)
                        yield from ((f"{name}{IN_ARCHIVE}{inner}", key) for inner, key in found)
        except _DAMAGE:
            return


def _central_directory(memory: Memory) -> bytes:
    """The bytes of the archive's central directory; empty where it has none."""
    tail = memory.read(_END.size + _LONGEST_COMMENT, max(memory.size - _END.size - _LONGEST_COMMENT, 0))
    at = tail.rfind(_END_MAGIC)
    if at < 0 or len(tail) < at + _END.size:
        return b""
    _, _, _, size, _, _ = _END.unpack_from(tail, at)
    if size > _MOST_NAMES:
        raise ArchiveError(f"its central directory has {size} bytes, at most {_MOST_NAMES} are read")
    # Its offset counts from the archive's own beginning, before which a program may stand.
    return memory.read(size, max(memory.size - len(tail) + at - size, 0))
