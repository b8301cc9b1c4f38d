"""A pipe between a download and its reader that holds what comes early: in memory, then on disk, with limits."""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

_MOST_READ = 1 << 20


class Budget:
    """Bytes that all spools together may hold at one place. Safe for several threads."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._lock = threading.Lock()

    @property
    def exhausted(self) -> bool:
        return self._left <= 0

    def take(self, size: int, anyhow: bool = False) -> bool:
        """Reserve `size` bytes, `anyhow` also where so many are not left; whether they are reserved."""
        with self._lock:
            if size > self._left and not anyhow:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        with self._lock:
            self._left += size


@dataclass(frozen=True)
class Room:
    """Where the spools of one image may put bytes."""

    memory: Budget
    disk: Budget
    open_file: Callable[[], BinaryIO | None]
    """A new file for one spool, None where there is no place for one."""

    @property
    def exhausted(self) -> bool:
        return self.memory.exhausted and self.disk.exhausted


class StoppedError(Exception):
    """The spool was stopped: what it held is gone, and nobody wants more."""


class Spool:
    """Bytes from one writer to one reader. Where there is no room the writer waits for the reader.

    Bytes in memory are always older than those in the file: what comes while the file holds any goes behind them.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._kept = False
        self._file: BinaryIO | None = None
        self._pieces: deque[bytes] = deque()
        self._written = self._taken = 0
        self.fault: OSError | None = None
        """Why the file is no longer written to."""
        self._changed = threading.Condition()
        self._ended = self._stopped = False
        self._error: BaseException | None = None

    @property
    def whole(self) -> bool:
        """Whether the file given to `keep_in` holds all that was put."""
        return self._kept and self.fault is None

    def keep_in(self, file: BinaryIO) -> None:
        """Before the first `put`: have all of it in `file`, which takes the place of memory and is closed by `stop`."""
        with self._changed:
            self._kept, self._file = True, file

    def put(self, data: bytes) -> None:
        """Add `data`, waiting for room. StoppedError where it is no longer wanted."""
        with self._changed:
            while not self._stopped and not self._placed(data):
                self._changed.wait()
            if self._stopped:
                raise StoppedError
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come; the reader meets `error` behind what came before."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def read(self, size: int) -> bytes:
        """Up to `size` of the next bytes, as soon as some are there; empty at the end. Raises what `end` was given."""
        with self._changed:
            while not (self._pieces or self._taken < self._written or self._ended or self._stopped):
                self._changed.wait()
            if self._stopped:
                raise StoppedError
            data = self._take(size)
            if not data and self._error:
                raise self._error
            self._changed.notify_all()
            return data

    def stop(self) -> None:
        """Let go of everything, and of the writer if it waits."""
        with self._changed:
            self._stopped = True
            self._room.memory.give(sum(map(len, self._pieces)))
            self._pieces.clear()
            self._empty_file()
            if self._file:
                self._file.close()
            self._file = None
            self._changed.notify_all()

    def _placed(self, data: bytes) -> bool:
        in_file = self._taken < self._written
        if self.whole and self._write(data):
            return True
        # The reader must get its next piece, whatever the other spools hold: else two could wait for each other.
        if not in_file and self._room.memory.take(len(data), anyhow=not self._pieces):
            self._pieces.append(data)
            return True
        return self._write(data)

    def _write(self, data: bytes) -> bool:
        if self.fault or (not self._kept and not self._room.disk.take(len(data))):
            return False
        try:
            self._file = self._file or self._room.open_file()
            if self._file is None:
                raise OSError
            rest = memoryview(data)
            while rest:
                rest = rest[os.pwrite(self._file.fileno(), rest, self._written + len(data) - len(rest)) :]
        except OSError as error:
            # No space, or the disk is gone: what is in memory will do.
            self.fault = error
            if not self._kept:
                self._room.disk.give(len(data))
            return False
        self._written += len(data)
        return True

    def _take(self, size: int) -> bytes:
        if self._pieces:
            data = self._pieces.popleft()
            if len(data) > size:
                self._pieces.appendleft(data[size:])
                data = data[:size]
            self._room.memory.give(len(data))
            return data
        if self._file is None or self._taken == self._written:
            return b""
        data = os.pread(self._file.fileno(), min(size, self._written - self._taken, _MOST_READ), self._taken)
        self._taken += len(data)
        if self._taken == self._written:
            self._empty_file()
        return data

    def _empty_file(self) -> None:
        """Give back the disk that was used up."""
        if self._file and not self._kept and self._written:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), 0)
            self._room.disk.give(self._written)
            self._written = self._taken = 0
