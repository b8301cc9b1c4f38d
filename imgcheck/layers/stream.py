"""A layer's blob as a stream: decompressed, hashed and read in threads that overlap with who takes the entries.

One thread reads and decompresses, two hash (the blob and what is inside it); the caller's thread walks the archive.
All of them release the interpreter's lock for nearly all their work, so they use the cores there are. What is
decompressed goes round in a few buffers that are used again and again: fresh memory costs a page fault per 4 KiB.
"""

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from queue import Queue, SimpleQueue
from typing import Any, BinaryIO, cast

from imgcheck.digests import is_digest
from imgcheck.documents.image import LayerInfo
from imgcheck.errors import DigestError, ImgcheckError, LayerError, LimitError
from imgcheck.layers.entry import Entry, PlainFiles, Select
from imgcheck.layers.model import Content
from imgcheck.layers.tar import read_tar
from imgcheck.layers.zstd import FRAME, FrameEnds, is_skippable
from imgcheck.progress import SILENT, Progress
from imgcheck.threads import start

CHUNK = 1 << 20
"""Bytes handed from thread to thread at once: large, so that waiting for the interpreter's lock costs little."""
_BUFFERS = 8
"""Chunks on their way between the threads; together they fit a processor's last cache."""
_READ = 512 << 10
"""Bytes of the blob taken at once."""
_TURN = 5e-5
"""Seconds that a thread may keep the interpreter to itself while others want it: each of them needs it for a moment per
chunk, and with Python's own 5 ms they would mostly wait for the one that walks the archive."""
_QUEUED = 4
"""Pieces of the blob that may wait to be hashed."""

RATIO_LIMIT = 2000
RATIO_FLOOR = 8 << 30
"""Deflate cannot exceed 1032:1; zstd can by far. Below, the ratio is nobody's concern: an image with a user whose id is
20 million has a /var/log/lastlog of 6 GB of zeros."""
_SIZE_LIMIT = 1 << 40
_ZSTD_WINDOW = 1 << 27
"""What `zstd -d` accepts without --long, and so what readers of images accept."""


_XZ_MEMORY = 1 << 28
"""Four times what `xz -9` asks for."""


class TarLayer:
    """A layer stored as a tar archive, plain or compressed; what compressed it is told by its first bytes."""

    def __init__(self, info: LayerInfo, open: Callable[[], BinaryIO]) -> None:
        """`info.digest` and `info.diff_id` are verified where not empty; `open` gives the blob from its start."""
        self.info = info
        self.unreadable: dict[str, str] = {}
        self._open = open

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"layer {self.info.digest or self.info.diff_id or 'without digest'}"

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The blob as stored. Not verified."""
        with closing(self._open()) as blob:
            yield blob

    def entries(self, progress: Progress = SILENT) -> Iterator[tuple[Entry, Content | None]]:
        """The members in stored order; see sources.model.Layer. `progress` is told of the blob's bytes."""
        return self._members(progress, None)  # type: ignore[return-value]

    def selected(self, progress: Progress, select: Select) -> Iterator[tuple[Entry | PlainFiles, Content | None]]:
        """As `entries`, with regular files that `select` does not want taken together as PlainFiles, or not."""
        return self._members(progress, select)

    def _members(
        self, progress: Progress, select: Select | None
    ) -> Iterator[tuple[Entry | PlainFiles, Content | None]]:
        pipeline = _Pipeline(self, progress)
        try:
            yield from read_tar(pipeline.chunks(), self.name, select)
            pipeline.drain()
        except LayerError as error:
            # What a damaged blob looks like inside is a matter of chance; that it is another blob is the cause.
            pipeline.compare_blob(error)
            raise
        finally:
            pipeline.stop()
        pipeline.verify()


class _Hasher(threading.Thread):
    """The digest of what is put into its queue, up to None; `used` is called after each piece."""

    def __init__(self, algorithm: str, queue: "Queue[Any] | SimpleQueue[Any]", used: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="imgcheck-hash")
        self.queue = queue
        self.algorithm = algorithm
        self._hash = hashlib.new(algorithm)
        self._used = used

    def run(self) -> None:
        while (piece := self.queue.get()) is not None:
            self._hash.update(piece)
            self._used()

    def digest(self) -> str:
        self.join()
        return f"{self.algorithm}:{self._hash.hexdigest()}"


class _Ring:
    """Buffers that one thread fills and others use, all in the same order."""

    def __init__(self) -> None:
        self._buffers = [memoryview(bytearray(CHUNK)) for _ in range(_BUFFERS)]
        self._free: list[SimpleQueue[None]] = []
        self._filled = 0

    def join(self) -> Callable[[], None]:
        """Another user; what it calls once it is done with each buffer."""
        free: SimpleQueue[None] = SimpleQueue()
        for _ in self._buffers:
            free.put(None)
        self._free.append(free)
        return lambda: free.put(None)

    def next(self) -> memoryview:
        """The next buffer to fill, once all users are done with it."""
        for free in self._free:
            free.get()
        self._filled += 1
        return self._buffers[self._filled % _BUFFERS]


class _Tap:
    """The blob as its decompressor reads it: what passes is hashed and counted."""

    def __init__(self, blob: BinaryIO, hasher: _Hasher | None, advance: Callable[[int], None]) -> None:
        self._blob = blob
        self._hasher = hasher
        self._advance = advance
        self._ahead = b""
        self.passed = 0
        self.ended = False
        """Whether the blob was read to its end."""

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size and (more := self._take(_READ)):
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        if self._ahead:
            size = len(self._ahead) if size < 0 else size
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        return self._take(size if size > 0 else _READ)

    def readinto(self, buffer: memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _take(self, size: int) -> bytes:
        data = self._blob.read(size)
        self.ended = not data
        if data:
            self.passed += len(data)
            if self._hasher:
                self._hasher.queue.put(data)
            self._advance(len(data))
        return data

    # What bz2 and lzma ask of a file.
    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return False

    def close(self) -> None:
        pass


class _Pipeline:
    """The threads of one pass over a blob."""

    def __init__(self, layer: TarLayer, progress: Progress) -> None:
        self._layer = layer
        self._progress = progress
        self._task = layer.name
        self._ring = _Ring()
        self._queue: SimpleQueue[memoryview | BaseException | None] = SimpleQueue()
        self._used = self._ring.join()
        self._stopping = threading.Event()
        self._ended = False
        self._blob_ended = False
        self._blob_hash = _hasher_for(layer.info.digest, layer.name, Queue(_QUEUED), lambda: None)
        self._content_used = self._ring.join() if layer.info.diff_id else _nothing
        self._content_hash = _hasher_for(layer.info.diff_id, layer.name, SimpleQueue(), self._content_used)
        self._reader = threading.Thread(target=self._read, daemon=True, name="imgcheck-read")
        self._turn = sys.getswitchinterval()
        sys.setswitchinterval(_TURN)
        progress.start(self._task, layer.info.size or None)
        self._start()

    def _start(self) -> None:
        try:
            for thread in (self._blob_hash, self._content_hash, self._reader):
                if thread:
                    start(thread)
        except LimitError:
            for hasher in (self._blob_hash, self._content_hash):
                if hasher:
                    hasher.queue.put(None)
            sys.setswitchinterval(self._turn)
            self._progress.finish(self._task)
            raise

    def chunks(self) -> Iterator[memoryview]:
        """Decompressed chunks, each good until the next; may be called again for what an earlier iterator left."""
        while not self._ended:
            chunk = self._queue.get()
            if isinstance(chunk, BaseException):
                self._ended = True
                raise chunk
            if chunk is None:
                self._ended = True
                return
            try:
                yield chunk
            finally:
                self._used()

    def drain(self) -> None:
        """Let all that is left pass by, for the digests."""
        for _ in self.chunks():
            pass

    def compare_blob(self, error: LayerError) -> None:
        """DigestError where the blob that made `error` is not the one that its digest names."""
        with suppress(LayerError):
            self.drain()
        if self._blob_ended:
            info = self._layer.info
            self._compare(self._blob_hash, info.digest, f"blob {info.digest}", "its bytes", f" ({error.message})")

    def stop(self) -> None:
        """End the threads, whatever they are at."""
        self._stopping.set()
        # A reader that waits for a buffer gets it and then sees the event.
        self._used()
        self._content_used()
        self._reader.join()
        sys.setswitchinterval(self._turn)
        self._progress.finish(self._task)

    def verify(self) -> None:
        info = self._layer.info
        self._compare(self._blob_hash, info.digest, f"blob {info.digest}", "its bytes")
        name = f"layer {info.digest or info.diff_id}"
        self._compare(self._content_hash, info.diff_id, name, f"its content (diff_id {info.diff_id})")

    def _compare(self, hasher: _Hasher | None, expected: str, name: str, what: str, seen: str = "") -> None:
        if hasher and hasher.digest() != expected:
            raise DigestError(
                f"{name}: {what} hash to {hasher.digest()}{seen}",
                hint="the image is damaged or was changed: fetch or build it again",
            )

    def _read(self) -> None:
        """The reading thread: everything it meets ends up in the queue."""
        try:
            with self._layer.open() as blob:
                tap = _Tap(blob, self._blob_hash, lambda amount: self._progress.advance(self._task, amount))
                try:
                    self._decompress(tap)
                except Exception as error:
                    if not _of_source(error):
                        self._pass_rest(tap)
                    raise
                self._pass_rest(tap)
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error if isinstance(error, ImgcheckError) else self._explain(error))
        finally:
            for hasher in (self._blob_hash, self._content_hash):
                if hasher:
                    hasher.queue.put(None)

    def _decompress(self, tap: _Tap) -> None:
        source = _decompressor(tap)
        if source is tap and self._blob_hash and self._content_hash:
            self._share_hash(self._blob_hash, self._content_hash)
        produced = 0
        while not self._stopping.is_set():
            buffer = self._ring.next()
            count = _fill(source, buffer)
            if not count:
                return
            produced += count
            if produced > _SIZE_LIMIT or (produced > RATIO_FLOOR and produced > RATIO_LIMIT * tap.passed):
                raise LayerError(f"{self._task}: refused: {tap.passed} bytes expand to more than {produced}")
            if self._content_hash and self._content_hash is not self._blob_hash:
                self._content_hash.queue.put(buffer[:count])
            else:
                self._content_used()
            self._queue.put(buffer[:count])

    def _share_hash(self, blob: _Hasher, content: _Hasher) -> None:
        """Hash what is not compressed once, where both digests are of one algorithm."""
        if blob.algorithm == content.algorithm:
            content.queue.put(None)
            self._content_hash = blob

    def _pass_rest(self, tap: _Tap) -> None:
        """Have the rest of the blob hashed, also behind a fault: the digest tells whether it is the blob's or ours."""
        while not self._stopping.is_set() and tap.read(_READ):
            pass
        self._blob_ended = tap.ended

    def _explain(self, error: BaseException) -> BaseException:
        if isinstance(error, EOFError):
            return LayerError(f"{self._task}: truncated: its compressed data end early", hint="fetch the layer again")
        if isinstance(error, OSError) and _of_source(error):
            return LayerError(f"{self._task}: cannot be read: {error.strerror or error}")
        if isinstance(error, Exception):
            return LayerError(f"{self._task}: its compressed data are damaged ({error})", hint="fetch the layer again")
        return error


def _of_source(error: Exception) -> bool:
    """Whether `error` came with the blob's bytes, rather than from what they hold."""
    return isinstance(error, ImgcheckError) or (isinstance(error, OSError) and error.errno is not None)


def decompressed(blob: BinaryIO) -> Any:
    """A reader of what is inside `blob`, whatever compressed it: for archives that hold layers."""
    return _decompressor(_Tap(blob, None, lambda amount: None))


class _ZstdReader:
    """What is inside a blob of zstd frames. EOFError where the last one is cut off: python-zstandard says nothing."""

    def __init__(self, tap: _Tap) -> None:
        import zstandard

        self._frames = FrameEnds()
        context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        followed = _Followed(tap, self._frames)
        # Of a file it wants `read` alone.
        self._reader = context.stream_reader(cast(BinaryIO, followed), read_size=1 << 20, read_across_frames=True)

    def read(self, size: int = -1) -> bytes:
        data = self._reader.read(size)
        self._ends_well(len(data))
        return data

    def readinto(self, buffer: memoryview) -> int:
        count = self._reader.readinto(buffer)
        self._ends_well(count)
        return count

    def _ends_well(self, count: int) -> None:
        if not count and not self._frames.complete:
            raise EOFError


class _XzReader:
    """What is inside a blob of xz streams. lzma.LZMAFile would allocate what their headers ask for, up to 4 GiB."""

    def __init__(self, tap: _Tap) -> None:
        self._tap = tap
        self._begin()

    def _begin(self) -> None:
        import lzma

        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int = -1) -> bytes:
        piece = b""
        while True:
            if self._stream.eof:
                piece = self._next_stream()
                if not piece:
                    return b""
                self._begin()
            elif self._stream.needs_input and not piece:
                piece = self._tap.read(_READ)
                if not piece:
                    raise EOFError
            data = self._stream.decompress(piece, size)
            if data:
                return data
            piece = b""

    def _next_stream(self) -> bytes:
        """What follows a stream, its padding left out (xz file format, 2.2)."""
        rest = self._stream.unused_data.lstrip(b"\0")
        while not rest and (piece := self._tap.read(_READ)):
            rest = piece.lstrip(b"\0")
        return rest

    def readinto(self, buffer: memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Followed:
    """A blob of zstd frames as the decompressor reads it."""

    def __init__(self, tap: _Tap, frames: FrameEnds) -> None:
        self._tap = tap
        self._frames = frames

    def read(self, size: int = -1) -> bytes:
        data = self._tap.read(size)
        self._frames.feed(data)
        return data


def _nothing() -> None:
    pass


def _fill(source: Any, buffer: memoryview) -> int:
    """Read from `source` until `buffer` is full, or at the end."""
    done = 0
    while done < len(buffer) and (count := source.readinto(buffer[done:])):
        done += count
    return done


def _hasher_for(
    digest: str, name: str, queue: "Queue[Any] | SimpleQueue[Any]", used: Callable[[], None]
) -> _Hasher | None:
    if not digest:
        return None
    if not is_digest(digest):
        raise DigestError(f"{name}: {digest!r} is no sha256 or sha512 digest, so its bytes cannot be verified")
    return _Hasher(digest.partition(":")[0], queue, used)


def is_compressed(head: bytes) -> bool:
    """Whether a stream that begins with `head`, 6 bytes of it where it has them, is decompressed before it is read."""
    return _decompressor_of(head) is not None


def _decompressor(tap: _Tap) -> Any:
    """A reader of what is inside `tap`; itself where that is not compressed."""
    make = _decompressor_of(tap.peek(_MAGIC))
    return make(tap) if make else tap


def _decompressor_of(head: bytes) -> Callable[[_Tap], Any] | None:
    # A zstd stream may begin with a skippable frame, as zstd:chunked writers may put it anywhere.
    if is_skippable(head):
        return _ZstdReader
    return next((make for magic, make in _DECOMPRESSORS.items() if head.startswith(magic)), None)


def _gzip(tap: _Tap) -> Any:
    # Private, beneath igzip.IGzipFile: that has no readinto of its own, so it would copy every chunk once more and
    # keep the interpreter's lock meanwhile, 5 % of the time of the thread that all others wait for.
    from isal.isal_zlib import _GzipReader

    return _GzipReader(cast(BinaryIO, tap), _READ)


def _bzip2(tap: _Tap) -> Any:
    import bz2

    return bz2.BZ2File(cast(BinaryIO, tap))


_MAGIC = 6
_DECOMPRESSORS: dict[bytes, Callable[[_Tap], Any]] = {
    b"\x1f\x8b": _gzip,  # RFC 1952
    FRAME: _ZstdReader,  # RFC 8878
    b"BZh": _bzip2,
    b"\xfd7zXZ\x00": _XzReader,
}
