"""From the root documents of a blob store (manifests or indexes) to an Image, for every source that has manifests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from imgcheck import oci
from imgcheck.documents.image import LayerInfo, Platform
from imgcheck.errors import SourceError
from imgcheck.layers.stream import TarLayer
from imgcheck.sources.blobs import (
    MANIFEST_FIELDS,
    Blobs,
    Descriptor,
    MissingBlobError,
    parse_descriptor,
    parse_document,
)
from imgcheck.sources.config import ParsedConfig, parse_config
from imgcheck.sources.model import Image
from imgcheck.sources.platforms import distance, fallback_order, wanted_platform

_SIF_LAYER = "application/vnd.sylabs.sif.layer"

_DEEPEST_INDEX = 4
_MOST_ENTRIES = 2000
"""Manifests under one index that are looked at: far above any real image, and a bound for a hostile one."""

_MOST_BYTES = 64 << 20
"""Of all manifests and configs that are read to choose one image: each may have megabytes, and they are kept."""


@dataclass(frozen=True)
class Manifest:
    """An image manifest as parsed and verified."""

    descriptor: Descriptor
    config: Descriptor
    layers: tuple[Descriptor, ...]
    platform: Platform | None
    """As the index says, where there was one."""


class NoImageError(SourceError):
    """A manifest of something else than an image, as an index may name beside one."""


Documents = tuple[Manifest, ParsedConfig, bytes]
"""A manifest, its config as parsed and as stored."""


@dataclass
class _Search:
    """What walking an index has found so far."""

    leaves: list[Descriptor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: MissingBlobError | NoImageError | None = None
    """Why the last one that was passed over cannot be taken."""
    visited: int = 0
    documents: dict[str, Documents] = field(default_factory=dict)
    """Manifest and config by the manifest's digest: where no index names the platform, choosing has read them."""
    left: int = _MOST_BYTES

    def pass_over(self, error: MissingBlobError | NoImageError) -> None:
        self.refused = error
        self.notes.append(error.message)

    def weigh(self, data: bytes, place: str) -> bytes:
        """`data`, one more document; SourceError where they are too many."""
        self.left -= len(data)
        if self.left < 0:
            raise SourceError(
                f"{place}: more than {_MOST_BYTES >> 20} MiB of manifests and configs, which no image has"
            )
        return data


def assemble(reference: str, roots: Sequence[Descriptor], blobs: Blobs, platform: str | None) -> Image:
    """The image of the wanted platform under `roots`, its manifest and config verified, its layers not yet read.

    Raises SourceError where there is no image or the documents contradict each other, DigestError where bytes are
    not those that were named, UsageError where `platform` is no platform.
    """
    wanted = wanted_platform(platform)
    search = _Search()
    manifest, parsed, raw = _choose(roots, blobs, wanted, search)
    found = parsed.platform or manifest.platform
    if found is None:
        found = Platform()
        search.notes.append("the config names no architecture; linux/amd64 is assumed")
    elif manifest.platform and distance(manifest.platform, found) is None:
        search.notes.append(f"the index says {manifest.platform}, the config {found}")
    return Image(
        reference=reference,
        platform=found,
        config=parsed.config,
        layers=_layers(manifest, parsed, blobs),
        manifest_digest=manifest.descriptor.digest,
        config_digest=manifest.config.digest,
        raw_config=raw,
        platform_matches=distance(wanted, found) is not None,
        offered=_offered(search, roots),
        notes=tuple(search.notes),
    )


def _offered(search: _Search, roots: Sequence[Descriptor]) -> tuple[Platform, ...]:
    if len(roots) == 1 and search.leaves == list(roots):
        return ()  # an image, not an index of some
    return tuple(leaf.platform for leaf in search.leaves if leaf.platform)


def parse_manifest(data: bytes, descriptor: Descriptor, place: str) -> Manifest:
    """The image manifest in `data`; SourceError where it is none or is an artifact of another kind."""
    what = f"{place}: manifest {descriptor.short}"
    document = parse_document(data, what, MANIFEST_FIELDS)
    _refuse_confusion(document, descriptor, what)
    if "layers" not in document or "config" not in document:
        raise SourceError(f"{what} is no image manifest: it has no `config` and `layers`")
    layers = document["layers"] or []
    if not isinstance(layers, list):
        raise SourceError(f"{what}: `layers` is not a list")
    manifest = Manifest(
        descriptor=descriptor,
        config=parse_descriptor(document["config"], what),
        layers=tuple(parse_descriptor(layer, what) for layer in layers),
        platform=descriptor.platform,
    )
    _refuse_artifact(document, manifest, what)
    return manifest


def is_index(data: bytes, descriptor: Descriptor, place: str) -> bool:
    """Whether the document is an index. Raises SourceError where it is both, neither, or Docker's schema 1."""
    what = f"{place}: manifest {descriptor.short}"
    document = parse_document(data, what, MANIFEST_FIELDS)
    _refuse_confusion(document, descriptor, what)
    return "manifests" in document


def _choose(roots: Sequence[Descriptor], blobs: Blobs, wanted: Platform, search: _Search) -> Documents:
    """The manifest of the nearest platform whose documents are there."""
    for root in roots:
        _walk(root, blobs, search, 0)
    known = [(leaf, leaf.platform or _platform_of(leaf, blobs, search)) for leaf in search.leaves]
    ranked = sorted(
        ((offered, leaf) for leaf, offered in known if offered is not None), key=lambda pair: _rank(wanted, pair[0])
    )
    if len(roots) > 1 and ranked:
        _refuse_several(ranked, blobs.place)
    for _, leaf in ranked:
        try:
            return _documents(leaf, blobs, search)
        except (MissingBlobError, NoImageError) as error:
            search.pass_over(error)
    if search.refused:
        raise search.refused
    raise SourceError(f"{blobs.place}: the index names no image", hint="; ".join(search.notes))


def _refuse_several(ranked: list[tuple[Platform, Descriptor]], place: str) -> None:
    """SourceError where the first of `ranked` is not the only one for its platform: which is meant nobody can tell.

    Of an index, which is one image, the first is meant; but skopeo keeps in a layout what was pushed before under the
    same name, and refuses to choose.
    """
    platform = ranked[0][0]
    digests = dict.fromkeys(leaf.digest for offered, leaf in ranked if distance(platform, offered) == 0)
    if len(digests) > 1:
        raise SourceError(
            f"{place}: holds several images for {platform}: {', '.join(list(digests)[:10])}",
            hint="name one by its digest: oci:DIR@DIGEST or oci-archive:FILE@DIGEST",
        )


def _rank(wanted: Platform, offered: Platform) -> tuple[int, int]:
    match = distance(wanted, offered)
    return (1, fallback_order(offered)) if match is None else (0, match)


def _walk(descriptor: Descriptor, blobs: Blobs, search: _Search, depth: int) -> None:
    """Collect the image manifests under `descriptor`, skipping what is no image and noting what is absent."""
    try:
        data = search.weigh(blobs.manifest(descriptor), blobs.place)
    except MissingBlobError as error:
        search.refused = error
        return
    if not is_index(data, descriptor, blobs.place):
        search.leaves.append(descriptor)
        return
    what = f"{blobs.place}: index {descriptor.short}"
    if depth >= _DEEPEST_INDEX:
        raise SourceError(f"{what} lies deeper than {_DEEPEST_INDEX} indexes")
    entries = parse_document(data, what, MANIFEST_FIELDS)["manifests"] or []
    if not isinstance(entries, list):
        raise SourceError(f"{what}: `manifests` is not a list")
    for raw in entries:
        search.visited += 1
        if search.visited > _MOST_ENTRIES:
            raise SourceError(f"{what} names more than {_MOST_ENTRIES} manifests")
        _visit(parse_descriptor(raw, what), blobs, search, depth)


def _visit(entry: Descriptor, blobs: Blobs, search: _Search, depth: int) -> None:
    if _is_attestation(entry):
        return
    if entry.media_type in oci.INDEX_TYPES:
        _walk(entry, blobs, search, depth + 1)
    elif entry.media_type in oci.MANIFEST_TYPES:
        search.leaves.append(entry)
    elif entry.media_type.startswith(oci.DOCKER_MANIFEST_1):
        search.notes.append(f"index entry {entry.short} is of Docker's old schema 1 and was skipped")
    else:
        search.notes.append(f"index entry {entry.short} of type {entry.media_type[:80]!r} was skipped")


def _is_attestation(entry: Descriptor) -> bool:
    """BuildKit stores provenance as manifests of the platform unknown/unknown (its attestation-storage.md)."""
    if entry.annotations.get("vnd.docker.reference.type") == "attestation-manifest":
        return True
    return entry.platform is not None and entry.platform.architecture == "unknown"


def _platform_of(leaf: Descriptor, blobs: Blobs, search: _Search) -> Platform | None:
    """The platform that a manifest's config names; the default one where it names none, None where it has no such."""
    try:
        return _documents(leaf, blobs, search)[1].platform or Platform()
    except MissingBlobError as error:
        search.refused = error
    except NoImageError as error:
        search.pass_over(error)
    return None


def _documents(leaf: Descriptor, blobs: Blobs, search: _Search) -> Documents:
    if leaf.digest not in search.documents:
        manifest = parse_manifest(blobs.manifest(leaf), leaf, blobs.place)
        raw = search.weigh(blobs.config(manifest.config), blobs.place)
        parsed = parse_config(raw, f"{blobs.place}: config {manifest.config.short}")
        search.documents[leaf.digest] = (manifest, parsed, raw)
    return search.documents[leaf.digest]


def _layers(manifest: Manifest, parsed: ParsedConfig, blobs: Blobs) -> tuple[TarLayer, ...]:
    if len(manifest.layers) != len(parsed.diff_ids):
        raise SourceError(
            f"{blobs.place}: manifest {manifest.descriptor.short} has {len(manifest.layers)} layers, "
            f"but its config lists {len(parsed.diff_ids)} diff_ids"
        )
    history = parsed.history or ("",) * len(manifest.layers)
    return tuple(
        TarLayer(
            LayerInfo(diff_id=diff_id, digest=layer.digest, size=max(layer.size, 0), history=line),
            partial(_open, blobs, layer),
        )
        for layer, diff_id, line in zip(manifest.layers, parsed.diff_ids, history, strict=True)
    )


def _open(blobs: Blobs, layer: Descriptor) -> BinaryIO:
    """The blob of a layer. What is encrypted is refused only now: its diff_id may be known from where it was not."""
    if layer.media_type.endswith(oci.ENCRYPTED):
        raise SourceError(
            f"{blobs.place}: layer {layer.short} is encrypted",
            hint="decrypt the image first: skopeo copy --decryption-key KEY ...",
        )
    return blobs.open(layer)


def _refuse_confusion(document: dict[str, Any], descriptor: Descriptor, what: str) -> None:
    """A document that can be read as manifest and as index is an attack (CVE-2021-41190)."""
    if document.get("schemaVersion") == 1 or descriptor.media_type.startswith(oci.DOCKER_MANIFEST_1):
        raise SourceError(
            f"{what} is of Docker's manifest schema 1, which was withdrawn and is not read",
            hint="push the image again with a current docker, podman or skopeo",
        )
    stated = document.get("mediaType") or descriptor.media_type
    if "manifests" in document and ("layers" in document or "config" in document):
        raise SourceError(f"{what} is both an index and a manifest; such documents are refused")
    if descriptor.media_type in oci.MANIFEST_TYPES + oci.INDEX_TYPES and stated != descriptor.media_type:
        raise SourceError(f"{what} says it is {str(stated)[:80]!r}, but was announced as {descriptor.media_type!r}")
    if (stated in oci.MANIFEST_TYPES and "manifests" in document) or (
        stated in oci.INDEX_TYPES and "manifests" not in document
    ):
        raise SourceError(f"{what} is not what its media type {stated!r} says")


def _refuse_artifact(document: dict[str, Any], manifest: Manifest, what: str) -> None:
    if any(layer.media_type.startswith(_SIF_LAYER) for layer in manifest.layers):
        raise NoImageError(
            f"{what} is a SIF file kept in a registry, not an image of layers",
            hint="fetch it with `apptainer pull` and give the file",
        )
    config_type = manifest.config.media_type
    stated = document.get("artifactType")
    if config_type in oci.CONFIG_TYPES:
        return
    if not stated and any("tar" in layer.media_type for layer in manifest.layers):
        return
    kind = stated or config_type
    raise NoImageError(f"{what} is an artifact of type {str(kind)[:80]!r}, not a container image")
