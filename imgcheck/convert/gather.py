"""First pass: the layers, verified and within bounds, as one merged tree; contents go where the caller keeps them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from imgcheck.convert.model import Limits
from imgcheck.documents.codec import as_bytes
from imgcheck.errors import ConvertError
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content, Layer
from imgcheck.layers.tree import MergedTree, Node
from imgcheck.progress import Progress

Keep = Callable[[int, int, Entry, Content], Any]
"""Called with layer, ordinal of the entry in it, entry and content of each regular file; gives the Node's payload."""


@dataclass
class Gathered:
    """The merged tree, and what it does not say itself."""

    tree: MergedTree = field(default_factory=MergedTree)
    linked: set[Node] = field(default_factory=set)
    """Nodes that may have several names."""


def gather(layers: tuple[Layer, ...], keep: Keep, limits: Limits, progress: Progress) -> Gathered:
    """Apply all layers. Raises ConvertError beyond a limit, LayerError and DigestError as layers do."""
    gathered = Gathered()
    tree = gathered.tree
    bounds = Bounds(limits)
    for index, layer in enumerate(layers):
        tree.begin_layer(index)
        for ordinal, (entry, content) in enumerate(bounds.entries(layer, progress)):
            payload = keep(index, ordinal, entry, content) if content is not None else None
            node = tree.apply(entry, payload)
            if entry.kind == "hardlink" and node is not None:
                gathered.linked.add(node)
    return gathered


def refuse_unreadable(layer: Layer) -> None:
    """ConvertError where a layer that has been read was not readable as a whole: a tree with holes is no image."""
    for path, cause in sorted(layer.unreadable.items()):
        more = f" (and {len(layer.unreadable) - 1} more)" if len(layer.unreadable) > 1 else ""
        raise ConvertError(
            f"{path or '/'} of the image cannot be read: {cause}{more}",
            "convert as a user who may read it, or an image without it",
        )


class Bounds:
    """The limits, as far as the layers of one image can break them, which are read in turn."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries = 0
        self._xattrs = 0
        self._name = ""
        self._total = 0
        self._allowed = 0

    def entries(self, layer: Layer, progress: Progress) -> Iterator[tuple[Entry, Content | None]]:
        """The entries of the next layer, all of which were readable. Raises as `gather` does."""
        self._name = layer.info.digest or layer.info.diff_id or "a layer"
        self._total = 0
        size = layer.info.size
        self._allowed = max(self._limits.ratio_floor, self._limits.ratio * size) if size else 1 << 62
        for entry, content in layer.entries(progress):
            self._check(entry)
            yield entry, content
        refuse_unreadable(layer)

    def verify(self, layer: Layer, progress: Progress) -> None:
        """Read all of the next layer, which may name what lower ones hold: no tree is made of it."""
        for _ in self.entries(layer, progress):
            pass

    def _check(self, entry: Entry) -> None:
        limits = self._limits
        self._entries += 1
        if self._entries > limits.entries:
            self._refuse(f"the image has more than {limits.entries} entries")
        if entry.xattrs:
            self._xattrs += sum(len(name) + len(value) for name, value in entry.xattrs.items())
            if self._xattrs > limits.xattrs:
                self._refuse(f"the image has more than {limits.xattrs} bytes of extended attributes")
        if entry.size:
            self._total += entry.size
            if entry.size > limits.file_size:
                self._refuse(f"{entry.path!r} claims {entry.size} bytes, more than {limits.file_size}")
            if self._total > self._allowed:
                self._refuse(f"its files claim more than {self._allowed} bytes, out of all proportion to the blob")
        path = entry.path
        # Characters are at most four bytes: the common case needs no encoding.
        if len(path) > 60 and (len(path) * 4 > limits.path or len(path) > limits.name // 4):
            self._check_names(as_bytes(path))
        if path.count("/") >= limits.depth:
            self._refuse(f"{path[:60]!r}... is more than {limits.depth} directories deep")
        if "\0" in path or "\0" in entry.link:
            self._refuse(f"{path!r} or its link target holds a NUL byte")
        if entry.kind == "symlink" and not 0 < len(as_bytes(entry.link)) <= limits.path:
            self._refuse(f"the link {path!r} has a target of {len(as_bytes(entry.link))} bytes")

    def _check_names(self, path: bytes) -> None:
        if len(path) > self._limits.path:
            self._refuse(f"the path {path[:60]!r}... is longer than {self._limits.path} bytes")
        longest = max(path.split(b"/"), key=len)
        if len(longest) > self._limits.name:
            self._refuse(f"the file name {longest[:60]!r}... is longer than {self._limits.name} bytes")

    def _refuse(self, why: str) -> NoReturn:
        raise ConvertError(f"{self._name}: refused: {why}", "no honest image does this: ask where it comes from")
