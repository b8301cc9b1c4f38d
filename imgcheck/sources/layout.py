"""OCI image layouts (image-spec image-layout.md), as a directory or as the members of an archive."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from imgcheck import oci
from imgcheck.errors import SourceError
from imgcheck.progress import Progress
from imgcheck.sources.assemble import assemble
from imgcheck.sources.blobs import (
    CONFIG_LIMIT,
    MANIFEST_FIELDS,
    MANIFEST_LIMIT,
    Descriptor,
    MissingBlobError,
    parse_descriptor,
    parse_document,
    read_limited,
    verify,
)
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.reference import Reference


class Files(Protocol):
    """Regular files by relative path: a directory's or an archive's."""

    place: str

    def open(self, path: str) -> BinaryIO:
        """The file at `path`; FileNotFoundError where there is none, OSError where it is no regular file."""


class DirectoryFiles:
    """The files under a directory. Symbolic links are not followed: a layout from elsewhere must not name our files."""

    def __init__(self, root: str) -> None:
        self.place = root
        self._root = root

    def open(self, path: str) -> BinaryIO:
        directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *parents, last = path.split("/")
            for parent in parents:
                directory, previous = _open_at(parent, os.O_DIRECTORY, directory), directory
                os.close(previous)
            # O_NONBLOCK: a FIFO in place of a blob must not hang us.
            descriptor = _open_at(last, os.O_NONBLOCK, directory)
        finally:
            os.close(directory)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(f"{path} is not a regular file")
        return os.fdopen(descriptor, "rb", buffering=0)


def _open_at(name: str, flags: int, directory: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)


class LayoutBlobs:
    """The blobs of an OCI layout."""

    def __init__(self, files: Files) -> None:
        self.place = files.place
        self._files = files

    def manifest(self, descriptor: Descriptor) -> bytes:
        return self._read(descriptor, MANIFEST_LIMIT, "manifest")

    def config(self, descriptor: Descriptor) -> bytes:
        return self._read(descriptor, CONFIG_LIMIT, "config")

    def open(self, descriptor: Descriptor) -> BinaryIO:
        try:
            return self._files.open("blobs/" + descriptor.digest.replace(":", "/"))
        except FileNotFoundError:
            raise MissingBlobError(f"{self.place}: blob {descriptor.digest} is missing") from None
        except OSError as error:
            raise SourceError(f"{self.place}: blob {descriptor.digest}: {_cause(error)}") from None

    def _read(self, descriptor: Descriptor, limit: int, kind: str) -> bytes:
        what = f"{self.place}: {kind} {descriptor.short}"
        return verify(read_limited(self.open(descriptor), limit, what), descriptor, what)


@contextmanager
def open_layout(reference: Reference, options: SourceOptions, progress: Progress) -> Iterator[Image]:
    """The image of an `oci:` reference."""
    if not (place := Path(reference.path)).is_dir():
        what = "is no directory" if place.exists() else "no such directory"
        raise SourceError(f"{place}: {what}", hint="give oci:DIR or oci:DIR:TAG")
    yield layout_image(reference, DirectoryFiles(reference.path), options)


def layout_image(reference: Reference, files: Files, options: SourceOptions) -> Image:
    """The image that `reference` names among those of the layout in `files`."""
    blobs = LayoutBlobs(files)
    entries = read_index(files)
    return assemble(reference.text, _pick(reference, entries, files.place), blobs, options.platform)


def read_index(files: Files) -> list[Descriptor]:
    """The entries of index.json that are manifests or indexes."""
    document = parse_document(_index_bytes(files), f"{files.place}: index.json", MANIFEST_FIELDS)
    entries = document.get("manifests") or []
    if not isinstance(entries, list):
        raise SourceError(f"{files.place}: index.json: `manifests` is not a list")
    parsed = [parse_descriptor(entry, f"{files.place}: index.json") for entry in entries]
    found = [entry for entry in parsed if entry.media_type in oci.MANIFEST_TYPES + oci.INDEX_TYPES]
    if not found:
        raise SourceError(f"{files.place}: index.json names no image")
    return found


def _pick(reference: Reference, entries: list[Descriptor], place: str) -> list[Descriptor]:
    """The entries of the name or digest asked for; where none is, those of the only name, all where none has one."""
    names = sorted({name for entry in entries if (name := _name(entry))})
    if reference.digest:
        found = [entry for entry in entries if entry.digest == reference.digest]
        # The layout may hold the manifest below an index; its blob is named by the digest all the same.
        return found or [Descriptor(reference.digest)]
    if reference.tag:
        found = [entry for entry in entries if reference.tag in _names(entry)]
        if not found:
            there = f"it holds {', '.join(names[:10])}" if names else "its images have no names"
            raise SourceError(f"{place}: no image named {reference.tag!r}; {there}")
        return found
    if len(names) > 1:
        kind = "oci" if reference.kind == "oci" else "oci-archive"
        raise SourceError(
            f"{place}: holds several images: {', '.join(names[:10])}", hint=f"name one: {kind}:{reference.path}:NAME"
        )
    # What has lost its name to a later push stays in the index without one.
    return [entry for entry in entries if _name(entry)] or entries


def _names(entry: Descriptor) -> tuple[str, ...]:
    return tuple(name for key in (oci.IMAGE_NAME, oci.REF_NAME) if (name := entry.annotations.get(key)))


def _name(entry: Descriptor) -> str:
    return next(iter(_names(entry)), "")


def _index_bytes(files: Files) -> bytes:
    try:
        return read_limited(files.open("index.json"), MANIFEST_LIMIT, f"{files.place}: index.json")
    except FileNotFoundError:
        raise SourceError(f"{files.place}: not an OCI layout: it has no index.json") from None
    except OSError as error:
        raise SourceError(f"{files.place}: index.json: {_cause(error)}") from None


def _cause(error: OSError) -> str:
    """`error` in words, a refused symbolic link by name: the kernel calls it ELOOP or ENOTDIR."""
    if error.errno == errno.ELOOP:
        return "a symbolic link, which is not followed inside a layout"
    return error.strerror or str(error)
