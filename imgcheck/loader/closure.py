"""What a command reaches in an image, and what the loader would miss on the way."""

from typing import Literal

from msgspec import Struct, structs

from imgcheck.documents.image import Reach

Context = Literal["entry", "module", "helper", "library"]


class Problem(Struct, frozen=True):
    """Something ld.so would stop at."""

    kind: Literal["library", "version", "interpreter"]
    path: str
    """The file that needs it."""
    needed: str
    """Soname, or interpreter path."""
    version: str = ""
    """Symbol version, for `version`."""
    provider: str = ""
    """The file that was chosen and lacks the version, as ld.so names it."""
    injected: bool = False
    """The file that needs it, or the provider, comes from the host."""
    searched: tuple[str, ...] = ()
    """Directories in the order in which they were sought; `ld.so.cache` stands for the cache."""
    root: str = ""
    """The program or library in whose start it happens; `path` itself or a file that loads it."""
    context: Context = "entry"
    """What `root` is: a program that is called by name, a Python extension module, a program outside PATH (a wrapper
    may start it with variables of its own), or a library that something opens by itself."""
    elsewhere: tuple[str, ...] = ()
    """Files of the image that would serve, outside the directories that were sought."""
    skipped: tuple[str, ...] = ()
    """Files of the right name that the loader passed over: other class or machine."""

    def with_files(self, elsewhere: tuple[str, ...], skipped: tuple[str, ...]) -> "Problem":
        return structs.replace(self, elsewhere=elsewhere, skipped=skipped)


class Closure(Struct, frozen=True):
    """How each recorded file is reached, and the problems of each in the context in which it is loaded."""

    reaches: dict[str, Reach] = {}
    problems: tuple[Problem, ...] = ()
    contextual: tuple[Problem, ...] = ()
    """What a file opened at run time misses by itself, but finds where its opener has loaded it before."""
    chosen: dict[tuple[str, str], str] = {}
    """(file, soname) to the canonical path chosen; injected files by their path in the container."""
    opens: dict[str, str] = {}
    """Soname to the file that a `dlopen` by the command would open (libcuda.so.1, libnvidia-ml.so.1)."""
    injected: frozenset[str] = frozenset()
    """Paths in the container that hold files of the host."""
    assumed: bool = False
    """The injected files stand for those of a host whose libraries are not known: names alone, no versions."""
    loaded: dict[str, tuple[str, ...]] = {}
    """Program, or library that is opened by itself, to all that it loads, in ld.so's order."""
    libcs: frozenset[str] = frozenset()
    """Paths of the C libraries that something loads."""

    def reach(self, path: str) -> Reach:
        return self.reaches.get(path, "unreached")
