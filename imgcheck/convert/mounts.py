"""Filesystems that are mounted in a tree: their files are not the tree's, and must not go with it."""

import os
import re
from pathlib import Path

_ESCAPE = re.compile(rb"\\([0-7]{3})")
_MOUNT_POINT = 4
"""The field of a line (proc_pid_mountinfo(5))."""


def mounts_in(tree: Path) -> list[Path]:
    """Where something is mounted at or below `tree`, a path without links, as this process sees it.

    Bind mounts count, which no status of a file tells. Empty where /proc says nothing.
    """
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    points = (_unescaped(line.split(b" ", _MOUNT_POINT + 1)[_MOUNT_POINT]) for line in lines)
    return [point for point in points if point == tree or tree in point.parents]


def mounts_in_open(parent: int, name: str | bytes) -> list[Path]:
    """The same of `name` in the directory that is open as `parent`."""
    try:
        return mounts_in(Path(f"/proc/self/fd/{parent}").readlink() / os.fsdecode(name))
    except OSError:
        return []


def _unescaped(field: bytes) -> Path:
    return Path(os.fsdecode(_ESCAPE.sub(lambda match: bytes((int(match[1], 8),)), field)))
