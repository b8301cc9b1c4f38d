"""Writes the winners of a merged tree as one tar stream: POSIX pax where a plain header does not do."""

import struct
from collections.abc import Callable
from typing import Any

from imgcheck.convert.disk import raw
from imgcheck.layers.tree import Node

_BLOCK = 512
_HEADER = struct.Struct("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x")
_CHUNK = 1 << 20
_TYPES = {"file": b"0", "symlink": b"2", "directory": b"5", "fifo": b"6", "character": b"0", "block": b"0"}
_OCTAL_11 = 1 << 33
LAST_SECOND = (1 << 32) - 1
"""Squashfs and plain headers count seconds from 1970 without sign; earlier and later times become the nearest."""

Write = Callable[[Any], object]


class TarWriter:
    """Members one after another into `write`. Everything belongs to root; times are whole seconds."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._view = memoryview(bytearray(_CHUNK))
        self.members = 0
        self.devices = 0
        """Device nodes, which became empty files."""
        self.lost_xattrs = 0

    def member(self, path: bytes, node: Node, size: int = 0) -> None:
        """The header of a Node. A regular file's `size` bytes follow by `content` or `data`."""
        mode = node.mode
        if node.kind in ("character", "block"):
            self.devices += 1
            mode &= 0o777
        link = raw(node.link) if node.kind == "symlink" else b""
        name = path + b"/" if node.kind == "directory" else path
        self._header(name, _TYPES[node.kind], mode, size, node.mtime, link, node.xattrs)

    def hardlink(self, path: bytes, target: bytes, node: Node) -> None:
        """Another name of a member already written."""
        self._header(path, b"1", node.mode, 0, node.mtime, target, {})

    def data(self, data: bytes) -> None:
        self._write(data + bytes(-len(data) % _BLOCK))

    def content(self, content: Any, size: int) -> bool:
        """Copy a file's bytes; False where they are not `size` bytes, which leaves the archive unusable."""
        left = size
        while left:
            count = content.readinto(self._view[: min(left, _CHUNK)])
            if not count:
                return False
            self._write(self._view[:count])
            left -= count
        self._write(bytes(-size % _BLOCK))
        return content.readinto(self._view[:1]) == 0

    def end(self) -> None:
        self._write(bytes(2 * _BLOCK))

    def _header(
        self, name: bytes, kind: bytes, mode: int, size: int, mtime: float, link: bytes, xattrs: dict[str, bytes]
    ) -> None:
        self.members += 1
        records = [(b"SCHILY.xattr." + raw(key), value) for key, value in xattrs.items() if key.startswith("user.")]
        self.lost_xattrs += len(xattrs) - len(records)
        if len(name) > 100 or not name.isascii():
            records.append((b"path", name))
        if len(link) > 100 or not link.isascii():
            records.append((b"linkpath", link))
        if size >= _OCTAL_11:
            records.append((b"size", b"%d" % size))
        seconds = int(min(max(mtime, 0), LAST_SECOND))
        if records:
            body = b"".join(_record(key, value) for key, value in records)
            self._write(_plain(b"pax", b"x", 0o644, len(body), 0, b""))
            self.data(body)
        self._write(_plain(name[:100], kind, mode, size if size < _OCTAL_11 else 0, seconds, link[:100]))


def _record(key: bytes, value: bytes) -> bytes:
    """`LENGTH KEY=VALUE` and a newline, where LENGTH counts itself."""
    bare = len(key) + len(value) + 3
    length = bare + len(str(bare))
    length = bare + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _plain(name: bytes, kind: bytes, mode: int, size: int, mtime: int, link: bytes) -> bytes:
    def pack(checksum: bytes) -> bytes:
        return _HEADER.pack(
            name, b"%07o" % (mode & 0o7777), b"0000000", b"0000000", b"%011o" % size, b"%011o" % mtime, checksum, kind,
            link, b"ustar\x0000", b"", b"", b"", b"", b"",
        )  # fmt: skip

    return pack(b"%06o\0 " % sum(pack(b" " * 8)))
