"""The content-addressed store: facts of layers and profiles of images, paid for once.

A layer's index lies under its diff_id, an image's profile under its config digest; both under a key made of the
digests of the engines' code and data, so that facts of another version are never mixed in. A file is written
beside its place and renamed, so readers need no lock and many nodes may share a directory. Each file carries the
SHA-256 of its place and what follows; one that does not match, or was moved, is dropped and made again.

Layout: DIR/v1/KEY/{layers,profiles}/HH/HEX, where HH are the first two digits of HEX. A file is 8 bytes of magic, 32
bytes of SHA-256 over its path below v1 and the rest, then zstd-compressed MessagePack. DIR/v1/any/blobs/HH/HEX are
blobs as they are (profile.blobs).
"""

import errno
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import ImageProfile, Script, Services
from imgcheck.errors import ImgcheckError
from imgcheck.layers.entry import Kind
from imgcheck.loader.statements import Statements

_MAGIC = b"imgchk2\n"
_HEAD = len(_MAGIC) + 32
_FILE_LIMIT = 1 << 30
"""Expanded size of one file; a larger one was not written by us."""
_TOUCH_AFTER = 24 * 3600
"""Seconds after which a read renews a file's time of use: on a shared file system every touch costs."""
_TIDY_AFTER = 3600
"""Seconds between two looks at the size of the whole store."""
UNFINISHED = ".new-"
"""What the name of a file begins with that is still being written."""
_NAME = re.compile(rf"[0-9a-f]{{64}}|{re.escape(UNFINISHED)}.*")
_DEPTH = 3
"""Directories between DIR/v1 and a file."""
_READABLE = 0o755
BLOBS = "blobs"
_ANY_KEY = "any"
_WRITING = 3600
"""Seconds after which an unfinished file belongs to nobody."""
DEFAULT_LIMIT = 4 << 30
"""Bytes the store may hold before the least recently used files go."""

DocumentT = TypeVar("DocumentT")


class StoredEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a layer as the merged tree needs it. Paths are bytes, since they need not be Unicode.

    Of kind `plain` are regular files of which nothing but their names matters: their paths with NUL between.
    """

    path: bytes
    kind: Kind | Literal["plain"]
    mode: int = 0
    size: int = 0
    link: bytes = b""
    object: str = ""
    """The key of the facts of a file with code, as in documents.image.FileRecord."""
    text: bytes | None = None
    """Content of a wanted text file."""
    script: Script | None = None
    complaint: str = ""
    """What the loader says of a file that is named as a library and is none."""
    python: Statements | None = None
    """What a Python text imports, which may be a script as well."""
    libraries: tuple[tuple[str, str], ...] = ()
    """Those inside, as scan.Archive and scan.Code have them."""
    services: Services | None = None
    home: str | None = None
    """Of a program that PyInstaller made, as frozen_programs.Frozen has it."""


class _Named(msgspec.Struct, frozen=True):
    """What is read of a profile to list it."""

    reference: str = ""


class LayerIndex(msgspec.Struct, frozen=True):
    """One layer without its bytes: every entry, and the facts of every file with code."""

    entries: list[StoredEntry]
    objects: dict[str, CodeFacts | None]


@dataclass(frozen=True)
class StoredFile:
    """A file of the store, for listing and pruning."""

    path: Path
    kind: str
    """`layers`, `profiles` or `blobs`."""
    name: str
    size: int
    used: float
    """Time of last use, seconds since the epoch."""


def default_directory() -> Path | None:
    """`$XDG_CACHE_HOME/imgcheck`, else `~/.cache/imgcheck`; None for a user without a home."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path is to be ignored.
    if cache.startswith("/"):
        return Path(cache, "imgcheck")
    home = os.path.expanduser("~")  # noqa: PTH111 (Path.expanduser raises where there is none)
    return Path(home, ".cache", "imgcheck") if home.startswith("/") else None


class Store:
    """The store at `directory`. A store that cannot be read or written costs time, never the answer.

    Files are believed only where the user, root or, of a `common` store, the owner of `directory` wrote them: another
    user's file could say that an image is fine.
    """

    def __init__(self, directory: Path, key: str, limit: int = DEFAULT_LIMIT, common: bool = True) -> None:
        self.directory = directory
        self._common = common
        self._root = directory / "v1"
        self._key = key
        self._limit = limit
        self._others: tuple[Container[str], int] | None = None
        """What `make_room` was to spare when it last looked at all files, and bytes of the others."""
        self.trouble = ""
        """Why something could not be kept; empty where all went well."""

    def layer(self, diff_id: str) -> LayerIndex | None:
        """The index of the layer with this diff_id, where it is kept."""
        return self._get("layers", diff_id, LayerIndex)

    def has_layer(self, diff_id: str) -> bool:
        """Whether `layer` would probably find it."""
        path = self.place("layers", diff_id)
        return path is not None and self._believable(path)

    def keep_layer(self, diff_id: str, index: LayerIndex) -> None:
        self._put("layers", diff_id, index)

    def profile(self, config_digest: str) -> ImageProfile | None:
        """The profile of the image with this config, where it is kept."""
        return self._get("profiles", config_digest, ImageProfile)

    def keep_profile(self, config_digest: str, profile: ImageProfile) -> None:
        self._put("profiles", config_digest, profile)

    def files(self) -> Iterator[StoredFile]:
        """Every file of the store, of whichever version of the engines; also what a killed writer left long ago."""
        for entry in _listed(str(self._root), _DEPTH):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # pruned meanwhile by another process
            if entry.name.startswith(UNFINISHED) and time.time() - status.st_mtime < _WRITING:
                continue
            path = Path(entry.path)
            kind = path.parent.parent.name
            yield StoredFile(path, kind, path.name, status.st_size, max(status.st_mtime, status.st_atime))

    def prune(self, limit: int | None = None) -> list[StoredFile]:
        """Drop the least recently used files until at most `limit` bytes are left; what was dropped.

        Blobs go first: they cost a download to have again, facts cost the analysis as well and are small.
        """
        files = sorted(self.files(), key=lambda file: (file.kind != BLOBS, file.used))
        excess = sum(file.size for file in files) - (self._limit if limit is None else limit)
        return self._drop_until(files, excess)

    def make_room(self, size: int, spared: Container[str]) -> bool:
        """Drop blobs other than the `spared` names until these may take `size` bytes; False where that is too much."""
        if self._others and self._others[0] is spared and self._others[1] + size <= self._limit:
            return True
        files = [file for file in self.files() if file.name not in spared]
        blobs = sorted((file for file in files if file.kind == BLOBS), key=lambda file: file.used)
        excess = sum(file.size for file in files) + size - self._limit
        if excess > sum(file.size for file in blobs):
            self.trouble = f"the store {self.directory} may take {self._limit} bytes, too few to keep all blobs"
            return False
        dropped = self._drop_until(blobs, excess)
        self._others = spared, sum(file.size for file in files) - sum(file.size for file in dropped)
        return True

    def _drop_until(self, files: list[StoredFile], excess: int) -> list[StoredFile]:
        dropped = []
        for file in files:
            if excess <= 0:
                break
            if self.drop(file):
                excess -= file.size
                dropped.append(file)
        return dropped

    def drop(self, file: StoredFile) -> bool:
        """Remove one file; False, with `trouble`, where that cannot be done."""
        try:
            _unlink(file.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.trouble = f"the store {self.directory} cannot be pruned: {error.strerror}"
            return False
        return True

    def tidy(self) -> None:
        """Prune to the store's limit, unless somebody has done so lately: it asks for every file's time and size."""
        mark = self._root / "tidied"
        try:
            if mark.exists() and abs(time.time() - mark.stat().st_mtime) < _TIDY_AFTER:
                return
            mark.touch()
        except OSError:
            return  # what cannot be written does not grow
        self.prune()

    def reference(self, file: StoredFile) -> str:
        """The image that a profile was made of, as it was written then; empty for other files and damaged ones."""
        payload = _payload(file.path, _read(file.path)) if file.kind == "profiles" else None
        try:
            return msgspec.msgpack.decode(payload, type=_Named).reference if payload else ""
        except msgspec.MsgspecError:
            return ""

    def damaged(self) -> Iterator[StoredFile]:
        """Files whose bytes do not match their checksum."""
        for file in self.files():
            if not (_is_sound_blob(file) if file.kind == BLOBS else _payload(file.path, _read(file.path))):
                yield file

    def place(self, kind: str, digest: str) -> Path | None:
        """Where the file of this digest lies, or would; None for a digest that names no file."""
        algorithm, _, name = digest.partition(":")
        if algorithm != "sha256" or len(name) != 64 or not set(name) <= set("0123456789abcdef"):
            return None
        return self._root / (_ANY_KEY if kind == BLOBS else self._key) / kind / name[:2] / name

    def make_directory(self, path: Path) -> None:
        """Make the store's directory `path` and those above it, where they are missing. Raises OSError.

        As the files they are readable for all and writable for their owner, whatever the umask says.
        """
        if path.is_dir():
            return
        if path == self.directory:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            self.make_directory(path.parent)
        try:
            path.mkdir()
            path.chmod(_READABLE)
        except FileExistsError:
            path.stat()  # of a dangling link the error is told

    def _get(self, kind: str, digest: str, type: type[DocumentT]) -> DocumentT | None:
        path = self.place(kind, digest)
        payload = _payload(path, self._believed(path)) if path else None
        if path is None or payload is None:
            return None
        try:
            document = msgspec.msgpack.decode(payload, type=type)
        except msgspec.MsgspecError:
            return None
        _renew(path)
        return document

    def _believable(self, path: Path) -> bool:
        try:
            return self._is_believed(path.lstat())
        except OSError:
            return False

    def _is_believed(self, status: os.stat_result) -> bool:
        if not stat.S_ISREG(status.st_mode):
            return False
        return status.st_uid in (os.geteuid(), 0) or (self._common and status.st_uid == self.directory.stat().st_uid)

    def _believed(self, path: Path) -> bytes:
        """Content of a file of the store; empty where it is none that may be believed."""
        try:
            with open(path, "rb", buffering=0, opener=itself) as file:
                return file.readall() if self._is_believed(os.fstat(file.fileno())) else b""
        except OSError:
            return b""

    def _put(self, kind: str, digest: str, document: object) -> None:
        path = self.place(kind, digest)
        if path is None:
            return
        import zstandard

        payload = zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(document))
        try:
            self.make_directory(path.parent)
            _write(path, _MAGIC + _checksum(path, payload) + payload)
        except OSError as error:
            self.trouble = f"the store {self.directory} cannot be written: {error.strerror}"


def store_key(engines: dict[str, str]) -> str:
    """The directory of facts made by these engines."""
    return hashlib.sha256(repr(sorted(engines.items())).encode()).hexdigest()[:16]


def open_store(directory: Path | None, key: str, limit: int = DEFAULT_LIMIT) -> Store | None:
    """The store at `directory`, or at its default place; None where none is named and the user has no place of theirs.

    Of a directory that is named its owner is trusted as well. Who made the default one, as another user can where
    $XDG_CACHE_HOME is for all, is nobody's choice.
    """
    # os.path: what may not be looked at is no error here, Path would raise.
    if directory and os.path.exists(directory) and not os.path.isdir(directory):  # noqa: PTH110, PTH112
        raise ImgcheckError(f"--store {directory}: not a directory")
    if directory:
        return Store(directory, key, limit)
    own = default_directory()
    return Store(own, key, limit, common=False) if own and not _is_anothers(own) else None


def _is_anothers(directory: Path) -> bool:
    try:
        return directory.stat().st_uid != os.geteuid()
    except OSError:
        return False  # it is made, or cannot be


def _listed(directory: str, depth: int) -> Iterator[os.DirEntry[str]]:
    """The store's own files, `depth` directories below: no link is followed, and what else lies there is left alone."""
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return  # no directory, or the file system went away
    for entry in entries:
        if depth and entry.is_dir(follow_symlinks=False):
            yield from _listed(entry.path, depth - 1)
        elif not depth and _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            yield entry


def _unlink(path: Path) -> None:
    """Remove the file at `path`, in a directory that is no link meanwhile. Raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.unlink(path.name, dir_fd=folder)
    finally:
        os.close(folder)


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb", buffering=0, opener=itself) as file:
            return file.readall()
    except OSError:
        return b""


def itself(path: str, flags: int) -> int:
    """Opens regular files alone: no link, since whoever made it chose the file, and no FIFO, whose writer never comes.

    An opener for `open`. Raises OSError.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return handle


def _is_sound_blob(file: StoredFile) -> bool:
    try:
        with open(file.path, "rb", opener=itself) as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == file.name
    except OSError:
        return False


def _checksum(path: Path, payload: bytes | memoryview) -> bytes:
    """That of an entry at `path`, which says what it is of: moved elsewhere it would be believed of something else."""
    total = hashlib.sha256("/".join(path.parts[-1 - _DEPTH :]).encode() + b"\0")
    total.update(payload)
    return total.digest()


def _payload(path: Path, data: bytes) -> bytes | None:
    """The MessagePack in the bytes of the file at `path`; None where they are damaged."""
    if data[: len(_MAGIC)] != _MAGIC or _checksum(path, memoryview(data)[_HEAD:]) != data[len(_MAGIC) : _HEAD]:
        return None
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(memoryview(data)[_HEAD:], max_output_size=_FILE_LIMIT)
    except zstandard.ZstdError:
        return None


def _write(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _renew(path: Path) -> None:
    now = time.time()
    try:
        if now - path.stat().st_mtime > _TOUCH_AFTER:
            os.utime(path)
    except OSError:
        pass  # a read-only store, or somebody else's file
