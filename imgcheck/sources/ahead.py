"""Downloads layers ahead of their reader: the next ones come while the current one is analysed.

Nothing is fetched before the first layer is opened, since until then nobody may want any. A blob that the cache holds
is read from there, and one that is to be kept is put there on its way.
"""

import io
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, BinaryIO, cast

from imgcheck.layers.stream import TarLayer
from imgcheck.sources.options import KeptBlob, SourceOptions
from imgcheck.sources.spool import Budget, Room, Spool, StoppedError
from imgcheck.threads import start

PARALLEL = 3
"""Downloads at once: docker's own number, which registries are used to."""
_PIECE = 1 << 20


class LayersAhead:
    """The layers of an image whose blobs are remote, with those behind the one that is read on their way."""

    def __init__(self, layers: Sequence[TarLayer], options: SourceOptions) -> None:
        self.layers = tuple(TarLayer(layer.info, partial(self._open, index)) for index, layer in enumerate(layers))
        self._remote = tuple(layers)
        self._options = options
        disk, spill = (options.ahead_on_disk, options.cache.spill) if options.cache else (0, _nowhere)
        self._room = Room(Budget(options.ahead_in_memory), Budget(disk), spill)
        self._lock = threading.Lock()
        self._order = list(range(len(layers)))
        """In which they are read."""
        self._at = -1
        """How far in that order the reader is."""
        self._begun: set[str] = set()
        self._ready: dict[int, _Download] = {}
        """Begun and not yet opened."""
        self._running = 0
        self._closed = False

    def expect(self, order: Sequence[int]) -> None:
        """See sources.model.Image."""
        self._order = list(order)

    def close(self) -> None:
        """Give up what nobody has opened."""
        with self._lock:
            self._closed = True
            left = list(self._ready.values())
            self._ready.clear()
        for download in left:
            download.close()

    def _open(self, index: int) -> BinaryIO:
        """The blob of a layer from its start: from the cache, on its way already, or asked for now."""
        with self._lock:
            self._at = max(self._at, self._order.index(index))
            blob = self._ready.pop(index, None)
        found = blob or self._kept(index)
        if found is None:
            with self._lock:
                found = self._begin(index)
        self._go_on()
        return cast(BinaryIO, found)

    def _kept(self, index: int) -> BinaryIO | None:
        cache = self._options.cache
        return cache.blob(self._remote[index].info.digest) if cache else None

    def _go_on(self) -> None:
        """Begin what may be begun of the layers behind the current one."""
        with self._lock:
            for index in self._order[self._at + 1 :]:
                if self._closed or self._running >= PARALLEL or self._room.exhausted:
                    return
                if self._wanted(index):
                    self._ready[index] = self._begin(index)

    def _wanted(self, index: int) -> bool:
        info, cache = self._remote[index].info, self._options.cache
        if info.digest in self._begun or self._options.unread(info.diff_id):
            return False
        return cache is None or not cache.has_blob(info.digest)

    def _begin(self, index: int) -> "_Download":
        self._begun.add(self._remote[index].info.digest)
        self._running += 1
        return _Download(self._remote[index], self._options, self._room, self._ended)

    def _ended(self) -> None:
        with self._lock:
            self._running -= 1
        self._go_on()


class _Download(io.RawIOBase):
    """One blob as it comes, in a thread of its own; to be read like any other stream."""

    def __init__(self, layer: TarLayer, options: SourceOptions, room: Room, ended: Callable[[], None]) -> None:
        self._layer = layer
        self._options = options
        self._ended = ended
        self._spool = Spool(room)
        start(threading.Thread(target=self._run, daemon=True, name="imgcheck-download"))

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        return self.readall() if size is None or size < 0 else self._next(size)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._spool.stop()
        super().close()

    def _next(self, size: int) -> bytes:
        if self.closed:
            raise ValueError("read of a closed download")
        return self._spool.read(size)

    def _run(self) -> None:
        kept = None
        try:
            kept = self._keep()
            self._copy(kept)
        except StoppedError as error:
            self._finish(kept, error)
        except BaseException as error:  # it is the reader's, wherever it arose
            self._finish(kept, error)
            self._spool.end(error)
        else:
            # Before the end is told, so that a reader who has all of it finds it kept.
            self._finish(kept, self._spool.fault)
            self._spool.end()
        finally:
            self._ended()

    def _keep(self) -> KeptBlob | None:
        cache, info = self._options.cache, self._layer.info
        kept = cache.keep(info.digest, info.size) if cache else None
        if kept:
            self._spool.keep_in(kept.file)
        return kept

    def _copy(self, kept: KeptBlob | None) -> None:
        with self._layer.open() as blob:
            while data := blob.read(_PIECE):
                if kept:
                    kept.update(data)
                self._spool.put(data)

    def _finish(self, kept: KeptBlob | None, fault: BaseException | None) -> None:
        if kept:
            kept.finish(fault)


def _nowhere() -> None:
    return None
