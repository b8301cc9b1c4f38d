"""Images in a tar file: `docker save` of every age, podman and skopeo archives, OCI layouts; also from a pipe.

The archive is not unpacked: members are read where they lie. Only what cannot be read at random, a compressed
archive or a pipe, is first copied into a temporary file that has no name.
"""

import errno
import hashlib
import io
import os
import posixpath
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from imgcheck.documents.image import LayerInfo, Platform
from imgcheck.errors import DigestError, LayerError, SourceError
from imgcheck.layers.entry import Entry
from imgcheck.layers.stream import TarLayer, decompressed, is_compressed
from imgcheck.layers.tar import BLOCK, Segments, SparseBody, read_tar
from imgcheck.progress import Progress
from imgcheck.sources.blobs import CONFIG_LIMIT, MANIFEST_LIMIT, decode_json, read_limited, refuse_other_case
from imgcheck.sources.config import ParsedConfig, parse_config
from imgcheck.sources.layout import layout_image
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.platforms import distance, wanted_platform
from imgcheck.sources.reference import Reference
from imgcheck.sources.registries import ShortNames, canonical_name, short_names

_MOST_MEMBERS = 100_000
"""Members of an archive of layers: a real one has some per layer."""
_MOST_SEGMENTS = 1 << 20
"""Pieces of all sparse members together, which are held in memory."""
_MOST_LINKS = 8
_PIECE = 1 << 20
_DIGEST_NAME = re.compile(r"(?:^|/)([0-9a-f]{64})(?:\.json)?$")
_BLOB_PATH = re.compile(r"blobs/sha256/([0-9a-f]{64})")


@contextmanager
def open_archive(reference: Reference, options: SourceOptions, progress: Progress) -> Iterator[Image]:
    """The image of an `oci-archive:` or `docker-archive:` reference, or of an archive of either kind."""
    with ExitStack() as stack:
        name = "standard input" if reference.path == "-" else reference.path
        file = _random_access(reference.path, name, options, progress, stack)
        yield archive_image(reference, ArchiveFiles(file, name), options)


def archive_image(reference: Reference, files: "ArchiveFiles", options: SourceOptions) -> Image:
    """The image in an archive, of the form that the reference or else the members name."""
    has_docker, has_oci = "manifest.json" in files, "index.json" in files
    if reference.kind == "oci-archive" or (has_oci and not has_docker and reference.kind == "archive"):
        return layout_image(reference, files, options)
    if has_docker and has_oci and reference.kind == "archive":
        return _either(reference, files, options)
    if has_docker:
        return _docker_image(reference, files, options)
    if "repositories" in files:
        raise SourceError(f"{files.place}: written by a docker before 1.10, without manifest.json; save it again")
    raise SourceError(
        f"{files.place}: a tar archive, but of no image: it has neither manifest.json nor index.json",
        hint="for an archive of a root file system, unpack it and give dir:DIRECTORY",
    )


def _either(reference: Reference, files: "ArchiveFiles", options: SourceOptions) -> Image:
    """An image saved in both forms, as docker does since 25. The OCI form says more, but 25.0.0 wrote manifests
    without layers (moby issue 47065), and archives of one platform lack the others' blobs.
    """
    try:
        return layout_image(reference, files, options)
    except DigestError:
        raise
    except SourceError:
        return _docker_image(reference, files, options)


def _docker_image(reference: Reference, files: "ArchiveFiles", options: SourceOptions) -> Image:
    """The image by manifest.json (moby image/spec v1.2, "Combined Image JSON + Filesystem Changeset Format")."""
    entry = _pick(reference, files, options.short_names or short_names())
    config_path = _string(entry.get("Config"), files)
    what = f"{files.place}: config {config_path}"
    raw = read_limited(files.member(config_path), CONFIG_LIMIT, what)
    digest = "sha256:" + hashlib.sha256(raw).hexdigest()
    stated = _DIGEST_NAME.search(config_path)
    if stated and f"sha256:{stated[1]}" != digest:
        raise DigestError(f"{what}: the bytes hash to {digest}")
    if reference.digest not in ("", digest):
        raise SourceError(
            f"{files.place}: its manifest.json knows no digest of an image, and its image's config is {digest}",
            hint=f"name the image by its tag; an archive that holds digests is read as oci-archive:{files.place}",
        )
    parsed = parse_config(raw, what)
    found = parsed.platform or Platform()
    return Image(
        reference=reference.text,
        platform=found,
        config=parsed.config,
        layers=_docker_layers(entry, parsed, files),
        config_digest=digest,
        raw_config=raw,
        platform_matches=distance(wanted_platform(options.platform), found) is not None,
    )


def _pick(reference: Reference, files: "ArchiveFiles", known: ShortNames) -> dict[str, Any]:
    """The entry of manifest.json that the reference names, or the only one."""
    what = f"{files.place}: manifest.json"
    found = decode_json(read_limited(files.member("manifest.json"), MANIFEST_LIMIT, what), what)
    refuse_other_case(found, what, ("Config", "RepoTags", "Layers"))
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    names = [name for entry in entries for name in _tags(entry)]
    if reference.tag:
        wanted = canonical_name(reference.tag, known)
        entries = [entry for entry in entries if wanted in (canonical_name(tag, known) for tag in _tags(entry))]
        if not entries:
            raise SourceError(f"{files.place}: no image named {reference.tag!r}; it holds {', '.join(names[:10])}")
    if len(entries) > 1:
        raise SourceError(
            f"{files.place}: holds several images: {', '.join(names[:10])}",
            hint=f"name one: docker-archive:{files.place}:NAME",
        )
    if not entries:
        raise SourceError(f"{what} names no image")
    return entries[0]


def _tags(entry: dict[str, Any]) -> list[str]:
    names = entry.get("RepoTags")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _docker_layers(entry: dict[str, Any], parsed: ParsedConfig, files: "ArchiveFiles") -> tuple[TarLayer, ...]:
    paths = entry.get("Layers") or []
    if not isinstance(paths, list) or len(paths) != len(parsed.diff_ids):
        count = len(paths) if isinstance(paths, list) else "no list of"
        raise SourceError(
            f"{files.place}: manifest.json has {count} layers, but the config lists {len(parsed.diff_ids)} diff_ids"
        )
    history = parsed.history or ("",) * len(paths)
    return tuple(
        _docker_layer(_string(path, files), diff_id, line, files)
        for path, diff_id, line in zip(paths, parsed.diff_ids, history, strict=True)
    )


def _docker_layer(path: str, diff_id: str, history: str, files: "ArchiveFiles") -> TarLayer:
    size = files.size(path)
    blob = _BLOB_PATH.fullmatch(path)
    info = LayerInfo(diff_id=diff_id, digest=f"sha256:{blob[1]}" if blob else "", size=size, history=history)
    return TarLayer(info, partial(files.member, path))


def _string(value: Any, files: "ArchiveFiles") -> str:
    if not isinstance(value, str):
        raise SourceError(f"{files.place}: manifest.json names a member by something that is not a string")
    return value


class ArchiveFiles:
    """The regular members of a tar file by path, read where they lie. Links are followed inside the archive alone."""

    def __init__(self, file: BinaryIO, place: str) -> None:
        """Raises SourceError where `file` is no tar archive or ends too early."""
        self.place = place
        self._file = file
        self._members: dict[str, tuple[int, int, Segments | None]] = {}
        """Where the bytes begin, how many the member has, and for a sparse one the pieces that are stored."""
        self._links: dict[str, str] = {}
        self._index()

    def __contains__(self, path: str) -> bool:
        return path in self._members or path in self._links

    def open(self, path: str) -> BinaryIO:
        """The member at `path`; FileNotFoundError where there is none, OSError where a link leads nowhere."""
        offset, size, segments = self._members[self._resolve(path)]
        if segments is None:
            return Member(self._file.fileno(), offset, size)  # type: ignore[return-value]
        stored = Member(self._file.fileno(), offset, _stored(segments))
        return SparseMember(stored, segments, size)  # type: ignore[return-value]

    def member(self, path: str) -> BinaryIO:
        """As `open`, with SourceError."""
        with self._sought(path):
            return self.open(path)

    def size(self, path: str) -> int:
        """Bytes of the member at `path`; SourceError as of `member`."""
        with self._sought(path):
            return self._members[self._resolve(path)][1]

    @contextmanager
    def _sought(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cause = "is missing" if isinstance(error, FileNotFoundError) else str(error)
            raise SourceError(f"{self.place}: member {path[:200]} {cause}") from None

    def _resolve(self, path: str) -> str:
        """`path` behind its links: skopeo and docker save a layer that two images share as a link."""
        path = posixpath.normpath(path)
        for _ in range(_MOST_LINKS):
            if path in self._members:
                return path
            target = self._links.get(path)
            if target is None:
                raise FileNotFoundError(path)
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if path.startswith(("../", "/")):
                raise OSError("is a link that leads out of the archive")
        raise OSError("is a link to itself")

    def _index(self) -> None:
        """Note where each member lies. Every header is read by the layers' strict reader, what follows is skipped."""
        end = os.fstat(self._file.fileno()).st_size
        position = pieces = 0
        while (found := self._header(position)) is not None:
            entry, segments, start = found
            stored = entry.size if segments is None else _stored(segments)
            pieces += len(segments or ())
            if pieces > _MOST_SEGMENTS:
                raise SourceError(f"{self.place}: its sparse members have more than {_MOST_SEGMENTS} pieces")
            position = start + -(-stored // BLOCK) * BLOCK
            if start + stored > end:
                raise SourceError(f"{self.place}: truncated: it ends inside {entry.path[:200]}")
            if entry.kind == "file":
                self._members[entry.path] = (start, entry.size, segments)
            elif entry.kind in ("symlink", "hardlink"):
                # Both are resolved against the link's own directory.
                above = "../" * entry.path.count("/")
                self._links[entry.path] = entry.link if entry.kind == "symlink" else above + entry.link
            if len(self._members) + len(self._links) > _MOST_MEMBERS:
                raise SourceError(f"{self.place}: has more than {_MOST_MEMBERS} members: not an archive of layers")

    def _header(self, position: int) -> tuple[Entry, Segments | None, int] | None:
        """The member whose header begins at `position`, its map where it is sparse, and where its data begin.

        None at the archive's end.
        """
        member = Member(self._file.fileno(), position, 1 << 62)
        try:
            # One block at a time, so that nothing behind the header has been taken.
            first = next(read_tar(iter(partial(member.read, BLOCK), b""), self.place), None)
        except LayerError as error:
            if position == 0:
                raise SourceError(
                    f"{self.place}: not an image: no archive, layout, SIF file or image profile"
                ) from None
            raise SourceError(error.message) from None
        if first is None:
            return None
        entry, content = first
        return entry, content.segments if isinstance(content, SparseBody) else None, position + member.position


def _stored(segments: Segments) -> int:
    return sum(size for _offset, size in segments)


class Member(io.RawIOBase):
    """A stretch of a file that may be read by several threads at once."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        self.size = size
        self.position = 0
        self._descriptor = descriptor
        self._start = start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = os.preadv(self._descriptor, [view[: self.size - self.position]], self._start + self.position)
        self.position += count
        return count


class SparseMember(io.RawIOBase):
    """A member of which the archive leaves out the holes."""

    def __init__(self, stored: Member, segments: Segments, size: int) -> None:
        self.size = size
        self._content = SparseBody(io.BufferedReader(stored), segments, size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._content.readinto(memoryview(buffer).cast("B"))


def _random_access(path: str, name: str, options: SourceOptions, progress: Progress, stack: ExitStack) -> BinaryIO:
    """The archive as a plain tar file that can be read at any place."""
    file = stack.enter_context(_open(path, name))
    refuse_empty(file.fileno(), name)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and not is_compressed(os.pread(file.fileno(), 6, 0)):
        return file
    return stack.enter_context(spooled(file, name, options, progress))


def refuse_empty(descriptor: int, name: str) -> None:
    """SourceError for a file without any bytes, as a download that failed leaves it."""
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and not found.st_size:
        raise SourceError(f"{name}: the file is empty", hint="fetch or build it again")


def _open(path: str, name: str) -> BinaryIO:
    if path == "-" and sys.stdin.isatty():
        raise SourceError(
            "standard input is a terminal", hint="pipe an archive in: docker save IMAGE | imgcheck image -"
        )
    try:
        return os.fdopen(os.dup(0), "rb", buffering=0) if path == "-" else open(path, "rb", buffering=0)  # noqa: PTH123
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from None


@contextmanager
def spooled(file: BinaryIO, name: str, options: SourceOptions, progress: Progress) -> Iterator[BinaryIO]:
    """All of `file`, decompressed, in a temporary file without a name.

    Raises SourceError where it is empty, damaged, longer than the options allow, or no space is left.
    """
    directory = _scratch(options)
    with tempfile.TemporaryFile(prefix="imgcheck-", dir=directory) as spool:
        progress.start(name)
        try:
            _copy(decompressed(file), spool, name, options.spool_limit, progress)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                place = directory or tempfile.gettempdir()
                raise SourceError(
                    f"{name}: no space left in {place}", hint="set TMPDIR to a larger directory"
                ) from None
            raise SourceError(f"{name}: cannot be read ({error.strerror or error})") from None
        except EOFError:
            raise SourceError(f"{name}: truncated: its compressed data end early") from None
        except SourceError:
            raise
        except Exception as error:
            # Each decompressor has its own exception, and importing all of them to name them here costs more.
            raise SourceError(f"{name}: damaged or cut short ({error})") from None
        finally:
            progress.finish(name)
        if not spool.tell():
            raise SourceError(f"{name}: nothing came from there", hint="see what the command says that was to write it")
        yield spool


def _scratch(options: SourceOptions) -> Path | None:
    """Where large temporary files go: TMPDIR where the user names one, else beside the facts; None for /tmp."""
    return options.cache.scratch() if options.cache and not os.environ.get("TMPDIR") else None


def _copy(source: BinaryIO, spool: BinaryIO, name: str, limit: int, progress: Progress) -> None:
    done = 0
    while piece := source.read(_PIECE):
        done += len(piece)
        if done > limit:
            raise SourceError(f"{name}: larger than {limit >> 30} GiB when unpacked, which is the limit")
        spool.write(piece)
        progress.advance(name, len(piece))
    spool.flush()
