"""What every layer yields, whatever it is made of: its entries with the contents of its files."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from imgcheck.documents.image import LayerInfo
from imgcheck.layers.entry import Entry
from imgcheck.progress import SILENT, Progress


class Content(Protocol):
    """The bytes of the regular file that an Entry describes, readable until the next entry is taken."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` as far as bytes are left; 0 at the end. Holes of sparse files read as zeros."""

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, all that is left where negative."""


class Layer(Protocol):
    """One layer of an image, lowest first in `Image.layers`."""

    @property
    def info(self) -> LayerInfo:
        """What the manifest and the config tell of it."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Entry paths that the source may not read, with the cause; filled while entries are taken."""

    def entries(self, progress: Progress = SILENT) -> Iterator[tuple[Entry, Content | None]]:
        """The layer's entries in stored order; Content for regular files alone. `progress` is told of the blob's bytes.

        A regular file without Content, and a directory that could not be listed, stands in `unreadable`.

        Whatever the layer is made of is verified on the way: after the last entry the blob's digest and the
        diff_id have been compared, and DigestError names the blob that differs. LayerError where it is truncated
        or no archive. An iterator that is closed early verifies nothing.
        """
