"""Files and directories by descriptor alone: no name is ever looked up through a link."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from imgcheck.convert.mounts import mounts_in_open
from imgcheck.documents.codec import as_bytes
from imgcheck.layers.model import Content

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY_ITSELF = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_CHUNK = 1 << 20
_HOLE = 1 << 16
_ZEROS = bytes(_HOLE)
_FURTHEST = 1 << 33


def create_file(parent: int, path: str) -> BinaryIO:
    """A new file below the directory `parent`, to write."""
    return os.fdopen(os.open(path, CREATE_FILE, 0o644, dir_fd=parent), "wb", buffering=_CHUNK)


def open_file(parent: int, path: str) -> BinaryIO:
    """A file below the directory `parent`, to read."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent), "rb")


def write_file(parent: int, path: str, data: bytes) -> None:
    """A new file that holds `data`."""
    with create_file(parent, path) as file:
        file.write(data)


def nanoseconds(mtime: float) -> int:
    """A time as utimensat(2) takes it; a header may name a year that no filesystem knows."""
    return round(min(max(mtime, -_FURTHEST), _FURTHEST) * 1_000_000_000)


class FileWriter:
    """Copies contents into new files with one buffer for all."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(_CHUNK))

    def write(self, fd: int, content: Content) -> int:
        """All of `content` into the empty file `fd`, runs of zeros as holes. Returns the bytes."""
        view = self._view
        done = content.readinto(view)
        if done < _CHUNK:
            rest = self._fill(content, done)
            if rest < _CHUNK:
                _write_all(fd, view[:rest])
                return rest
            done = rest
        return self._write_large(fd, content, done)

    def _fill(self, content: Content, done: int) -> int:
        """Read on until the buffer is full or the content ends: a reader may give less than it was asked for."""
        while done < _CHUNK:
            count = content.readinto(self._view[done:])
            if not count:
                break
            done += count
        return done

    def _write_large(self, fd: int, content: Content, done: int) -> int:
        size = 0
        while done:
            _write_sparse(fd, self._view[:done])
            size += done
            done = self._fill(content, 0)
        os.ftruncate(fd, size)
        return size


def _write_all(fd: int, view: memoryview) -> None:
    while view:
        view = view[os.write(fd, view) :]


def _write_sparse(fd: int, view: memoryview) -> None:
    """Write at the file's position; blocks of zeros are skipped, so that they need no space."""
    if all(view[start : start + 64] != _ZEROS[:64] for start in range(0, len(view), _HOLE)):
        _write_all(fd, view)
        return
    for start in range(0, len(view), _HOLE):
        block = view[start : start + _HOLE]
        if block == _ZEROS[: len(block)]:
            os.lseek(fd, len(block), os.SEEK_CUR)
        else:
            _write_all(fd, block)


def set_attributes(fd: int, mode: int, mtime: float) -> None:
    """Permissions and times of an open file or directory."""
    os.fchmod(fd, mode)
    time = nanoseconds(mtime)
    os.utime(fd, ns=(time, time))


def set_xattrs(fd: int, xattrs: dict[str, bytes]) -> int:
    """Set the `user.*` attributes of an open file or directory; returns how many could not be kept.

    Others (security.*, trusted.*, system.*) belong to the machine's administrator and are not written.
    """
    lost = 0
    for name, value in xattrs.items():
        try:
            if not name.startswith("user."):
                raise PermissionError
            os.setxattr(fd, as_bytes(name), value)
        except OSError:
            lost += 1
    return lost


def remove_tree(parent: int, name: str | bytes) -> None:
    """Remove `name` of the directory `parent` with all below, directories without permissions included.

    Links are removed, never followed. What cannot be removed stays, without an error; so does all of a tree that has
    something mounted in it, whose files would go as well.
    """
    if mounts_in_open(parent, name):
        return
    with suppress(OSError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
            return
        _remove_directories([_emptied(parent, name)])


def _remove_directories(stack: list["_Emptied"]) -> None:
    """Remove these directories, each of which holds the next, and what is below them; those that cannot be stay."""
    try:
        while stack:
            above, own, fd, below = stack[-1]
            if below:
                with suppress(OSError):
                    stack.append(_emptied(fd, below.pop()))
                continue
            stack.pop()
            os.close(fd)
            with suppress(OSError):
                os.rmdir(own, dir_fd=above)
    finally:
        for each in stack:
            os.close(each.fd)


class _Emptied(NamedTuple):
    """An open directory that holds directories alone."""

    parent: int
    name: str | bytes
    fd: int
    below: list[str]


def _emptied(parent: int, name: str | bytes) -> _Emptied:
    """Open the directory `name`, remove all but its directories, and return it with their names."""
    fd = _opened(parent, name)
    try:
        with suppress(OSError):
            if os.fstat(fd).st_mode & 0o700 != 0o700:
                os.fchmod(fd, 0o700)
        below = []
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry, is_directory in found:
            if is_directory:
                below.append(entry)
            else:
                with suppress(OSError):
                    os.unlink(entry, dir_fd=fd)
    except BaseException:
        os.close(fd)
        raise
    return _Emptied(parent, name, fd, below)


@contextmanager
def itself(parent: int, name: str | bytes) -> Iterator[Path]:
    """A path to the directory `name`, also once it is renamed: by its name chmod would follow a link put there."""
    place = os.open(name, _DIRECTORY_ITSELF, dir_fd=parent)
    try:
        yield Path(f"/proc/self/fd/{place}")
    finally:
        os.close(place)


def _opened(parent: int, name: str | bytes) -> int:
    """The directory `name`, also one that its owner may not read as it is."""
    try:
        return os.open(name, OPEN_DIRECTORY, dir_fd=parent)
    except PermissionError:
        with itself(parent, name) as path:
            path.chmod(0o700)
    return os.open(name, OPEN_DIRECTORY, dir_fd=parent)
