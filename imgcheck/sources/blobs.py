"""Content-addressed blobs, wherever they lie: descriptors, digests, and what a store of them offers."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import msgspec

from imgcheck.digests import is_digest
from imgcheck.documents.image import Platform
from imgcheck.errors import DigestError, SourceError

MANIFEST_LIMIT = 4 << 20
"""Bytes of a manifest or index; registries refuse larger ones (Distribution's own limit is the same)."""
CONFIG_LIMIT = 8 << 20
# Fields of image-spec manifest.md, image-index.md, descriptor.md and config.md, as far as they are read here.
MANIFEST_FIELDS = (
    *("schemaVersion", "mediaType", "artifactType", "config", "layers", "manifests", "subject"),
    *("digest", "size", "annotations", "platform", "os", "architecture", "variant"),
)
CONFIG_FIELDS = (
    *("os", "architecture", "variant", "rootfs", "diff_ids", "history", "created_by", "empty_layer"),
    *("config", "Entrypoint", "Cmd", "Env", "WorkingDir", "User", "Labels"),
)
_FREE_MAPS = frozenset(("annotations", "labels", "volumes", "exposedports"))


class MissingBlobError(SourceError):
    """A blob that a manifest or index names is not in the store; an archive may rightly lack other platforms'."""


@dataclass(frozen=True)
class Descriptor:
    """What an OCI document says of a blob (image-spec descriptor.md)."""

    digest: str
    size: int = -1
    """Bytes; -1 where it is not known beforehand."""
    media_type: str = ""
    platform: Platform | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str = ""

    @property
    def short(self) -> str:
        """The digest as messages show it: enough to find the blob by."""
        return self.digest[:19]


class Blobs(Protocol):
    """A store of blobs by digest: a registry's repository, a layout, an archive."""

    place: str
    """How messages call it."""

    def manifest(self, descriptor: Descriptor) -> bytes:
        """The manifest or index, at most MANIFEST_LIMIT bytes, digest verified. MissingBlobError where it is absent."""

    def config(self, descriptor: Descriptor) -> bytes:
        """The config blob, at most CONFIG_LIMIT bytes, digest verified. MissingBlobError where it is absent."""

    def open(self, descriptor: Descriptor) -> BinaryIO:
        """A blob as a stream, not verified. MissingBlobError where it is absent."""


def decode_json(data: bytes, what: str) -> Any:
    """The JSON value in `data`; SourceError naming `what` where it is not valid, or an object has a name twice."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{what} is not valid JSON ({error})") from None
    try:
        json.loads(data.decode(), object_pairs_hook=_refuse_twice, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{what}: {error}") from None
    return document


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    """Readers differ in which of two values they take; some merge them."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"an object has the name {name[:100]!r} twice")
        seen.add(name)


def parse_json(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `data`; SourceError naming `what` where it is none."""
    document = decode_json(data, what)
    if not isinstance(document, dict):
        raise SourceError(f"{what} is not a JSON object")
    return document


def parse_document(data: bytes, what: str, fields: tuple[str, ...]) -> dict[str, Any]:
    """As `parse_json`, for a document that container engines read: see `refuse_other_case`."""
    document = parse_json(data, what)
    refuse_other_case(document, what, fields)
    return document


def refuse_other_case(document: Any, what: str, fields: tuple[str, ...]) -> None:
    """SourceError where an object has one of `fields` in other letters.

    Engines are written in Go, whose decoder takes `LAYERS` for `layers`: with both they would use another image than
    was checked. Maps whose names are the image's own are not entered.
    """
    spelled = {field.casefold(): field for field in fields}
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, dict):
            for name, below in value.items():
                folded = name.casefold()
                if spelled.get(folded, name) != name:
                    raise SourceError(f"{what} spells `{spelled[folded]}` as {name!r}, which not all tools read alike")
                if folded not in _FREE_MAPS:
                    stack.append(below)


def parse_descriptor(raw: Any, what: str) -> Descriptor:
    """The descriptor in `raw`, its digest checked for form before anything is named after it."""
    if not isinstance(raw, dict):
        raise SourceError(f"{what} holds something that is not a descriptor")
    digest, size = raw.get("digest"), raw.get("size", -1)
    if not isinstance(digest, str) or not is_digest(digest):
        raise SourceError(f"{what} names a blob by {str(digest)[:100]!r}, which is not a sha256 or sha512 digest")
    if not isinstance(size, int) or isinstance(size, bool) or not -1 <= size < 1 << 63:
        raise SourceError(f"{what} gives {digest[:19]} the size {size!r}")
    annotations = raw.get("annotations")
    return Descriptor(
        digest=digest,
        size=size,
        media_type=text_of(raw.get("mediaType")),
        platform=parse_platform(raw.get("platform")),
        annotations={k: v for k, v in annotations.items() if isinstance(v, str)}
        if isinstance(annotations, dict)
        else {},
        artifact_type=text_of(raw.get("artifactType")),
    )


def parse_platform(raw: Any) -> Platform | None:
    """The platform object of an index entry or config; None where it names no architecture."""
    if not isinstance(raw, dict) or not text_of(raw.get("architecture")):
        return None
    return Platform(
        os=text_of(raw.get("os")) or "linux",
        architecture=text_of(raw.get("architecture")),
        variant=text_of(raw.get("variant")),
    )


def verify(data: bytes, descriptor: Descriptor, what: str) -> bytes:
    """`data`, once its size and digest are what `descriptor` says; DigestError names the blob otherwise."""
    algorithm = descriptor.digest.partition(":")[0]
    actual = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
    if actual != descriptor.digest:
        raise DigestError(
            f"{what}: the bytes hash to {actual}, not to {descriptor.digest}",
            hint="the copy is damaged or was tampered with: fetch the image again",
        )
    if descriptor.size not in (-1, len(data)):
        raise DigestError(f"{what} has {len(data)} bytes; {descriptor.size} were announced")
    return data


def read_limited(stream: BinaryIO, limit: int, what: str) -> bytes:
    """All of `stream`, which is closed; SourceError where it is longer than `limit` bytes."""
    pieces, total = [], 0
    with stream:
        while piece := stream.read(min(1 << 20, limit + 1 - total)):
            pieces.append(piece)
            total += len(piece)
            if total > limit:
                raise SourceError(f"{what} is larger than {limit >> 20} MiB, which none is")
    return b"".join(pieces)


def text_of(value: Any) -> str:
    """`value` where it is a string, else "": a field that another program filled."""
    return value if isinstance(value, str) else ""
