"""Pushes an artifact that refers to an image: blobs, manifest, and the list of referrers where the registry keeps none.

OCI distribution-spec, "Pushing Blobs", "Pushing Manifests with Subject" and "Referrers Tag Schema".
"""

import hashlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from imgcheck import oci
from imgcheck.errors import SourceError
from imgcheck.sources.blobs import Descriptor, parse_json
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.reference import parse
from imgcheck.sources.referrers import fallback_tag
from imgcheck.sources.registries import Endpoint, endpoints
from imgcheck.sources.registry import RegistryBlobs
from imgcheck.sources.registry_http import RegistryHttp

EMPTY = b"{}"
_ATTEMPTS = 5
"""Times that the list of referrers is written again where another client wrote it meanwhile."""


@dataclass(frozen=True)
class Artifact:
    """One blob with its types, to be attached to an image."""

    type: str
    blob_type: str
    data: bytes
    annotations: Mapping[str, str]


def attach(reference: str, subject: str, artifact: Artifact, options: SourceOptions) -> str:
    """Push `artifact` as a referrer of the manifest `subject` in the repository of `reference`, a registry's name.

    Returns where it lies now. Raises SourceError where the registry refuses.
    """
    failure: SourceError | None = None
    for *_, registry in endpoints(parse(reference), names=options.short_names):  # a mirror is for reading
        with closing(RegistryHttp(registry, options)) as http:
            try:
                about = _subject(RegistryBlobs(http), subject)
            except SourceError as error:
                failure = error
                continue
            return _push(http, registry, about, artifact)
    raise failure or SourceError(f"{reference}: no registry to ask")


def _subject(blobs: RegistryBlobs, digest: str) -> dict[str, Any]:
    """The descriptor of the image's manifest."""
    data = blobs.manifest(Descriptor(digest))
    media_type = parse_json(data, f"{blobs.place}: manifest {digest[:19]}").get("mediaType")
    return {"mediaType": media_type or oci.MANIFEST, "digest": digest, "size": len(data)}


def _push(http: RegistryHttp, registry: Endpoint, subject: dict[str, Any], artifact: Artifact) -> str:
    target = _Target(http)
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci.MANIFEST,
        "artifactType": artifact.type,
        "config": target.blob(EMPTY, oci.EMPTY),
        "layers": [target.blob(artifact.data, artifact.blob_type)],
        "subject": subject,
        "annotations": {**artifact.annotations, oci.CREATED: created},
    }
    data = msgspec.json.encode(manifest)
    entry = _descriptor(data, oci.MANIFEST) | {"artifactType": artifact.type, "annotations": manifest["annotations"]}
    if not target.manifest(entry["digest"], data, oci.MANIFEST):
        target.add_to_list(fallback_tag(subject["digest"]), entry)
    return f"{registry.host}/{registry.repository}@{entry['digest']}"


class _Target:
    """A repository that is written to."""

    def __init__(self, http: RegistryHttp) -> None:
        self._http = http
        self._path = f"/v2/{http.endpoint.repository}"
        self._place = f"{http.endpoint.host}/{http.endpoint.repository}"

    def blob(self, data: bytes, media_type: str) -> dict[str, Any]:
        """Upload a blob unless it is there; its descriptor."""
        found = _descriptor(data, media_type)
        with self._http.send("HEAD", f"{self._path}/blobs/{found['digest']}", {}) as there:
            if there.status_code == 200:
                return found
        started = self._http.send("POST", f"{self._path}/blobs/uploads/", {"Content-Length": "0"})
        if started.status_code != 202:
            raise self._http.refuse(started, f"{self._place}: upload")
        started.close()
        place = self._http.location(started.url, started)
        query = "&" if "?" in place else "?"
        headers = {"Content-Type": "application/octet-stream"}
        self._put(f"{place}{query}digest={found['digest']}", data, headers, f"blob {found['digest'][:19]}")
        return found

    def manifest(self, name: str, data: bytes, media_type: str) -> bool:
        """Put a manifest or index; whether the registry itself lists it as a referrer."""
        return "OCI-Subject" in self._put(
            f"{self._path}/manifests/{name}", data, {"Content-Type": media_type}, f"manifest {name[:80]}"
        )

    def add_to_list(self, tag: str, entry: dict[str, Any]) -> None:
        """Add `entry` to the index at `tag`. There is no lock, so it is looked at again until it stays."""
        for _ in range(_ATTEMPTS):
            document = self._listed(tag)
            entries = document.setdefault("manifests", [])
            if any(other.get("digest") == entry["digest"] for other in entries):
                return
            entries.append(entry)
            self.manifest(tag, msgspec.json.encode(document), oci.INDEX)
        raise SourceError(f"{self._place}:{tag}: other clients keep writing it", hint="try again")

    def _listed(self, tag: str) -> dict[str, Any]:
        what = f"{self._place}:{tag}"
        data = RegistryBlobs(self._http).tagged(tag)
        document = parse_json(data, what) if data else {"schemaVersion": 2, "mediaType": oci.INDEX}
        entries = document.get("manifests", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise SourceError(f"{what} is no index of referrers", hint="it belongs to somebody else: remove that tag")
        return document

    def _put(self, path: str, data: bytes, headers: dict[str, str], what: str) -> Mapping[str, str]:
        response = self._http.send("PUT", path, headers, data)
        if response.status_code != 201:
            raise self._http.refuse(response, f"{self._place}: {what}")
        response.close()
        return response.headers


def _descriptor(data: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}
