"""Which extension modules the Pythons of an image can import, and of which packages it has them for others alone."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence, Set

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.closure import PYTHON_DIRECTORIES, standard_module, top_level
from imgcheck.loader.glibc import family_of
from imgcheck.loader.imports import Imports, PythonStart, imported
from imgcheck.loader.python import importable, python_fits, pythons
from imgcheck.loader.tree import Tree

_SUFFIXES = (r"cpython-[\w-]+\.so", r"abi3\.so", "so")
"""Of extension modules, in the order in which Python takes them (importlib.machinery.EXTENSION_SUFFIXES)."""


_OWN_PLACES = re.compile(r"(.*?)(/local)?/lib(?:64)?/(?:python|pypy)\d[\d.]*/(?:site|dist)-packages/")
"""Where a Python looks for packages by itself: below its prefix, as Debian's below /usr/local, too (module `site`)."""
_OF_USER = "/.local"


def prefix_of(python: str) -> str:
    """The directory below which a Python has its own packages (sys.prefix)."""
    return posixpath.dirname(posixpath.dirname(python))


class PythonModules:
    """What is there for the Pythons that run."""

    def __init__(
        self,
        image: ImageProfile,
        tree: Tree,
        found: Iterable[str],
        prefixes: Set[str],
        bases: Set[str],
        starts: Sequence[PythonStart],
    ) -> None:
        """`found` are programs that run, `prefixes` those of Pythons among them and of their virtual environments.

        `bases` are those of Pythons that start in a virtual environment alone: by default that has none of their
        packages (pyvenv.cfg, include-system-site-packages).
        """
        self._image, self._tree = image, tree
        self._running = [(version, family_of(tree.linkage[path])) for path, version in pythons(found).items()]
        # A virtual environment has a link to the Python that it was made with.
        links = (path for path in pythons(tree.links) if tree.canonical(path) in tree.linkage)
        self._prefixes = {prefix_of(path) for path in (*pythons(tree.linkage), *links)}
        self._others, self._bases = self._prefixes - prefixes, bases
        # One in /bin was compiled for /usr, where /bin is no link to its directory (Modules/getpath.py).
        self._running_prefixes = prefixes | ({"/usr"} if "/" in prefixes else set())
        self._packages = [f"{path}/" for path in image.tree.python_paths]
        directories = dict.fromkeys(place for start in starts for place in start.module_directories)
        self._own = [f"{tree.canonical(path).rstrip('/')}/" for path in directories]
        self.imports = imported(image, tree, starts) if self._running else Imports()
        """What texts that run import."""
        self._named = frozenset(self.imports.by) if self.imports.told else None
        self._perhaps = None if self.imports.anything else frozenset(self.imports.perhaps)
        self._libraries = list(self._found()) if self._running else []

    def _found(self) -> Iterator[tuple[str, bool, list[str]]]:
        """Shared libraries where a Python looks, whether they are its own, and the directories in which it looks."""
        for path, linkage in self._tree.linkage.items():
            if linkage.type != "shared":
                continue
            standard, places = "/lib-dynload/" in path, [place for place in self._packages if path.startswith(place)]
            if (standard or places) and _owner(path, self._prefixes) in self._others:
                standard, places = False, []
            places = places or [place for place in self._own if linkage.python_module and importable(path, place)]
            if standard or places:
                yield path, standard, places

    def importable(self) -> Iterator[tuple[str, bool]]:
        """Those that fit a Python which runs and may be imported, and whether what they belong to certainly is."""
        hidden = self._hidden()
        for path, standard, places in self._libraries:
            if path in hidden:
                continue
            tops = _tops(path, places)
            if standard:
                tops = {posixpath.basename(path).partition(".")[0], standard_module(path)}
            named = self._named is None or not self._named.isdisjoint(tops)
            perhaps = standard or self._perhaps is None or not self._perhaps.isdisjoint(tops)
            if self._fits(path) and (named or perhaps):
                certain = standard or (self._is_sought(places) and not self._is_of_base(path))
                yield path, named and certain and not self._comes_later(path)

    def _is_sought(self, places: Iterable[str]) -> bool:
        """Whether one of the directories is where Python looks without being told to by a program."""
        return any(place in self._own or self._is_own(place) for place in places)

    def _is_own(self, place: str) -> bool:
        """Whether it is a directory of packages of a Python that runs, or one that a file there adds to these."""
        if not place.endswith(PYTHON_DIRECTORIES):
            return True
        found = _OWN_PLACES.fullmatch(place)
        prefixes = (found[1], f"{found[1]}{found[2] or ''}") if found else ()
        return any(each in self._running_prefixes or each.endswith(_OF_USER) for each in prefixes)

    def guarded(self) -> tuple[str, ...]:
        """Extension modules without which the packages go on that import them."""
        return tuple(path for path, *_ in self._libraries if _without_suffix(path) in self.imports.guarded)

    def _is_of_base(self, path: str) -> bool:
        """Whether it is a module of a Python whose packages virtual environments have only where they are told to."""
        return _owner(path, self._prefixes) in self._bases

    def _hidden(self) -> set[str]:
        """Extension modules of a name that another one in the same directory has, whose suffix comes first."""
        if len({version for version, _ in self._running}) > 1:
            return set()
        first: dict[str, int] = {}
        fitting = [path for path, *_ in self._libraries if self._fits(path)]
        for path in fitting:
            name = _without_suffix(path)
            first[name] = min(first.get(name, len(_SUFFIXES)), _place(path))
        return {path for path in fitting if first[_without_suffix(path)] < _place(path) < len(_SUFFIXES)}

    def _comes_later(self, path: str) -> bool:
        """Whether it is an extension module that does not come along with what is imported of its package."""
        told = self._named is not None and self._tree.linkage[path].python_module
        return told and _without_suffix(path) in self.imports.later

    def misfits(self) -> tuple[str, ...]:
        """Extension modules of packages that a text which runs names, where these have none that fits."""
        misfits: dict[str, list[str]] = {}
        fitting: set[str] = set()
        for path, _, places in self._libraries if self._named is not None else ():
            for package in _tops(path, places) & (self._named or frozenset()):
                if self._fits(path):
                    fitting.add(package)
                elif self._tree.linkage[path].python_module:
                    misfits.setdefault(package, []).append(path)
        fitting |= {package for package in misfits if self._is_elsewhere(package, misfits[package])}
        return tuple(path for package, paths in misfits.items() if package not in fitting for path in paths)

    def _fits(self, path: str) -> bool:
        return any(python_fits(version, path, family) for version, family in self._running)

    def _is_elsewhere(self, package: str, misfits: list[str]) -> bool:
        """Whether texts of a package lie where a Python looks, in another directory than those modules."""
        places = [p for p in (*self._packages, *self._own) if not any(path.startswith(p) for path in misfits)]
        codes = (code.path for code in self._image.tree.python_code if self._fits(code.path))
        return any(top_level(path, place) == package for path in codes for place in places if path.startswith(place))


def _place(path: str) -> int:
    """At which place the suffix of a module comes for Python, behind all where it is none of its own."""
    suffix = posixpath.basename(path).partition(".")[2]
    return next((at for at, known in enumerate(_SUFFIXES) if re.fullmatch(known, suffix)), len(_SUFFIXES))


def _without_suffix(path: str) -> str:
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name.partition('.')[0]}"


def _tops(path: str, places: list[str]) -> set[str]:
    return {top_level(path, place) for place in places}


def _owner(module: str, prefixes: Set[str]) -> str:
    """The one of some prefixes of Pythons to which a module belongs: as a virtual environment's, to none of them.

    Debian's Python has packages below /usr/local, too, in directories that are called dist-packages.
    """
    if module.startswith("/usr/local/") and "/dist-packages/" in module:
        module = module.replace("/usr/local/", "/usr/", 1)
    return max((prefix for prefix in prefixes if module.startswith(f"{prefix}/")), key=len, default="")
