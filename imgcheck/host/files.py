"""Reads a machine's files beneath a root: "/" is this machine, any other directory a captured one."""

import mmap
import os
from pathlib import Path

_TEXT_LIMIT = 1 << 22


class Root:
    """The file system of a host. Nothing raises: what cannot be read reads as absent."""

    def __init__(self, path: str | os.PathLike[str] = "/", late: list[str] | None = None) -> None:
        self.path = Path(path)
        self.late = [] if late is None else late
        """Programs and libraries of this machine that did not answer in time: another time they may."""
        self.live = Path(path).resolve() == Path("/")
        """This machine itself, so system calls and programs may be asked too."""

    def text(self, path: str) -> str | None:
        """Content of a text file, None where it is absent or unreadable."""
        data = self.data(path)
        return None if data is None else data.decode("utf-8", "replace")

    def data(self, path: str) -> bytes | None:
        """Content of a small file, None where it is absent or unreadable."""
        try:
            with self.host_path(path).open("rb") as file:
                return file.read(_TEXT_LIMIT)
        except (OSError, ValueError):
            return None

    def head(self, path: str, size: int) -> bytes:
        """The first `size` bytes of a regular file, b"" where it is absent or unreadable."""
        try:
            with self.host_path(path).open("rb") as file:
                return file.read(size)
        except (OSError, ValueError):
            return b""

    def mapped(self, path: str) -> mmap.mmap | None:
        """A file as a read-only map, None where it is absent, unreadable or empty."""
        try:
            with self.host_path(path).open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None

    def names(self, directory: str) -> list[str] | None:
        """Sorted names in a directory, None where it cannot be listed."""
        try:
            return sorted(entry.name for entry in self.host_path(directory).iterdir())
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        try:
            return self.host_path(path).exists()
        except (OSError, ValueError):
            return False

    def host_path(self, path: str) -> Path:
        """Where `path` lies, absolute links of a captured tree followed inside it."""
        if self.live:
            return Path(path)
        return self.path / self.real(path).lstrip("/")

    def real(self, path: str) -> str:
        """`path` with every link resolved, as seen from the root."""
        if self.live:
            return os.path.realpath(path)
        done, left, budget = "", [part for part in path.split("/") if part], 40
        while left:
            part = left.pop(0)
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            target = self._link(f"{done}/{part}")
            if target is None or budget == 0:
                done += "/" + part
                continue
            budget -= 1
            done = "" if target.startswith("/") else done
            left = [item for item in target.split("/") if item not in ("", ".")] + left
        return done or "/"

    def _link(self, path: str) -> str | None:
        try:
            return str((self.path / path.lstrip("/")).readlink())
        except (OSError, ValueError):
            return None
