"""Opens any image reference: the one door to the sources."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from imgcheck.errors import SourceError
from imgcheck.progress import SILENT, Progress
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.reference import Reference, parse

__all__ = ["SourceOptions", "open_image"]

Opener = Callable[[Reference, SourceOptions, Progress], AbstractContextManager[Image]]


@contextmanager
def open_image(
    reference: str | Reference, options: SourceOptions | None = None, progress: Progress = SILENT
) -> Iterator[Image]:
    """The image that `reference` names, its layers readable until the context ends.

    Manifest and config are verified before the image is yielded, layers while they are read. Raises SourceError
    where there is no such image or it cannot be reached, also for want of the platform, DigestError where its bytes
    are not those its digests name, UsageError for an impossible platform.
    """
    found = parse(reference) if isinstance(reference, str) else reference
    options = options or SourceOptions()
    with _opener(found)(found, options, progress) as image:
        if options.platform and not image.platform_matches:
            if options.platform_only and image.offered:
                raise _lacking(image, options.platform)
            note = f"no image for {options.platform} there: that for {image.platform} was taken"
            image = replace(image, notes=(*image.notes, note))
        yield image


def _lacking(image: Image, platform: str) -> SourceError:
    there = ", ".join(dict.fromkeys(map(str, image.offered)))
    return SourceError(
        f"{image.reference}: no image for {platform} there",
        f"there is {there}; without --platform the nearest is taken",
    )


def _opener(found: Reference) -> Opener:
    """The source for `found`. Imported here: the registry client alone costs more than a whole preflight."""
    match found.kind:
        case "oci":
            from imgcheck.sources.layout import open_layout as opener
        case "registry":
            from imgcheck.sources.registry import open_registry as opener
        case "archive" | "oci-archive" | "docker-archive":
            from imgcheck.sources.archive import open_archive as opener
        case "dir":
            from imgcheck.sources.directory import open_directory as opener
        case "docker-daemon":
            from imgcheck.sources.daemon import open_daemon as opener
        case "profile":
            raise SourceError(
                f"{found.text}: a JSON document, and no whole image profile",
                "imgcheck profile writes these; one that was cut off has to be written again",
            )
        case "sif":
            from imgcheck.sources.sif import open_sif as opener
        case "containers-storage":
            from imgcheck.sources.storage import open_storage as opener
    return opener
