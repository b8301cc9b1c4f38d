"""Image -> ImageProfile."""

import fnmatch

from imgcheck.binaries.analyse import engine_versions
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import SCHEMA_VERSION, FileRecord, ImageProfile
from imgcheck.layers.tree import MergedTree, Node
from imgcheck.profile.components import TEXTS, detect
from imgcheck.profile.scan import Code, Scan, scan
from imgcheck.profile.tree_index import absolute, index_tree, text
from imgcheck.progress import Progress
from imgcheck.sources.model import Image

Nodes = list[tuple[str, Node]]

_LOADER_TEXTS = (
    "/etc/ld.so.conf", "/etc/ld.so.conf.d/*", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld-musl-*.path",
)  # fmt: skip


def build_profile(image: Image, progress: Progress) -> ImageProfile:
    """Read every layer of `image` once and say what it needs.

    Raises LayerError or DigestError where a layer cannot be trusted; a file that cannot be read stands in
    `unreadable` and the rest goes on.
    """
    wanted = (*_LOADER_TEXTS, *TEXTS)
    found = scan(image, wanted, progress)
    nodes = [(path, node) for path, node in found.tree.walk() if _matters(node)]
    records = _records(found, nodes)
    objects = {key: _facts(found, key) for key in sorted({record.object for _, record in records})}
    texts = _texts(found.tree, nodes, wanted)
    files = tuple(record for _, record in records)
    return ImageProfile(
        schema_version=SCHEMA_VERSION,
        reference=text(image.reference),
        platform=image.platform,
        config=image.config,
        layers=tuple(layer.info for layer in image.layers),
        files=files,
        objects=objects,
        tree=index_tree(found.tree, nodes, [path for path, _ in records], texts, image.config),
        manifest_digest=image.manifest_digest,
        config_digest=image.config_digest,
        components=detect(files, objects, texts, image.config),
        unreadable={record.path: objects[record.object].error for record in files if objects[record.object].error},
        engines=engine_versions(),
    )


def _matters(node: Node) -> bool:
    return node.payload is not None or node.children is not None or node.kind == "symlink"


def _records(found: Scan, nodes: Nodes) -> list[tuple[str, FileRecord]]:
    """Every name of a file with code, with its path in the tree."""
    return [
        (path, FileRecord(absolute(path), node.payload.object, node.layer, bool(node.mode & 0o111)))
        for path, node in nodes
        if isinstance(node.payload, Code) and found.objects[node.payload.object] is not None
    ]


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
        node = tree.lookup(pattern) if "*" not in pattern else None
        if node is not None and isinstance(node.payload, bytes):
            texts[pattern] = node.payload
    return texts
