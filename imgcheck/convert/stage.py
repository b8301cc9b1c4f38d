"""All or nothing: work goes into a hidden directory beside the destination, and one rename makes the result appear."""

import ctypes
import errno
import fcntl
import os
import secrets
import shlex
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

from imgcheck.convert.disk import OPEN_DIRECTORY, itself, remove_tree
from imgcheck.convert.mounts import mounts_in
from imgcheck.errors import ConvertError

_MARK = ".imgcheck-"
_SIGNATURES = (
    (".singularity.d",),  # of a sandbox
    ("ch", "etc", "usr"),  # of Charliecloud
    ("config.json", "rootfs"),  # of an OCI bundle
    ("index.json", "oci-layout"),
    ("dev", "etc", "proc", "sys"),  # of a root file system
)
_NOREPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY)
_libc = ctypes.CDLL(None, use_errno=True)


class Stage:
    """A private directory (mode 0700) on the destination's filesystem, locked while its maker lives.

    `fd` is its descriptor, `path` its name. Whatever is left in it when the context ends is removed.
    """

    def __init__(self, parent: int, name: str, fd: int, path: Path) -> None:
        self.parent = parent
        self.name = name
        self.fd = fd
        self.path = path

    def publish(self, name: str, destination: Path, replace: bool) -> None:
        """Rename `name` of the stage to `destination`, on the same filesystem.

        Without `replace` nothing that stands there, or has come to stand there meanwhile, is touched.
        """
        with directory(destination.parent) as target, _movable(self.fd, name):
            if replace and _exists(target, destination.name):
                self._exchange(name, target, destination)
            elif not _rename_new(self.fd, name, target, destination.name):
                raise ConvertError(
                    f"{destination} came into being during the conversion and was left as it is",
                    "choose another destination, or replace it with --force",
                )
            with suppress(OSError):
                os.fsync(target)

    @contextmanager
    def published(self, name: str, destination: Path) -> Iterator[None]:
        """As `publish`, at a free destination; taken back where what is done with it there fails."""
        self.publish(name, destination, False)
        try:
            yield
        except BaseException:
            with directory(destination.parent) as target:
                os.rename(destination.name, name, src_dir_fd=target, dst_dir_fd=self.fd)
            raise

    def _exchange(self, name: str, target: int, destination: Path) -> None:
        """Swap new and old in one step; the old one is removed with the stage."""
        _refuse_mounts(destination)
        with _movable(target, destination.name):
            self._swap(name, target, destination)

    def _swap(self, name: str, target: int, destination: Path) -> None:
        if _renameat2(self.fd, name, target, destination.name, _EXCHANGE):
            return
        os.rename(destination.name, "former", src_dir_fd=target, dst_dir_fd=self.fd)
        try:
            os.rename(name, destination.name, src_dir_fd=self.fd, dst_dir_fd=target)
        except OSError:
            os.rename("former", destination.name, src_dir_fd=self.fd, dst_dir_fd=target)
            raise


@contextmanager
def staged(beside: Path) -> Iterator[Stage]:
    """A Stage in the directory `beside`. What dead conversions of this host left there is removed first."""
    with directory(beside) as parent, _stoppable():
        _remove_leftovers(parent)
        stage = _make(parent, beside)
        try:
            yield stage
        finally:
            _ignore_signals()
            remove_tree(parent, stage.name)
            os.close(stage.fd)


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """A descriptor of the directory `path`; ConvertError where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConvertError(f"the directory {path} does not exist", f"create it first: mkdir -p {path}") from None
    except NotADirectoryError:
        raise ConvertError(f"{path} is not a directory", "choose another destination") from None
    except OSError as error:
        raise ConvertError(f"the directory {path} cannot be opened: {error.strerror}") from None
    try:
        yield fd
    finally:
        os.close(fd)


def refuse_existing(destination: Path, force: bool) -> None:
    """ConvertError where `destination` exists and may not be replaced."""
    if destination.name in ("", ".", ".."):
        raise ConvertError(f"{destination} is no name for a new tree", "name a file or directory that does not exist")
    if not os.path.lexists(destination):
        return
    if not force:
        raise ConvertError(f"{destination} exists already", "choose another destination, or replace it with --force")
    if destination.is_symlink() or not destination.is_dir():
        return
    if not _may_go(destination.resolve()):
        raise ConvertError(
            f"{destination} is a home or working directory, or holds one, and is not replaced",
            "choose another destination",
        )
    _refuse_mounts(destination)
    if not _looks_converted(destination):
        raise ConvertError(
            f"{destination} is a directory that does not look like a converted image, and is not replaced",
            f"choose another destination, or remove it yourself: rm -r {shlex.quote(str(destination))}",
        )


def _may_go(real: Path) -> bool:
    home = os.path.expanduser("~")  # noqa: PTH111 (Path.home raises for a user without one)
    precious = (Path(home).resolve(), Path.cwd(), Path("/"))
    return not any(real == path or real in path.parents for path in precious)


def _refuse_mounts(destination: Path) -> None:
    """ConvertError where something is mounted at or in `destination`: its files would be removed with the old tree."""
    found = mounts_in(destination.parent.resolve() / destination.name)
    if found:
        raise ConvertError(
            f"{destination} is not replaced: a filesystem is mounted on {found[0]}",
            f"unmount it first: umount {shlex.quote(str(found[0]))}",
        )


def _looks_converted(destination: Path) -> bool:
    """Whether `destination` is empty, or has at its top what one of the targets that are directories has there."""
    try:
        names = {path.name for path in destination.iterdir()}
    except OSError as error:
        raise ConvertError(f"the directory {destination} cannot be read: {error.strerror}") from None
    return not names or any(names.issuperset(signature) for signature in _SIGNATURES)


def _make(parent: int, beside: Path) -> Stage:
    while True:
        name = f"{_MARK}{_host()}-{secrets.token_hex(6)}"
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except OSError as error:
            raise ConvertError(f"nothing can be written in {beside}: {error.strerror}", _way_out(error)) from None
        with suppress(FileNotFoundError):
            fd = os.open(name, OPEN_DIRECTORY, dir_fd=parent)
            if _lock(fd) is not Lock.TAKEN and _exists(parent, name):
                return Stage(parent, name, fd, beside / name)
            os.close(fd)
        # Another process took it for a leftover in the instant before it was locked.


def _way_out(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space there, or choose a destination on another filesystem"
    return "choose a destination in a directory that you may write"


def _host() -> str:
    """This host's name, fit for a file name: a lock of another host is not always visible here."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in socket.gethostname())[:64]


class Lock(Enum):
    """What came of asking for a lock; some network filesystems have none."""

    HELD = 1
    TAKEN = 2
    UNSUPPORTED = 3


def _lock(fd: int) -> Lock:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.TAKEN
    except OSError:
        return Lock.UNSUPPORTED
    return Lock.HELD


def _remove_leftovers(parent: int) -> None:
    """Remove stages of this host and user whose maker is gone: nobody holds their lock any more."""
    for name in os.listdir(parent):
        if not name.startswith(f"{_MARK}{_host()}-"):
            continue
        with suppress(OSError):
            fd = os.open(name, OPEN_DIRECTORY, dir_fd=parent)
            try:
                if os.fstat(fd).st_uid == os.geteuid() and _lock(fd) is Lock.HELD:
                    remove_tree(parent, name)
            finally:
                os.close(fd)


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _movable(parent: int, name: str) -> Iterator[None]:
    """While `name` is renamed: a directory's owner must be able to write in it, as its `..` changes (rename(2)).

    A root file system of Red Hat's kind is 0555. Its own mode comes back, wherever it lies by then.
    """
    own = os.stat(name, dir_fd=parent, follow_symlinks=False)
    mode = stat.S_IMODE(own.st_mode)
    if not stat.S_ISDIR(own.st_mode) or mode & 0o700 == 0o700 or own.st_uid != os.geteuid():
        yield
        return
    with itself(parent, name) as path:
        path.chmod(mode | 0o700)
        try:
            yield
        finally:
            path.chmod(mode)


def _renameat2(source: int, name: str, target: int, new_name: str, flags: int) -> bool:
    """renameat2(2); False where the C library, kernel or filesystem does not know the flag."""
    call = getattr(_libc, "renameat2", None)
    if call is None:
        return False
    if call(source, os.fsencode(name), target, os.fsencode(new_name), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), new_name)


def _rename_new(source: int, name: str, target: int, new_name: str) -> bool:
    """Rename to a name that must be free; False where it is not."""
    try:
        if _renameat2(source, name, target, new_name, _NOREPLACE):
            return True
    except FileExistsError:
        return False
    if _exists(target, new_name):  # network filesystems: the check and the rename are two steps there
        return False
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
            return False
        raise
    return True


_STOPPING = (signal.SIGTERM, signal.SIGHUP)


class _StoppedError(BaseException):
    """Carries a conversion from wherever a signal met it to its end. No Exception: nobody on the way may handle it."""


class _Stopping:
    """A signal handler that remembers the signal: raised in the midst of other code, its error may become another."""

    received = 0

    def __call__(self, number: int, _frame: object) -> None:
        _ignore_signals()
        self.received = number
        raise _StoppedError


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into a ConvertError, so that a batch system's end of a job cleans up as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping = _Stopping()
    former = {number: signal.getsignal(number) for number in _STOPPING}
    for number in _STOPPING:
        if former[number] is signal.SIG_DFL:
            signal.signal(number, stopping)
    try:
        yield
    except BaseException as error:
        if not stopping.received:
            raise
        name = signal.Signals(stopping.received).name
        raise ConvertError(f"stopped by {name}; nothing was left at the destination") from error
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in _STOPPING:
            if isinstance(signal.getsignal(number), _Stopping):
                signal.signal(number, signal.SIG_IGN)


def sync_filesystem(fd: int) -> None:
    """Write the filesystem of `fd` back to its device, so that the rename never outlives the data (syncfs(2))."""
    call = getattr(_libc, "syncfs", None)
    if call is None:
        os.sync()
    elif call(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
