"""Image -> ImageProfile."""

import fnmatch
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from imgcheck.binaries.analyse import engine_versions, require_engines
from imgcheck.documents.codec import as_text
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import IN_ARCHIVE, SCHEMA_VERSION, FileRecord, ImageProfile
from imgcheck.knowledge import Knowledge
from imgcheck.layers.tree import MergedTree, Node
from imgcheck.loader.tree import Tree
from imgcheck.profile.components import TEXTS, detect
from imgcheck.profile.mentions import with_mentions
from imgcheck.profile.requirements import RECORDS
from imgcheck.profile.scan import Code, Holding, Scan, scan
from imgcheck.profile.store import Store
from imgcheck.profile.tree_index import PATH_FILES, absolute, index_tree
from imgcheck.progress import Progress
from imgcheck.sources.model import Image

Nodes = list[tuple[str, Node]]

_LOADER_TEXTS = (
    "/etc/ld.so.conf", "/etc/ld.so.conf.d/*", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld-musl-*.path",
    "*/ld.so.cache", "*/ld.so.preload",  # where a link in /etc may lead
)  # fmt: skip


WANTED = (*_LOADER_TEXTS, *PATH_FILES, *TEXTS, *RECORDS)
"""Globs of the small text files that a profile reads."""


_OTHERS = ("attach", "binaries", "check", "cli", "convert", "host", "policy", "preflight", "report")
"""Packages that read profiles or do without them, and the engines, which have digests of their own."""


def build_profile(
    image: Image, progress: Progress, store: Store | None = None, knowledge: Knowledge | None = None
) -> ImageProfile:
    """What `image` needs, from `store` where it holds it, else by reading every layer that it lacks once.

    It tells of every path that a runtime of `knowledge`, by default of what imgcheck ships, asks for.
    Raises LayerError or DigestError where a layer cannot be trusted; a file that cannot be read stands in
    `unreadable` and the rest goes on.
    """
    asked = (knowledge or Knowledge()).asked_paths
    kept = _stored(image, store)
    if kept and _tells_of(kept, asked):
        return kept
    # With what others asked for, or two sites that share a store would make it anew for each other time and again.
    profile = _read(image, progress, store, {*asked, *(kept.tree.looked_for if kept else ())})
    if store and not profile.unreadable:
        store.keep_profile(image.config_digest, profile)
    return profile


def engines() -> dict[str, str]:
    """Digests of all code and data that decide what a profile of given bytes says."""
    total = hashlib.sha256()
    for path in sources():
        total.update(path.read_bytes() + b"\0")
    return engine_versions() | {"profile": total.hexdigest()[:16]}


def sources() -> list[Path]:
    """The modules besides the engines' (binaries.analyse) that may decide it: all but those that come after a profile.

    What is not known to have no part counts, so that a new module cannot be forgotten.
    """
    package = Path(__file__).resolve().parent.parent
    own = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _OTHERS]
    return sorted(own)


def kept_profile(image: Image, store: Store | None, knowledge: Knowledge | None = None) -> ImageProfile | None:
    """The profile of `image` where `store` holds one that `build_profile` would return."""
    kept = _stored(image, store)
    return kept if kept and _tells_of(kept, (knowledge or Knowledge()).asked_paths) else None


def _stored(image: Image, store: Store | None) -> ImageProfile | None:
    kept = store.profile(image.config_digest) if store else None
    return named_as(image, kept) if kept else None


def _tells_of(profile: ImageProfile, asked: Iterable[str]) -> bool:
    return set(asked) <= set(profile.tree.looked_for)


def named_as(image: Image, kept: ImageProfile) -> ImageProfile:
    """A kept profile under the name by which the image was found now; its content is the same, its blobs may not."""
    return msgspec.structs.replace(
        kept,
        reference=as_text(image.reference),
        platform=image.platform,
        config=image.config,
        layers=tuple(layer.info for layer in image.layers),
        manifest_digest=image.manifest_digest,
        family=image.family,
    )


def _read(image: Image, progress: Progress, store: Store | None, asked: Iterable[str]) -> ImageProfile:
    require_engines()
    found = scan(image, WANTED, progress, store)
    from imgcheck.profile.undefined import with_undefined  # and numpy, for which a stored profile has no use

    nodes = [(path, node) for path, node in found.tree.walk(plain=False) if _matters(node)]
    records = _records(found, nodes)
    objects = {key: _facts(found, key) for key in sorted({record.object for _, record in records})}
    texts = _texts(found.tree, nodes, WANTED)
    files = tuple(record for _, record in records)
    profile = ImageProfile(
        schema_version=SCHEMA_VERSION,
        reference=as_text(image.reference),
        platform=image.platform,
        config=image.config,
        layers=tuple(layer.info for layer in image.layers),
        files=files,
        objects=objects,
        tree=index_tree(found.tree, nodes, [path for path, _ in records], texts, image.config, asked),
        manifest_digest=image.manifest_digest,
        config_digest=image.config_digest,
        components=detect(files, objects, texts, image.config),
        unreadable=_unreadable(image, files, objects),
        engines=engines(),
        family=image.family,
    )
    by_loader = Tree(profile)
    return with_undefined(with_mentions(profile, by_loader), by_loader)


def _matters(node: Node) -> bool:
    return node.payload is not None or node.children is not None or node.kind == "symlink"


def _records(found: Scan, nodes: Nodes) -> list[tuple[str, FileRecord]]:
    """Every name of a file with code, with its path in the tree; of one in an archive with the archive's."""
    # By path, since a directory may be called so that a file in it has the name of one in an archive.
    found_at = {
        record.path: (path, record)
        for path, node in nodes
        for record in _of_node(path, node)
        if found.objects[record.object] is not None
    }
    return list(found_at.values())


def _of_node(path: str, node: Node) -> Iterator[FileRecord]:
    if isinstance(node.payload, Code):
        yield FileRecord(absolute(path), node.payload.object, node.layer, bool(node.mode & 0o111))
    if isinstance(node.payload, Holding):
        for name, key in node.payload.libraries:
            yield FileRecord(absolute(path + IN_ARCHIVE + name), key, node.layer)


def _unreadable(image: Image, files: tuple[FileRecord, ...], objects: dict[str, CodeFacts]) -> dict[str, str]:
    """Files whose bytes defeat the engines, and what the source was not allowed to read."""
    damaged = {record.path: objects[record.object].error for record in files if objects[record.object].error}
    refused = {absolute(path): why for layer in image.layers for path, why in layer.unreadable.items()}
    return damaged | refused


def _facts(found: Scan, key: str) -> CodeFacts:
    facts = found.objects[key]
    assert facts is not None
    return facts


def _texts(tree: MergedTree, nodes: Nodes, patterns: tuple[str, ...]) -> dict[str, bytes]:
    """The kept texts by absolute path; those wanted by a plain name also where a link leads to them."""
    texts: dict[str, bytes] = {}
    for path, node in nodes:
        if isinstance(node.payload, bytes):
            name = absolute(path)
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                texts[name] = node.payload
    for pattern in patterns:
        named = tree.lookup(pattern) if "*" not in pattern else None
        if named is not None and isinstance(named.payload, bytes):
            texts[pattern] = named.payload
    return texts
