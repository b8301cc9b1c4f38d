"""Artifacts that refer to an image in a registry: the referrers API, and the tag that stands in for it.

OCI distribution-spec, "Listing Referrers" and "Referrers Tag Schema".
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Protocol
from urllib.parse import quote

from imgcheck import oci
from imgcheck.errors import SourceError
from imgcheck.sources.blobs import Blobs, Descriptor, parse_descriptor, parse_json, read_limited, verify
from imgcheck.sources.model import Attached

_NEXT = re.compile(r'<([^<>]*)>\s*;[^,]*\brel="?next"?')
_LINK_LENGTH = 4096
_MOST_PAGES = 20


class Registry(Blobs, Protocol):
    """A repository's blobs, with what a registry can list."""

    def tagged(self, tag: str) -> bytes:
        """The manifest or index that `tag` names now, not verified; empty where there is none."""

    def listing(self, path: str) -> tuple[Mapping[str, str], bytes] | None:
        """Headers and body of a list at `path` below the repository; None where the registry has none."""


def fallback_tag(subject: str) -> str:
    """The tag under which clients keep the list of referrers where the registry does not."""
    algorithm, _, encoded = subject.partition(":")
    return f"{algorithm[:32]}-{encoded[:64]}"


def referring(registry: Registry, subject: str, artifact_type: str) -> Iterator[Attached]:
    """The artifacts of `artifact_type` whose subject is the manifest `subject`, newest first."""
    what = f"{registry.place}: referrers of {subject[:19]}"
    found = [
        entry for entry in _entries(registry, subject, artifact_type, what) if entry.artifact_type == artifact_type
    ]
    found.sort(key=lambda entry: entry.annotations.get(oci.CREATED, ""), reverse=True)
    for entry in found:
        created = entry.annotations.get(oci.CREATED, "")
        yield Attached(entry.digest, created, partial(_read, registry, entry, subject))


def _read(registry: Registry, entry: Descriptor, subject: str, limit: int) -> bytes:
    """The artifact's first blob. The list that led to it may name what is gone, or say what the manifest does not."""
    document = parse_json(registry.manifest(entry), f"{registry.place}: manifest {entry.short}")
    what = f"{registry.place}: artifact {entry.short}"
    layers, about = document.get("layers"), document.get("subject")
    if not isinstance(about, dict) or about.get("digest") != subject:
        raise SourceError(f"{what} is about another image than the list of referrers says")
    if document.get("artifactType") != entry.artifact_type:
        raise SourceError(f"{what} is of another type than the list of referrers says")
    if not isinstance(layers, list) or not layers:
        raise SourceError(f"{what} has no blob")
    blob = parse_descriptor(layers[0], what)
    return verify(read_limited(registry.open(blob), limit, what), blob, what)


def _entries(registry: Registry, subject: str, artifact_type: str, what: str) -> Iterator[Descriptor]:
    path = f"referrers/{subject}?artifactType={quote(artifact_type, safe='')}"
    page = registry.listing(path)
    if page is None:
        yield from parse_index(registry.tagged(fallback_tag(subject)), what)
        return
    for _ in range(_MOST_PAGES):
        headers, data = page
        yield from parse_index(data, what)
        following = _NEXT.search(headers.get("Link", "")[:_LINK_LENGTH])
        if following is None:
            return
        # Whatever host and path it names, only the query of the same list is asked for.
        page = registry.listing(f"referrers/{subject}?{following[1].partition('?')[2]}")
        if page is None:
            return
    raise SourceError(f"{what}: more than {_MOST_PAGES} pages")


def parse_index(data: bytes, what: str) -> list[Descriptor]:
    """The entries of an index of referrers; none where `data` is empty."""
    entries = (parse_json(data, what).get("manifests") or []) if data else []
    if not isinstance(entries, list):
        raise SourceError(f"{what}: `manifests` is not a list")
    return [parse_descriptor(entry, what) for entry in entries]
