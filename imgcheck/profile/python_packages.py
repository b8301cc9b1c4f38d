"""Import statements of all texts of Python -> what importing each package, and modules of it, brings with it.

A package stands for those of its modules that are imported along with it, from its `__init__` on. Its others are told
apart only where a text outside of it names them, and where they bring what the package does not.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from itertools import accumulate

from imgcheck.documents.image import PythonCode, PythonModule
from imgcheck.loader.closure import standard_module, top_levels
from imgcheck.loader.statements import Statements, told_apart

_INIT = "__init__"
_MAIN = "__main__"
_TESTS = re.compile(
    r"/(?:tests?|examples?|benchmarks?|docs?)(?:/|$)|/(?:test_[^/]*|[^/]*_(?:tests?|benchmark)|conftest)\.py$"
).search

_DEEPEST = 4
"""Directories of a namespace, as an import statement names it."""
_MOST_VISITS = 1_000_000
"""Modules that are visited to tell others apart, ninety times what a large image takes; the rest counts as perhaps
imported."""


class PythonTexts:
    """The texts of Python of an image.

    `texts` are by absolute path, `code` the paths of files with machine code, `places` the directories of packages, and
    `words` what commands and scripts name besides (`python -m package.module`).
    """

    def __init__(
        self, texts: Mapping[str, Statements], code: Iterable[str], places: Iterable[str], words: Iterable[str] = ()
    ) -> None:
        self._texts, self._places = texts, [f"{place}/" for place in places]
        self._roots = _outermost({posixpath.dirname(path) for path in texts if path.endswith(f"/{_INIT}.py")})
        self._compiled: dict[str, list[str]] = defaultdict(list)
        code = list(code)
        for path in code:
            self._compiled[self._root(path)].append(path)
        self._there = {part.partition(".")[0] for path in (*texts, *code) for part in path.split("/")}
        """What may be names of modules: those of files and directories with something of interest, up to a point."""
        self._there |= {standard_module(path) for path in code if "/lib-dynload/" in path}
        self._words = [*words, *(f"{name}.{_MAIN}" for name in top_levels(texts, self._places))]

    def _root(self, path: str) -> str:
        """The outermost package in which the file at `path` lies; "" where it lies in none."""
        above = posixpath.dirname(path)
        while above not in self._roots and above not in ("", "/"):
            above = posixpath.dirname(above)
        return self._roots.get(above, "")

    @cached_property
    def _members(self) -> dict[str, dict[str, Statements]]:
        """Texts by their paths, by the package that they are of, or their own path; tests of packages left out."""
        found: dict[str, dict[str, Statements]] = {}
        for path, statements in self._texts.items():
            whole = self._root(path) or path
            members = found.setdefault(whole, {})
            if whole == path or not _TESTS(path[len(whole) :]):
                members[path] = statements
        return found

    @cached_property
    def _packages(self) -> dict[str, "_Package"]:
        """Those that lie in directories of packages, and the packages of the image's own."""
        found = {}
        for whole, members in self._members.items():
            place = max((place for place in self._places if whole.startswith(place)), key=len, default="")
            own = not place and whole not in self._texts
            if own:
                place = posixpath.dirname(whole).rstrip("/") + "/"
            if place:
                found[whole] = _Package(whole, place, members, self._compiled.get(whole, ()), own)
        return found

    @cached_property
    def _asked(self) -> dict["_Package", set[str]]:
        """The modules of each package that are named outside of it, and are not imported with it."""
        asking: dict[str, set[str]] = defaultdict(set)
        """Names to the packages of texts that have them."""
        for whole, members in self._members.items():
            for name in {name for each in members.values() for name in each.named if "." in name and name[0] != "."}:
                asking[name].add(whole)
        for word in self._words:
            asking[word].add("")
        by_top: dict[str, list[str]] = defaultdict(list)
        for name in asking:
            by_top[name.partition(".")[0]].append(name)
        found = {}
        for package in self._packages.values():
            named = set(package.known(name for name in by_top[package.top] if asking[name] != {package.path}))
            # Of those of its own the image may run any (`python -m app.work`).
            every = package.names if package.own else frozenset()
            found[package] = (named | every) - package.with_it
        return found

    @cached_property
    def _brought(self) -> dict["_Package", dict[str, frozenset[str]]]:
        """Those modules, each with what importing it brings besides the package."""
        found: dict[_Package, dict[str, frozenset[str]]] = {}
        visits = 0
        for package, names in self._asked.items():
            brought = found[package] = {}
            for name in sorted(names):
                new = package.imported(name) - package.with_it
                visits += len(new)
                if visits > _MOST_VISITS:
                    break
                brought[name] = new
        return found

    @cached_property
    def _apart(self) -> set[str]:
        """The names of those that bring something which their package does not."""
        every = [(package, *each) for package, brought in self._brought.items() for each in brought.items()]
        apart = {name for package, name, new in every if new & package.later} | self._own_modules
        for package, name, new in every:
            wanted = {each for each in package.outside(new) if each.partition(".")[0] in self._there}
            if any(each.partition(".")[0] not in package.tops_with_it or each in apart for each in wanted):
                apart.add(name)
        return apart

    @cached_property
    def _own_modules(self) -> set[str]:
        """What the image's own texts may be called that lie in no package, but in directories (PEP 420)."""
        found: set[str] = set()
        for path in self._members.keys() & self._texts.keys():
            if not any(path.startswith(place) for place in self._places):
                parts = path.removesuffix(".py").split("/")[1:][-_DEEPEST:]
                found |= {".".join(parts[at:]) for at in range(len(parts) - 1)}
        return {name for name in found if all(part.isidentifier() for part in name.split("."))}

    def code(self) -> tuple[PythonCode, ...]:
        """The texts by file, those of a package as one; of the names those that something in the image may have."""
        return tuple(self._code(path, list(members.values())) for path, members in self._members.items())

    def _code(self, path: str, texts: list[Statements]) -> PythonCode:
        package = self._packages.get(path)
        # A program may have the name of the package that it imports; no package imports itself.
        own = set() if path in self._texts else {posixpath.basename(path)}
        with_it = package.statements(package.with_it) if package else texts
        imports = self._shortened(name for each in with_it for name in each.certain) - own
        perhaps = self._shortened(name for each in texts for name in each.named) - own - imports
        return PythonCode(
            path,
            tuple(sorted(imports)),
            tuple(sorted(perhaps)),
            any(each.anything for each in texts),
            any(each.plugins for each in texts),
            tuple(sorted({name for each in texts for name in each.mentions})),
            package.places(package.later) if package else (),
            package.places(package.guarded) if package else (),
        )

    def modules(self) -> tuple[PythonModule, ...]:
        """Modules of packages that are told apart."""
        return tuple(module for package, brought in self._brought.items() for module in self._modules(package, brought))

    def _modules(self, package: "_Package", brought: Mapping[str, frozenset[str]]) -> Iterator[PythonModule]:
        with_it = self._shortened(package.outside(package.with_it))
        for name in sorted(brought.keys() & self._apart):
            imports = self._shortened(package.outside(brought[name])) - with_it
            compiled = package.places(brought[name] & package.later)
            yield PythonModule(package.path, name, tuple(sorted(imports)), compiled)

    def _shortened(self, names: Iterable[str]) -> set[str]:
        """Absolute ones of `names` as far as the image's modules are told apart: the top-level ones of the others."""
        absolute = (name for name in names if name[0] != "." and name.partition(".")[0] in self._there)
        return {told_apart(name, self._apart) for name in absolute}


class _Package:
    """One package, or a module that lies by itself in a directory of packages."""

    def __init__(
        self, path: str, place: str, texts: Mapping[str, Statements], compiled: Iterable[str], own: bool
    ) -> None:
        self.path = path
        self.own = own
        """It lies in no directory of packages: the image's own."""
        self.name = _dotted(path, place)
        self.top = self.name.partition(".")[0]
        self._texts = {_dotted(each, place): statements for each, statements in texts.items()}
        self._packages = {_dotted(each, place) for each in texts if each.endswith(f"/{_INIT}.py")}
        self._compiled = {_dotted(each, place) for each in compiled}

    @property
    def names(self) -> frozenset[str]:
        """Those of all its modules."""
        return frozenset(self._texts) | self._compiled

    def known(self, names: Iterable[str]) -> Iterator[str]:
        """The modules of the package that `names` lead to, of each the innermost."""
        for name in names:
            if found := self._loaded(name):
                yield found[-1]

    def _loaded(self, name: str) -> list[str]:
        """The modules of the package that an import of `name` loads: those above it as well."""
        if name != self.name and not name.startswith(f"{self.name}."):
            return []
        above = accumulate(name.removeprefix(self.name).split(".")[1:], "{}.{}".format, initial=self.name)
        return [each for each in above if each in self._texts or each in self._compiled]

    @cached_property
    def with_it(self) -> frozenset[str]:
        """The modules that are imported along with it."""
        return self.imported(self.name)

    def imported(self, name: str, guarded: bool = True) -> frozenset[str]:
        """The modules of it that importing `name` brings, on a condition or not; `guarded`: also where it goes on
        without one.
        """
        pending, found = self._loaded(name), set[str]()
        while pending:
            module = pending.pop()
            if module not in found:
                found.add(module)
                text = self._texts.get(module) or Statements()
                without = frozenset() if guarded else frozenset(text.guarded)
                for each in (*text.certain, *text.conditional):
                    if each not in without:
                        pending += self._loaded(self._absolute(module, each))
        return frozenset(found)

    @cached_property
    def guarded(self) -> frozenset[str]:
        """Compiled modules that are imported with it, and without which it goes on."""
        if not any(text.guarded for text in self._texts.values()):
            return frozenset()
        return (self.with_it - self.imported(self.name, guarded=False)) & self._compiled

    def _absolute(self, module: str, name: str) -> str:
        """`name` as a text of `module` has it, without the dots that it begins with; "" where these lead out."""
        relative = name.lstrip(".")
        dots = len(name) - len(relative)
        if not dots:
            return name
        up = dots - (module in self._packages)
        above = module.split(".")
        return ".".join(filter(None, (*above[: len(above) - up], relative))) if up < len(above) else ""

    def outside(self, modules: Set[str]) -> set[str]:
        """What `modules` of it certainly import from elsewhere."""
        names = {name for text in self.statements(modules) for name in text.certain}
        return {name for name in names if name[0] != "." and name.partition(".")[0] != self.top}

    @cached_property
    def tops_with_it(self) -> set[str]:
        """The top-level modules that are imported along with it."""
        return {name.partition(".")[0] for name in self.outside(self.with_it)}

    def statements(self, modules: Set[str]) -> list[Statements]:
        """The texts of those of `modules` that have one."""
        return [self._texts[name] for name in sorted(modules) if name in self._texts]

    @cached_property
    def later(self) -> frozenset[str]:
        """Compiled modules that are not imported with it: only other texts of it name them.

        What no text names, other compiled modules import: where it comes with some, that counts as imported, too.
        """
        if self._compiled.isdisjoint(self.with_it):
            return frozenset(self._compiled)
        named = {
            loaded
            for module, text in self._texts.items()
            for name in text.named
            for loaded in self._loaded(self._absolute(module, name))
        }
        return frozenset(named & self._compiled - self.with_it)

    def places(self, modules: Iterable[str]) -> tuple[str, ...]:
        """Where they lie in the package, without suffixes."""
        return tuple(sorted(name.removeprefix(f"{self.name}.").replace(".", "/") for name in modules))


def _outermost(directories: Set[str]) -> dict[str, str]:
    """Of each package the one outermost around it."""
    found: dict[str, str] = {}
    for directory in sorted(directories):  # those above come first
        found[directory] = found.get(posixpath.dirname(directory), directory)
    return found


def _dotted(path: str, place: str) -> str:
    """The name of the module in the file at `path`, or in a directory, that lies in `place`."""
    directory, _, name = path.removeprefix(place).rpartition("/")
    name = name.partition(".")[0]
    return (directory if name == _INIT else f"{directory}/{name}".lstrip("/")).replace("/", ".")
