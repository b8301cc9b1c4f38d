"""Which packages a Python can come to import, by the import statements in the texts of the image.

For certain it imports what statements at the top of a text name, of an application's own also those in functions.
Perhaps it imports what stands behind a condition or in `try`, what functions of packages import, what packages say
that they require (their compiled modules import it, too), plug-ins where a text asks for them, and what an application
names in quotes, since settings name modules so ("app.settings"). Where an application's text works names out, that may
be any package.
"""

import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct, structs

from imgcheck.documents.image import ImageProfile, PythonCode
from imgcheck.loader.closure import top_level, top_levels
from imgcheck.loader.expansion import GAP
from imgcheck.loader.python import invoked
from imgcheck.loader.tree import Tree

_STATEMENT = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from[ \t]+([A-Za-z_]\w*)[\w.]*[ \t]+import\b|import[ \t]+([A-Za-z_][^\n;#]*))", re.MULTILINE
)
_QUOTED = re.compile(rb"[\"']([A-Za-z_]\w*)(?:[.:][\w.:]*)?[\"']")
_FILES = re.compile(rb"[\"'](/[\w+.,@/-]{2,200}|[\w+.,@/-]{0,200}\.(?:so(?:\.\d+){0,4}|cubin|fatbin|ptx|hsaco))[\"']")
_INSIDE = b" \t\r\n#)]}"
"""What a line of a module begins with that is no statement of its own."""
_LATER = re.compile(rb"(?:async[ \t]+)?def\b")
_AS_PROGRAM = re.compile(rb"if[ \t]+__name__\b")
_PERHAPS = re.compile(rb"(?:if|elif|else|try|except|finally|for|while)\b")
_ELSEWHERE = re.compile(
    rb"(?:el)?if[ \t(]+(?:(?:\w+\.)?TYPE_CHECKING\b|(?:sys\.platform|os\.name|platform\.system\(\))[ \t]*"
    rb"(?:==[ \t]*|\.startswith\()[\"'](?:win|nt|cygwin|darwin|Windows|Darwin|java))"
)
"""For type checkers, or other systems than Linux."""
_ANYTHING = re.compile(
    rb"(?:import_module|__import__)\((?![ \t]*[\"'])"
    rb"|\bexec\(|\bexec_module\b|\bsys\.path\b|\brun_(?:path|module)\b"
)
_CALLED = re.compile(rb"(?:import_module|__import__)\([ \t]*[\"']([A-Za-z_]\w*)")
_ASKED = re.compile(rb"(?:import\w*|find_spec|Lazy\w*)\([ \t]*[\"']([A-Za-z_]\w*)")
"""As packages ask for what they can do without: import_optional_dependency("x"), find_spec("x"), LazyLoader("x")."""
_ASKING = (b"import_", b"_import(", b"find_spec(", b"Lazy")
_PLUGINS = re.compile(rb"\b(?:iter_)?entry_points\(")
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


class Named(NamedTuple):
    """Top-level modules that a text names."""

    certain: set[str]
    """It imports them when it is imported or run itself."""
    perhaps: set[str]


def of_package(text: bytes) -> Named:
    """Those that a text of a package imports."""
    asking = any(word in text for word in _ASKING)
    return _sorted_out(_lines(text, own=False), _ASKED.findall(text) if asking else ())


def of_application(text: bytes) -> Named:
    """Those that an application's own text imports, or names in quotes."""
    named = _sorted_out(_lines(text, own=True), _QUOTED.findall(text))
    called = _decoded(_CALLED.findall(text))
    return Named(named.certain | called, named.perhaps - called)


def imports_anything(text: bytes) -> bool:
    """Whether a text imports by names that it works out, or runs code that is no text of its own."""
    return _ANYTHING.search(text) is not None


def asks_for_plugins(text: bytes) -> bool:
    """Whether a text asks for what packages offer as plug-ins."""
    return b"entry_points" in text and _PLUGINS.search(text) is not None


def named_files(text: bytes) -> set[str]:
    """Libraries and files of GPU code that words in quotes name in an application's own text, and whole paths."""
    return {name.decode("ascii", "replace") for name in _FILES.findall(text)}


def _sorted_out(lines: Iterable[tuple[bytes, bool]], others: Iterable[bytes]) -> Named:
    """`lines` with whether their statements certainly run, and other names that are perhaps imported."""
    each: tuple[list[bytes], list[bytes]] = [], []
    for line, sure in lines:
        each[sure].append(line)
    perhaps, certain = map(_named, each)
    return Named(certain, (perhaps | _decoded(others)) - certain)


def _named(lines: Iterable[bytes]) -> set[str]:
    names: set[bytes] = set()
    for taken, listed in _STATEMENT.findall(b"\n".join(lines)):
        names.update((taken,) if taken else listed.split(b","))
    return _decoded(name.strip().partition(b" ")[0].partition(b".")[0] for name in names)


def _lines(text: bytes, own: bool) -> Iterator[tuple[bytes, bool]]:
    """Lines with "import" in them, and whether they certainly run, but for those of what is for type checkers or other
    systems. Of an application's own text its functions count as run.

    Few lines have the word, and finding them costs a tenth of what an expression takes for all.
    """
    text = text.replace(b"\\\n", b" ")
    statement, looked_at, left_out, certain = -1, 0, False, True
    at = text.find(b"import")
    while at >= 0:
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        above, end = _statement(text, begin, statement, looked_at), len(text) if end < 0 else end
        if above != statement:
            as_program = bool(_AS_PROGRAM.match(text, above))
            left_out = bool(_ELSEWHERE.match(text, above)) or (as_program and not own)
            certain = as_program or not (_PERHAPS.match(text, above) or (not own and _LATER.match(text, above)))
            statement = looked_at = above
        if not own and text.startswith(b"class", above):
            certain = certain and not _METHOD.search(text, looked_at, begin)
        looked_at = begin
        if not left_out:
            yield text[begin:end], certain
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
    perhaps: dict[str, str] = {}
    """The same of those that are only perhaps imported."""
    told: bool = False
    """Whether the texts tell it at all."""
    anything: bool = False
    """Whether it may be any package besides."""
    texts: frozenset[str] = frozenset()
    """The application's own texts that they come to read."""


def imported(image: ImageProfile, tree: Tree, starts: Iterable[PythonStart]) -> Imports:
    """What Pythons that start so can import."""
    search = _Search(image, tree)
    for start in starts:
        search.start(start)
    search.follow_doubtful()
    return Imports(search.by, search.perhaps, search.told, search.anything, frozenset(search.texts))


def read_application(path: str, text: bytes) -> PythonCode:
    """What an application's own text imports and may open."""
    named = of_application(text)
    return PythonCode(
        path,
        tuple(sorted(named.certain)),
        tuple(sorted(named.perhaps)),
        anything=imports_anything(text),
        plugins=asks_for_plugins(text),
        mentions=tuple(sorted(named_files(text))),
    )


def read_package(text: bytes) -> PythonCode:
    """What a text of a package imports."""
    named = of_package(text)
    imports, perhaps = tuple(sorted(named.certain)), tuple(sorted(named.perhaps))
    return PythonCode("", imports, perhaps, plugins=asks_for_plugins(text))


def _only_tells(words: tuple[str, ...]) -> bool:
    """Whether a program is only asked to tell how it is used, or its version."""
    return not {"--help", "-h", "--version", "-V"}.isdisjoint(words)


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
        self._programs = {script.path for script in image.tree.scripts if not script.path.endswith(".py")}
        """A program may have the name of the package that it belongs to, and is no module of that name."""
        self._requires, self._plugins = image.tree.python_requires, image.tree.python_plugins
        self._compiled = top_levels(tree.linkage, self._paths)
        """Packages with compiled modules: what these import, no text tells."""
        self._doubtful: deque[tuple[str, str, tuple[str, ...]]] = deque()
        """Modules that are perhaps imported, by what, and where they are sought."""
        self.by: dict[str, str] = {}
        self.perhaps: dict[str, str] = {}
        self.texts: set[str] = set()
        self.told, self.anything = True, False

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
            code = read_application("python -c", given[0].encode("utf-8", "replace"))
            self._follow(code, (*start.directories, *start.searched))
        else:
            name, places = given[0].partition(".")[0], (*start.directories, *start.searched)
            named = self._arguments(given[1:], places, start) or bool(self._local(name, places))
            self.anything |= not (named or _only_tells(given[1:]))
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
            of_package = posixpath.basename(directory) in _PROGRAMS
            self.anything |= of_package and not (named or _only_tells(words[1:]))
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
            self._note(at, places)
            # A word in quotes that is a module of the application's own is no accident.
            own = [name for name in at.perhaps if at.path in self._own and self._local(name, places)]
            for name in (*at.imports, *own):
                if name not in seen:
                    seen.add(name)
                    self.by.setdefault(name, at.path)
                    pending += self._codes(name, places)

    def follow_doubtful(self) -> None:
        """What is perhaps imported, and what that imports in turn."""
        while self._doubtful:
            name, by, places = self._doubtful.popleft()
            if name in self.by or name in self.perhaps:
                continue
            self.perhaps[name] = by
            for code in self._codes(name, places):
                self._note(code, places)
                self._doubtful += [(each, code.path, places) for each in code.imports]

    def _note(self, code: PythonCode, places: tuple[str, ...]) -> None:
        """What one text that is read, or a whole package, perhaps imports."""
        if code.path in self._own:
            self.texts.add(code.path)
        required = self._requires.get(code.path)
        if required is None and code.path in self._compiled:
            required = self._requires.get("")
            self.anything |= required is None
        self.anything |= code.anything
        names = (*code.perhaps, *(required or ()), *(self._plugins if code.plugins else ()))
        self._doubtful += [(name, code.path, places) for name in names]

    def _codes(self, name: str, places: tuple[str, ...]) -> list[PythonCode]:
        """The texts of a module: of a package as one that has its name for a path."""
        own = self._local(name, places)
        packages = () if own else self._packages.get(name, ())
        # What is nowhere there may be where something else leads, as an editable installation does.
        found = own or [structs.replace(each, path=name) for each in packages] or self._named.get(name, [])
        return found or [PythonCode(name)]

    def _local(self, name: str, places: tuple[str, ...]) -> list[PythonCode]:
        """The texts of a module of the image's own in `places`."""
        found: list[PythonCode] = []
        if name.isidentifier():
            for inside in (self._tree.canonical(posixpath.join(place, name)) for place in places if GAP not in place):
                paths = (path for path in (inside, f"{inside}.py") if path not in self._programs)
                found += [self._own[path] for path in paths if path in self._own]
                found += self._below.get(inside, [])
        return found
