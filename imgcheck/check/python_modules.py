"""Extension modules of Python that do not load: without which their packages, or the interpreter, go on working."""

import itertools
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from imgcheck.check.context import Context
from imgcheck.check.loader_rules import LoaderRules
from imgcheck.documents.image import Problem
from imgcheck.loader.closure import PYTHON_DIRECTORIES, standard_module

_PLATFORM = r"-[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*"


class PythonModules:
    """Those of one cell, beside the others of their packages."""

    def __init__(self, context: Context, rules: LoaderRules) -> None:
        self._context, self._rules = context, rules

    def is_loaded_from_prefix(self, problem: Problem) -> bool:
        """Whether a Python package is known to load the library by its path, from where its wheel has put it."""
        package = posixpath.basename(package_of(problem.root))
        return package in self._rules.python.loads_from_prefix and is_beside(problem)

    def optional(self, problem: Problem) -> bool:
        """A module without which its package, or the interpreter, goes on working."""
        name = posixpath.basename(problem.root).partition(".")[0]
        if "/lib-dynload/" in problem.root:
            imported = standard_module(problem.root) in self._context.roots.modules
            return name in self._rules.python.optional_modules and not imported
        return self.aside(problem) or self._another_variant_loads(problem)

    def _another_variant_loads(self, problem: Problem) -> bool:
        """Whether a variant of the same module misses nothing: MPI.openmpi beside MPI.mpich, or one for this machine.

        Python itself imports no file with a dot in its module's name: the package picks the one that loads. Nor does
        it see files for other platforms than its own, which their names tell.
        """
        return not self._loading_variants.isdisjoint(_variants_of(problem.root))

    @cached_property
    def _loading_variants(self) -> frozenset[tuple[str, ...]]:
        return frozenset(itertools.chain.from_iterable(map(_variants_of, self._loading_modules)))

    def aside(self, problem: Problem) -> bool:
        """Whether `problem` lies deeper in its Python package than a module of it that loads, and only there.

        Packages import what lies near their root; sub-packages for an optional library (TensorRT in TensorFlow's
        `contrib`) are imported by those who want them.
        """
        package = package_of(problem.root)
        uppermost = min((path.count("/") for path in self._loading_of.get(package, ())), default=None)
        if not package or uppermost is None or problem.root.count("/") <= uppermost:
            return False
        return not any(
            other.needed == problem.needed and other.root.count("/") <= uppermost and package_of(other.root) == package
            for other in self._context.closure.problems
        )

    def one_of_many(self, problem: Problem) -> bool:
        """Whether one sub-package alone misses a library, beside others that load: envpool has one for each game."""
        package, own = package_of(problem.root), posixpath.dirname(problem.root)
        loading = {posixpath.dirname(path) for path in self._loading_of.get(package, ())} - {own}
        if own == package or posixpath.dirname(own) not in map(posixpath.dirname, loading):
            return False
        closure = self._context.closure
        needing = {other.path for other in closure.problems if other.needed == problem.needed}
        missing = {
            posixpath.dirname(start)
            for start in self._starts_of.get(package, ())
            if not needing.isdisjoint(closure.loaded[start])
        }
        return missing == {own}

    def stops_package(self, problem: Problem) -> bool:
        """Whether it stops a Python package whose uppermost modules miss something, one and all."""
        package = package_of(problem.path) or package_of(problem.root)
        sound, failing = (depths.get(package) for depths in self._depths)
        return problem.context == "module" and failing is not None and (sound is None or failing < sound)

    @cached_property
    def _depths(self) -> tuple[dict[str, int], dict[str, int]]:
        """How deep the uppermost module of each Python package lies that misses nothing, and the one that does."""
        missing = {problem.path for problem in self._fatal}
        loaded = self._context.closure.loaded
        sound: dict[str, int] = {}
        failing: dict[str, int] = {}
        for record, linkage in self._context.linked:
            if linkage.python_module:
                package, depth = package_of(record.path), record.path.count("/")
                fails = record.path in missing or not missing.isdisjoint(loaded.get(record.path, ()))
                depths = failing if fails else sound
                depths[package] = min(depth, depths.get(package, depth))
        return sound, failing

    @cached_property
    def _fatal(self) -> list[Problem]:
        """What a file does not get loaded for."""
        return [problem for problem in self._context.closure.problems if problem.kind != "call"]

    @cached_property
    def _loading_modules(self) -> list[str]:
        """Extension modules that miss nothing but, at most, the driver's libraries and what their package loads."""
        of_driver = self._rules.of_driver
        failing = {
            p.root
            for p in self._fatal
            if p.kind != "library" or not (p.injected or of_driver(p.needed) or self.is_loaded_from_prefix(p))
        }
        modules = (record.path for record, linkage in self._context.linked if linkage.python_module)
        return [path for path in modules if path not in failing]

    @cached_property
    def _loading_of(self) -> dict[str, list[str]]:
        return _by_package(self._loading_modules)

    @cached_property
    def _starts_of(self) -> dict[str, list[str]]:
        return _by_package(self._context.closure.loaded)


def is_beside(problem: Problem) -> bool:
    """Whether the image has the library in `lib` of the prefix that the module is installed in, where wheels put some.

    In /opt/venv/lib for /opt/venv/lib/python3.11/site-packages/pkg/core.so.
    """
    for part in PYTHON_DIRECTORIES:
        above, found, _ = problem.root.partition(part)
        if found:
            return any(posixpath.dirname(path) == posixpath.dirname(above) for path in problem.elsewhere)
    return False


def _variants_of(module: str) -> Iterator[tuple[str, ...]]:
    """What all variants of an extension module share.

    Of "/p/MPI.mpich.cpython-311-x86_64-linux-gnu.so" these are its directory, its name and the tag of the interpreter,
    and what is left of its path without the platform in this tag (PEP 3149).
    """
    directory, _, name = module.rpartition("/")
    parts = name.split(".", 2)
    if len(parts) == 3 and parts[2].endswith(".so"):
        yield directory, parts[0], parts[2]
    plain = re.sub(_PLATFORM, "", name)
    if plain != name:
        yield directory, plain


def _by_package(paths: Iterable[str]) -> dict[str, list[str]]:
    """Those of `paths` that lie in each Python package, and in none ("")."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        found[package_of(path)].append(path)
    return found


def package_of(path: str) -> str:
    """The directory of the top-level Python package in which `path` lies; empty outside of packages."""
    for part in PYTHON_DIRECTORIES:
        head, found, tail = path.partition(part)
        if found and "/" in tail:
            return head + part + tail.partition("/")[0]
    return ""
