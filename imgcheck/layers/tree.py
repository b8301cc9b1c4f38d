"""The file tree that an image's layers make together, with whiteouts, links and replacements as OCI defines them.

The rules are those of the OCI image specification (layer.md) where it speaks, and of umoci and containerd where it
does not; tests compare with `umoci unpack`.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NoReturn

from msgspec import Struct

from imgcheck.errors import LayerError
from imgcheck.layers.entry import Entry, Kind

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
_AUFS = ".wh..wh."

_LINKS_WHEN_BUILDING = 255
"""What Go's root-confined path resolvers follow before they give up."""
_LINKS_WHEN_OPENING = 40
"""What Linux follows before ELOOP (path_resolution(7))."""
_LONGEST = 4096
"""Characters of a path (PATH_MAX); without an end, each file would cost as many paths as it lies deep."""
_LONGEST_LINK = 4095
"""Bytes of a link's target (PATH_MAX without its NUL)."""
_LONGEST_NAME = 255
"""Bytes of a name (NAME_MAX of Linux filesystems)."""
_MOST_NAMES = 4096
"""Names in the targets of all links that one path leads through: far above any real image, and a bound to the work."""
_SHOWN = 200
"""Characters of a path in a message."""


# Structs out of the garbage collector's sight: a tree has hundreds of thousands of nodes and no cycles.
class Node(Struct, gc=False, eq=False):
    """An inode of the tree. Hardlinks are several names of one Node."""

    entry: Entry
    """Attributes as the layer gave them; `path` is the first name as stored, not the canonical one."""
    layer: int
    """Index of the layer that brought the content; for a directory, of the last that described it."""
    payload: Any = None
    """Whatever the caller stored with the entry."""
    children: "dict[str, Node] | None" = None
    """For directories, by name."""
    touched: set[str] | None = None
    """Names that the layer at hand brought or walked through."""

    @property
    def kind(self) -> Kind:
        return self.entry.kind

    @property
    def mode(self) -> int:
        return self.entry.mode

    @property
    def size(self) -> int:
        return self.entry.size

    @property
    def link(self) -> str:
        """Target of a symlink, as stored."""
        return self.entry.link

    @property
    def uid(self) -> int:
        return self.entry.uid

    @property
    def gid(self) -> int:
        return self.entry.gid

    @property
    def mtime(self) -> float:
        return self.entry.mtime

    @property
    def device(self) -> tuple[int, int]:
        return self.entry.device

    @property
    def xattrs(self) -> dict[str, bytes]:
        return self.entry.xattrs


class Directory(Node, gc=False, eq=False):
    """A directory: what has `children`."""

    children: dict[str, Node] = {}


_NAME = itemgetter(0)


def _follow(link: Node, trail: list[Any], todo: list[str]) -> int:
    """Go on at the link's target: what is passed by leaves `trail`, what is to come joins `todo`. Names to come."""
    names = link.link.split("/")
    if link.link.startswith("/"):
        del trail[1:]
    todo.extend(reversed(names))
    return len(names)


class MergedTree:
    """Layers applied one after another. Paths are relative to the root, "" is the root; a leading `/` is accepted."""

    def __init__(self) -> None:
        self.root = Directory(Entry("", "directory", 0o755), 0)
        self.plain = Node(Entry("", "file"), 0)
        """Every file that came by `apply_files`."""
        self._layer = 0
        self._touched: list[Directory] = []
        self._opaque: set[Directory] = set()
        """Directories without anything of lower layers: what is once removed of them in a layer stays so."""
        self._parents: dict[str, Directory] = {}

    def begin_layer(self, index: int) -> None:
        """Entries applied from here on belong to layer `index`, above all applied before."""
        for node in self._touched:
            node.touched = None
        self._touched.clear()
        self._opaque.clear()
        self._parents.clear()
        self._layer = index

    def apply(self, entry: Entry, payload: Any = None) -> Node | None:
        """Put `entry` into the tree and return its Node; None for whiteouts and what is ignored.

        Raises LayerError where the entry cannot be: an invalid whiteout name, a parent that is no directory or a
        loop of links, a hardlink without target, a root that is no directory.
        """
        path = entry.path
        parent_path, _, name = path.rpartition("/")
        if name[:4] == WHITEOUT:
            self._whiteout(path, parent_path, name)
            return None
        if not name:
            return self._apply_root(entry)
        # Characters are at most four bytes: the common case needs no encoding.
        if len(name) > _LONGEST_NAME // 4 or len(entry.link) > _LONGEST_LINK // 4:
            self._check_lengths(path, name, entry.link)
        parent = self._parents.get(parent_path)
        if parent is None:
            parent = self._parents[parent_path] = self._make_parent(path, parent_path)
        touched = parent.touched
        if touched is None:
            touched = self._begin_touched(parent)
        touched.add(name)
        children = parent.children
        old = children.get(name)
        if old is not None:
            if old.children is not None and entry.kind == "directory":
                old.entry, old.layer = entry, self._layer
                return old
            self._forget(old)
        kind = entry.kind
        if kind == "hardlink":
            children.pop(name, None)
            node = self._link_target(entry)
        elif kind == "directory":
            node = Directory(entry, self._layer)
        else:
            node = Node(entry, self._layer, payload)
        children[name] = node
        return node

    def apply_files(self, paths: Iterable[str]) -> None:
        """As `apply` for regular files of which nothing but the name matters: one Node, `plain`, stands for all.

        No path may be a whiteout's or the root's.
        """
        node, parents, last = self.plain, self._parents, None
        for path in paths:
            parent_path, _, name = path.rpartition("/")
            if parent_path != last:
                parent = parents.get(parent_path)
                if parent is None:
                    parent = parents[parent_path] = self._make_parent(path, parent_path)
                touched = self._begin_touched(parent) if parent.touched is None else parent.touched
                children, last = parent.children, parent_path
            if len(name) > _LONGEST_NAME // 4:
                self._check_lengths(path, name)
            touched.add(name)
            old = children.get(name)
            if old is not None and (old.children is not None or old.kind == "symlink"):
                self._forget(old)
                last = None
            children[name] = node

    def lookup(self, path: str, follow_last: bool = True) -> Node | None:
        """The Node at `path`, links followed inside the root (the last one only with `follow_last`)."""
        found = self._find(path, follow_last)
        return found[1] if found else None

    def resolve(self, path: str, follow_last: bool = True) -> str | None:
        """The canonical path of what `path` reaches inside the root; None where there is nothing or a loop."""
        found = self._find(path, follow_last)
        return found[0] if found else None

    def walk(self, plain: bool = True) -> Iterator[tuple[str, Node]]:
        """Every name below the root with its Node, a directory before its children, names in byte order.

        Without `plain`, those of files that came by `apply_files` are left out.
        """
        hidden = None if plain else self.plain
        stack: list[tuple[str, Node]] = [("", self.root)]
        while stack:
            path, node = stack.pop()
            if path:
                yield path, node
            if node.children:
                prefix = path + "/" if path else ""
                children = [item for item in node.children.items() if item[1] is not hidden]
                children.sort(key=_NAME, reverse=True)
                stack.extend((prefix + name, child) for name, child in children)

    def _check_lengths(self, path: str, name: str, link: str = "") -> None:
        if len(name.encode("utf-8", "surrogateescape")) > _LONGEST_NAME:
            self._fail(path, f"its name is longer than the {_LONGEST_NAME} bytes that Linux takes")
        if len(link.encode("utf-8", "surrogateescape")) > _LONGEST_LINK:
            self._fail(path, f"its target is longer than the {_LONGEST_LINK} bytes that Linux takes")

    def _apply_root(self, entry: Entry) -> Node:
        if entry.kind != "directory":
            self._fail(entry.path, f"the root would become a {entry.kind}")
        self.root.entry, self.root.layer = entry, self._layer
        return self.root

    def _begin_touched(self, directory: Directory) -> set[str]:
        directory.touched = set()
        self._touched.append(directory)
        return directory.touched

    def _make_parent(self, path: str, parent_path: str) -> Directory:
        """The directory `parent_path`, through links inside the root, with what is missing created and touched."""
        trail, lengths = [self.root], [0]
        todo = parent_path.split("/")[::-1] if parent_path else []
        links = names = 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if len(trail) > 1:
                    trail.pop()
                    lengths.pop()
                continue
            directory = trail[-1]
            node = directory.children.get(name)
            if node is None:
                node = directory.children[name] = Directory(Entry(name, "directory", 0o755), self._layer)
            if node.kind == "symlink":
                links += 1
                names += _follow(node, trail, todo)
                del lengths[len(trail) :]
                if links > _LINKS_WHEN_BUILDING or names > _MOST_NAMES:
                    self._fail(path, "its directory is a loop of symbolic links, or leads through too many")
                continue
            if not isinstance(node, Directory):
                self._fail(path, f"its parent {name!r} is a {node.kind}, not a directory")
            (self._begin_touched(directory) if directory.touched is None else directory.touched).add(name)
            trail.append(node)
            lengths.append(lengths[-1] + len(name) + 1)
            if lengths[-1] > _LONGEST:
                self._fail(path, f"its path is longer than the {_LONGEST} bytes that Linux takes")
        return trail[-1]

    def _link_target(self, entry: Entry) -> Node:
        node = self.lookup(entry.link, follow_last=False)
        if node is None:
            self._fail(entry.path, f"a hardlink to {entry.link!r}, which does not exist")
        if node.children is not None:
            self._fail(entry.path, f"a hardlink to the directory {entry.link!r}")
        return node

    def _whiteout(self, path: str, parent_path: str, name: str) -> None:
        if name == OPAQUE:
            directory = self._lower_directory(parent_path)
            if directory is not None:
                self._remove_lower(directory)
            return
        if name.startswith(_AUFS):
            return
        hidden = name[len(WHITEOUT) :]
        if hidden in ("", ".", ".."):
            self._fail(path, "a whiteout that names no file")
        directory = self._lower_directory(parent_path)
        node = directory.children.get(hidden) if directory is not None else None
        if directory is None or node is None:
            return
        if directory.touched is None or hidden not in directory.touched:
            del directory.children[hidden]
            self._forget(node)
        elif isinstance(node, Directory):
            self._remove_lower(node)

    def _lower_directory(self, path: str) -> Directory | None:
        node = self.lookup(path)
        return node if isinstance(node, Directory) else None

    def _remove_lower(self, directory: Directory) -> None:
        """Remove below `directory` every name that the layer at hand has not brought or walked through."""
        stack = [directory]
        while stack:
            node = stack.pop()
            if node in self._opaque:
                continue
            self._opaque.add(node)
            touched = node.touched or ()
            for name in [name for name in node.children if name not in touched]:
                self._forget(node.children.pop(name))
            stack.extend(child for child in node.children.values() if isinstance(child, Directory))

    def _forget(self, node: Node) -> None:
        # Remembered parents may lie behind what has gone.
        if node.children is not None or node.kind == "symlink":
            self._parents.clear()

    def _find(self, path: str, follow_last: bool) -> tuple[str, Node] | None:
        trail: list[Node] = [self.root]
        names: list[str] = []
        todo = path.split("/")[::-1]
        links = followed = 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                del names[-1:], trail[len(names) + 1 :]
                continue
            children = trail[-1].children
            node = children.get(name) if children is not None else None
            if node is None:
                return None
            if node.kind == "symlink" and (follow_last or any(part not in ("", ".") for part in todo)):
                links += 1
                followed += _follow(node, trail, todo)
                del names[len(trail) - 1 :]
                if links > _LINKS_WHEN_OPENING or followed > _MOST_NAMES:
                    return None
                continue
            trail.append(node)
            names.append(name)
        return "/".join(names), trail[-1]

    def _fail(self, path: str, why: str) -> NoReturn:
        raise LayerError(f"layer {self._layer}: {path[:_SHOWN]!r} cannot be unpacked: {why}")
