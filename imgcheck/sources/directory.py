"""An unpacked root as an image of one layer, with the environment and command that its runtime keeps beside it."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from imgcheck.documents.image import LayerInfo
from imgcheck.errors import SourceError
from imgcheck.layers.entry import Entry, Kind
from imgcheck.layers.model import Content
from imgcheck.progress import SILENT, Progress
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.platforms import distance, wanted_platform
from imgcheck.sources.reference import Reference
from imgcheck.sources.settings import read_settings

_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFCHR: "character",
    stat.S_IFBLK: "block",
    stat.S_IFIFO: "fifo",
}
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PSEUDO = ("proc", "sys", "dev", "run")
"""Directories of the root that are not entered where something is mounted on them: no files of the image."""
_DEEPEST = 500
"""Directories above one another that are followed; each holds a descriptor open."""


@contextmanager
def open_directory(reference: Reference, options: SourceOptions, progress: Progress) -> Iterator[Image]:
    """The image of a `dir:` reference: a root, or a udocker container directory with its ROOT."""
    root = Path(reference.path)
    if not root.is_dir():
        raise SourceError(f"{root}: {'is no directory' if root.exists() else 'no such directory'}")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourceError(f"{root}: permission denied")
    if _is_udocker_container(root):
        root = root / "ROOT"
    settings = read_settings(root)
    wanted = wanted_platform(options.platform)
    found = settings.platform or wanted
    yield Image(
        reference=reference.text,
        platform=found,
        config=settings.config,
        layers=(DirectoryLayer(root),),
        platform_matches=distance(wanted, found) is not None,
        notes=settings.notes,
        family=settings.family,
    )


def _is_udocker_container(path: Path) -> bool:
    """Whether `path` is a container's directory of udocker: files, and the root in ROOT.

    An image could hold a /ROOT of its own, or a link of that name, to be judged by other files than run.
    """
    return [each.name for each in os.scandir(path) if each.is_dir(follow_symlinks=False)] == ["ROOT"]


class FileContent:
    """The bytes of an open file: exactly as many as it had when it was listed."""

    def __init__(self, descriptor: int, size: int, path: str) -> None:
        self._descriptor = descriptor
        self._left = size
        self._path = path

    def readinto(self, buffer: memoryview) -> int:
        if not self._left:
            return 0
        try:
            count = os.readv(self._descriptor, [memoryview(buffer)[: self._left]])
        except OSError as error:
            raise SourceError(f"{self._path}: cannot be read: {error.strerror}") from None
        if not count and len(buffer):
            raise SourceError(f"{self._path}: became shorter while it was read")
        self._left -= count
        return count

    def read(self, size: int = -1) -> bytes:
        data = bytearray(self._left if size < 0 else min(size, self._left))
        view, done = memoryview(data), 0
        while done < len(data):
            done += self.readinto(view[done:])
        return bytes(data)


@dataclass(frozen=True)
class _Listed:
    """A directory that is being read."""

    descriptor: int
    prefix: str
    names: Iterator[str]


class DirectoryLayer:
    """The files under a directory as the entries of one layer, parents first, names sorted."""

    def __init__(self, root: Path) -> None:
        self.info = LayerInfo(history=f"directory {root}")
        self.unreadable: dict[str, str] = {}
        self._root = root

    def entries(self, progress: Progress = SILENT) -> Iterator[tuple[Entry, Content | None]]:
        """See sources.model.Layer. No symbolic link is followed, so nothing outside the root is read."""
        self.unreadable.clear()
        stack: list[_Listed] = []
        try:
            # The root itself may be given through a link: that is the user's, not the image's.
            stack.append(_listed(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), ""))
            status = os.fstat(stack[0].descriptor)
            yield _entry("", status), None
            yield from self._below(stack, status.st_dev)
        finally:
            for directory in stack:
                os.close(directory.descriptor)

    def _below(self, stack: list[_Listed], device: int) -> Iterator[tuple[Entry, Content | None]]:
        """What lies below the directory on the stack, where those above the current one stand."""
        linked: dict[tuple[int, int], str] = {}
        while stack:
            directory = stack[-1]
            name = next(directory.names, None)
            if name is None:
                os.close(stack.pop().descriptor)
                continue
            path = directory.prefix + name
            try:
                status = os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False)
                if stat.S_ISSOCK(status.st_mode):
                    continue
                entry = _entry(path, status)
                if entry.kind == "symlink":
                    entry.link = os.readlink(name, dir_fd=directory.descriptor)
            except OSError as error:
                # Removed or closed to us since it was listed.
                self.unreadable[path] = error.strerror or str(error)
                continue
            if entry.kind == "file":
                yield from self._file(directory.descriptor, name, entry, status, linked)
                continue
            yield entry, None
            if entry.kind == "directory" and not (status.st_dev != device and path in _PSEUDO):
                self._enter(stack, name, path)

    def _enter(self, stack: list[_Listed], name: str, path: str) -> None:
        if len(stack) > _DEEPEST:
            self.unreadable[path] = f"more than {_DEEPEST} directories deep"
            return
        try:
            descriptor = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=stack[-1].descriptor)
            stack.append(_listed(descriptor, path + "/"))
        except OSError as error:
            self.unreadable[path] = error.strerror or str(error)

    def _file(
        self, directory: int, name: str, entry: Entry, status: os.stat_result, linked: dict[tuple[int, int], str]
    ) -> Iterator[tuple[Entry, Content | None]]:
        identity = (status.st_dev, status.st_ino)
        if status.st_nlink > 1 and identity in linked:
            entry.kind, entry.link, entry.size = "hardlink", linked[identity], 0
            yield entry, None
            return
        if status.st_nlink > 1:
            linked[identity] = entry.path
        try:
            descriptor = os.open(name, _OPEN, dir_fd=directory)
        except OSError as error:
            self.unreadable[entry.path] = error.strerror or str(error)
            yield entry, None
            return
        try:
            entry.xattrs = _xattrs(descriptor)
            yield entry, FileContent(descriptor, entry.size, f"{self._root}/{entry.path}")
        finally:
            os.close(descriptor)


def _listed(descriptor: int, prefix: str) -> _Listed:
    """The directory that `descriptor` opens, which is closed again where it cannot be listed."""
    try:
        return _Listed(descriptor, prefix, iter(sorted(os.listdir(descriptor))))
    except OSError:
        os.close(descriptor)
        raise


def _entry(path: str, status: os.stat_result) -> Entry:
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    return Entry(
        path=path,
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        size=status.st_size if kind == "file" else 0,
        uid=status.st_uid,
        gid=status.st_gid,
        mtime=status.st_mtime,
        device=(os.major(status.st_rdev), os.minor(status.st_rdev)) if kind in ("character", "block") else (0, 0),
    )


def _xattrs(descriptor: int) -> dict[str, bytes]:
    """Extended attributes, empty where the file system has none."""
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
            return {}
        raise SourceError(f"extended attributes cannot be read: {error.strerror}") from None
    found = {}
    for name in names:
        with suppress(OSError):
            found[name] = os.getxattr(descriptor, name)
    return found
