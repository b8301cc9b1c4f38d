"""One dynamic loader of an image with all that is fixed for every process it starts: directories, cache, variables.

glibc's rules: elf/dl-load.c (open_path, _dl_map_object, expand_dynamic_token), elf/dl-cache.c, elf/dl-hwcaps.c, and
the glibc 2.33 and 2.37 NEWS for hwcaps directories. musl's: ldso/dynlinker.c (load_library, fixup_rpath).
"""

import itertools
import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

from imgcheck import versions
from imgcheck.documents.facts import Linkage
from imgcheck.documents.image import CacheEntry
from imgcheck.loader.abi import Abi, abi_of
from imgcheck.loader.environment import Environment
from imgcheck.loader.glibc import LIBC, glibc_version
from imgcheck.loader.injection import Injection
from imgcheck.loader.tree import Tree

CACHE = "/etc/ld.so.cache"

_MUSL_DIRECTORIES = ("/lib", "/usr/local/lib", "/usr/lib")
_MUSL_NAME = r"ld-musl-([\w-]+)\.so\.1"
# Library names that musl is itself, whatever follows the dot.
_MUSL_SELF = r"lib(c|pthread|rt|m|dl|util|xnet)\."
_ORIGIN = ("$ORIGIN", "${ORIGIN}")
_TOKEN = r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))"
# musl replaces the bare name whatever follows it.
_MUSL_TOKEN = r"\$(?:\{ORIGIN\}|ORIGIN)"
_HWCAPS = "glibc-hwcaps/"
_HWCAP_EXTENSION = 1 << 62
_MODERN_SINCE, _LEGACY_UNTIL = "2.33", "2.37"
# Directories of the legacy search, most significant first; those that the CPU opens stand among the levels.
_LEGACY = ("tls", "haswell", "avx512_1", "x86_64")
_LEGACY_PLATFORM = "haswell"
_LEGACY_ALWAYS = ("tls", "x86_64")


class Found(Struct, frozen=True):
    """A library as the loader found it."""

    opened: str
    """The path by which it was opened: what ldd prints and what $ORIGIN is taken from."""
    real: str
    """Canonical path."""
    reason: str
    """The rule that led there: `RPATH of FILE`, `RUNPATH`, `LD_LIBRARY_PATH`, `ld.so.cache`, `default directory`."""


class Refused(Struct, frozen=True):
    """A file that the loader finds by the name of a library and that is none: it seeks no further."""

    opened: str
    """The path by which it was opened."""
    complaint: str
    """What the loader says of it."""


UNSTOPPED = Refused("", "")
"""No such file: the search went on to its end."""


Place = tuple[str, Mapping[str, str]]
"""A directory that holds ELF files, with the table of them, and of what stops the search as they do."""


class Step(Struct, frozen=True):
    """Directories sought for one reason; none for the cache."""

    reason: str
    directories: tuple[str, ...]
    places: Sequence[Place] = ()
    """Those that hold ELF files at all, in the order of the search."""


class Plan(Struct, dict=True):
    """Where a file's libraries are sought, with what was found so far."""

    steps: tuple[Step, ...]
    ignores_defaults: bool = False
    """DF_1_NODEFLIB: default directories do not count, nor what the cache names in them."""
    rest: "Plan | None" = None
    """Where the search goes on: the same for all files that differ in the first steps alone."""
    known: dict[str, Found | Refused | None] = {}

    @cached_property
    def searched(self) -> tuple[str, ...]:
        steps, at = [*self.steps], self.rest
        while at is not None:
            steps += at.steps
            at = at.rest
        places = (step.directories or (CACHE,) for step in steps)
        return tuple(dict.fromkeys(itertools.chain.from_iterable(places)))


PlanKey = tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...], bool]


class System:
    """A dynamic loader in `tree`: the one at `interpreter`, or where that is missing what its ABI implies."""

    def __init__(
        self,
        tree: Tree,
        interpreter: str,
        abi: Abi,
        environment: Environment,
        injection: Injection | None,
        levels: tuple[str, ...],
    ) -> None:
        self.tree, self.interpreter, self.abi, self.environment = tree, interpreter, abi, environment
        self.injection, self.levels = injection, levels
        self.preload = (*environment.preload, *tree.image.tree.ld_so_preload)
        """Names that are loaded before all others."""
        self.real = tree.file(interpreter) if interpreter else ""
        # Alpine lets glibc's name lead to musl, which then takes the C library's names for itself.
        self._musl_architecture = _musl_architecture(interpreter) or _musl_architecture(self.real)
        self.kind: Literal["glibc", "musl"] = "musl" if self._musl_architecture else "glibc"
        self._plans: dict[PlanKey, Plan] = {}
        self._places: dict[tuple[str, ...], list[Place]] = {}
        self._defined: dict[str, frozenset[str]] = {}
        self._expanded: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}

    @cached_property
    def defaults(self) -> tuple[str, ...]:
        """Default directories: built into glibc's ld.so, of musl's path file or musl itself."""
        if self.kind == "musl":
            prefix = posixpath.dirname(posixpath.dirname(self.interpreter))
            path = posixpath.join(prefix, "etc", f"ld-musl-{self._musl_architecture}.path")
            return self.tree.image.tree.musl_paths.get(path, _MUSL_DIRECTORIES)
        own = self.tree.linkage[self.real].loader_directories if self.real else ()
        return own or self._guessed

    @property
    def _guessed(self) -> tuple[str, ...]:
        """By where the C library lies, for a loader whose own list is not known."""
        triplet, lib = self.abi.triplet, self.abi.lib
        multiarch = (f"/lib/{triplet}", f"/usr/lib/{triplet}")
        if triplet and any("libc.so.6" in self.tree.table(directory) for directory in multiarch):
            return (*multiarch, "/lib", "/usr/lib")
        return (f"/{lib}", f"/usr/{lib}")

    @cached_property
    def version(self) -> str:
        """Glibc's version by the newest version node of its libc.so.6; empty where that is not found."""
        return glibc_version(self.libc, self.tree.linkage[self.libc]) if self.libc else ""

    @cached_property
    def libc(self) -> str:
        """The C library that came with the loader, in its default directories; empty where it is not found."""
        found = (self.tree.table(directory).get(LIBC, "") for directory in self.defaults)
        return next((path for path in found if path and self._fits(self.tree.linkage[path])), "")

    @cached_property
    def subdirectories(self) -> tuple[str, ...]:
        """Hwcaps directories that this loader seeks below each directory on this CPU, in order."""
        old = self.version and not versions.at_least(self.version, _MODERN_SINCE)
        modern = () if old else tuple(_HWCAPS + level for level in self.levels if level not in _LEGACY)
        if self.kind == "musl" or self.abi.machine != "x86_64" or not self._legacy:
            return () if self.kind == "musl" else modern
        names = tuple(name for name in _LEGACY if name in (*_LEGACY_ALWAYS, *self.levels))
        chosen = itertools.product((True, False), repeat=len(names))
        legacy = ("/".join(itertools.compress(names, mask)) for mask in chosen)
        return (*modern, *filter(None, legacy))

    @property
    def platform(self) -> str:
        """What $PLATFORM stands for: the kernel's AT_PLATFORM, or the name that glibc until 2.36 has for the CPU."""
        return _LEGACY_PLATFORM if self._legacy and _LEGACY_PLATFORM in self.levels else self.abi.platform

    @property
    def _legacy(self) -> bool:
        return bool(self.version) and not versions.at_least(self.version, _LEGACY_UNTIL)

    @cached_property
    def cache(self) -> dict[str, str]:
        """Soname to the path that the cache gives for it on this machine and CPU."""
        if self.kind == "musl":
            return {}
        if self.injection is not None and self.injection.ldconfig:
            return self._rebuilt_cache()
        best: dict[str, tuple[int, str]] = {}
        for entry in self.tree.image.tree.ld_so_cache:
            rank = self._rank(entry)
            if rank is not None and (entry.soname not in best or rank < best[entry.soname][0]):
                best[entry.soname] = (rank, entry.path)
        return {soname: path for soname, (_, path) in best.items()}

    def _rank(self, entry: CacheEntry) -> int | None:
        """Preference of a cache entry, lower first; None where this loader does not take it."""
        if entry.flags != self.abi.cache_flags and self.abi.cache_flags != -1:
            return None
        level = entry.path.rpartition(_HWCAPS)[2].partition("/")[0] if _HWCAPS in entry.path else ""
        if level or entry.hwcap & _HWCAP_EXTENSION:
            return self.levels.index(level) if level in self.levels else None
        if not entry.hwcap:
            return len(self.levels)
        # Legacy entries stand before the plain one in the cache, best first.
        directory = posixpath.dirname(entry.path)
        return len(self.levels) if any(directory.endswith("/" + sub) for sub in self.subdirectories) else None

    def _rebuilt_cache(self) -> dict[str, str]:
        """What ldconfig would write: the directories of ld.so.conf first, then the default ones (Tree.relinked)."""
        first = (self.injection.directory,) if self.injection and self.injection.order == "ld-so-conf-first" else ()
        cache: dict[str, str] = {}
        for directory in (*first, *self.tree.image.tree.ld_so_conf, *self.defaults):
            table, there = self.tree.table(directory), self.tree.searched(directory)
            for name, path in table.items():
                soname = self.tree.linkage[path].soname or name
                if name.startswith(("lib", "ld-")) and ".so" in name and self._fits(self.tree.linkage[path]):
                    cache.setdefault(soname, _join(directory, soname if soname in there else name))
        return cache

    def _fits(self, linkage: Linkage) -> bool:
        return linkage.machine == self.abi.machine and linkage.elf_class == self.abi.elf_class

    def is_self(self, name: str) -> bool:
        """Of musl: whether the loader takes `name` for itself, whatever lies in the file system."""
        return bool(re.match(_MUSL_SELF, name))

    def expand(self, text: str, origin: str) -> str:
        """`text` with its tokens replaced, relative paths taken from the working directory."""
        expanded = self.replaced(text, origin) if "$" in text else text
        if not expanded.startswith("/"):
            expanded = posixpath.join(self.environment.working_directory, expanded)
        return expanded.rstrip("/") or "/"

    def replaced(self, text: str, origin: str) -> str:
        """`text` with $ORIGIN, $LIB and $PLATFORM replaced."""
        origin = origin.rstrip("/")
        first, slash, below = text.partition("/")
        # Nearly all that are written, some hundreds in a large image.
        if slash and first in _ORIGIN and "$" not in below:
            return f"{origin}/{below}"

        def value(match: re.Match[str]) -> str:
            token = "ORIGIN" if self.kind == "musl" else match[1] or match[2]
            if token == "ORIGIN":
                return origin
            return self.defaults[0].lstrip("/") if token == "LIB" else self.platform

        return re.sub(_MUSL_TOKEN if self.kind == "musl" else _TOKEN, value, text)

    def directories(self, paths: tuple[str, ...], origin: str) -> tuple[str, ...]:
        """`paths` of an RPATH or RUNPATH, expanded. musl drops all of them where one has a token besides $ORIGIN."""
        key = (paths, origin)
        if key not in self._expanded:
            dropped = self.kind == "musl" and any("$" in re.sub(_MUSL_TOKEN, "", path) for path in paths)
            self._expanded[key] = () if dropped else tuple(dict.fromkeys(self.expand(path, origin) for path in paths))
        return self._expanded[key]

    def plan(self, chain: tuple[tuple[str, tuple[str, ...]], ...], runpath: tuple[str, ...], nodeflib: bool) -> Plan:
        """The search of a file: `chain` are (file, RPATH) of it and its loaders, `runpath` its own."""
        if runpath and self.kind == "glibc":
            chain = ()
        key = (chain, runpath, nodeflib)
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._planned(chain, runpath, nodeflib)
        return found

    def _planned(
        self, chain: tuple[tuple[str, tuple[str, ...]], ...], runpath: tuple[str, ...], nodeflib: bool
    ) -> Plan:
        if self.kind == "musl":
            return Plan(tuple(self._musl_steps(chain)), nodeflib)
        if not chain:
            return Plan(tuple(self._glibc_steps(runpath, nodeflib)), nodeflib)
        path, directories = chain[0]
        return Plan((self._step(f"RPATH of {path}", directories),), nodeflib, self.plan(chain[1:], (), nodeflib))

    def _glibc_steps(self, runpath: tuple[str, ...], nodeflib: bool) -> list[Step]:
        """Those behind RPATH."""
        steps = [self._step("LD_LIBRARY_PATH", self.library_path)] if self.library_path else []
        if runpath:
            steps.append(self._step("RUNPATH", runpath))
        steps.append(Step("ld.so.cache", ()))
        if not nodeflib:
            steps.append(self._step("default directory", self.defaults))
        return steps

    def _musl_steps(self, chain: tuple[tuple[str, tuple[str, ...]], ...]) -> list[Step]:
        steps = [self._step("LD_LIBRARY_PATH", self.library_path)] if self.library_path else []
        steps += [self._step(f"RPATH of {path}", directories) for path, directories in chain]
        return [*steps, self._step("default directory", self.defaults)]

    def _step(self, reason: str, directories: tuple[str, ...]) -> Step:
        places = self._places.get(directories)
        if places is None:
            places = self._places[directories] = self._tables(directories)
        return Step(reason, directories, places)

    def _tables(self, directories: tuple[str, ...]) -> list[Place]:
        present = self.tree.components
        subs = [sub for sub in self.subdirectories if present.issuperset(sub.split("/"))]
        subs.append("")
        known = [directory for directory in directories if present.issuperset(_below_steps_up(directory))]
        places = [f"{directory}/{sub}" if sub else directory for directory in known for sub in subs]
        return [(place, table) for place in places if (table := self.tree.searched(place))]

    @cached_property
    def library_path(self) -> tuple[str, ...]:
        """LD_LIBRARY_PATH with what the runtime adds to it."""
        own = self.environment.library_path
        given = self.injection if self.environment.keeps_given else None
        order, directory = (given.order, given.directory) if given else ("", "")
        if order == "ld-library-path-first":
            own = (directory, *own)
        elif order == "ld-library-path-last":
            own = (*own, directory)
        elif order == "image-first":
            own = (*(own or (*self.tree.image.tree.ld_so_conf, *self.defaults)), directory)
        return tuple(dict.fromkeys(self.expand(part, "/") for part in own))

    def find(self, name: str, plan: Plan) -> Found | Refused | None:
        """The library `name`, which holds no slash, by `plan`."""
        passed: list[Plan] = []
        at: Plan | None = plan
        found = None
        while found is None and at is not None and name not in at.known:
            passed.append(at)
            found = self._find(name, at)
            at = at.rest
        if found is None and at is not None:
            found = at.known[name]
        for each in passed:
            each.known[name] = found
        return found

    def _find(self, name: str, plan: Plan) -> Found | Refused | None:
        """By the steps before its rest."""
        for step in plan.steps:
            for place, table in step.places:
                path = table.get(name, "")
                # A file of another class or machine is passed over in silence; the search goes on.
                if path and (found := self._taken(_join(place, name), path, step.reason)):
                    return found
            if not step.directories and (found := self._in_cache(name, plan.ignores_defaults)):
                return found
        return None

    def _taken(self, opened: str, path: str, reason: str) -> Found | Refused | None:
        """What becomes of the file `path` that is opened; None where the search goes on."""
        linkage = self.tree.linkage.get(path)
        if linkage is None:
            return Refused(opened, self.tree.unloadable[path])
        return Found(opened, path, reason) if self._fits(linkage) else None

    def _in_cache(self, name: str, ignores_defaults: bool) -> Found | Refused | None:
        opened = self.cache.get(name, "")
        if not opened or (ignores_defaults and opened.startswith(tuple(d + "/" for d in self.defaults))):
            return None
        path = self.tree.named(opened)
        return self._taken(opened, path, "ld.so.cache") if path else None

    def defined(self, path: str) -> frozenset[str]:
        """The symbol versions that file `path` defines."""
        found = self._defined.get(path)
        if found is None:
            found = self._defined[path] = frozenset(self.tree.linkage[path].verdef)
        return found

    def at_path(self, name: str, origin: str) -> Found | Refused | None:
        """The library that a name with a slash names."""
        opened = self.expand(name, origin)
        path = self.tree.named(opened)
        return self._taken(opened, path, "path") if path else None


def _below_steps_up(directory: str) -> list[str]:
    """The names in `directory` behind its last `..`, whatever it goes up from."""
    return f"{directory}/".rpartition("/../")[2].split("/")


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory != "/" else f"/{name}"


def _musl_architecture(interpreter: str) -> str:
    """The architecture in the name of musl's loader; empty for another loader."""
    name = posixpath.basename(interpreter)
    # Hardly a loader is musl's, and making the expression takes longer than many an image's whole search.
    named = re.fullmatch(_MUSL_NAME, name) if name.startswith("ld-musl-") else None
    return named[1] if named else ""


class Systems:
    """The dynamic loaders of a tree, by interpreter."""

    def __init__(
        self, tree: Tree, environment: Environment, injection: Injection | None, levels: tuple[str, ...]
    ) -> None:
        self._make = lambda interpreter, abi: System(tree, interpreter, abi, environment, injection, levels)
        self._tree = tree
        self._known: dict[tuple[str, str, int], System] = {}
        self._interpreters: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for linkage in tree.linkage.values():
            if linkage.interpreter:
                self._interpreters[linkage.machine, linkage.elf_class][linkage.interpreter] += 1
        self._has_musl = any(_musl_architecture(name) for asked in self._interpreters.values() for name in asked)
        self._preferred: dict[tuple[str, int, bool], str] = {}

    def of(self, path: str, linkage: Linkage) -> System:
        """The loader that `linkage` asks for; for a library the one that its processes must have."""
        interpreter = linkage.interpreter or self._of_library(path, linkage)
        key = (interpreter, linkage.machine, linkage.elf_class)
        if key not in self._known:
            self._known[key] = self._make(interpreter, abi_of(linkage.machine, linkage.elf_class))
        return self._known[key]

    def _of_library(self, path: str, linkage: Linkage) -> str:
        # Of no consequence where no musl is.
        wants_musl = self._has_musl and (
            "-linux-musl/" in path or any(n == "libc.so" or n.startswith("libc.musl-") for n in linkage.needed)
        )
        key = (linkage.machine, linkage.elf_class, wants_musl)
        if key not in self._preferred:
            self._preferred[key] = self._most_asked(*key)
        return self._preferred[key]

    def _most_asked(self, machine: str, elf_class: int, musl_first: bool) -> str:
        asked = self._interpreters[machine, elf_class]
        present = [name for name in sorted(asked, key=lambda name: -asked[name]) if self._tree.file(name)]
        musl = [name for name in present if _musl_architecture(name)]
        glibc = [name for name in present if name not in musl]
        preferred = (musl or glibc) if musl_first else (glibc or musl)
        return preferred[0] if preferred else abi_of(machine, elf_class).interpreter
