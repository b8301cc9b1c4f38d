"""One pass over an image's layers: the merged tree, facts of every file with code, and the small texts wanted.

Files are read straight from the stream of their layer into one buffer each and hashed on the way; the engines work
on them in other processes while the stream goes on. Nothing touches the disk.
"""

import fnmatch
import hashlib
import os
import re
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from imgcheck.binaries.analyse import looks_like_code
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import Script
from imgcheck.layers.entry import Entry
from imgcheck.layers.tree import MergedTree
from imgcheck.profile.store import LayerIndex, Store, StoredEntry
from imgcheck.profile.texts import read_script
from imgcheck.profile.worker import Memory, Worker
from imgcheck.progress import Progress
from imgcheck.sources.model import Content, Image

_HEAD = 8
"""Bytes that tell code, scripts and everything else apart."""
_FIRST_BYTES = frozenset(b"\x7f\x50!./#")
"""Those of code and of scripts: most files end here."""
_TEXT_LIMIT = 1 << 20
_SCRIPT_LIMIT = 1 << 16
_CODE_LIMIT = 4 << 30
"""Larger than any object file that can be loaded in practice; it is held in memory."""
_WAITING_LIMIT = 128 << 20
"""Bytes of files that wait for the engines besides the largest one: what bounds memory."""
_WAITING_FILES = 64
"""Each holds a file descriptor."""
_WORKERS = 8
"""Processes at most; each holds the engines (about 100 MB) besides the files."""
_HASH_STEP = 4 << 20


@dataclass(frozen=True, slots=True)
class Code:
    """Payload of a file with code: the SHA-256 of its bytes."""

    object: str


@dataclass
class Scan:
    """What one pass found. Payloads of the tree's file nodes are Code, Script or, for wanted texts, bytes."""

    tree: MergedTree = field(default_factory=MergedTree)
    objects: dict[str, CodeFacts | None] = field(default_factory=dict)
    """Facts by SHA-256; None where the bytes turned out to be no code."""


Payload = Code | Script | bytes | None


def scan(image: Image, texts: Iterable[str], progress: Progress, store: Store | None = None) -> Scan:
    """Read all layers of `image` once. `texts` are globs on absolute paths of small text files to keep.

    Layers whose index `store` holds are not read; the others' are kept there. Raises LayerError and DigestError as
    the layers do. A file that cannot be analysed is an error in its facts.
    """
    wanted = _Wanted(texts)
    result = Scan()
    read: dict[str, list[tuple[Entry, Payload]]] = {}
    with _Analysis() as analysis:
        for index, layer in enumerate(image.layers):
            result.tree.begin_layer(index)
            kept = store.layer(layer.info.diff_id) if store else None
            if kept:
                result.objects |= kept.objects
                _replay(kept, result.tree)
                continue
            seen = read.setdefault(layer.info.diff_id, []) if store else None
            for entry, content in layer.entries(progress):
                payload = _payload(entry, content, wanted, analysis) if content is not None and entry.size else None
                result.tree.apply(entry, payload)
                if seen is not None:
                    seen.append((entry, payload))
        result.objects |= analysis.results()
    if store:
        _keep(read, result.objects, analysis.unfinished, store)
    return result


def _replay(kept: LayerIndex, tree: MergedTree) -> None:
    """Apply a layer's entries from its index."""
    for entry in kept.entries:
        payload: Payload = Code(entry.object) if entry.object else entry.script or entry.text
        tree.apply(Entry(_text(entry.path), entry.kind, entry.mode, entry.size, _text(entry.link)), payload)


def _keep(
    read: dict[str, list[tuple[Entry, Payload]]],
    objects: dict[str, CodeFacts | None],
    unfinished: set[str],
    store: Store,
) -> None:
    """Keep what was read of each layer, except where something other than its bytes decided a fact."""
    for diff_id, seen in read.items():
        own = {payload.object for _, payload in seen if isinstance(payload, Code)}
        if not own & unfinished:
            entries = [_stored(entry, payload) for entry, payload in seen]
            store.keep_layer(diff_id, LayerIndex(entries, {key: objects[key] for key in sorted(own)}))
    store.tidy()


def _stored(entry: Entry, payload: Payload) -> StoredEntry:
    return StoredEntry(
        _bytes(entry.path),
        entry.kind,
        entry.mode,
        entry.size,
        _bytes(entry.link),
        payload.object if isinstance(payload, Code) else "",
        payload if isinstance(payload, bytes) else None,
        payload if isinstance(payload, Script) else None,
    )


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _payload(entry: Entry, content: Content, wanted: "_Wanted", analysis: "_Analysis") -> Payload:
    head = content.read(_HEAD)
    if head[0] not in _FIRST_BYTES and not wanted.perhaps(entry.path):
        return None
    if looks_like_code(head):
        return analysis.take(entry, head, content)
    if entry.size <= _TEXT_LIMIT and wanted.matches(entry.path):
        return head + content.read()
    if head[:2] == b"#!" and entry.mode & 0o111:
        return read_script("", head + content.read(_SCRIPT_LIMIT - len(head)))
    return None


class _Wanted:
    """Globs on absolute paths, matched on an entry's last two components.

    A layer may write a file through a linked directory (`lib/os-release` for `usr/lib/os-release`), so the whole
    path is compared only in the finished tree.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        tails = {"/".join(pattern.split("/")[-2:]) for pattern in patterns}
        self._regex = re.compile("|".join(f"(?:{fnmatch.translate(tail)})" for tail in sorted(tails)))
        ends = {re.split(r"[*?\]]", tail)[-1] for tail in tails}
        self._suffixes = tuple(sorted(end for end in ends if end))
        infixes = sorted(re.escape(re.split(r"[*?\[]", tail)[0]) for tail in tails if tail[-1] in "*?]")
        self._infix = re.compile("|".join(infixes) or r"(?!)").search

    def perhaps(self, path: str) -> bool:
        """A quick look that lets through all that `matches` would."""
        return path.endswith(self._suffixes) or bool(self._infix(path))

    def matches(self, path: str) -> bool:
        return bool(self._regex.match("/".join(("/" + path).split("/")[-2:])))


class _Analysis:
    """The engines at work on files, with a bound on the bytes in memory."""

    def __init__(self) -> None:
        cores = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(min(_WORKERS, cores), thread_name_prefix="imgcheck-engines")
        self._futures: dict[str, Future[CodeFacts | None]] = {}
        self._waiting: dict[str, int] = {}
        self._room = threading.Condition()
        self._idle: list[Worker] = []
        self.unfinished: set[str] = set()
        """Files whose facts something else than their bytes decided: no memory, a lost process, no time."""

    def __enter__(self) -> "_Analysis":
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._idle:
            worker.stop()

    def take(self, entry: Entry, head: bytes, content: Content) -> Code:
        """Read the file, and have it analysed unless the same bytes were met before."""
        if entry.size > _CODE_LIMIT:
            return self._refuse(entry, f"too large to be analysed: {entry.size} bytes, at most {_CODE_LIMIT}")
        self._wait_for(entry.size)
        try:
            memory = Memory(entry.size)
        except (OSError, MemoryError) as error:
            return self._refuse(entry, f"no memory for its {entry.size} bytes ({error})")
        try:
            key = _fill(memory.buffer, head, content)
            memory.unmap()
        except BaseException:
            memory.close()
            raise
        if key in self._futures:
            memory.close()
        else:
            with self._room:
                self._waiting[key] = entry.size
            self._futures[key] = self._pool.submit(self._analyse, key, memory)
        return Code(key)

    def results(self) -> dict[str, CodeFacts | None]:
        return {key: future.result() for key, future in self._futures.items()}

    def _refuse(self, entry: Entry, why: str) -> Code:
        facts = CodeFacts(entry.size, error=why)
        key = hashlib.sha256(f"{entry.path}\0{entry.size}".encode("utf-8", "surrogateescape")).hexdigest()
        self.unfinished.add(key)
        self._futures[key] = Future()
        self._futures[key].set_result(facts)
        return Code(key)

    def _wait_for(self, size: int) -> None:
        def fits() -> bool:
            sizes = [*self._waiting.values(), size]
            return len(sizes) == 1 or (len(sizes) <= _WAITING_FILES and sum(sizes) - max(sizes) <= _WAITING_LIMIT)

        with self._room:
            self._room.wait_for(fits)

    def _analyse(self, key: str, memory: Memory) -> CodeFacts | None:
        worker = None
        try:
            worker = self._idle.pop() if self._idle else Worker()
            return worker.analyse(memory)
        except OSError as error:
            return CodeFacts(memory.size, error=f"no process could be started to analyse it ({error.strerror})")
        finally:
            if worker and worker.alive:
                self._idle.append(worker)
            else:
                self.unfinished.add(key)
            memory.close()
            with self._room:
                del self._waiting[key]
                self._room.notify()


def _fill(buffer: memoryview, head: bytes, content: Content) -> str:
    """Read the whole file into `buffer`; the SHA-256 of its bytes in hexadecimal."""
    buffer[: len(head)] = head
    digest = hashlib.sha256(head)
    at = len(head)
    while at < len(buffer):
        count = content.readinto(buffer[at : at + _HASH_STEP])
        if not count:
            break
        digest.update(buffer[at : at + count])
        at += count
    return digest.hexdigest()
