"""What of an image's attributes a tree on disk gets, and what was lost on the way."""

import os
from dataclasses import dataclass, field

from imgcheck.layers.tree import Node

SET_ID = 0o6000


@dataclass
class Policy:
    """Attributes for the one who writes the tree.

    Everything belongs to the caller. Files keep their permissions, setuid and setgid included, save where the caller
    is root: a file that becomes root's own would hand root to whoever can reach the tree.
    """

    owner_access: bool
    """Give the owner access to every file and directory: whoever starts a rootless runtime is that owner, and what
    root may read in Docker would be closed to the container."""
    drop_set_id: bool = field(default_factory=lambda: os.geteuid() == 0)
    opened: int = 0
    dropped_set_id: int = 0
    lost_xattrs: int = 0
    devices: int = 0

    def file_mode(self, mode: int) -> int:
        if mode & SET_ID and self.drop_set_id:
            self.dropped_set_id += 1
            mode &= ~SET_ID
        return self._opened(mode, 0o600)

    def directory_mode(self, mode: int) -> int:
        """Setgid of a directory hands on a group, no rights: it stays."""
        return self._opened(mode, 0o700)

    def _opened(self, mode: int, bits: int) -> int:
        if self.owner_access and mode & bits != bits:
            self.opened += 1
            return mode | bits
        return mode

    def empty_mode(self, node: Node) -> int:
        """Mode of a file that needs no object: an empty one, or what stands for a device node."""
        if node.kind in ("character", "block"):
            self.devices += 1
            return self._opened(node.mode & 0o777, 0o600)
        return self.file_mode(node.mode)

    def notes(self) -> list[str]:
        """What the user should know, one sentence each."""
        found = []
        if self.dropped_set_id:
            found.append(
                f"{self.dropped_set_id} setuid or setgid files lost that bit, as they would be root's on this host; "
                "convert as an ordinary user to keep it"
            )
        return found + lost(self.devices, self.lost_xattrs)


def lost(devices: int, xattrs: int, such_as: str = "capabilities, labels") -> list[str]:
    """What a target does not hold, one sentence each."""
    found = []
    if devices:
        found.append(f"{devices} device nodes became empty files: only root makes them; runtimes mount /dev")
    if xattrs:
        found.append(f"{xattrs} extended attributes ({such_as}) could not be kept")
    return found
