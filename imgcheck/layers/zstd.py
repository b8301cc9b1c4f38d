"""Tells whether a zstd stream ends where a frame does, which the decompressor leaves unsaid.

Layouts are those of RFC 8878 section 3.1: frames of a header, blocks and an optional checksum, and skippable frames.
"""

from collections.abc import Callable

FRAME = b"\x28\xb5\x2f\xfd"
_CHECKSUM = 4
_DICTIONARY_SIZES = (0, 1, 2, 4)
_CONTENT_SIZES = (0, 2, 4, 8)
_RLE = 1


def is_skippable(magic: bytes) -> bool:
    """Whether a frame that begins with `magic` (4 bytes) is one that decoders pass over: 184D2A5?."""
    return magic[1:4] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5


class FrameEnds:
    """Follows the frames of a zstd stream by their headers alone, given the stream piece by piece."""

    def __init__(self) -> None:
        self._head = b""
        self._wanted = 4
        self._step: Callable[[bytes], None] = self._magic
        self._skip = 0
        self._trailer = 0

    @property
    def complete(self) -> bool:
        """Whether all frames that were begun have ended."""
        return self._step == self._magic and not self._head and not self._skip

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream. Damage is the decompressor's to find."""
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
            else:
                step = min(self._wanted - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == self._wanted:
                    head, self._head = self._head, b""
                    self._step(head)
            at += step

    def _expect(self, wanted: int, step: Callable[[bytes], None]) -> None:
        self._wanted, self._step = wanted, step

    def _magic(self, head: bytes) -> None:
        if is_skippable(head):
            self._expect(4, self._length)
        else:
            self._expect(1, self._descriptor)

    def _length(self, head: bytes) -> None:
        self._skip = int.from_bytes(head, "little")
        self._expect(4, self._magic)

    def _descriptor(self, head: bytes) -> None:
        flags = head[0]
        single_segment = flags >> 5 & 1
        content_size = _CONTENT_SIZES[flags >> 6] or single_segment
        self._skip = (1 - single_segment) + _DICTIONARY_SIZES[flags & 3] + content_size
        self._trailer = _CHECKSUM if flags & 4 else 0
        self._expect(3, self._block)

    def _block(self, head: bytes) -> None:
        bits = int.from_bytes(head, "little")
        self._skip = 1 if bits >> 1 & 3 == _RLE else bits >> 3
        if bits & 1:
            self._skip += self._trailer
            self._expect(4, self._magic)
