"""Images in a registry, over the OCI Distribution API version 2."""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, cast

import requests

from imgcheck import oci
from imgcheck.digests import is_digest
from imgcheck.errors import DigestError, SourceError, UsageError
from imgcheck.layers.stream import TarLayer
from imgcheck.progress import Progress
from imgcheck.sources.ahead import LayersAhead
from imgcheck.sources.assemble import assemble
from imgcheck.sources.attempts import BROKEN, explain
from imgcheck.sources.blobs import (
    CONFIG_LIMIT,
    MANIFEST_LIMIT,
    Descriptor,
    MissingBlobError,
    read_limited,
    verify,
)
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.pace import Pace, SlowError
from imgcheck.sources.reference import Reference, local_hint
from imgcheck.sources.referrers import referring
from imgcheck.sources.registries import endpoints
from imgcheck.sources.registry_http import RegistryHttp

# Without it Distribution 2.8 answers 404 for OCI manifests. Schema 1 is asked for last, to be refused by name.
_ACCEPT = ", ".join((*oci.MANIFEST_TYPES, *oci.INDEX_TYPES, f"{oci.DOCKER_MANIFEST_1}+prettyjws;q=0.1"))
_DEFAULT_TAG = "latest"
_NO_LISTING = (400, 404, 405, 406, 501)
"""What registries answer that know no referrers: 404 by the specification, the others in the wild."""
_PIECE = 1 << 20
_MOST_RESUMES = 100
"""Times that one blob is taken up again after a break; each must have brought something."""


@contextmanager
def open_registry(reference: Reference, options: SourceOptions, progress: Progress) -> Iterator[Image]:
    """The image of a registry reference. `progress` is told nothing here: layers count as they are read."""
    with ExitStack() as stack:
        blobs, root, notes = _find(reference, options, stack)
        image = assemble(reference.text, [root], blobs, options.platform)
        blobs_in_order = cast(Sequence[TarLayer], image.layers)  # a registry has no others
        ahead = stack.enter_context(closing(LayersAhead(blobs_in_order, options)))
        attached = partial(referring, blobs, image.manifest_digest)
        notes = (*image.notes, *notes)
        yield replace(image, layers=ahead.layers, notes=notes, attached=attached, expect=ahead.expect)


def _find(
    reference: Reference, options: SourceOptions, stack: ExitStack
) -> tuple["RegistryBlobs", Descriptor, tuple[str, ...]]:
    """The first registry or mirror that has the image, with a note where the name does not tell which.

    Where none has it, the error is the last one's: a mirror's or an earlier search registry's is no news.
    """
    failure: SourceError | None = None
    registries = endpoints(reference, names=options.short_names)
    if options.username and len(registries) > 1:
        raise UsageError(
            f"--username: {reference.text} is looked for in {len(registries)} registries",
            "write the registry before the name, so that no other gets the password",
        )
    candidates = [endpoint for sources in registries for endpoint in sources]
    for endpoint in candidates:
        blobs = RegistryBlobs(stack.enter_context(closing(RegistryHttp(endpoint, options))))
        try:
            notes = (f"found at {blobs.place}",) if len(candidates) > 1 else ()
            return blobs, blobs.root(reference), notes
        except DigestError:
            raise
        except SourceError as error:
            failure = _told(error, reference, endpoint.host)
    raise failure or SourceError(f"{reference.text}: no registry to ask")


def _told(failure: SourceError, reference: Reference, host: str) -> SourceError:
    """`failure` with the reference, and with what the user may have meant by it: often something that lies here."""
    told = f"{reference.text}: {failure.message}" if failure.message.startswith(f"{host}: ") else failure.message
    return SourceError(told, "; ".join(filter(None, (local_hint(reference.text), failure.hint))))


class RegistryBlobs:
    """The manifests and blobs of one repository."""

    def __init__(self, http: RegistryHttp) -> None:
        self._http = http
        self._repository = http.endpoint.repository
        self.place = f"{http.endpoint.host}/{self._repository}"
        self._manifests: dict[str, bytes] = {}

    def root(self, reference: Reference) -> Descriptor:
        """The manifest or index that the reference's digest or tag leads to, fetched and kept.

        By tag nothing but the registry's own Docker-Content-Digest can be compared with; a digest binds.
        """
        name = reference.digest or reference.tag or _DEFAULT_TAG
        what = f"{self.place}: manifest {name}"
        status, headers, data = self._document(name, what)
        if status == 404:
            hint = "" if name != _DEFAULT_TAG else f"the tag asked for is {_DEFAULT_TAG}: name another if there is none"
            raise SourceError(f"{reference.name}: no such image at {self._http.endpoint.host}", hint=hint)
        media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        stated = headers.get("Docker-Content-Digest", "").strip()
        digest = reference.digest or (stated if is_digest(stated) else "sha256:" + hashlib.sha256(data).hexdigest())
        known = media_type if media_type in oci.MANIFEST_TYPES + oci.INDEX_TYPES or "manifest.v1" in media_type else ""
        root = Descriptor(digest, media_type=known)
        self._manifests[digest] = verify(data, root, what)
        return root

    def manifest(self, descriptor: Descriptor) -> bytes:
        if descriptor.digest not in self._manifests:
            what = f"{self.place}: manifest {descriptor.short}"
            status, _, data = self._document(descriptor.digest, what)
            if status == 404:
                raise MissingBlobError(f"{what} is missing in the registry")
            self._manifests[descriptor.digest] = verify(data, descriptor, what)
        return self._manifests[descriptor.digest]

    def config(self, descriptor: Descriptor) -> bytes:
        what = f"{self.place}: config {descriptor.short}"
        return verify(read_limited(self.open(descriptor), CONFIG_LIMIT, what), descriptor, what)

    def open(self, descriptor: Descriptor) -> BinaryIO:
        path = f"/v2/{self._repository}/blobs/{descriptor.digest}"
        return BlobStream(self._http, path, descriptor.size, f"{self.place}: blob {descriptor.digest}")  # type: ignore[return-value]

    def tagged(self, tag: str) -> bytes:
        """The manifest or index that `tag` names now, not verified; empty where there is none."""
        return self._document(tag, f"{self.place}: manifest {tag}")[2]

    def listing(self, path: str) -> tuple[Mapping[str, str], bytes] | None:
        """Headers and body of a list that the registry makes, `path` below the repository; None where it does not."""
        status, headers, data = self._fetch(f"/v2/{self._repository}/{path}", f"{self.place}: {path}", _NO_LISTING)
        return (headers, data) if status == 200 else None

    def _document(self, name: str, what: str) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the manifest `name`: status 200, or 404 without a body."""
        return self._fetch(f"/v2/{self._repository}/manifests/{name}", what, (404,))

    def _fetch(self, path: str, what: str, absent: tuple[int, ...]) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of a document: status 200, or one of `absent` without a body."""
        for attempt in range(self._http.options.attempts):
            response = self._http.get(path, {"Accept": _ACCEPT})
            if response.status_code in absent:
                response.close()
                return response.status_code, {}, b""
            if response.status_code != 200:
                raise self._http.refuse(response, what)
            try:
                with response:
                    data = Pace(self._http.options.timeout).read_all(response, MANIFEST_LIMIT + 1)
            except BROKEN as error:
                cause = explain(error, self._http.options.timeout)
                self._http.attempts.pause(attempt)
                continue
            if len(data) > MANIFEST_LIMIT:
                raise SourceError(f"{what} is larger than {MANIFEST_LIMIT >> 20} MiB, which none is")
            return 200, response.headers, data
        raise SourceError(f"{what}: {cause}")


class BlobStream(io.RawIOBase):
    """A blob's bytes as the registry sends them, taken up again by Range where the connection breaks. Not verified."""

    def __init__(self, http: RegistryHttp, path: str, size: int, what: str) -> None:
        """`size` is what the manifest says, -1 where it says nothing; `what` names the blob in messages.

        Raises MissingBlobError where the registry has no such blob.
        """
        self._http = http
        self._path = path
        self._size = size
        self._what = what
        self._at = 0
        self._pace = Pace(http.options.timeout)
        self._skip = 0
        self._resumes = 0
        self._barren = 0
        self._broken_at = -1
        self._response = self._connect()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        return self.readall() if size is None or size < 0 else self._piece(size)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._piece(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_response"):
            self._response.close()
        super().close()

    def _piece(self, size: int) -> bytes:
        """Up to `size` of the next bytes; empty at the end."""
        while size and self._at != self._size:
            try:
                data = self._pace.read(self._response, min(self._skip or size, _PIECE))
            except BROKEN as error:
                self._resume(explain(error, self._http.options.timeout), isinstance(error, SlowError))
                continue
            if self._skip:
                self._skip -= len(data)
            elif data:
                return self._counted(data)
            if not data and self._size < 0 and not self._skip:
                return b""
            if not data:
                self._resume("the connection was closed early")
        return b""

    def _counted(self, data: bytes) -> bytes:
        self._at += len(data)
        if 0 <= self._size < self._at:
            raise DigestError(f"{self._what}: the registry sends more than the {self._size} bytes the manifest says")
        return data

    def _resume(self, cause: str, slow: bool = False) -> None:
        """Connect again where the last connection ended, unless that has brought next to nothing too often."""
        self._response.close()
        self._pace = Pace(self._http.options.timeout)
        self._resumes += 1
        self._barren = self._barren + 1 if slow or self._at == self._broken_at else 0
        self._broken_at = self._at
        if self._barren >= self._http.options.attempts - 1 or self._resumes > _MOST_RESUMES:
            total = f" of {self._size}" if self._size >= 0 else ""
            raise SourceError(f"{self._what} broke off at byte {self._at}{total}: {cause}", hint="try again")
        self._http.attempts.pause(self._barren)
        self._response = self._connect()

    def _connect(self) -> requests.Response:
        headers = {"Range": f"bytes={self._at}-"} if self._at else {}
        response = self._http.get(self._path, headers)
        if response.status_code == 404:
            response.close()
            raise MissingBlobError(f"{self._what} is missing in the registry")
        resumed = response.status_code == 206 and self._at > 0
        if response.status_code != 200 and not resumed:
            raise self._http.refuse(response, self._what)
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {self._at}-"):
            response.close()
            raise SourceError(f"{self._what}: the registry sends another range than the one asked for")
        # A server without ranges begins anew: what is known already is passed over.
        self._skip = 0 if resumed else self._at
        self._check_length(response, self._at if resumed else 0)
        return response

    def _check_length(self, response: requests.Response, start: int) -> None:
        length = response.headers.get("Content-Length", "")[:20]
        if self._size >= 0 and length.isdecimal() and start + int(length) != self._size:
            response.close()
            raise DigestError(f"{self._what}: the registry has {start + int(length)} bytes, not {self._size}")
