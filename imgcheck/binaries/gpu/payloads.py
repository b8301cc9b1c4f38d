"""Which bytes of a file no engine reads, told while it streams by: the packed GPU code of large fatbin entries.

Of an entry only its headers, the beginning of its image and small images whole are looked at (fatbin.py, engine.py).
In a framework's library the rest is most of the file, so it is worth more not to hold it in memory at all.
"""

from collections.abc import Callable, Iterator

from imgcheck.binaries.gpu.fatbin import (
    CONCATENATED,
    CONTAINER,
    CUBIN,
    ENTRY,
    HEADER_LIMIT,
    LTO,
    MAGIC,
    PTX,
    RELOCATABLE_PTX,
    TILE,
)

WHOLE = 64 << 10
"""Payloads up to here are kept whole."""
_HEAD = 4096
"""Bytes of larger ones that are kept: a cubin's header, packed, is a fraction of it."""
_KINDS = frozenset({PTX, CUBIN, LTO, RELOCATABLE_PTX, TILE, CONCATENATED})
_LONGEST_HEADER = 1 << 16
_NEVER = 1 << 64


class Payloads:
    """Takes a file of `size` bytes piece by piece; `kept` (bytes, offset) reads back what was told to be kept.

    Only well-formed containers that lie within the file are followed; what looks otherwise is kept.
    """

    def __init__(self, size: int, kept: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._kept = kept
        self._at = 0
        """Offset of what comes next."""
        self._header = _NEVER
        """Where the next header begins, and"""
        self._read_at = _NEVER
        """where it ends."""
        self._container_end = 0
        """Of the container that holds it; 0 where it is that of a container."""
        self._from = 0
        """Where no container is known to come: from where on the next is sought."""
        self._unread = range(0)
        """Part of a payload, before that header."""
        self._left = HEADER_LIMIT

    def parts(self, piece: memoryview) -> Iterator[tuple[memoryview, bool]]:
        """What comes next, in parts, and whether each is to be kept, which is done before the next is asked for.

        Which bytes are kept depends on the file alone, not on the pieces in which it comes.
        """
        before = min(self._at, ENTRY.size)
        offset, whole, data = self._at - before, piece, b""
        while len(piece):
            if self._header == _NEVER:
                data = data or b"".join((self._kept(before, offset), whole))
                self._search(data, offset)
            if self._read_at <= self._at:
                self._step()
                continue
            first = self._at
            ends = [self._unread.start, self._unread.stop, self._read_at, first + len(piece)]
            self._at = min(end for end in ends if end > first)
            part, piece = piece[: self._at - first], piece[self._at - first :]
            yield part, first not in self._unread

    def _search(self, data: bytes, offset: int) -> None:
        """Follow the next container that begins in `data`, which lies at `offset`."""
        at = data.find(MAGIC, max(self._from - offset, 0))
        while at >= 0 and (offset + at) % 8:
            at = data.find(MAGIC, at + 1)
        if at >= 0:
            self._expect_container(offset + at)
        else:
            self._from = offset + len(data) - len(MAGIC) + 1

    def _expect_container(self, at: int) -> None:
        self._expect(at, CONTAINER.size, 0)

    def _step(self) -> None:
        """Read the header that has come, and tell where the next one is."""
        follow = self._entry if self._container_end else self._container
        follow(self._kept(self._read_at - self._header, self._header))

    def _container(self, header: bytes) -> None:
        _, version, header_size, size = CONTAINER.unpack(header)
        begin = self._header + header_size
        end = begin + size
        if header[: len(MAGIC)] != MAGIC or version != 1 or header_size < CONTAINER.size or end > self._size:
            self._lose()
        else:
            self._expect_entry(begin, end)

    def _expect_entry(self, at: int, end: int) -> None:
        if at + ENTRY.size <= end:
            self._expect(at, ENTRY.size, end)
        else:
            self._expect_container(end + 7 & ~7)

    def _expect(self, at: int, size: int, container_end: int) -> None:
        """A header of `size` bytes comes next, if no more have come than any real file has."""
        self._left -= 1
        if self._left > 0:
            self._header, self._read_at, self._container_end = at, at + size, container_end
        else:
            self._header = self._read_at = _NEVER

    def _entry(self, header: bytes) -> None:
        kind, _, header_size, size = ENTRY.unpack(header)[:4]
        payload = self._header + header_size
        end = payload + size
        if kind not in _KINDS or not ENTRY.size <= header_size <= _LONGEST_HEADER or end > self._container_end:
            self._lose()
            return
        if size > WHOLE:
            self._unread = range(payload + _HEAD, end)
        self._expect_entry(end, self._container_end)

    def _lose(self) -> None:
        """Go on at the next magic: zeros may stand between containers."""
        self._from = self._header + 8
        self._header = self._read_at = _NEVER
