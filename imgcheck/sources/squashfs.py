"""Reads squashfs 4.0 images, without mounting them and without trusting a number in them.

Layout as in the Linux documentation (filesystems/squashfs) and the format's description by its users: a superblock of
96 bytes, data blocks, then tables of inodes, directories, fragments, owners and attributes. Tables are chains of
metadata blocks: a 16-bit length, whose top bit says "stored as is", and what decompresses to at most 8 KiB.

Libraries at hand read the whole tree recursively, follow directories that contain themselves, and decompress without
a bound; so this is a reader of our own.
"""

import os
import stat
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from imgcheck.errors import LayerError
from imgcheck.layers.entry import Entry, Kind
from imgcheck.layers.model import Content
from imgcheck.layers.stream import RATIO_FLOOR, RATIO_LIMIT
from imgcheck.sif_format import BARE_SQUASHFS
from imgcheck.sources import lz

_SUPERBLOCK = struct.Struct("<5I6H8Q")
_METADATA = 8192
_NONE = 0xFFFFFFFF
_NO_TABLE = (1 << 64) - 1
_STORED_BLOCK = 1 << 24
_LARGEST_BLOCK = 1 << 20
_CACHED_METADATA = 4096
_CACHED_FRAGMENTS = 64 << 20
_DEEPEST = 1000
_LONGEST_TARGET = 65535
_ATTRIBUTE_VALUE = 1 << 16
_ATTRIBUTES = 1 << 20
"""Bytes of all attributes of a file. Linux lists names of 64 KiB at most; many may share one value in the image."""
_ALL_ATTRIBUTES = 64 << 20
"""Bytes of all sets of attributes, of which each is held once: a label or a capability has some dozens."""
_PREFIXES = ("user.", "trusted.", "security.")
_EXTENDED = 7
"""What a kind's number grows by where its inode has the extended form."""
_DIRECTORY, _FILE, _SYMLINK, _BLOCK, _CHARACTER, _FIFO, _SOCKET = range(1, 8)
_KINDS: dict[int, Kind] = {
    _DIRECTORY: "directory", _FILE: "file", _SYMLINK: "symlink", _BLOCK: "block", _CHARACTER: "character",
    _FIFO: "fifo",
}  # fmt: skip
_HEADER = struct.Struct("<4H2I")
_BODIES = {
    _DIRECTORY: struct.Struct("<IIHHI"),
    _FILE: struct.Struct("<4I"),
    _SYMLINK: struct.Struct("<2I"),
    _BLOCK: struct.Struct("<2I"),
    _CHARACTER: struct.Struct("<2I"),
    _FIFO: struct.Struct("<I"),
    _SOCKET: struct.Struct("<I"),
    _DIRECTORY + _EXTENDED: struct.Struct("<4I2HI"),
    _FILE + _EXTENDED: struct.Struct("<3Q4I"),
    _SYMLINK + _EXTENDED: struct.Struct("<2I"),
    _BLOCK + _EXTENDED: struct.Struct("<3I"),
    _CHARACTER + _EXTENDED: struct.Struct("<3I"),
    _FIFO + _EXTENDED: struct.Struct("<2I"),
    _SOCKET + _EXTENDED: struct.Struct("<2I"),
}
_RUN = struct.Struct("<3I")
_NAME = struct.Struct("<HhHH")
_LONGEST_RUN = 256
_OFTEN = 1 << 16

Cursor = tuple[int, int]
"""A metadata block's position in the file, and an offset in what it decompresses to."""
Decompress = Callable[[bytes, int], bytes]


@dataclass(frozen=True)
class Inode:
    """An inode's header and the part of its body that its kind has."""

    kind: int
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int = 0
    start: int = 0
    """Files: the first data block. Directories: their listing's block, relative to the table."""
    offset: int = 0
    """Files: place in the fragment. Directories: offset in the listing's block."""
    fragment: int = _NONE
    links: int = 1
    device: int = 0
    target: bytes = b""
    attributes: int = _NONE
    blocks: Cursor = (0, 0)
    """Files: where the list of block sizes stands."""


class Squashfs:
    """The filesystem `offset` bytes into `file`. LayerError, with `name` in front, where it is damaged."""

    def __init__(self, file: BinaryIO, name: str, offset: int = 0, size: int | None = None) -> None:
        self._fd = file.fileno()
        self._name = name
        self._offset = offset
        whole = os.fstat(self._fd).st_size - offset
        self._end = whole if size is None else min(size, whole)
        head = self._at(0, _SUPERBLOCK.size, "its superblock")
        (
            magic, _inodes, _time, self._block_size, self._fragments, compression, log, _flags, self._owners,
            major, minor, self._root, self._used, self._owner_table, self._attribute_table, self._inode_table,
            self._directory_table, self._fragment_table, _export,
        ) = _SUPERBLOCK.unpack(head)  # fmt: skip
        if magic != int.from_bytes(BARE_SQUASHFS, "little"):
            self.fail("no squashfs: its first bytes are others")
        if (major, minor) != (4, 0):
            self.fail(f"squashfs version {major}.{minor}, which is not read; only 4.0 is")
        if not 4096 <= self._block_size <= _LARGEST_BLOCK or self._block_size != 1 << min(log, 32):
            self.fail(f"blocks of {self._block_size} bytes")
        if self._used > self._end:
            self.fail(f"truncated: it claims {self._used} bytes, and {self._end} are there")
        self._decompress = _decompressor(compression, self.fail)
        self._metadata: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        self._fragment_blocks: OrderedDict[int, bytes] = OrderedDict()
        self._found: dict[tuple[int, int, bytes], int | None] = {}
        self._allowed = _OFTEN + self._used
        self._attribute_sets: dict[int, dict[str, bytes]] = {}
        self._attributes_left = _ALL_ATTRIBUTES
        self._most = max(RATIO_FLOOR, RATIO_LIMIT * self._used)
        self._contents_left = self._most

    @property
    def size(self) -> int:
        return self._used

    def fail(self, why: str) -> NoReturn:
        raise LayerError(f"{self._name}: {why}", "the file is damaged or of another kind: fetch or build it again")

    def root(self) -> Inode:
        return self._inode(self._root)

    def entries(self, advance: Callable[[int], None]) -> Iterator[tuple[Entry, Content | None]]:
        """Everything: directories and links first, files in the order in which their bytes lie, further names last.

        `advance` is told of the bytes of files that were passed. Holes cost nothing here, and an inode may have any
        number of names: LayerError where what is read of the files is out of all proportion, as in TarLayer.
        """
        self._contents_left = self._most
        files: list[tuple[tuple[int, int], int, Entry, Inode]] = []
        later: list[Entry] = []
        for reference, entry, inode, first in self._walk():
            if entry.kind == "file" and first is not None:
                later.append(Entry(entry.path, "hardlink", link=first, mode=entry.mode))
            elif entry.kind == "file":
                files.append((self._place(inode), reference, entry, inode))
            else:
                entry.xattrs = self._attributes(inode.attributes)
                yield entry, None
        files.sort(key=lambda item: item[0])
        for _place, _reference, entry, inode in files:
            entry.xattrs = self._attributes(inode.attributes)
            yield entry, FileContent(self, inode, entry.path)
            advance(inode.size)
        for entry in later:
            yield entry, None

    def spend(self, size: int) -> None:
        """Count bytes of files that are read."""
        self._contents_left -= size
        if self._contents_left < 0:
            self.fail(f"refused: {self._used} bytes expand to more than {self._most}")

    def read_file(self, path: str, limit: int) -> bytes | None:
        """A regular file's bytes, at most `limit`, no link followed; None where there is none at `path`."""
        inode = self.root()
        for part in path.split("/"):
            if inode.kind != _DIRECTORY:
                return None
            reference = self._reference(inode, part.encode())
            if reference is None:
                return None
            inode = self._inode(reference)
        return FileContent(self, inode, path).read(limit) if inode.kind == _FILE else None

    def _reference(self, directory: Inode, wanted: bytes) -> int | None:
        """The inode that a directory names so. All searches together pass no more names than a walk of everything."""
        key = (directory.start, directory.offset, wanted)
        if key not in self._found:
            self._found[key] = None
            for name, reference in self._listing(directory):
                self._allowed = self._counted(self._allowed)
                if name == wanted:
                    self._found[key] = reference
                    break
        return self._found[key]

    def _counted(self, allowed: int) -> int:
        if allowed <= 0:
            self.fail("its directories list more files than it can hold")
        return allowed - 1

    def _walk(self) -> Iterator[tuple[int, Entry, Inode, str | None]]:
        """Every inode with its entry; for a file met before, the first path it had. A directory has one name."""
        allowed = _OFTEN + self._used
        seen: dict[int, str] = {self._root: ""}
        stack: list[tuple[str, Iterator[tuple[bytes, int]]]] = []
        root = self.root()
        if root.kind != _DIRECTORY:
            self.fail("its root is no directory")
        yield self._root, self._entry("", root), root, None
        stack.append(("", self._listing(root)))
        while stack:
            prefix, names = stack[-1]
            following = next(names, None)
            if following is None:
                stack.pop()
                continue
            allowed = self._counted(allowed)
            name, reference = following
            path = prefix + name.decode("utf-8", "surrogateescape")
            inode = self._inode(reference)
            first = seen.get(reference)
            if inode.kind == _DIRECTORY:
                if first is not None:
                    self.fail(f"the directory {path!r} stands in two places")
                if len(stack) >= _DEEPEST:
                    self.fail(f"more than {_DEEPEST} directories deep")
            if inode.kind == _DIRECTORY or inode.links > 1:
                seen.setdefault(reference, path)
            if inode.kind != _SOCKET:
                yield reference, self._entry(path, inode), inode, first
            if inode.kind == _DIRECTORY:
                stack.append((path + "/", self._listing(inode)))

    def _entry(self, path: str, inode: Inode) -> Entry:
        device = inode.device
        return Entry(
            path=path,
            kind=_KINDS[inode.kind],
            mode=stat.S_IMODE(inode.mode),
            size=inode.size if inode.kind == _FILE else 0,
            link=inode.target.decode("utf-8", "surrogateescape"),
            uid=self._owner(inode.uid),
            gid=self._owner(inode.gid),
            mtime=inode.mtime,
            device=((device >> 8) & 0xFFF, (device & 0xFF) | ((device >> 12) & 0xFFF00)),
        )

    def _inode(self, reference: int) -> Inode:
        """The inode at a reference: block position relative to the table in the upper bits, offset in the lower 16."""
        cursor = (self._inode_table + (reference >> 16), reference & 0xFFFF)
        header, cursor = self._unpack(_HEADER, cursor)
        number, mode, uid, gid, mtime, _number = header
        body = _BODIES.get(number)
        if body is None:
            self.fail(f"an inode of the unknown kind {number}")
        values, cursor = self._unpack(body, cursor)
        kind = number - _EXTENDED if number > _EXTENDED else number
        make = _INODES[number]
        found = {"kind": kind, "mode": mode, "uid": uid, "gid": gid, "mtime": mtime} | make(values)
        if kind == _FILE:
            found["blocks"] = cursor
        elif kind == _SYMLINK:
            if found["size"] > _LONGEST_TARGET:
                self.fail(f"a link with a target of {found['size']} bytes")
            found["target"], cursor = self._read(cursor, found["size"])
            if number > _EXTENDED:
                found["attributes"] = int.from_bytes(self._read(cursor, 4)[0], "little")
        return Inode(**found)

    def _listing(self, directory: Inode) -> Iterator[tuple[bytes, int]]:
        """Names and inode references of a directory. The length in its inode counts three bytes that are not there."""
        left = directory.size - 3
        cursor = (self._directory_table + directory.start, directory.offset)
        while left > 0:
            (count, block, _number), cursor = self._unpack(_RUN, cursor)
            left -= _RUN.size
            if count >= _LONGEST_RUN:
                self.fail(f"a directory with a run of {count + 1} names")
            for _ in range(count + 1):
                (offset, _delta, _kind, length), cursor = self._unpack(_NAME, cursor)
                name, cursor = self._read(cursor, min(length, 255) + 1)
                left -= _NAME.size + len(name)
                if length > 255 or b"/" in name or b"\0" in name or name in (b".", b".."):
                    self.fail(f"a file named {name[:60]!r}")
                yield name, block << 16 | offset

    def _owner(self, index: int) -> int:
        return int.from_bytes(self._item(self._owner_table, self._owners, 4, index, "owner"), "little")

    def _attributes(self, index: int) -> dict[str, bytes]:
        """The set of attributes with this number, one object for all inodes that have it."""
        if index == _NONE or self._attribute_table == _NO_TABLE:
            return {}
        if index not in self._attribute_sets:
            self._attribute_sets[index] = self._attribute_set(index)
        return self._attribute_sets[index]

    def _attribute_set(self, index: int) -> dict[str, bytes]:
        start, count, _ = struct.unpack("<Q2I", self._at(self._attribute_table, 16, "its attributes"))
        item = self._item(self._attribute_table + 16, count, 16, index, "attribute")
        place, number, _size = struct.unpack("<Q2I", item)
        cursor = (start + (place >> 16), place & 0xFFFF)
        found = {}
        left = _ATTRIBUTES
        for _ in range(number):
            (prefix, length), cursor = self._unpack(struct.Struct("<2H"), cursor)
            name, cursor = self._read(cursor, length)
            value, cursor = self._value(cursor)
            if prefix & 0x100:
                far = int.from_bytes(value, "little")
                value, _ = self._value((start + (far >> 16), far & 0xFFFF))
            left -= 8 + len(name) + len(value)
            self._attributes_left -= 8 + len(name) + len(value)
            if left < 0:
                self.fail(f"a file with attributes of more than {_ATTRIBUTES >> 20} MiB")
            if self._attributes_left < 0:
                self.fail(f"attributes of more than {_ALL_ATTRIBUTES >> 20} MiB")
            if prefix & 0xFF < len(_PREFIXES):
                found[_PREFIXES[prefix & 0xFF] + name.decode("utf-8", "surrogateescape")] = value
        return found

    def _value(self, cursor: Cursor) -> tuple[bytes, Cursor]:
        (length,), cursor = self._unpack(struct.Struct("<I"), cursor)
        if length > _ATTRIBUTE_VALUE:
            self.fail(f"an attribute of {length} bytes")
        return self._read(cursor, length)

    def fragment(self, inode: Inode) -> bytes:
        """The end of a file that has no block of its own."""
        start, length = self._fragment(inode.fragment)
        block = self._fragment_blocks.get(start)
        if block is None:
            block = self._fragment_blocks[start] = self.block(start, length)
            if len(self._fragment_blocks) > _CACHED_FRAGMENTS // self._block_size:
                self._fragment_blocks.popitem(last=False)
        size = inode.size % self._block_size
        data = block[inode.offset : inode.offset + size]
        if len(data) != size:
            self.fail("a file's end lies behind its fragment")
        return data

    def _fragment(self, index: int) -> tuple[int, int]:
        item = self._item(self._fragment_table, self._fragments, 16, index, "fragment")
        start, length, _ = struct.unpack("<Q2I", item)
        return start, length

    def _place(self, inode: Inode) -> tuple[int, int]:
        """Where a file's bytes lie, to read them in that order."""
        if inode.size >= self._block_size or inode.fragment == _NONE:
            return inode.start, 0
        return self._fragment(inode.fragment)[0], inode.offset

    def block_sizes(self, inode: Inode) -> Iterator[tuple[int, int]]:
        """For each of a file's blocks what the list says of it, and how many bytes of the file it holds."""
        size = self._block_size
        left = inode.size if inode.fragment == _NONE else inode.size - inode.size % size
        cursor = inode.blocks
        while left:
            count = min(-(-left // size), 2048)
            words, cursor = self._read(cursor, 4 * count)
            for (word,) in struct.iter_unpack("<I", words):
                yield word, min(left, size)
                left -= min(left, size)

    def block(self, start: int, length: int) -> bytes:
        """A data block: `length` as in lists of blocks, its 25th bit set where it is stored as is."""
        size = length & (_STORED_BLOCK - 1)
        if size > self._block_size:
            self.fail(f"a data block of {size} bytes")
        data = self._at(start, size, "a data block")
        return data if length & _STORED_BLOCK else self._expand(data, self._block_size)

    def _item(self, table: int, count: int, size: int, index: int, what: str) -> bytes:
        """Item `index` of a table in metadata blocks whose positions stand at `table`."""
        if index >= count:
            self.fail(f"{what} {index} of {count}")
        block, offset = divmod(index * size, _METADATA)
        place = int.from_bytes(self._at(table + 8 * block, 8, f"its table of {what}s"), "little")
        return self._read((place, offset), size)[0]

    def _unpack(self, layout: struct.Struct, cursor: Cursor) -> tuple[tuple, Cursor]:
        position, offset = cursor
        data, _following = self._metadata_block(position)
        end = offset + layout.size
        if end < len(data):
            return layout.unpack_from(data, offset), (position, end)
        joined, cursor = self._read(cursor, layout.size)
        return layout.unpack(joined), cursor

    def _read(self, cursor: Cursor, size: int) -> tuple[bytes, Cursor]:
        """`size` bytes of a chain of metadata blocks, and where they end."""
        position, offset = cursor
        data, following = self._metadata_block(position)
        if offset > len(data):
            self.fail("a reference behind the end of its metadata block")
        if offset + size < len(data):
            return data[offset : offset + size], (position, offset + size)
        parts = [data[offset:]]
        size -= len(parts[0])
        offset = 0
        position = following
        while size:
            data, following = self._metadata_block(position)
            parts.append(data[:size])
            size -= len(parts[-1])
            if len(parts[-1]) < len(data):
                return b"".join(parts), (position, len(parts[-1]))
            position = following
        return b"".join(parts), (position, 0)

    def _metadata_block(self, position: int) -> tuple[bytes, int]:
        """What the metadata block at `position` decompresses to, and the position behind it."""
        kept = self._metadata.get(position)
        if kept is not None:
            return kept
        head = int.from_bytes(self._at(position, 2, "a table"), "little")
        size = head & 0x7FFF
        if not 0 < size <= _METADATA:
            self.fail(f"a metadata block of {size} bytes")
        data = self._at(position + 2, size, "a table")
        if not head & 0x8000:
            data = self._expand(data, _METADATA)
        if not data:
            self.fail("an empty metadata block")
        found = self._metadata[position] = data, position + 2 + size
        if len(self._metadata) > _CACHED_METADATA:
            self._metadata.popitem(last=False)
        return found

    def _expand(self, data: bytes, limit: int) -> bytes:
        try:
            found = self._decompress(data, limit + 1)
        except Exception as error:  # every library has its own
            self.fail(f"a block that does not decompress ({error})")
        if len(found) > limit:
            self.fail(f"a block that expands to more than {limit} bytes")
        return found

    def _at(self, position: int, size: int, what: str) -> bytes:
        if position + size > self._end:
            self.fail(f"truncated or damaged: {what} would lie behind its end")
        try:
            data = os.pread(self._fd, size, self._offset + position)
        except OSError as error:
            self.fail(f"cannot be read: {error.strerror}")
        if len(data) != size:
            self.fail(f"truncated: {what} is cut off")
        return data


def _directory(values: tuple) -> dict[str, int]:
    start, links, size, offset, _parent = values
    return {"start": start, "links": links, "size": size, "offset": offset}


def _long_directory(values: tuple) -> dict[str, int]:
    links, size, start, _parent, _count, offset, attributes = values
    return {"start": start, "links": links, "size": size, "offset": offset, "attributes": attributes}


def _file(values: tuple) -> dict[str, int]:
    start, fragment, offset, size = values
    return {"start": start, "fragment": fragment, "offset": offset, "size": size}


def _long_file(values: tuple) -> dict[str, int]:
    start, size, _sparse, links, fragment, offset, attributes = values
    place = {"start": start, "fragment": fragment, "offset": offset}
    return place | {"size": size, "links": links, "attributes": attributes}


def _link(values: tuple) -> dict[str, int]:
    links, size = values
    return {"links": links, "size": size}


def _device(values: tuple) -> dict[str, int]:
    return {"links": values[0], "device": values[1], "attributes": values[2] if len(values) > 2 else _NONE}


def _pipe(values: tuple) -> dict[str, int]:
    return {"links": values[0], "attributes": values[1] if len(values) > 1 else _NONE}


_INODES: dict[int, Callable[[tuple], dict[str, int]]] = {
    _DIRECTORY: _directory, _FILE: _file, _SYMLINK: _link, _BLOCK: _device, _CHARACTER: _device, _FIFO: _pipe,
    _SOCKET: _pipe, _DIRECTORY + _EXTENDED: _long_directory, _FILE + _EXTENDED: _long_file,
    _SYMLINK + _EXTENDED: _link, _BLOCK + _EXTENDED: _device, _CHARACTER + _EXTENDED: _device,
    _FIFO + _EXTENDED: _pipe, _SOCKET + _EXTENDED: _pipe,
}  # fmt: skip


class FileContent:
    """The bytes of a file, block by block. Blocks of length 0 are holes."""

    def __init__(self, image: Squashfs, inode: Inode, path: str) -> None:
        self._image = image
        self._inode = inode
        self._path = path
        self._sizes = image.block_sizes(inode)
        self._position = inode.start
        self._piece = memoryview(b"")
        self._left = inode.size

    def readinto(self, buffer: memoryview) -> int:
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def read(self, size: int = -1) -> bytes:
        left = self._left if size < 0 else min(size, self._left)
        parts = []
        while left:
            parts.append(self._next(left))
            left -= len(parts[-1])
        return b"".join(parts)

    def _next(self, most: int) -> memoryview:
        """Up to `most` of the next bytes, as far as their block goes."""
        if not self._piece and self._left:
            self._piece = memoryview(self._block())
            self._image.spend(len(self._piece))
        piece = self._piece[:most]
        self._piece = self._piece[len(piece) :]
        self._left -= len(piece)
        return piece

    def _block(self) -> bytes:
        length, size = next(self._sizes, (0, 0))
        if not size:
            return self._image.fragment(self._inode)
        if not length:
            return bytes(size)
        data = self._image.block(self._position, length)
        if len(data) != size:
            self._image.fail(f"{self._path!r}: a block of {len(data)} bytes where {size} belong")
        self._position += length & (_STORED_BLOCK - 1)
        return data


def _decompressor(number: int, fail: Callable[[str], NoReturn]) -> Decompress:
    """The decompressor with this number in the superblock: of a block, and never more than a given number of bytes."""
    found = _DECOMPRESSORS.get(number)
    if found is None:
        fail(f"compressed by a method that squashfs does not have ({number})")
    return found


def _zlib(data: bytes, limit: int) -> bytes:
    from isal import isal_zlib

    return isal_zlib.decompressobj().decompress(data, limit)


def _lzma(data: bytes, limit: int) -> bytes:
    import lzma

    return lzma.LZMADecompressor(memlimit=1 << 28).decompress(data, limit)


def _zstd(data: bytes, limit: int) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data).read(limit)


_DECOMPRESSORS: dict[int, Decompress] = {1: _zlib, 2: _lzma, 3: lz.lzo, 4: _lzma, 5: lz.lz4, 6: _zstd}
