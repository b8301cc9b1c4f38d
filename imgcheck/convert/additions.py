"""Our own files as one more layer: they go into the model of the tree, where a link leads nowhere but inside it."""

from imgcheck.convert.launch import Launch
from imgcheck.convert.model import Limits
from imgcheck.documents.codec import as_bytes
from imgcheck.layers.entry import Entry
from imgcheck.layers.tree import WHITEOUT, MergedTree, Node

PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = b"root:x:0:\nnogroup:x:65534:\n"
HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost\n"
MOUNTPOINTS = (("dev", 0o755), ("proc", 0o555), ("sys", 0o555))
DIRECTORIES = (("etc", 0o755), ("home", 0o755), ("root", 0o700), ("tmp", 0o1777), ("var", 0o755), ("var/tmp", 0o1777))


class Additions:
    """Changes to a merged tree, made after its last layer."""

    def __init__(self, tree: MergedTree, layer: int, limits: Limits) -> None:
        tree.begin_layer(layer)
        self.tree = tree
        self.limits = limits
        self.notes: list[str] = []

    def remove(self, path: str) -> None:
        """Take `path` away, without following a link there."""
        if self._at(path) is not None:
            above, _, name = path.rpartition("/")
            self.tree.apply(Entry(f"{above}/{WHITEOUT}{name}".lstrip("/"), "file"))

    def directory(self, path: str, mode: int = 0o755, own: bool = False) -> None:
        """Make sure that `path` is a directory; with `own` it must be one itself, not a link to one."""
        if not self._is_directory(path, own):
            self._above(path)
            self._make_directory(path, mode)

    def _is_directory(self, path: str, own: bool) -> bool:
        node = self.tree.lookup(path, follow_last=not own)
        return node is not None and node.kind == "directory"

    def _make_directory(self, path: str, mode: int) -> None:
        former = self._at(path)
        if former is not None:
            self.notes.append(f"/{path} was a {former.kind} in the image and is a directory now")
            self.remove(path)
        self.tree.apply(Entry(path, "directory", mode))

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file at `path`, whatever is there; a link there is replaced, not followed."""
        self._above(path)
        former = self._at(path)
        if former is not None and former.kind != "file":
            self.notes.append(f"/{path} was a {former.kind} in the image and was replaced")
            self.remove(path)
        self.tree.apply(Entry(path, "file", mode, size=len(data)), data)

    def file_if_missing(self, path: str, data: bytes) -> None:
        """Put a file at `path` unless a regular one can be reached there."""
        node = self.tree.lookup(path)
        if node is None or node.kind != "file":
            self.file(path, data)

    def link_if_missing(self, path: str, target: str) -> None:
        """Put a symbolic link at `path` unless something is there."""
        if self._at(path) is None:
            self.tree.apply(Entry(path, "symlink", 0o777, link=target))

    def _at(self, path: str) -> Node | None:
        return self.tree.lookup(path, follow_last=False)

    def _above(self, path: str) -> None:
        """Make sure that all directories above `path` are, the highest first."""
        parts = path.split("/")
        for count in range(1, len(parts)):
            above = "/".join(parts[:count])
            if not self._is_directory(above, own=False):
                self._make_directory(above, 0o755)


def add_common(additions: Additions, launch: Launch) -> None:
    """What every runtime expects of a root: mountpoints, the account files, WORKDIR and a home."""
    for path, mode in MOUNTPOINTS:
        additions.directory(path, mode, own=True)
    for path, mode in DIRECTORIES:
        additions.directory(path, mode)
    additions.file_if_missing("etc/passwd", PASSWD)
    additions.file_if_missing("etc/group", GROUP)
    additions.file_if_missing("etc/hosts", HOSTS)
    additions.file_if_missing("etc/resolv.conf", b"")
    for path in (launch.working_directory, launch.home):
        add_directory_of_config(additions, path)


def add_directory_of_config(additions: Additions, path: str) -> None:
    """Make a directory that the config names, as Docker does for WORKDIR, unless something else stands there."""
    parts = [part for part in path.split("/") if part]
    if len(parts) > additions.limits.depth or len(as_bytes(path)) > additions.limits.path:
        additions.notes.append(f"the directory {path[:60]!r}... of the config was not made: it lies too deep")
        return
    if any(part.startswith(WHITEOUT) or part == ".." or len(part) > 63 or "\0" in part for part in parts):
        additions.notes.append(f"the directory {path!r} of the config was not made: no layer could bring it")
        return
    for count in range(1, len(parts) + 1):
        node = additions.tree.lookup("/".join(parts[:count]))
        if node is not None and node.kind != "directory":
            additions.notes.append(f"/{'/'.join(parts[:count])} of the config is a {node.kind}, not a directory")
            return
    additions.directory("/".join(parts))
