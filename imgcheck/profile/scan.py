"""One pass over an image's layers: the merged tree, facts of every file with code, and the small texts wanted.

Layers are read one after another, the largest first, since the largest file is what one waits for in the end. Files
with code are handed to the engines (profile.analysis) while the stream goes on. Nothing touches the disk.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from imgcheck.binaries.analyse import ELF_MAGIC, PTX_SUFFIX, is_named_as_library, looks_like_code
from imgcheck.documents.codec import as_bytes
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import Script, Services
from imgcheck.errors import LayerError
from imgcheck.layers.entry import Entry, PlainFiles, Select
from imgcheck.layers.model import Content, Layer
from imgcheck.layers.stream import TarLayer
from imgcheck.layers.tree import MergedTree
from imgcheck.loader.services import PATHS, may_hold_services, read_services
from imgcheck.loader.statements import Statements
from imgcheck.profile.analysis import Analysis
from imgcheck.profile.frozen_programs import Frozen, read_frozen
from imgcheck.profile.packed import ArchiveError, Read
from imgcheck.profile.store import LayerIndex, Store, StoredEntry
from imgcheck.profile.texts import is_module, is_program, read_python, read_script, script_untold
from imgcheck.profile.zip_archives import is_application, is_archive, libraries
from imgcheck.progress import Progress
from imgcheck.sources.model import Image

_HEAD = 8
"""Bytes that tell code, scripts and everything else apart."""
_FIRST_BYTES = frozenset(b"\x7f\x50!./#")
"""Those of code and of scripts: most files end here."""
_TEXT_LIMIT = 1 << 24
"""A cache of 12,500 libraries has a megabyte, and so has dpkg's list of a thousand packages."""
_SCRIPT_LIMIT = 1 << 16
_PYTHON_LIMIT = 1 << 20
"""Bytes of a Python text that are read: hardly one is longer, and of those that are it is not told what they import."""
_TEXTS_LIMIT = 1 << 28
"""Bytes of texts, or of scripts, that an image may hold: some ten times what the largest have. What lies beyond could
only be left out, and the answer would rest on what came first."""
_SHELL_SUFFIXES = (".sh", ".bash", ".env", "profile", "bashrc", ".bash_login", "/activate", "/etc/environment")
"""Of what shells read without a `#!` line, some of it before any command (loader.invocation)."""
_SETTINGS = ("etc/default/", "etc/sysconfig/", "etc/conf.d/")
"""Where files are that scripts read for their variables, whatever these are called."""
_SMALLEST = 64
"""Bytes of the header of a 64-bit ELF file: glibc's loader says of what is smaller that it is too short, and of other
files that are no ELF that their header is invalid (elf/dl-load.c, open_verify)."""
_OF_PACKAGING = ("var/lib/dpkg/info/", "usr/share/doc/")
"""Scripts of which there are thousands, and that no command names."""


@dataclass(frozen=True, slots=True)
class Code:
    """Payload of a file with code: the key of its facts, as in documents.image.FileRecord."""

    object: str
    frozen: Frozen | None = None

    @property
    def libraries(self) -> tuple[tuple[str, str], ...]:
        """Those that it unpacks when it starts: path in it and key of the facts of each."""
        return self.frozen.libraries if self.frozen else ()


@dataclass(frozen=True, slots=True)
class Archive:
    """Payload of an archive with libraries: path in it and key of the facts of each."""

    libraries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Unloadable:
    """Payload of a file that is named as a library and is none: what the loader says of it."""

    complaint: str


@dataclass(frozen=True, slots=True)
class PythonText:
    """Payload of a Python text: what it imports, and how it starts where it is a script."""

    statements: Statements
    script: Script | None = None
    libraries: tuple[tuple[str, str], ...] = ()
    """Those of a zipped application, as Archive has them."""


@dataclass
class Scan:
    """What one pass found: payloads of the tree's file nodes tell what they are, bytes those of wanted texts."""

    tree: MergedTree = field(default_factory=MergedTree)
    objects: dict[str, CodeFacts | None] = field(default_factory=dict)
    """Facts by key; None where the bytes turned out to be no code."""


Holding = Code | Archive | PythonText
"""Payloads that hold libraries."""
Payload = Code | Archive | Script | Services | PythonText | Unloadable | bytes | None
Seen = list[tuple[Entry | PlainFiles, Payload]]
"""What was read of a layer, in stored order."""


def scan(image: Image, texts: Iterable[str], progress: Progress, store: Store | None = None) -> Scan:
    """Read all layers of `image` once. `texts` are globs on absolute paths of small text files to keep.

    Layers whose index `store` holds are not read; the others' are kept there. Raises LayerError and DigestError as
    the layers do. A file that cannot be analysed is an error in its facts.
    """
    wanted = _Wanted(texts)
    result = Scan()
    pile = _Pile(result.tree)
    read: dict[str, Seen] = {}
    with Analysis() as analysis:
        order = _order(image)
        image.expect(order)
        for index in order:
            layer = image.layers[index]
            kept = store.layer(layer.info.diff_id) if store else None
            if kept:
                result.objects |= kept.objects
                pile.put(index, _replayed(kept))
            else:
                read[layer.info.diff_id] = pile.put(index, _read(layer, wanted, analysis, progress))
        result.objects |= analysis.results()
    if store:
        _keep(read, result.objects, analysis.unfinished, store)
    return result


def _order(image: Image) -> list[int]:
    """Indexes of the layers as they are read."""
    sizes = [layer.info.size for layer in image.layers]
    return sorted(range(len(sizes)), key=lambda index: -sizes[index])


class _Pile:
    """The tree of layers that come in any order: each is applied once all below it have been."""

    def __init__(self, tree: MergedTree) -> None:
        self._tree = tree
        self._height = 0
        self._waiting: dict[int, Seen] = {}

    def put(self, index: int, entries: Iterable[tuple[Entry | PlainFiles, Payload]]) -> Seen:
        """Take the layer `index`; its entries once they have all come."""
        if index != self._height:
            seen = self._waiting[index] = list(entries)
            return seen
        seen = self._apply(entries)
        while self._height in self._waiting:
            self._apply(self._waiting.pop(self._height))
        return seen

    def _apply(self, entries: Iterable[tuple[Entry | PlainFiles, Payload]]) -> Seen:
        self._tree.begin_layer(self._height)
        self._height += 1
        seen: Seen = []
        for entry, payload in entries:
            if isinstance(entry, PlainFiles):
                self._tree.apply_files(entry.paths)
            else:
                self._tree.apply(entry, payload)
            seen.append((entry, payload))
        return seen


def _read(
    layer: Layer, wanted: "_Wanted", analysis: Analysis, progress: Progress
) -> Iterator[tuple[Entry | PlainFiles, Payload]]:
    for entry, content in _entries(layer, wanted, progress):
        if content is None or isinstance(entry, PlainFiles):
            yield entry, None
        else:
            yield entry, _payload(entry, content, wanted, analysis)


def _entries(
    layer: Layer, wanted: "_Wanted", progress: Progress
) -> Iterator[tuple[Entry | PlainFiles, Content | None]]:
    if isinstance(layer, TarLayer):
        return layer.selected(progress, Select(_FIRST_BYTES, wanted.perhaps))
    return layer.entries(progress)


def _replayed(kept: LayerIndex) -> Iterator[tuple[Entry | PlainFiles, Payload]]:
    """A layer's entries from its index."""
    for entry in kept.entries:
        if entry.kind == "plain":
            yield PlainFiles(_text(entry.path).split("\0")), None
        else:
            payload: Payload = entry.script or entry.services or entry.text
            if entry.object:
                payload = Code(entry.object, None if entry.home is None else Frozen(entry.home, entry.libraries))
            elif entry.python:
                payload = PythonText(entry.python, entry.script, entry.libraries)
            elif entry.libraries:
                payload = Archive(entry.libraries)
            elif entry.complaint:
                payload = Unloadable(entry.complaint)
            yield Entry(_text(entry.path), entry.kind, entry.mode, entry.size, _text(entry.link)), payload


def _keep(read: dict[str, Seen], objects: dict[str, CodeFacts | None], unfinished: set[str], store: Store) -> None:
    """Keep what was read of each layer, except where something other than its bytes decided a fact."""
    for diff_id, seen in read.items():
        own = set[str]().union(*(_objects(payload) for _, payload in seen if isinstance(payload, Holding)))
        if not own & unfinished:
            entries = [_stored(entry, payload) for entry, payload in seen]
            store.keep_layer(diff_id, LayerIndex(entries, {key: objects[key] for key in sorted(own)}))
    store.tidy()


def _objects(payload: Holding) -> set[str]:
    """The keys of the facts that a payload names."""
    own = {payload.object} if isinstance(payload, Code) else set[str]()
    return own.union(key for _, key in payload.libraries)


def _stored(entry: Entry | PlainFiles, payload: Payload) -> StoredEntry:
    if isinstance(entry, PlainFiles):
        return StoredEntry(as_bytes("\0".join(entry.paths)), "plain")
    return StoredEntry(
        as_bytes(entry.path),
        entry.kind,
        entry.mode,
        entry.size,
        as_bytes(entry.link),
        payload.object if isinstance(payload, Code) else "",
        payload if isinstance(payload, bytes) else None,
        payload if isinstance(payload, Script) else payload.script if isinstance(payload, PythonText) else None,
        payload.complaint if isinstance(payload, Unloadable) else "",
        payload.statements if isinstance(payload, PythonText) else None,
        payload.libraries if isinstance(payload, Holding) else (),
        payload if isinstance(payload, Services) else None,
        payload.frozen.home if isinstance(payload, Code) and payload.frozen else None,
    )


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _payload(entry: Entry, content: Content, wanted: "_Wanted", analysis: Analysis) -> Payload:
    head = content.read(_HEAD) if entry.size else b""
    if not (head and head[0] in _FIRST_BYTES) and not wanted.perhaps(entry.path):
        return None
    if looks_like_code(head, entry.path):
        return _code(entry, head, content, analysis)
    if is_archive(head, entry.path):
        return _archive(entry, head, content, analysis)
    if is_named_as_library(entry.path):
        return Unloadable("file too short" if entry.size < _SMALLEST else "invalid ELF header")
    if head and entry.size <= _TEXT_LIMIT and wanted.matches(entry.path):
        return head + content.read(wanted.texts.take(entry.size) - len(head))
    if head and head[:2] != b"#!" and may_hold_services(entry.path):
        return _services(entry, head, content, wanted)
    if is_module(entry.path):
        data = head + content.read(_PYTHON_LIMIT - len(head))
        return _python(entry, data, _script(entry, data) if data[:2] == b"#!" else None)
    if head and _may_be_script(entry, head):
        data = head + content.read(wanted.scripts.take(min(entry.size, _SCRIPT_LIMIT)) - len(head))
        script = _script(entry, data)
        if is_application(data):
            return _application(entry, data, content, script, analysis)
        return _python(entry, data, script) if script and is_program(entry.path, script) else script
    return None


def _code(entry: Entry, head: bytes, content: Content, analysis: Analysis) -> Code:
    frozen: Frozen | None = None

    def look(read: Read) -> None:
        nonlocal frozen
        if head.startswith(ELF_MAGIC):
            frozen = read_frozen(entry.size, read, analysis.take)

    try:
        key = analysis.take(entry, head, content, look)
    except ArchiveError as error:
        return Code(analysis.refuse(entry, str(error)))
    return Code(key, frozen)


def _archive(entry: Entry, head: bytes, content: Content, analysis: Analysis) -> Payload:
    try:
        found = dict(libraries(entry, head, content, analysis.take))  # of two of one name Java takes the last
    except (ArchiveError, MemoryError) as error:
        return Code(analysis.refuse(entry, str(error) or f"no memory for its {entry.size} bytes"))
    return Archive(tuple(found.items())) if found else None


def _application(entry: Entry, data: bytes, content: Content, script: Script | None, analysis: Analysis) -> Payload:
    """A zipped application, of which `data` has been read: its texts may import anything."""
    found = _archive(entry, data, content, analysis)
    inside = found.libraries if isinstance(found, Archive) else ()
    return found if isinstance(found, Code) else PythonText(Statements(anything=True), script, inside)


def _services(entry: Entry, head: bytes, content: Content, wanted: "_Wanted") -> Services | None:
    if entry.size > _SCRIPT_LIMIT:  # the longest ones in use have a tenth of that
        return None
    return read_services(entry.path, head + content.read(wanted.scripts.take(entry.size) - len(head)))


def _script(entry: Entry, data: bytes) -> Script | None:
    executable = bool(entry.mode & 0o111)
    try:
        return read_script(data, executable, whole=len(data) == entry.size)
    except MemoryError:  # which would be kept as if the file were so
        raise
    except Exception:  # a defect of ours: it must not cost the other files
        return script_untold(data, executable)


def _python(entry: Entry, data: bytes, script: Script | None) -> PythonText:
    try:
        return PythonText(read_python(entry.path, data), script)
    except MemoryError:  # as in _script
        raise
    except Exception:  # as in _script
        return PythonText(Statements(anything=True), script)


def _may_be_script(entry: Entry, head: bytes) -> bool:
    """Whether something may execute, or a shell may read, the text that begins with `head`."""
    # A shell takes any text for one of its own that it is told to execute; most begin with a comment.
    executable = head[:1] == b"#" and entry.mode & 0o111 != 0
    named = head[:2] == b"#!" or executable or entry.path.endswith(_SHELL_SUFFIXES) or entry.path.startswith(_SETTINGS)
    return named and not entry.path.startswith(_OF_PACKAGING)


class _Allowance:
    """How much of one kind an image holds."""

    def __init__(self, what: str) -> None:
        self._what, self._left = what, _TEXTS_LIMIT

    def take(self, size: int) -> int:
        """Count in `size` bytes, and give them back; LayerError where no real image has so many."""
        self._left -= size
        if self._left < 0:
            raise LayerError(f"the image holds more than {_TEXTS_LIMIT >> 20} MiB of {self._what}, as no real one does")
        return size


class _Wanted:
    """Globs on absolute paths, matched on an entry's last two components.

    A layer may write a file through a linked directory (`lib/os-release` for `usr/lib/os-release`), so the whole
    path is compared only in the finished tree.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.texts, self.scripts = _Allowance("texts of the system"), _Allowance("scripts")
        tails = {"/".join(pattern.split("/")[-2:]) for pattern in patterns}
        self._regex = re.compile("|".join(f"(?:{fnmatch.translate(tail)})" for tail in sorted(tails)))
        looked_at = {*tails, *PATHS}
        ends = {re.split(r"[*?\]]", tail)[-1] for tail in looked_at} | {*_SHELL_SUFFIXES, ".so", PTX_SUFFIX}
        self._suffixes = tuple(sorted(end for end in ends if end))
        infixes = sorted(re.escape(re.split(r"[*?\[]", tail)[0]) for tail in looked_at if tail[-1] in "*?]")
        self._infix = re.compile("|".join([*infixes, r"\.so\.\d"])).search

    def perhaps(self, path: str) -> bool:
        """A quick look that lets through all that `matches` and `may_hold_services` would, and names of scripts,
        libraries and PTX.
        """
        named = path.endswith(self._suffixes) or path.startswith(_SETTINGS)
        return named or bool(self._infix(path)) or is_module(path)

    def matches(self, path: str) -> bool:
        return bool(self._regex.match("/".join(("/" + path).split("/")[-2:])))
