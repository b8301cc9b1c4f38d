"""What every source yields: an Image with its config and its layers, opened lazily."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from imgcheck.documents.image import ImageConfig, LayerInfo, Platform
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

    info: LayerInfo
    unreadable: Mapping[str, str]
    """Entry paths that the source may not read, with the cause; filled while entries are taken."""

    def entries(self, progress: Progress = SILENT) -> Iterator[tuple[Entry, Content | None]]:
        """The layer's entries in stored order; Content for regular files alone. `progress` is told of the blob's bytes.

        A regular file without Content, and a directory that could not be listed, stands in `unreadable`.

        Whatever the layer is made of is verified on the way: after the last entry the blob's digest and the
        diff_id have been compared, and DigestError names the blob that differs. LayerError where it is truncated
        or no archive. An iterator that is closed early verifies nothing.
        """


@dataclass(frozen=True)
class Attached:
    """An artifact that a registry keeps as a referrer of an image (image-spec manifest.md, `subject`)."""

    digest: str
    """Of its manifest, which is verified."""
    created: str
    """RFC 3339, "" where it does not say."""
    read: Callable[[int], bytes]
    """Its first blob, digest verified; SourceError where it has more bytes than the argument."""


@dataclass(frozen=True)
class Image:
    """An image as a source found it."""

    reference: str
    """As the user wrote it."""
    platform: Platform
    config: ImageConfig
    layers: tuple[Layer, ...]
    manifest_digest: str = ""
    config_digest: str = ""
    raw_config: bytes = b""
    """The config blob; empty where the source has none (dir:)."""
    platform_matches: bool = True
    """False where no platform of the image was the one asked for, so that what exists was taken (ARCH001)."""
    notes: tuple[str, ...] = ()
    """What the reader should know about how it was found: a label that lies, a skipped index entry."""
    expect: Callable[[Sequence[int]], None] = lambda order: None
    """To be told in which order the layers will be read, by their indexes, where that is another than the stored one.

    A source that fetches them ahead of their reader does so in that order. It may be said before the first is opened.
    """
    attached: Callable[[str], Iterator[Attached]] | None = None
    """The artifacts of a type that refer to this image, newest first; None where the source keeps none."""
