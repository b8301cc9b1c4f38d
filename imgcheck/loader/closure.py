"""What runs in an image, what it reaches, and what the loader would miss on the way."""

import posixpath
from collections.abc import Collection, Container, Iterable
from functools import cached_property

from msgspec import Struct

from imgcheck.documents.image import REACHES, RUNS, Problem, Reach, Unstartable
from imgcheck.loader.glibc import LIBC

PYTHON_DIRECTORIES = ("/site-packages/", "/dist-packages/")
"""Parts of paths behind which Python's packages lie."""


def in_python_packages(files: Iterable[str], package: str = "") -> bool:
    """Whether one of `files` lies in a Python package, of this name and a slash where it is given."""
    return any(f"{part}{package}" in path for path in files for part in PYTHON_DIRECTORIES)


def closed_at(path: str, closed: Container[str]) -> str:
    """What of `closed` a path leads to or through first; "" where it is open."""
    end = 0
    while (end := path.find("/", end + 1)) > 0:
        if path[:end] in closed:
            return path[:end]
    return path if path in closed else ""


def standard_module(path: str) -> str:
    """The name by which the standard library's compiled module at `path` is imported: that of `_lzma` is `lzma`."""
    return posixpath.basename(path).partition(".")[0].lstrip("_")


def top_level(path: str, directory: str) -> str:
    """The top-level module to which the file at `path` belongs in a `directory`, which ends with a slash."""
    return path.removeprefix(directory).partition("/")[0].partition(".")[0]


def top_levels(paths: Iterable[str], directories: Collection[str]) -> set[str]:
    """Those to which files in `directories`, which end with slashes, belong."""
    return {top_level(path, place) for path in paths for place in directories if path.startswith(place)}


PRIVATE = "GLIBC_PRIVATE"
"""The version of what glibc's loader and its C library have for each other alone."""


class Roots(Struct, frozen=True):
    """The start of the closure."""

    command: tuple[str, ...] = ()
    """The words that are executed; empty where none is known."""
    entries: tuple[str, ...] = ()
    """Canonical paths of the ELF files that they execute, interpreters of scripts included."""
    imports: tuple[str, ...] = ()
    """Libraries that a Python among `entries` can import or open: extension modules and what lies beside them."""
    everything: bool = False
    """No command is known, or it is a bare shell: users type their own, and every file counts as reached."""
    in_part: bool = False
    """A script starts something besides that only running it tells: what is not reached may run, too."""
    steered: tuple[str, ...] = ()
    """Those of `entries` that a script starts with loader variables (LD_LIBRARY_PATH) that cannot be told."""
    environments: dict[str, tuple[str, ...]] = {}
    """Those of `entries` that a script starts with loader variables of its own, and these (LOADER_VARIABLES)."""
    perhaps: tuple[str, ...] = ()
    """Those of `entries` that scripts start only on a condition, or without which these go on, and those of `imports`
    that belong to no package which a text that runs names."""
    always: tuple[str, ...] = ()
    """Those of `entries` that every run comes to, and ends with: on no condition, and nothing goes on behind them."""
    misfits: tuple[str, ...] = ()
    """Extension modules for other Pythons than those that run, of packages that a text which runs names and that have
    none for these."""
    guarded: tuple[str, ...] = ()
    """Extension modules without which the packages go on that import them: an ImportError is caught."""
    named: tuple[str, ...] = ()
    """Files that texts of Python which run name in their strings, or the command in its words: they may be opened."""
    modules: tuple[str, ...] = ()
    """Top-level modules of Python that are certainly imported."""
    ways: dict[str, str] = {}
    """What leads to each: a program, script or launcher to the script or launcher that starts it, a top-level module of
    Python to the text or module that imports it. Of several the first one; what the runtime starts has none."""
    unstartable: tuple[Unstartable, ...] = ()
    """What the command, a script of it, or `--entry` names and what does not start."""
    from_workdir: tuple[str, ...] = ()
    """Words by which what surely starts names programs, scripts and modules of Python: they lie in the directory in
    which the container starts, or are named from there, and nothing else leads to them."""
    closed: tuple[str, ...] = ()
    """Scripts that interpreters surely read, and that others than owner and group may not."""

    @property
    def reach_of_imports(self) -> dict[str, Reach]:
        """How each of `imports` is reached."""
        perhaps = frozenset(self.perhaps)
        return {path: "path" if path in perhaps else "import" for path in self.imports}

    @property
    def elsewhere(self) -> Reach:
        """How a file is reached that nothing that was followed leads to."""
        return "entry" if self.everything else "path" if self.in_part else "unreached"


class Closure(Struct, frozen=True, dict=True):
    """How each recorded file is reached, and the problems of each in the context in which it is loaded."""

    reaches: dict[str, Reach] = {}
    problems: tuple[Problem, ...] = ()
    contextual: tuple[Problem, ...] = ()
    """What a file opened at run time misses by itself, but finds where its opener has loaded it before."""
    chosen: dict[tuple[str, str], str] = {}
    """(file, soname that it needs or a framework opens from it) to the canonical path chosen; injected files by their
    path in the container."""
    opens: dict[str, str] = {}
    """Soname to the file that a `dlopen` by the command would open (libcuda.so.1, libnvidia-ml.so.1)."""
    injected: frozenset[str] = frozenset()
    """Paths in the container that hold files of the host."""
    assumed: bool = False
    """The injected files stand for those of a host whose libraries are not known: names alone, no versions."""
    loaded: dict[str, tuple[str, ...]] = {}
    """Program, or library that is opened by itself, to all that it loads, in ld.so's order; the best reached last."""
    libcs: frozenset[str] = frozenset()
    """Paths of the C libraries that something loads."""

    def reach(self, path: str) -> Reach:
        return self.reaches.get(path, "unreached")

    def runs(self, path: str) -> bool:
        """Whether the file is executed, or loaded by what is."""
        return self.reach(path) in RUNS

    def rank(self, path: str) -> int:
        """A number for sorting, the best reached files first."""
        return REACHES.index(self.reach(path))

    @cached_property
    def users(self) -> dict[str, str]:
        """File to the best reached of the programs that load it, or of the libraries that are opened by themselves."""
        return {path: begun for begun, loaded in self.loaded.items() for path in loaded if path != begun}

    def libc_of(self, path: str) -> str:
        """The C library of GNU in the process of the file at `path`, the best reached one; "" where none is seen.

        A library that is opened in a running program (a Python module) finds that of the program by its name.
        """
        begun = self.users.get(path, path)
        asked = (self.chosen.get((member, LIBC), "") for member in (path, *self.loaded.get(begun, ())))
        return next(filter(None, asked), "")
