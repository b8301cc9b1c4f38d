"""Which packages a Python can come to import, by the import statements in the texts of the image.

Certain is what statements surely import (loader.statements), of packages those in modules that come along with them.
Perhaps it imports what the others name, what packages say that they require (their compiled modules import it, too),
and plug-ins where a text asks for them. Where an application's text works names out, that may be any package.
"""

import posixpath
import re
import sys
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct, structs

from imgcheck.documents.image import ImageProfile, PythonCode, PythonModule
from imgcheck.loader.closure import top_level, top_levels
from imgcheck.loader.expansion import GAP
from imgcheck.loader.python import invoked
from imgcheck.loader.statements import Statements, of_application, told_apart
from imgcheck.loader.tree import Tree

_DEEPEST = 20
"""Directories above a text by which it is found."""
_PROGRAMS = ("bin", "sbin")
"""Directories whose scripts belong to packages: what else they import, their arguments say."""
_APPLICATION = ("-A", "--app")
"""Options of celery and flask before the module of an application."""
_WHOLE_PATH = re.compile(r"(?:^|=)(/.*)", re.DOTALL)
"""In a word of a command."""
_OBJECT = re.compile(r"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*(?:\(.*\))?|\.[aw]sgi)")
"""`package.module:object` of uvicorn, gunicorn and others, and `project.wsgi`, as Django calls it."""


class PythonStart(Struct, frozen=True):
    """How a Python starts."""

    arguments: tuple[str, ...]
    directories: tuple[str, ...]
    """Where it may start."""
    searched: tuple[str, ...]
    """PYTHONPATH, as it may be."""
    certain: bool = True
    """It does, whatever the CPU has, and nothing goes on without it."""
    one_of: bool = False
    """Each run ends with one of those starts of which this is true."""
    from_workdir: bool = False
    """It surely does so where the container starts."""
    told: tuple[str, ...] = ()
    """Directories that variables name which programs take for options (GUNICORN_CMD_ARGS, UVICORN_APP_DIR)."""

    @property
    def module_directories(self) -> tuple[str, ...]:
        """Where it looks for modules first: beside its script, and in PYTHONPATH.

        Programs of packages that run an application (gunicorn, celery, flask) look where they start.
        """
        beside = tuple(map(posixpath.dirname, self.scripts))
        of_packages = any(posixpath.basename(place) in _PROGRAMS for place in beside)
        return (*beside, *(self.directories if of_packages or not beside else ()), *self.searched)

    @property
    def scripts(self) -> tuple[str, ...]:
        """The paths that its script may have; none where it runs something else."""
        kind, words = invoked(self.arguments)
        script = words[0] if words and not kind else ""
        return tuple(posixpath.join(place, script) for place in self.directories) if script else ()


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
    later: frozenset[str] = frozenset()
    """Compiled modules, by their paths without suffix, that do not come along with the packages imported: they are only
    perhaps imported."""
    guarded: frozenset[str] = frozenset()
    """The same of those without which their packages go on."""
    from_workdir: tuple[str, ...] = ()
    """As Roots.from_workdir, of what arguments name."""


def imported(image: ImageProfile, tree: Tree, starts: Iterable[PythonStart]) -> Imports:
    """What Pythons that start so can import."""
    search = _Search(image, tree)
    found = [(start, search.start(start)) for start in starts]
    certain = [brought for start, brought in found if start.certain]
    ends = [brought for start, brought in found if start.one_of]
    surely = _together([*certain, *([_in_common(ends)] if ends else [])])
    every = _together(brought for _, brought in found)
    search.follow_doubtful(surely.by)
    later = search.later - surely.compiled
    guarded = frozenset(f"{code.path}/{name}" for code in image.tree.python_code for name in code.guarded)
    perhaps = {name: by for name, by in (every.by | search.perhaps).items() if name not in surely.by}
    anything = search.anything or not every.told
    texts, here = frozenset(search.texts), tuple(search.from_workdir)
    return Imports(surely.by, perhaps, surely.told, anything, texts, frozenset(later), guarded, here)


class _Brought(Struct):
    """What surely comes along with a start."""

    by: dict[str, str] = {}
    """As Imports.by."""
    compiled: set[str] = set()
    """Compiled modules that something imports by their names, which do not come along with their packages."""
    told: bool = True
    """Whether the texts tell it at all."""


def _together(found: Iterable[_Brought]) -> _Brought:
    """All that comes along with one of some starts."""
    every = _Brought()
    for each in found:
        for name, by in each.by.items():
            every.by.setdefault(name, by)
        every.compiled |= each.compiled
        every.told &= each.told
    return every


def _in_common(found: Sequence[_Brought]) -> _Brought:
    """What comes along with each of some starts, of which those that tell nothing bring whatever there is."""
    telling = [each for each in found if each.told]
    names, compiled = (
        set.intersection(*sets) if sets else set[str]()
        for sets in ([set(each.by) for each in telling], [each.compiled for each in telling])
    )
    by = {name: by for name, by in _together(found).by.items() if name in names}
    return _Brought(by, compiled, bool(telling))


def _only_tells(words: tuple[str, ...]) -> bool:
    """Whether a program is only asked to tell how it is used, or its version."""
    return not {"--help", "-h", "--version", "-V", "-VV", "-?"}.isdisjoint(words)


class _Search:
    """Follows import statements from text to text."""

    def __init__(self, image: ImageProfile, tree: Tree) -> None:
        self._tree = tree
        self._paths = [f"{path}/" for path in image.tree.python_paths]
        self._packages: dict[str, list[PythonCode]] = {}
        """By top-level module; a namespace has several."""
        self._modules: dict[str, list[PythonModule]] = {}
        """By name: several Pythons may have one."""
        for module in image.tree.python_modules:
            self._modules.setdefault(module.name, []).append(module)
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
        self._followed: set[str] = set()
        """Those whose texts have been looked at."""
        self._brought = _Brought()
        """What comes along with the start that is followed."""
        self.perhaps: dict[str, str] = {}
        self.from_workdir: dict[str, None] = {}
        """As Imports.from_workdir."""
        self.texts: set[str] = set()
        self.later = {f"{code.path}/{name}" for code in image.tree.python_code for name in code.later}
        """Compiled modules that do not come along with their packages."""
        self.anything = False

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

    def start(self, start: PythonStart) -> _Brought:
        """Follow what a Python imports that starts so."""
        self._brought = _Brought()
        kind, words = invoked(start.arguments)
        if kind:
            self._code_or_module(kind, words, start)
        elif words or not _only_tells(start.arguments):
            self._script(words, start)
        return self._brought

    def _code_or_module(self, kind: str, given: tuple[str, ...], start: PythonStart) -> None:
        if not given or GAP in given[0]:
            self._brought.told = False
        elif kind == "c":
            statements = of_application(given[0].encode("utf-8", "replace"))
            self._follow(self._line(statements), (*start.directories, *start.searched))
            self._bring(statements.certain)
        else:
            name, places = given[0].partition(".")[0], (*start.directories, *start.searched)
            self._note_module(given[0], start.searched, start)
            of_package = name in self._packages
            named = self._arguments(given[1:], start.searched, start, of_package) or bool(self._local(name, places))
            self.anything |= not (named or _only_tells(given[1:]))
            run = map(self._told_apart, (given[0], f"{given[0]}.__main__"))
            self._follow(PythonCode("python -m", tuple(dict.fromkeys(run))), places)
            self._bring(given[:1])

    def _line(self, statements: Statements) -> PythonCode:
        """What the text of a command line does, as a profile has it of files."""
        perhaps = (*statements.conditional, *statements.later)
        return PythonCode(
            "python -c",
            tuple(map(self._told_apart, statements.certain)),
            tuple(map(self._told_apart, perhaps)),
            statements.anything,
            statements.plugins,
        )

    def _bring(self, names: Iterable[str]) -> None:
        """Take what a command line names for imported with all compiled modules below: no text may name it."""
        paths = [place + name.replace(".", "/") for place in self._paths for name in names if "." in name]
        below = {each for each in self.later if any(f"{each}/".startswith(f"{path}/") for path in paths)}
        self._brought.compiled |= below

    def _told_apart(self, name: str) -> str:
        """`name`, or what is above it, as the profile tells modules of packages apart."""
        return told_apart(name, self._modules)

    def _script(self, words: tuple[str, ...], start: PythonStart) -> None:
        found = list(self._own_scripts(words[0] if words else "", start.directories))
        self._brought.told &= bool(found)
        for code in found:
            directory = posixpath.dirname(code.path)
            places = (directory, *start.searched)
            of_package = posixpath.basename(directory) in _PROGRAMS
            # One of the image's own may look for modules anywhere.
            own = code.anything or self._packages.keys().isdisjoint(name.partition(".")[0] for name in code.imports)
            named = self._arguments(words[1:], places, start, of_package and not own)
            self.anything |= of_package and not (named or _only_tells(words[1:]))
            self._follow(code, places)

    def _own_scripts(self, script: str, directories: Iterable[str]) -> Iterator[PythonCode]:
        """The texts that a script may be; where its directory is not known, the only one that is called so."""
        called = self._named.get(posixpath.basename(script).removesuffix(".py"), [])
        alike = [code for code in called if code.path.endswith(f"/{posixpath.normpath(script)}")]
        for path in (posixpath.join(place, script) for place in directories):
            if GAP not in path and (code := self._own.get(self._tree.canonical(path))):
                yield code
            elif GAP in path and GAP not in script and len(alike) == 1:
                yield alike[0]

    def _arguments(
        self, words: tuple[str, ...], searched: tuple[str, ...], start: PythonStart, of_package: bool
    ) -> bool:
        """Whether an argument names code of the image's own (`app:app`, `-A app`, `train.py`), which is followed.

        It is sought in what is `searched` wherever Python starts, and there. `of_package`: by a package's program.
        """
        found, read, places = False, False, (*searched, *start.directories)
        modules: list[str] = []
        # An option may lead to it (`--app-dir /app`, `--chdir=/app`).
        elsewhere = (*searched, *(path[1] for path in map(_WHOLE_PATH.search, words) if path))
        for before, word in pairwise(("", *words)):
            option, _, value = word.partition("=") if word.startswith("--") else (before, "", word)
            files = self._files(value, start)
            if not files and (option in _APPLICATION or _OBJECT.fullmatch(value)):
                modules.append(value)
            read |= bool(files)
            codes = files or self._local(re.split(r"[:.]", value)[0], places)
            for code in codes:
                self._follow(code, (posixpath.dirname(code.path), *places))
            found |= bool(codes)
        # Another text may lead to it: a configuration of gunicorn does with `chdir`.
        for module in modules if of_package and not read else ():
            self._note_module(module, elsewhere, start)
        return found

    def _files(self, word: str, start: PythonStart) -> list[PythonCode]:
        """The texts of the image's own that `word` names by their path."""
        paths = [self._tree.canonical(posixpath.join(place, word)) for place in start.directories]
        files = [self._own[path] for path in paths if path in self._own]
        if files and start.from_workdir and not word.startswith("/"):
            self.from_workdir[word] = None
        return files

    def _note_module(self, word: str, elsewhere: tuple[str, ...], start: PythonStart) -> None:
        """`word` names a module, which may lie where the container starts alone."""
        top = re.split(r"[:.]", word)[0]
        here = start.from_workdir and self._local(top, start.directories)
        known = top in self._packages or top in sys.stdlib_module_names
        if here and not known and not self._local(top, (*elsewhere, *start.told)):
            self.from_workdir[word] = None

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
                    self._brought.by.setdefault(name.partition(".")[0], at.path)
                    pending += self._codes(name, places)
                    self._brought.compiled |= self._compiled_with(name, places)
        self._followed |= seen

    def follow_doubtful(self, surely: Container[str]) -> None:
        """What is perhaps imported besides, and what that imports in turn."""
        while self._doubtful:
            name, by, places = self._doubtful.popleft()
            if name in self._followed:
                continue
            self._followed.add(name)
            if (top := name.partition(".")[0]) not in surely:
                self.perhaps.setdefault(top, by)
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
        top = name.partition(".")[0]
        for known in dict.fromkeys((name, top)):
            if own := self._local(known, places):
                paths = {code.path for code in own}
                modules = (each for each in self._modules.get(name, ()) if each.package in paths)
                return [*own, *(PythonCode(top, each.imports) for each in modules)]
        found = [structs.replace(each, path=top) for each in self._packages.get(top, ())]
        found += [PythonCode(top, each.imports) for each in self._modules.get(name, ())]
        # What is nowhere there may be where something else leads, as an editable installation does.
        return found or self._named.get(top) or [PythonCode(top)]

    def _compiled_with(self, name: str, places: tuple[str, ...]) -> set[str]:
        """Compiled modules that come along with a module of a package, which the package itself does not import."""
        own = {code.path for code in self._local(name.partition(".")[0], places)}
        modules = (each for each in self._modules.get(name, ()) if not own or each.package in own)
        return {f"{each.package}/{part}" for each in modules for part in each.compiled}

    def _local(self, name: str, places: tuple[str, ...]) -> list[PythonCode]:
        """The texts of a module of the image's own in `places`."""
        found: list[PythonCode] = []
        if all(part.isidentifier() for part in name.split(".")):
            file = name.replace(".", "/")
            for inside in (self._tree.canonical(posixpath.join(place, file)) for place in places if GAP not in place):
                paths = (path for path in (inside, f"{inside}.py") if path not in self._programs)
                found += [self._own[path] for path in paths if path in self._own]
                found += self._below.get(inside, [])
        return found
