"""What is found where a command is followed (loader/roots.py): programs that start, how, and what they may load."""

import posixpath
import re
from collections.abc import Container, Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from imgcheck.documents.image import IN_ARCHIVE, ImageProfile, Unstartable
from imgcheck.loader.closure import Roots, closed_at
from imgcheck.loader.expansion import GAP, Shell
from imgcheck.loader.imports import PythonStart
from imgcheck.loader.modules import PythonModules, prefix_of
from imgcheck.loader.native_modules import Interpreted, interpreted, native_modules, pointed_to
from imgcheck.loader.node import ADDON, fits_node, node_directories
from imgcheck.loader.python import python_path
from imgcheck.loader.shell import SHELLS
from imgcheck.loader.tree import Tree

EVERY_SHELL = SHELLS | {"fish", "csh", "tcsh"}
"""Also those whose texts nobody reads."""
_NODE = frozenset({"node", "nodejs"})
_OF_OPTIONS = re.compile(r".*(?:ARGS|OPTS|OPTIONS|_DIR)").fullmatch
"""Variables that programs take for options (GUNICORN_CMD_ARGS, UVICORN_APP_DIR)."""
Outcome = Literal["started", "waits", "unknown", "absent"]
"""Of a command: a program was found; a shell waits for what a user types, or hands over what nobody gave; only running
tells; it does not start."""


class By(Struct, frozen=True):
    """Who starts a command."""

    name: str = ""
    """The script or launcher; empty for the container's runtime."""
    report: bool = True
    """Whether it is certain that the command is started as it stands, so that a failure is worth telling."""
    perhaps: bool = False
    """A script starts it on a condition, perhaps for other CPUs, or goes on where it fails."""
    always: bool = True
    """Every run comes to the command, and ends with it."""
    branch: bool = False
    """A run ends with it that goes one way of several."""

    def inside(
        self, name: str, report: bool = True, perhaps: bool = False, always: bool = True, branch: bool = False
    ) -> "By":
        """The script or launcher `name`, started by this one."""
        ends = self.always and always
        one_of = (self.always or self.branch) and (always or branch) and not ends
        return By(name, self.report and report, self.perhaps or perhaps, ends, one_of)


class Started:
    """Collects what starts."""

    def __init__(self, image: ImageProfile, tree: Tree, loader_variables: tuple[str, ...] | None) -> None:
        """`loader_variables` are the image's own."""
        self._image, self._tree, self._own = image, tree, loader_variables
        self._found: dict[str, set[tuple[str, ...] | None]] = {}
        """ELF files that start, and the loader variables with which they do (Shell.loader_variables)."""
        self._certain: set[str] = set()
        """Those of them that something starts whatever the CPU has, and without which it does not go on."""
        self._always: set[str] = set()
        """Those that every run comes to, and ends with."""
        self._branches: set[str] = set()
        """Those with which a run ends that goes one way of several."""
        self._launching: set[str] = set()
        """Launchers: a run ends with what they start."""
        self._ways: dict[str, str] = {}
        """Programs, scripts and launchers (by the words that call them) to what was first seen to start them."""
        self._code = {record.path for record in image.files} - tree.linkage.keys()
        """Files of GPU code."""
        self._words: set[str] = set()
        """Paths that the words of commands name."""
        self._libraries: set[str] = set()
        """Libraries that they point to."""
        self._interpreted: dict[Interpreted, None] = {}
        self._node_directories: dict[str, None] = {}
        self._prefixes: set[str] = set()
        """Of the Pythons that start, and of the virtual environments from which they do."""
        self._bases: dict[str, bool] = {}
        """Prefixes of Pythons, and whether they start in virtual environments alone."""
        self._pythons: list[tuple[str, PythonStart]] = []
        """Pythons that start, and how."""
        self._from_workdir: dict[str, None] = {}
        """As Roots.from_workdir."""
        self._read: set[str] = set()
        """Scripts that interpreters surely read, by their paths."""
        self.unstartable: dict[Unstartable, None] = {}
        self.idle = False
        """A run may end with no program."""
        self.in_part = False
        """More may start, which cannot be told."""

    def program(self, path: str, shell: Shell, by: By) -> None:
        """The ELF file at `path` starts."""
        told = shell.loader_variables
        self._found.setdefault(path, set()).add(told)
        # What it loads then, nobody can tell.
        self.in_part |= told is None
        self.way(path, by)
        if not by.perhaps:
            self._certain.add(path)
        if by.always:
            self._always.add(path)
        if by.branch:
            self._branches.add(path)

    def launcher(self, path: str) -> None:
        """The program at `path` starts another."""
        self._launching.add(path)

    def way(self, what: str, by: By) -> None:
        """A program, script or launcher is started by another."""
        if by.name and by.name != what:
            self._ways.setdefault(what, by.name)

    def words(self, words: Sequence[str], directories: Sequence[str]) -> None:
        """A program gets these words in one of some working directories."""
        named = (posixpath.join(place, word) for word in words for place in directories if self._code)
        self._words.update(map(self._tree.canonical, (each for each in named if GAP not in each)))
        self._libraries.update(pointed_to(self._tree, words, directories))

    def python(self, path: str, called: str, arguments: tuple[str, ...], shell: Shell, by: By) -> None:
        """The Python at `path` starts, by the link or path `called`."""
        search = tuple(python_path(shell, arguments))
        one_of, here = by.always or by.branch, _surely_in_workdir(shell, by)
        told = tuple(_directories_told(shell))
        start = PythonStart(arguments, tuple(shell.directories), search, not by.perhaps, one_of, here, told)
        self._pythons.append((path, start))
        base, prefix = prefix_of(path), prefix_of(called)
        self._prefixes |= {base, prefix}
        self._bases[base] = self._bases.get(base, True) and prefix != base and self._has_packages(prefix)

    def _has_packages(self, prefix: str) -> bool:
        """Whether a prefix has packages as a virtual environment has them: /usr/local has those of Debian's Python."""
        paths = (path for path in self._image.tree.python_paths if path.endswith("/site-packages"))
        return any(path.startswith(f"{prefix}/lib") for path in paths)

    def named_from_workdir(self, word: str, shell: Shell, by: By) -> None:
        """A word that names a program or script: where it is no whole path, from where the container starts."""
        if not word.startswith("/") and _surely_in_workdir(shell, by):
            self._from_workdir[word] = None

    def read(self, path: str, shell: Shell, by: By) -> None:
        """An interpreter reads the script at `path`."""
        if by.report and not by.perhaps and not shell.asked:
            self._read.add(path)

    def interpreter(self, path: str, called: str, arguments: tuple[str, ...], shell: Shell) -> bool:
        """The program at `path` starts; whether it is an interpreter other than Python."""
        runs_node = not _NODE.isdisjoint((called, posixpath.basename(path)))
        if runs_node:
            self._node_directories |= dict.fromkeys(node_directories(arguments, shell.directories))
        values = (value for name in shell.exported for value in shell.variables.get(name, ()))
        if how := interpreted(path, called, arguments, shell.directories, values):
            self._interpreted[how] = None
        return runs_node or how is not None

    def roots(self, command: tuple[str, ...], outcomes: Sequence[Outcome]) -> Roots:
        """All of it, of a command and entries that ended so."""
        settled = self._settled()
        self._certain |= settled
        found, environments, modules = self._found, self._environments(), self._modules(settled)
        imports = dict(modules.importable())
        imports |= dict.fromkeys((*self._addons(), *self._zipped()), False)
        perhaps = [path for path in found if path not in self._certain]
        return Roots(
            command=command,
            entries=tuple(found),
            imports=tuple(imports),
            everything=any(outcome == "waits" for outcome in outcomes),
            # A command that is not in the image comes from outside: like an unknown one, it may use anything.
            in_part=self.in_part or any(outcome in ("unknown", "absent") for outcome in outcomes),
            steered=tuple(path for path, told in environments.items() if told is None),
            environments={path: told for path, told in environments.items() if told is not None},
            perhaps=(*perhaps, *(path for path, named in imports.items() if not named)),
            always=tuple(path for path in found if path in self._always),
            misfits=modules.misfits(),
            guarded=modules.guarded(),
            named=tuple(self._named(modules)),
            modules=tuple(modules.imports.by),
            ways=self._ways | modules.imports.perhaps | modules.imports.by,
            unstartable=tuple(self.unstartable),
            from_workdir=tuple(dict.fromkeys((*self._from_workdir, *modules.imports.from_workdir))),
            closed=tuple(sorted(path for path in self._read if closed_at(path, self._image.tree.closed))),
        )

    def _environments(self) -> dict[str, tuple[str, ...] | None]:
        """Files that start with other loader variables than the image's alone, and these; None where nothing tells."""
        changed = {path: told for path, told in self._found.items() if self._own not in told}
        return {path: next(iter(told)) if len(told) == 1 else None for path, told in changed.items()}

    def _settled(self) -> set[str]:
        """The one program with which every way ends, and that is started whichever a run goes."""
        programs = (self._branches | self._always) - self._launching
        ends = {path for path in programs if posixpath.basename(path) not in EVERY_SHELL}
        return ends if len(ends) == 1 and not self.idle else set()

    def _modules(self, settled: Container[str]) -> PythonModules:
        """What there is for the Pythons that run."""
        bases = {prefix for prefix, alone in self._bases.items() if alone}
        starts = [structs.replace(each, one_of=each.one_of and path in settled) for path, each in self._pythons]
        return PythonModules(self._image, self._tree, self._found, self._prefixes, bases, starts)

    def _named(self, modules: PythonModules) -> dict[str, None]:
        """Files with code that the texts name which run, or words of the commands, and modules of interpreters."""
        mentions = self._image.tree.mentions
        paths = dict.fromkeys(path for text in sorted(modules.imports.texts) for path in mentions.get(text, ()))
        paths |= dict.fromkeys(sorted(self._words & self._code | self._libraries))
        return paths | dict.fromkeys(native_modules(self._tree, self._interpreted))

    def _zipped(self) -> Iterator[str]:
        """Libraries of zipped applications that Python starts: they unpack themselves, and import what is in them."""
        scripts = {self._tree.canonical(path) for _, start in self._pythons for path in start.scripts}
        archives = tuple(f"{script}{IN_ARCHIVE}" for script in scripts)
        return (path for path in self._tree.linkage if path.startswith(archives))

    def _addons(self) -> Iterator[str]:
        """Addons for the Node.js that runs: which of them a script asks for is not followed."""
        nodes = [self._tree.linkage[path] for path in self._found if posixpath.basename(path) in _NODE]
        places = tuple(f"{self._tree.canonical(path).rstrip('/')}/" for path in self._node_directories)
        for path, linkage in self._tree.linkage.items():
            if path.endswith(ADDON) and path.startswith(places) and any(fits_node(linkage, node) for node in nodes):
                yield path


def _surely_in_workdir(shell: Shell, by: By) -> bool:
    """Whether a command is surely started, and where the container starts."""
    return by.report and not by.perhaps and not shell.elsewhere


def _directories_told(shell: Shell) -> Iterator[str]:
    """What variables that hold options, or name a directory, have for whole paths."""
    for name in filter(_OF_OPTIONS, sorted(shell.exported)):
        for value in shell.variables.get(name, ()):
            yield from re.findall(r"(?:^|[=\s])(/\S*)", value)
