"""Second pass: the merged tree on disk. Every name is made exactly once, in a directory that was made just before."""

import os
from collections.abc import Iterator

from imgcheck.convert.disk import (
    CREATE_FILE,
    OPEN_DIRECTORY,
    nanoseconds,
    set_attributes,
    set_xattrs,
)
from imgcheck.convert.gather import Gathered
from imgcheck.convert.model import Limits
from imgcheck.convert.store import Store
from imgcheck.documents.codec import as_bytes
from imgcheck.errors import ConvertError
from imgcheck.layers.tree import Node


class Placer:
    """Builds one tree in the stage out of a Store's objects.

    The tree's own model is the only authority on what lies where: no path is resolved on disk, so no link of the
    image can lead anywhere. Directories are writable while they are filled; modes and times come afterwards.
    """

    def __init__(self, gathered: Gathered, store: Store, limits: Limits) -> None:
        self._root = gathered.tree.root
        self._linked = gathered.linked
        self._store = store
        self._stage = store.stage
        self._policy = store.policy
        self._limits = limits
        self._objects: dict[Node, str] = {}
        self.files = 0

    def place(self, name: str) -> None:
        """Make the tree as directory `name` of the stage."""
        stack = [self._enter(self._stage, as_bytes(name), self._root)]
        try:
            while stack:
                fd, node, children = stack[-1]
                below = self._fill(fd, children)
                if below is not None:
                    if len(stack) > self._limits.depth:
                        raise ConvertError(f"refused: the tree is more than {self._limits.depth} directories deep")
                    stack.append(self._enter(fd, *below))
                    continue
                self._leave(fd, node)
                stack.pop()
        finally:
            for fd, _node, _children in stack:
                os.close(fd)

    def _enter(self, parent: int, name: bytes, node: Node) -> tuple[int, Node, Iterator[tuple[str, Node]]]:
        os.mkdir(name, 0o700, dir_fd=parent)
        return os.open(name, OPEN_DIRECTORY, dir_fd=parent), node, iter((node.children or {}).items())

    def _leave(self, fd: int, node: Node) -> None:
        if node.xattrs:
            self._policy.lost_xattrs += set_xattrs(fd, node.xattrs)
        set_attributes(fd, self._policy.directory_mode(node.mode), node.mtime)
        os.close(fd)

    def _fill(self, fd: int, children: Iterator[tuple[str, Node]]) -> tuple[bytes, Node] | None:
        """Make the directory's entries up to the next directory, which is returned."""
        for text, node in children:
            self.files += 1
            name = as_bytes(text)
            if node.children is not None:
                return name, node
            if node in self._linked:
                self._link(fd, name, node)
            elif type(node.payload) is int:
                os.rename(self._store.path(node.payload), name, src_dir_fd=self._stage, dst_dir_fd=fd)
            else:
                self._make(fd, name, node)
        return None

    def _link(self, fd: int, name: bytes, node: Node) -> None:
        """One of several names of a file: all are links to its object, which goes with the stage."""
        path = self._objects.get(node)
        if path is None:
            if type(node.payload) is int:
                path = self._store.path(node.payload)
            else:
                path = self._store.reserve()
                self._make(self._stage, as_bytes(path), node)
            self._objects[node] = path
        os.link(path, name, src_dir_fd=self._stage, dst_dir_fd=fd, follow_symlinks=False)

    def _make(self, fd: int, name: bytes, node: Node) -> None:
        """A link, FIFO, or a file whose content is no object: empty, or of our own."""
        if node.kind == "symlink":
            os.symlink(as_bytes(node.link), name, dir_fd=fd)
        elif node.kind == "fifo":
            os.mkfifo(name, 0o600, dir_fd=fd)
            os.chmod(name, self._policy.file_mode(node.mode), dir_fd=fd)
        else:
            self._make_file(fd, name, node)
            return
        self._policy.lost_xattrs += len(node.xattrs)
        time = nanoseconds(node.mtime)
        os.utime(name, ns=(time, time), dir_fd=fd, follow_symlinks=False)

    def _make_file(self, fd: int, name: bytes, node: Node) -> None:
        file = os.open(name, CREATE_FILE, 0o600, dir_fd=fd)
        try:
            if isinstance(node.payload, bytes):
                with open(file, "wb", closefd=False) as stream:
                    stream.write(node.payload)
            if node.xattrs:
                self._policy.lost_xattrs += set_xattrs(file, node.xattrs)
            set_attributes(file, self._policy.empty_mode(node), node.mtime)
        finally:
            os.close(file)
