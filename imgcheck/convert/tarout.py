"""Writes the winners of a merged tree as one tar stream: POSIX pax where a plain header does not do."""

import struct
from collections.abc import Callable
from typing import Any

from imgcheck.documents.codec import as_bytes
from imgcheck.layers.tree import Node

_BLOCK = 512
_HEADER = struct.Struct("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x")
_CHUNK = 1 << 20
_TYPES = {"file": b"0", "symlink": b"2", "directory": b"5", "fifo": b"6", "character": b"0", "block": b"0"}
_NODE_TYPES = {"character": b"3", "block": b"4"}
_OCTAL_11 = 1 << 33
_OCTAL_7 = 1 << 21
_CAPABILITY = "security.capability"
LAST_SECOND = (1 << 32) - 1
"""Squashfs and plain headers count seconds from 1970 without sign; earlier and later times become the nearest."""

Write = Callable[[Any], object]


class TarWriter:
    """Members one after another into `write`; times are whole seconds.

    Everything belongs to root and there are no device nodes, save with `as_stored`, for an archive that only root or
    a container engine unpacks: owners, nodes and capabilities are then those of the Nodes.
    """

    def __init__(self, write: Write, as_stored: bool = False) -> None:
        self._write = write
        self._as_stored = as_stored
        self._view = memoryview(bytearray(_CHUNK))
        self.members = 0
        self.devices = 0
        """Device nodes, which became empty files."""
        self.lost_xattrs = 0

    def member(self, path: bytes, node: Node, size: int = 0) -> None:
        """The header of a Node. A regular file's `size` bytes follow by `content` or `data`."""
        mode, kind = node.mode, _TYPES[node.kind]
        if node.kind in _NODE_TYPES:
            if self._as_stored:
                kind = _NODE_TYPES[node.kind]
            else:
                self.devices += 1
                mode &= 0o777
        link = as_bytes(node.link) if node.kind == "symlink" else b""
        name = path + b"/" if node.kind == "directory" else path
        self._header(name, kind, mode, size, node, link, node.xattrs)

    def hardlink(self, path: bytes, target: bytes, node: Node) -> None:
        """Another name of a member already written."""
        self._header(path, b"1", node.mode, 0, node, target, {})

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
        self, name: bytes, kind: bytes, mode: int, size: int, node: Node, link: bytes, xattrs: dict[str, bytes]
    ) -> None:
        self.members += 1
        records = [(b"SCHILY.xattr." + as_bytes(key), value) for key, value in xattrs.items() if self._keeps(key)]
        self.lost_xattrs += len(xattrs) - len(records)
        if len(name) > 100 or not name.isascii():
            records.append((b"path", name))
        if len(link) > 100 or not link.isascii():
            records.append((b"linkpath", link))
        if size >= _OCTAL_11:
            records.append((b"size", b"%d" % size))
        owner = (node.uid, node.gid) if self._as_stored else (0, 0)
        records += [
            (key, b"%d" % number) for key, number in zip((b"uid", b"gid"), owner, strict=True) if number >= _OCTAL_7
        ]
        seconds = int(min(max(node.mtime, 0), LAST_SECOND))
        if records:
            body = b"".join(_record(key, value) for key, value in records)
            self._write(_plain(b"pax", b"x", 0o644, len(body), 0, b""))
            self.data(body)
        device = node.device if kind in _NODE_TYPES.values() else (0, 0)
        self._write(_plain(name[:100], kind, mode, size if size < _OCTAL_11 else 0, seconds, link[:100], owner, device))

    def _keeps(self, attribute: str) -> bool:
        """Whether whoever unpacks the archive can be trusted with it: `trusted.*` and labels are of one machine."""
        return attribute.startswith("user.") or (self._as_stored and attribute == _CAPABILITY)


def _record(key: bytes, value: bytes) -> bytes:
    """`LENGTH KEY=VALUE` and a newline, where LENGTH counts itself."""
    bare = len(key) + len(value) + 3
    length = bare + len(str(bare))
    length = bare + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _plain(
    name: bytes,
    kind: bytes,
    mode: int,
    size: int,
    mtime: int,
    link: bytes,
    owner: tuple[int, int] = (0, 0),
    device: tuple[int, int] = (0, 0),
) -> bytes:
    uid, gid = (b"%07o" % (number if number < _OCTAL_7 else 0) for number in owner)
    major, minor = (b"%07o" % number if any(device) else b"" for number in device)

    def pack(checksum: bytes) -> bytes:
        return _HEADER.pack(
            name, b"%07o" % (mode & 0o7777), uid, gid, b"%011o" % size, b"%011o" % mtime, checksum, kind,
            link, b"ustar\x0000", b"", b"", major, minor, b"",
        )  # fmt: skip

    return pack(b"%06o\0 " % sum(pack(b" " * 8)))
