"""A merged tree streamed into a squashfs: the layers are read a second time, and no tree is made on disk."""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from imgcheck.convert.disk import create_file, open_file
from imgcheck.convert.gather import Gathered
from imgcheck.convert.policy import lost
from imgcheck.convert.stage import Stage
from imgcheck.convert.tarout import LAST_SECOND, TarWriter
from imgcheck.documents.codec import as_bytes
from imgcheck.errors import ConvertError
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content, Layer
from imgcheck.layers.stream import TarLayer
from imgcheck.layers.tree import Node
from imgcheck.progress import Progress

_TEXT_LIMIT = 1 << 20
_TEXTS_LIMIT = 64 << 20
_COPY = 1 << 20


class Recorder:
    """Keeps of each file only where it came from, and the text of account files."""

    def __init__(self) -> None:
        self.texts: dict[tuple[int, int], bytes] = {}
        self._held = 0

    def keep(self, layer: int, ordinal: int, entry: Entry, content: Content) -> tuple[int, int] | None:
        if not entry.size:
            return None
        name = entry.path.rpartition("/")[2]
        small = entry.size <= min(_TEXT_LIMIT, _TEXTS_LIMIT - self._held)
        if small and ("passwd" in name or "group" in name):
            self._held += entry.size
            self.texts[layer, ordinal] = content.read()
        return layer, ordinal

    def read(self, node: Node) -> bytes | None:
        """The text of an account file; None where it was too large to be one."""
        return b"" if node.payload is None else self.texts.get(node.payload)


def readable_twice(layers: tuple[Layer, ...], stage: Stage) -> tuple[Layer, ...]:
    """The layers, those whose blob is no local file (a registry's) copied into the stage first."""
    return tuple(
        _spooled(layer, stage, f"blob{index}") if isinstance(layer, TarLayer) else layer
        for index, layer in enumerate(layers)
    )


def _spooled(layer: TarLayer, stage: Stage, name: str) -> TarLayer:
    with layer.open() as blob:
        with suppress(OSError, AttributeError):
            if stat.S_ISREG(os.fstat(blob.fileno()).st_mode):
                return layer
        with create_file(stage.fd, name) as copy:
            shutil.copyfileobj(blob, copy, _COPY)
    return TarLayer(layer.info, lambda: open_file(stage.fd, name))


def write_squashfs(
    stage: Stage, name: str, offset: int, layers: tuple[Layer, ...], gathered: Gathered, progress: Progress
) -> tuple[int, list[str]]:
    """Write the tree as squashfs into the new file `name` of the stage, `offset` bytes in.

    Returns the number of entries, and what was lost, one sentence each. Raises ConvertError where squashfs-tools are
    missing, too old or fail.
    """
    root = gathered.tree.root
    with _sqfstar(stage, name, offset, root) as write:
        tar = TarWriter(write)
        _Streamer(tar, gathered).stream(layers, progress)
    return tar.members, lost(tar.devices, tar.lost_xattrs)


@contextmanager
def _sqfstar(stage: Stage, name: str, offset: int, root: Node) -> Iterator:
    program = shutil.which("sqfstar")
    if program is None:
        raise ConvertError(
            "sqfstar was not found, which writes squashfs",
            "install squashfs-tools 4.5 or later, or convert --to sandbox",
        )
    attributes = ("-all-root", "-root-mode", f"{root.mode & 0o7777:o}")
    # Versions before 4.6 know no other way to fix the times of the root and of the filesystem. Later ones would also
    # lower times of files that lie behind this one, and none does.
    fixed_time = os.environ | {"SOURCE_DATE_EPOCH": str(_latest(root))}
    quiet = ("-quiet", "-no-progress", "-exit-on-error")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [program, "-comp", "gzip", "-offset", str(offset), *attributes, *quiet, name],
            cwd=stage.path, env=fixed_time, stdin=subprocess.PIPE, stdout=log, stderr=log,
        )  # fmt: skip
        archive = process.stdin
        assert archive is not None  # as it is a pipe
        try:
            yield archive.write
            archive.close()
            process.wait()
        except BrokenPipeError:
            process.wait()
        finally:
            with suppress(OSError):
                archive.close()
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            raise _failure(log, process.returncode)


def _latest(root: Node) -> int:
    """The latest time in the tree, as the squashfs will hold it."""
    latest, stack = 0.0, [root]
    while stack:
        node = stack.pop()
        latest = max(latest, node.mtime)
        stack.extend((node.children or {}).values())
    return int(min(latest, LAST_SECOND))


def _failure(log: IO[bytes], status: int) -> ConvertError:
    log.seek(0)
    lines = log.read(1 << 16).decode("utf-8", "replace").split("\n")
    said = next((line.strip() for line in lines if "No space" in line), "")
    said = said or next((line.strip() for line in lines if line.strip()), f"exit status {status}")
    hint = "free space there, or choose another filesystem" if "No space" in said else "see what squashfs-tools say"
    return ConvertError(f"sqfstar could not write the squashfs: {said}", hint)


class _Streamer:
    """Writes directories, links and our own files first, contents in the layers' order, further names last."""

    def __init__(self, tar: TarWriter, gathered: Gathered) -> None:
        self._tar = tar
        self._linked = gathered.linked
        self._winners: dict[tuple[int, int], tuple[bytes, Node]] = {}
        self._first: dict[Node, bytes] = {}
        self._later: list[tuple[bytes, Node]] = []
        for path, node in gathered.tree.walk():
            self._announce(as_bytes(path), node)

    def _announce(self, path: bytes, node: Node) -> None:
        if node in self._linked:
            if node in self._first:
                self._later.append((path, node))
                return
            self._first[node] = path
        if type(node.payload) is tuple:
            self._winners[node.payload] = (path, node)
        elif isinstance(node.payload, bytes):
            self._tar.member(path, node, len(node.payload))
            self._tar.data(node.payload)
        else:
            self._tar.member(path, node)

    def stream(self, layers: tuple[Layer, ...], progress: Progress) -> None:
        for index, layer in enumerate(layers):
            for ordinal, (_entry, content) in enumerate(layer.entries(progress)):
                winner = self._winners.pop((index, ordinal), None)
                if winner is not None:
                    self._write(*winner, content)
        if self._winners:
            raise _changed()
        for path, node in self._later:
            self._tar.hardlink(path, self._first[node], node)
        self._tar.end()

    def _write(self, path: bytes, node: Node, content: Content | None) -> None:
        if content is None:
            raise _changed()
        self._tar.member(path, node, node.size)
        if not self._tar.content(content, node.size):
            raise _changed()


def _changed() -> ConvertError:
    return ConvertError("the image's layers changed while they were read", "convert again when nobody writes to them")
