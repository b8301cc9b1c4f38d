"""One entry of a layer: a path with its attributes, before whiteouts are applied."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

Kind = Literal["file", "directory", "symlink", "hardlink", "character", "block", "fifo"]


# A Struct, and out of the garbage collector's sight, because layers hold hundreds of thousands of entries.
class Entry(Struct, gc=False):
    """A tar member, or a file of a directory source.

    `path` is relative to the root with `.`, `..`, empty components and leading slashes resolved ("usr/lib/x"; "" is
    the root itself). Names that are not valid UTF-8 carry surrogate escapes. Whiteouts are entries whose last
    component begins with `.wh.`.
    """

    path: str
    kind: Kind
    mode: int = 0o644
    """Permission bits with setuid, setgid and sticky."""
    size: int = 0
    """Bytes of the file as read, holes included."""
    link: str = ""
    """Symlink target as stored, or the hardlink's target path cleaned like `path`."""
    uid: int = 0
    gid: int = 0
    mtime: float = 0.0
    device: tuple[int, int] = (0, 0)
    xattrs: dict[str, bytes] = {}


class PlainFiles(Struct, gc=False):
    """Regular files, in stored order, that whoever reads the layer does not want: their paths, as in Entry."""

    paths: list[str]


class Select(NamedTuple):
    """The regular files that whoever reads a layer wants to see."""

    first_bytes: frozenset[int]
    """Those that begin with one of these bytes,"""
    wants: Callable[[str], bool]
    """and those whose path this takes, empty ones too."""
