"""The store's other half: blobs of layers as they came from a registry, kept for the next command, and room to spill.

A blob lies under its digest at DIR/v1/any/blobs/HH/HEX (any version of the engines may read it). It is readable for
its owner alone: who may read an image is the registry's to say. It is compared with its digest before every use, so
whoever wrote it need not be trusted.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from imgcheck.profile.store import BLOBS, UNFINISHED, Store, itself

_FREE = 2 << 30
"""Bytes that must stay free on the disk: what comes early is not worth a full one."""


class KeptBlobs:
    """What sources keep on disk (sources.options.Cache). Whatever fails costs a download and stands in `trouble`."""

    def __init__(self, store: Store, keep: bool) -> None:
        """`keep` says whether new blobs are kept; those that are there are used either way."""
        self._store = store
        self._keeping = keep
        self._lock = threading.Lock()
        self._own: dict[str, int] = {}
        """Blobs that this process keeps or will have kept: none of them makes room for another."""

    def has_blob(self, digest: str) -> bool:
        place = self._store.place(BLOBS, digest)
        return place is not None and os.access(place, os.R_OK)

    def blob(self, digest: str) -> BinaryIO | None:
        place = self._store.place(BLOBS, digest)
        if place is None:
            return None
        try:
            file = open(place, "rb", buffering=0, opener=itself)  # noqa: SIM115
        except OSError:
            return None
        try:
            sound = hashlib.file_digest(file, "sha256").hexdigest() == place.name
            file.seek(0)
        except OSError:  # the disk is gone: it is fetched again
            file.close()
            return None
        with suppress(OSError):  # a store that is read-only, or another user's
            if sound:
                os.utime(place)
            else:
                place.unlink()
        if not sound:
            file.close()
        return file if sound else None

    def keep(self, digest: str, size: int) -> "_NewBlob | None":
        place = self._store.place(BLOBS, digest)
        if not self._keeping or place is None:
            return None
        with self._lock:
            self._own[place.name] = max(size, 0)
            if not self._store.make_room(sum(self._own.values()), self._own):
                del self._own[place.name]
                return None
        try:
            self._store.make_directory(place.parent)
            return _NewBlob(place, self._told)
        except OSError as error:
            self._told(error)
            return None

    def _told(self, error: OSError) -> None:
        self._store.trouble = f"the store {self._store.directory} cannot be written: {error.strerror}"

    def spill(self) -> BinaryIO | None:
        directory = self.scratch()
        try:
            status = os.statvfs(directory) if directory else None
            if status is None or status.f_bavail * status.f_frsize < _FREE:
                return None
            return tempfile.TemporaryFile(dir=directory, buffering=0)
        except OSError:
            return None

    def scratch(self) -> Path | None:
        directory = self._store.directory / "v1"
        try:
            self._store.make_directory(directory)
        except OSError:
            return None
        return directory if os.access(directory, os.W_OK) else None


class _NewBlob:
    """A blob on its way into the store, beside its place until all of it is there."""

    def __init__(self, place: Path, tell: Callable[[OSError], None]) -> None:
        descriptor, self._path = tempfile.mkstemp(prefix=UNFINISHED, dir=place.parent)
        self.file: BinaryIO = os.fdopen(descriptor, "r+b", buffering=0)
        self._place = place
        self._tell = tell
        self._hash = hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def finish(self, fault: BaseException | None) -> None:
        path = Path(self._path)
        try:
            if fault is None and self._hash.hexdigest() == self._place.name:
                path.replace(self._place)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:  # prune takes the rest when it is old
            self._tell(error)
        # Other faults are the download's, and told as such.
        if isinstance(fault, OSError):
            self._tell(fault)
