"""What `convert` is asked for and what it answers."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """Bounds that no honest image reaches; beyond them an image is refused with a ConvertError that names the bound."""

    entries: int = 20_000_000
    """Entries of all layers together."""
    file_size: int = 1 << 42
    """Bytes of one file as read, holes included."""
    ratio: int = 1100
    """Bytes of files per byte of the blob that brings them. DEFLATE ends near 1030; real layers stay below 100."""
    ratio_floor: int = 8 << 30
    """Bytes of files that one layer may hold before its ratio is looked at: /var/log/lastlog is 6 GB of zeros where an
    image has a user with an id of 20 million, which is a gap on the disk."""
    xattrs: int = 1 << 29
    """Bytes of all extended attributes together, which are held in memory."""
    depth: int = 400
    """Components of a path. One directory is held open per level."""
    name: int = 255
    """Bytes of a component: NAME_MAX of Linux filesystems."""
    path: int = 4095
    """Bytes of a path and of a symlink's target: PATH_MAX without its NUL."""


@dataclass(frozen=True)
class ConvertOptions:
    """How to convert."""

    force: bool = False
    """Replace what is at the destination."""
    name: str = ""
    """Name of the container in an udocker repository, name:tag in an OCI layout or a docker archive; made from the
    reference where empty."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Converted:
    """What was written."""

    target: str
    destination: Path
    command: str
    """The shell command that runs it (or loads it, for archives)."""
    notes: tuple[str, ...] = ()
    """What could not be kept or was replaced, one sentence each."""
    files: int = 0
    """Entries in the tree; layers where layers are repacked."""
    size: int = 0
    """Bytes of file contents written."""
