"""Which packages a Python can come to import, by the import statements in the texts of the image.

Of an application's own texts each counts, wherever it stands, and so do the names in quotes, since settings name
modules so ("app.settings"); of packages those that run when a module is imported, since much that their functions
import is for options. What else these texts import, by names that are worked out at run time, nothing tells.
"""

import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate

from msgspec import Struct

from imgcheck.documents.image import ImageProfile, PythonCode
from imgcheck.loader.expansion import GAP
from imgcheck.loader.python import invoked
from imgcheck.loader.tree import Tree

_STATEMENT = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from[ \t]+([A-Za-z_]\w*)[\w.]*[ \t]+import\b|import[ \t]+([A-Za-z_][^\n;#]*))", re.MULTILINE
)
_QUOTED = re.compile(rb"[\"']([A-Za-z_]\w*)(?:[.:][\w.:]*)?[\"']")
_FILES = re.compile(rb"[\"']([\w+.,@/-]{0,200}\.(?:so(?:\.\d+){0,4}|cubin|fatbin|ptx|hsaco))[\"']")
_INSIDE = b" \t\r\n#)]}"
"""What a line of a module begins with that is no statement of its own."""
_LATER = re.compile(rb"(?:async[ \t]+)?def\b|if[ \t]+__name__\b")
_FOR_CHECKERS = re.compile(rb"if[ \t]+(?:\w+\.)?TYPE_CHECKING\b")
_METHOD = re.compile(rb"^[ \t]+(?:async[ \t]+)?def\b", re.MULTILINE)
_DEEPEST = 20
"""Directories above a text by which it is found."""
_PROGRAMS = ("bin", "sbin")
"""Directories whose scripts belong to packages: what else they import, their arguments say."""


class PythonStart(Struct, frozen=True):
    """How a Python starts."""

    arguments: tuple[str, ...]
    directories: tuple[str, ...]
    """Where it may start."""
    searched: tuple[str, ...]
    """PYTHONPATH, as it may be."""

    @property
    def module_directories(self) -> tuple[str, ...]:
        """Where it looks for modules first: beside its script, and in PYTHONPATH."""
        kind, words = invoked(self.arguments)
        script = words[0] if words and not kind else ""
        beside = (posixpath.dirname(posixpath.join(place, script)) if script else place for place in self.directories)
        return (*beside, *self.searched)


def named_modules(text: bytes) -> set[str]:
    """Top-level modules that the import statements in `text` name, a module of a package: where it is imported."""
    return _named(_lines(text, at_import=True))


def of_application(text: bytes) -> set[str]:
    """Those that the import statements in an application's own text name, or words in quotes."""
    return _named(_lines(text, at_import=False)) | _decoded(_QUOTED.findall(text))


def named_files(text: bytes) -> set[str]:
    """Libraries and files of GPU code that words in quotes name in an application's own text."""
    return {name.decode("ascii", "replace") for name in _FILES.findall(text)}


def _named(lines: Iterable[bytes]) -> set[str]:
    names: set[bytes] = set()
    for taken, listed in _STATEMENT.findall(b"\n".join(lines)):
        names.update((taken,) if taken else listed.split(b","))
    return _decoded(name.strip().partition(b" ")[0].partition(b".")[0] for name in names)


def _lines(text: bytes, at_import: bool) -> Iterator[bytes]:
    """Lines with "import" in them, but for those of what is for type checkers; `at_import`: that run where the module
    is imported, which those of functions do not, nor those of a class's methods.

    Few lines have the word, and finding them costs a tenth of what an expression takes for all.
    """
    text = text.replace(b"\\\n", b" ")
    statement, looked_at, left_out = -1, 0, False
    at = text.find(b"import")
    while at >= 0:
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        above, end = _statement(text, begin, statement, looked_at), len(text) if end < 0 else end
        if above != statement:
            left_out = bool(_FOR_CHECKERS.match(text, above) or (at_import and _LATER.match(text, above)))
            statement = looked_at = above
        if at_import and text.startswith(b"class", above):
            left_out = left_out or bool(_METHOD.search(text, looked_at, begin))
        looked_at = begin
        if not left_out:
            yield text[begin:end]
        at = text.find(b"import", end)


def _statement(text: bytes, begin: int, known: int, looked_at: int) -> int:
    """Where the module's statement begins that the line at `begin` stands in; of the line at `looked_at`, above it,
    that is known.
    """
    while begin > looked_at and text[begin] in _INSIDE:
        begin = text.rfind(b"\n", 0, begin - 1) + 1
    return begin if begin > looked_at else max(known, 0)


def _decoded(names: Iterable[bytes]) -> set[str]:
    return {name for name in (name.decode("ascii", "replace") for name in names) if name.isidentifier()}


class Imports(Struct, frozen=True):
    """What Pythons can come to import."""

    by: dict[str, str] = {}
    """Top-level module to what was first seen to import it: the path of a text, another top-level module, or what a
    command line has (`python -c`).
    """
    told: bool = False
    """Whether that is all of it."""
    texts: frozenset[str] = frozenset()
    """The application's own texts that they come to read."""


def imported(image: ImageProfile, tree: Tree, starts: Iterable[PythonStart]) -> Imports:
    """What Pythons that start so can import."""
    search = _Search(image, tree)
    for start in starts:
        search.start(start)
    return Imports(search.by, search.told, frozenset(search.texts))


def top_level(path: str, directory: str) -> str:
    """The top-level module to which the file at `path` belongs in a `directory`, which ends with a slash."""
    return path.removeprefix(directory).partition("/")[0].partition(".")[0]


class _Search:
    """Follows import statements from text to text."""

    def __init__(self, image: ImageProfile, tree: Tree) -> None:
        self._tree = tree
        self._paths = [f"{path}/" for path in image.tree.python_paths]
        self._packages: dict[str, list[PythonCode]] = {}
        """By top-level module; a namespace has several."""
        self._own: dict[str, PythonCode] = {}
        """By path: files, and directories with an `__init__.py`, outside of the directories of packages."""
        self._below: dict[str, list[PythonCode]] = {}
        """The same by the directories above them,"""
        self._named: dict[str, list[PythonCode]] = {}
        """and by name."""
        for code in image.tree.python_code:
            self._take(code)
        self.by: dict[str, str] = {}
        self.texts: set[str] = set()
        self.told = True

    def _take(self, code: PythonCode) -> None:
        place = next((place for place in self._paths if code.path.startswith(place)), "")
        if place:
            self._packages.setdefault(top_level(code.path, place), []).append(code)
            return
        directory, _, name = code.path.rpartition("/")
        self._own[code.path] = code
        self._named.setdefault(name.removesuffix(".py"), []).append(code)
        for above in list(accumulate(directory.split("/"), "{}/{}".format))[1:_DEEPEST]:
            self._below.setdefault(above, []).append(code)

    def start(self, start: PythonStart) -> None:
        """Follow what a Python imports that starts so."""
        kind, words = invoked(start.arguments)
        if kind:
            self._code_or_module(kind, words, start)
        else:
            self._script(words, start)

    def _code_or_module(self, kind: str, given: tuple[str, ...], start: PythonStart) -> None:
        if not given or GAP in given[0]:
            self.told = False
        elif kind == "c":
            names = sorted(of_application(given[0].encode("utf-8", "replace")))
            self._follow(PythonCode("python -c", tuple(names)), (*start.directories, *start.searched))
        else:
            name, places = given[0].partition(".")[0], (*start.directories, *start.searched)
            self.told &= self._arguments(given[1:], places, start) or bool(self._local(name, places))
            self._follow(PythonCode("python -m", (name,)), places)

    def _script(self, words: tuple[str, ...], start: PythonStart) -> None:
        paths = [self._tree.canonical(posixpath.join(place, *words[:1])) for place in start.directories]
        for code in map(self._own.get, paths):
            if code is None:
                self.told = False
                continue
            directory = posixpath.dirname(code.path)
            places = (directory, *start.searched)
            named = self._arguments(words[1:], (*places, *start.directories), start)
            self.told &= named or posixpath.basename(directory) not in _PROGRAMS
            self._follow(code, places)

    def _arguments(self, words: tuple[str, ...], places: tuple[str, ...], start: PythonStart) -> bool:
        """Whether an argument names code of the image's own (`app:app`, `-A app`, `train.py`), which is followed."""
        found = False
        for word in words:
            value = word.partition("=")[2] if word.startswith("--") else word
            paths = [self._tree.canonical(posixpath.join(place, value)) for place in start.directories]
            codes = [self._own[path] for path in paths if path in self._own]
            codes = codes or self._local(re.split(r"[:.]", value)[0], places)
            for code in codes:
                self._follow(code, (posixpath.dirname(code.path), *places))
            found |= bool(codes)
        return found

    def _follow(self, code: PythonCode, places: tuple[str, ...]) -> None:
        """What `code` imports, sought in `places` before the packages, and what that imports: the nearest first."""
        pending, seen = deque([code]), set[str]()
        while pending:
            at = pending.popleft()
            self.texts |= {at.path} & self._own.keys()
            for name in at.imports:
                if name in seen:
                    continue
                seen.add(name)
                self.by.setdefault(name, at.path)
                # What is nowhere there may be where something else leads, as an editable installation does.
                own = self._local(name, places)
                packages = () if own else self._packages.get(name, ())
                pending += own or [PythonCode(name, each.imports) for each in packages] or self._named.get(name, [])

    def _local(self, name: str, places: tuple[str, ...]) -> list[PythonCode]:
        """The texts of a module of the image's own in `places`."""
        found: list[PythonCode] = []
        if name.isidentifier():
            for inside in (self._tree.canonical(posixpath.join(place, name)) for place in places if GAP not in place):
                found += [self._own[path] for path in (inside, f"{inside}.py") if path in self._own]
                found += self._below.get(inside, [])
        return found
