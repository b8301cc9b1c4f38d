"""SIF files and bare squashfs images as images of one layer.

Of a SIF (format version 01; imgcheck.sif_format) the descriptors are read for the primary system
partition and for `oci-config.json`, the config of the image that it was made of.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from imgcheck.documents.image import LayerInfo, Platform
from imgcheck.errors import SourceError
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content
from imgcheck.progress import SILENT, Progress
from imgcheck.sif_format import (
    ARCHITECTURES,
    CONFIG_NAME,
    DESCRIPTOR,
    HEADER,
    IS_JSON,
    IS_PARTITION,
    MAGIC,
    MAGIC_AT,
    OTHER_FILESYSTEMS,
    OVERLAY,
    PARTITION,
    PRIMARY_SYSTEM,
    SQUASHFS,
    SYSTEM,
    VERSION,
    bare_squashfs_at,
)
from imgcheck.sources.archive import refuse_empty
from imgcheck.sources.blobs import CONFIG_LIMIT, parse_json
from imgcheck.sources.config import image_config
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.platforms import distance, wanted_platform
from imgcheck.sources.reference import Reference
from imgcheck.sources.settings import Settings, read_settings_of, with_config
from imgcheck.sources.squashfs import Squashfs

_MOST_DESCRIPTORS = 4096


@dataclass(frozen=True)
class Part:
    """A data object of a SIF."""

    kind: int
    name: str
    offset: int
    size: int
    extra: bytes


@dataclass(frozen=True)
class _Root:
    """Where the squashfs lies in a file, and what a SIF says besides."""

    offset: int
    is_sif: bool = False
    """Whether it is inside a SIF, not a file of its own."""
    size: int | None = None
    architecture: str = ""
    config: bytes | None = None
    overlays: tuple[str, ...] = ()
    """Partitions that Apptainer mounts above it whenever the file is started, by their names."""


@contextmanager
def open_sif(reference: Reference, options: SourceOptions, progress: Progress) -> Iterator[Image]:
    """The image of a `sif:` reference, or of a file that is a squashfs."""
    path = reference.path
    with _open(path) as file:
        root = _find_root(file, path)
        squashfs = Squashfs(file, path, root.offset, root.size)
        settings = _settings(squashfs, root, path)
        wanted = wanted_platform(options.platform)
        found = settings.platform or wanted
        yield Image(
            reference=reference.text,
            platform=found,
            config=settings.config,
            layers=(SquashfsLayer(squashfs, path, _covered(root.overlays)),),
            platform_matches=distance(wanted, found) is not None,
            notes=(*settings.notes, *_covered(root.overlays).values()),
            family="apptainer" if root.is_sif else settings.family,
        )


class SquashfsLayer:
    """All files of a squashfs as the entries of one layer."""

    def __init__(self, squashfs: Squashfs, path: str, unreadable: Mapping[str, str]) -> None:
        self.info = LayerInfo(size=squashfs.size, history=f"squashfs of {Path(path).name}")
        self.unreadable = unreadable
        self._squashfs = squashfs
        self._name = path

    def entries(self, progress: Progress = SILENT) -> Iterator[tuple[Entry, Content | None]]:
        """See sources.model.Layer. A squashfs carries no digests: what is damaged shows where it does not decompress.

        `progress` is told of the files' bytes, as those of the image are not read in order.
        """
        progress.start(self._name, None)
        try:
            yield from self._squashfs.entries(lambda amount: progress.advance(self._name, amount))
        finally:
            progress.finish(self._name)


def read_parts(file: BinaryIO, name: str) -> tuple[str, tuple[Part, ...]]:
    """Architecture and data objects of a SIF. SourceError where its header or descriptors do not hold."""
    fd = file.fileno()
    whole = os.fstat(fd).st_size
    head = os.pread(fd, HEADER.size, 0)
    if len(head) < HEADER.size or head[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
        raise SourceError(f"{name}: no SIF file")
    _launch, _, version, code, _uuid, _made, _changed, _free, total, start, length, _data, _size = HEADER.unpack(head)
    if version[:2] != VERSION:
        raise SourceError(f"{name}: SIF version {version[:2]!r}, which is not read; only 01 is")
    if not 0 <= total <= _MOST_DESCRIPTORS or length < 0 or not 0 <= start <= whole:
        raise SourceError(f"{name}: damaged: its header names {total} descriptors at {start}")
    table = os.pread(fd, total * DESCRIPTOR.size, start)
    if len(table) < total * DESCRIPTOR.size:
        raise SourceError(f"{name}: truncated: its descriptors end early")
    parts = []
    for fields in DESCRIPTOR.iter_unpack(table):
        kind, used, offset, size = fields[0], fields[1], fields[5], fields[6]
        if not used:
            continue
        title = fields[12].partition(b"\0")[0].decode("utf-8", "backslashreplace")
        if offset < 0 or size < 0 or offset + size > whole:
            raise SourceError(f"{name}: truncated or damaged: {title or 'an object'} would lie behind its end")
        parts.append(Part(kind, title, offset, size, fields[13]))
    return ARCHITECTURES.get(code[:2], ""), tuple(parts)


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SourceError(f"{path}: not a regular file")
        refuse_empty(file.fileno(), path)
        yield file


def _find_root(file: BinaryIO, name: str) -> _Root:
    head = os.pread(file.fileno(), MAGIC_AT + len(MAGIC), 0)
    if head[MAGIC_AT:] != MAGIC:
        return _Root(bare_squashfs_at(head))
    architecture, parts = read_parts(file, name)
    part, code = _primary(parts, name)
    overlays = tuple(one.name for one in parts if one.kind == IS_PARTITION and _partition(one)[1] == OVERLAY)
    config = next((part for part in parts if part.kind == IS_JSON and part.name == CONFIG_NAME), None)
    data = None
    if config is not None:
        if config.size > CONFIG_LIMIT:
            raise SourceError(f"{name}: {CONFIG_NAME} is larger than {CONFIG_LIMIT >> 20} MiB, which none is")
        data = os.pread(file.fileno(), config.size, config.offset)
    return _Root(part.offset, True, part.size, ARCHITECTURES.get(code, architecture), data, overlays)


def _covered(overlays: tuple[str, ...]) -> dict[str, str]:
    """What of the root is not known, with the cause: all of it where overlays may bring or replace any file."""
    if not overlays:
        return {}
    return {"": f"what its overlay partition ({', '.join(overlays)}) puts over the root at each start is not read"}


def _primary(parts: tuple[Part, ...], name: str) -> tuple[Part, bytes]:
    """The primary system partition and its architecture code."""
    systems = []
    for part in parts:
        if part.kind != IS_PARTITION:
            continue
        filesystem, role, code = _partition(part)
        if role in (PRIMARY_SYSTEM, SYSTEM):
            systems.append((role == PRIMARY_SYSTEM, filesystem, code, part))
    if not systems:
        raise SourceError(f"{name}: holds no system partition, so there is nothing to run in it")
    _primary_one, filesystem, code, part = max(systems, key=lambda found: found[0])
    if filesystem != SQUASHFS:
        what = OTHER_FILESYSTEMS.get(filesystem, f"a filesystem of kind {filesystem}")
        raise SourceError(
            f"{name}: its root is {what}, and only squashfs is read", "apptainer build --sandbox DIR FILE, then dir:DIR"
        )
    return part, code


def _partition(part: Part) -> tuple[int, int, bytes]:
    """Filesystem, role and architecture code of a partition."""
    filesystem, role, code = PARTITION.unpack(part.extra[: PARTITION.size])
    return filesystem, role, code[:2]


def _settings(squashfs: Squashfs, root: _Root, name: str) -> Settings:
    platform = Platform("linux", root.architecture) if root.architecture else None
    settings = read_settings_of(SquashfsFiles(squashfs, name), platform)
    if root.config is not None:
        try:
            found = image_config(parse_json(root.config, f"{name}: {CONFIG_NAME}"), f"{name}: {CONFIG_NAME}")
            settings = with_config(settings, found)
        except SourceError as error:
            settings = replace(settings, notes=(*settings.notes, error.message))
    return settings


class SquashfsFiles:
    """Small regular files of a squashfs by path, no link followed."""

    def __init__(self, squashfs: Squashfs, place: str) -> None:
        self.place = place
        self._squashfs = squashfs

    def open(self, path: str) -> BinaryIO:
        data = self._squashfs.read_file(path, CONFIG_LIMIT)
        if data is None:
            raise FileNotFoundError(path)
        return BytesIO(data)
