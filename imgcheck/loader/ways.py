"""What leads to a file that runs: scripts that start programs, texts that import modules, and who loads libraries."""

from collections.abc import Iterator
from functools import cached_property

from imgcheck.documents.image import TreeIndex
from imgcheck.loader.closure import Closure, Roots, top_level


class Ways:
    """What leads to the files of one closure."""

    def __init__(self, roots: Roots, closure: Closure, tree: TreeIndex) -> None:
        self._roots, self._closure, self._tree = roots, closure, tree

    def to(self, path: str) -> tuple[str, ...]:
        """What leads to the file at `path`, from the command on; empty where the runtime starts it, or nothing does.

        Each leads to the next: scripts and launchers start, texts and top-level modules import, programs and libraries
        load, or have the name of what they may open in their strings.
        """
        if self._roots.everything or self._closure.reach(path) == "unreached":
            return ()
        begun = self._closure.users.get(path, path)
        loading = () if begun == path else (begun,)
        opener = self._opener(begun)
        if opener:
            return (*self.to(opener), opener, *loading)
        first = begun if begun in self._roots.ways else self._module(begun)
        return (*self.behind(first), *(() if first in ("", begun) else (first,)), *loading)

    def behind(self, what: str) -> tuple[str, ...]:
        """What leads to a program, script or launcher, or to a top-level module of Python."""
        back: dict[str, None] = {}
        while (what := self._roots.ways.get(what, "")) and what not in back:
            back[what] = None
        return tuple(reversed(back))

    def _opener(self, path: str) -> str:
        """What runs and names a file in its strings, where nothing else leads there."""
        if self._closure.runs(path) or path in self._roots.entries:
            return ""
        return next(
            (each for each in self._naming.get(path, ()) if self._closure.runs(each) or each in self._texts), ""
        )

    @cached_property
    def _naming(self) -> dict[str, list[str]]:
        """File to those that have its name in their strings."""
        found: dict[str, list[str]] = {}
        for opener, named in self._tree.mentions.items():
            for path in named:
                found.setdefault(path, []).append(opener)
        return found

    @cached_property
    def _texts(self) -> frozenset[str]:
        """Texts of Python that import something, among others."""
        return frozenset(self._roots.ways.values())

    def _module(self, path: str) -> str:
        """The top-level module that a file belongs to and that something imports; "" where it belongs to none."""
        return next((part for part in self._parts(path) if part in self._roots.ways), "")

    def _parts(self, path: str) -> Iterator[str]:
        """Names of modules that a file may have: behind a directory of packages, and else beside the text itself."""
        for place in self._tree.python_paths:
            if path.startswith(f"{place}/"):
                yield top_level(path, f"{place}/")
        *above, name = path.split("/")
        yield from (name.partition(".")[0], *reversed(above))
