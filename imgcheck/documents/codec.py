"""Documents to JSON and back, with their kind and schema version checked."""

import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from imgcheck.documents.facts import Document
from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import ImageProfile
from imgcheck.documents.report import Report
from imgcheck.errors import DocumentError

DocumentT = TypeVar("DocumentT", bound=Document)

_KINDS: dict[type[Document], str] = {ImageProfile: "image", HostProfile: "host", Report: "report"}
_MAJOR = 1
_DIGITS = 10
"""More than any version has: Python refuses to convert thousands of them."""
_LEVELS = 3
"""Levels of a profile that are written line by line, the last one a script, a link, or the code of an object."""
_LARGEST = 256 << 20
"""Bytes of a document, hundreds of times what a large image's profile has: a prolog reads files of any user as root."""


_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Head(Document, frozen=True):
    kind: str = ""
    schema_version: str = ""


def as_text(name: str) -> str:
    r"""A name from a file system or command line as documents have it: bytes that are no UTF-8 as `\xNN`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def as_bytes(name: str) -> bytes:
    """The exact bytes of a name as the file system or a tree's own files have it: they need not be UTF-8.

    Python keeps such bytes as surrogates (PEP 383); `as_text` writes them for documents.
    """
    return name.encode("utf-8", "surrogateescape")


def kind_of(data: bytes) -> str:
    """`image`, `host` or `report` where `data` is one of our documents, else ""."""
    try:
        kind = msgspec.json.decode(data, type=_Head).kind
    except _UNDECODABLE:
        return ""
    return kind if kind in _KINDS.values() else ""


def read_document(path: "os.PathLike[str] | str") -> bytes | None:
    """Content of the file at `path` where it is one of our documents, else None.

    Any file may be asked about, an image of many GB as well: one that does not begin like a document is not read.
    Raises OSError for a file that cannot be read.
    """
    data = _read(path)
    return data if kind_of(data) else None


def _anybodys(status: os.stat_result) -> bool:
    return True


def open_document(
    path: str, type: type[DocumentT], name: str, believed: Callable[[os.stat_result], bool] = _anybodys
) -> DocumentT | None:
    """The document of `type` at `path`, None where the file is none of our documents; in one pass over its bytes.

    Nor is it one where its status is not `believed`.

    Raises OSError for a file that cannot be read, DocumentError as `decode` does.
    """
    data = _read(path, believed)
    try:
        return decode(data, type, name)
    except DocumentError:
        if kind_of(data):
            raise
        return None


def _read(path: "os.PathLike[str] | str", believed: Callable[[os.stat_result], bool] = _anybodys) -> bytes:
    """Content of the file at `path`, b"" where it cannot be a document or its status is not `believed`."""
    return read_regular(path, _LARGEST, lambda head: head.lstrip().startswith(b"{"), believed)


def read_regular(
    path: "os.PathLike[str] | str",
    limit: int,
    wanted: Callable[[bytes], bool] = lambda head: True,
    believed: Callable[[os.stat_result], bool] = _anybodys,
) -> bytes:
    """Content of the regular file at `path`; b"" where it is another, has more bytes than `limit`, or is not `wanted`
    or `believed`.

    `wanted` is asked about its first bytes, before the others are read. What somebody puts in the file's place
    meanwhile makes nobody wait, and what grows is read no further. Raises OSError for a file that cannot be read.
    """
    if not os.path.isfile(path):
        return b""
    # Unbuffered, since a buffer that holds the beginning makes the whole be copied: new memory is what costs here.
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit or not believed(status):
            return b""
        if not wanted(file.read(64)):
            return b""
        file.seek(0)
        data = file.read(status.st_size)
        while len(data) < status.st_size and (more := file.read(status.st_size - len(data))):
            data += more
        return data


def _without_waiting(path: str, flags: int) -> int:
    """Opens also a FIFO at once, whose writer may never come."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_whole(path: "os.PathLike[str] | str") -> bytes:
    """Bytes of the file at `path`, which should be a document. Raises OSError, and DocumentError for too many."""
    with open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise DocumentError(f"{os.fspath(path)}: larger than {_LARGEST >> 20} MiB, which no document of imgcheck is")
    return data


def encode(document: Document) -> bytes:
    """`document` as indented JSON with a final newline: stable and diffable.

    Of a profile, whose objects and scripts have thousands of parts, each of these stands on a line with its parts.
    """
    text = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    return _joined(text) if isinstance(document, ImageProfile) else text


def _joined(text: bytes) -> bytes:
    """Lines below the third level put behind the one that they belong to: a quarter of a profile would be blanks."""
    import re  # which a preflight does without

    text = re.sub(rb",\n {%d,}" % (_LEVELS + 1), b", ", text)
    return re.sub(rb"\n(?: {%d,}| {%d}(?=[]}]))" % (_LEVELS + 1, _LEVELS), b"", text)


def decode(data: bytes, type: type[DocumentT], name: str) -> DocumentT:
    """The document of `type` in `data`.

    `name` is what the user calls it, for the message. Raises DocumentError where `data` is no such document or
    is of a newer major schema version.
    """
    try:
        document = msgspec.json.decode(data, type=type)
    except _UNDECODABLE as error:
        _check_head(data, type, name)
        message = f"{name}: damaged {_KINDS[type]} document: {error}"
        raise DocumentError(message, "make it again, where another version of imgcheck has written it") from None
    # The decoder compares the kind where there is one, as there is at the beginning of ours.
    has_kind = b"".join(data[:64].split()).startswith(b'{"kind":')
    if not has_kind or str(getattr(document, "schema_version", "")).partition(".")[0] != str(_MAJOR):
        _check_head(data, type, name)
    if isinstance(document, ImageProfile):
        _refuse_dangling(document, name)
    return document


def _check_head(data: bytes, type: type[Document], name: str) -> None:
    """Raises DocumentError where `data` is no document of `type`, or one of a newer major schema version."""
    wanted = _KINDS[type]
    try:
        head = msgspec.json.decode(data, type=_Head)
    except _UNDECODABLE as error:
        raise DocumentError(f"{name}: not a JSON document ({error})") from None
    if head.kind != wanted:
        found = f"its kind is {head.kind!r}" if head.kind else "it has no `kind`"
        raise DocumentError(f"{name}: not {_NAMES[wanted]} of imgcheck; {found}, not {wanted!r}")
    major = head.schema_version.partition(".")[0]
    if not (major.isdecimal() and len(major) < _DIGITS) or int(major) > _MAJOR:
        raise DocumentError(
            f"{name}: schema version {head.schema_version!r} is newer than this imgcheck reads ({_MAJOR}.x)",
            hint="upgrade imgcheck, or make the document again with this version",
        )


def _refuse_dangling(image: ImageProfile, name: str) -> None:
    lost = next((record.path for record in image.files if record.object not in image.objects), None)
    if lost is not None:
        raise DocumentError(f"{name}: damaged image document: it has no facts of {lost}")


def json_schema(type: type[Document]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a document type."""
    schema = msgspec.json.schema(type)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


_NAMES = {"image": "an image profile", "host": "a host profile", "report": "a report"}
