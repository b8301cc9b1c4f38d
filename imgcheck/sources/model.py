"""What every source yields: an Image with its config and its layers, opened lazily."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from imgcheck.documents.image import ImageConfig, Platform
from imgcheck.layers.model import Layer


@dataclass(frozen=True)
class Attached:
    """An artifact that a registry keeps as a referrer of an image (image-spec manifest.md, `subject`)."""

    digest: str
    """Of its manifest."""
    created: str
    """RFC 3339, "" where it does not say."""
    read: Callable[[int], bytes]
    """Its first blob, fetched now, manifest and blob verified; SourceError where it is gone, is no artifact of the type
    about the image, or has more bytes than the argument."""


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
    offered: tuple[Platform, ...] = ()
    """The platforms that an index names for it; empty where it is one image, listed by itself."""
    notes: tuple[str, ...] = ()
    """What the reader should know about how it was found: a label that lies, a skipped index entry."""
    expect: Callable[[Sequence[int]], None] = lambda order: None
    """To be told in which order the layers will be read, by their indexes, where that is another than the stored one.

    A source that fetches them ahead of their reader does so in that order. It may be said before the first is opened.
    """
    family: str = ""
    """The runtimes that this form of an image is for (knowledge.types.Runtime.family); "" where any may take it."""
    attached: Callable[[str], Iterator[Attached]] | None = None
    """The artifacts of a type that refer to this image, newest first; None where the source keeps none."""
