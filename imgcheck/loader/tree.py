"""The files of an image as the loader sees them: paths resolved inside the root, directories as look-up tables."""

import itertools
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from imgcheck.documents.facts import Linkage
from imgcheck.documents.host import HostLibrary
from imgcheck.documents.image import ImageProfile
from imgcheck.loader.abi import class_of

_LINK_LIMIT = 40
_LOOP = "\0"
"""End of what a path with too many links leads to (ELOOP): a name that no file has."""
_DEEPEST = 100
"""Slashes of a path that is resolved by its directory: a hostile one goes deeper than Python calls itself."""
_DEFAULTS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_NOTHING: Mapping[str, str] = {}
# Names come from hostile images: a longer run of digits counts in pieces.
_RUNS = r"[0-9]{1,100}|[^0-9]"


class Tree:
    """ELF files and symlinks of an image, with host files laid over it where a runtime injects some."""

    def __init__(self, image: ImageProfile) -> None:
        self.image = image
        self.links = image.tree.symlinks
        self.linkage: dict[str, Linkage] = {}
        """Canonical path to linkage, of everything that ld.so could map."""
        for record in image.files:
            linkage = image.objects[record.object].linkage
            if linkage is not None and linkage.type in ("executable", "shared"):
                self.linkage[record.path] = linkage
        self.host: dict[str, HostLibrary] = {}
        """Path in the container to the host library that lies there."""
        self._canonical: dict[str, str] = {}
        self._tables = self._directories(self.linkage)
        self.unloadable = image.tree.unloadable
        """Canonical path of what is named as a library and is none, with what the loader says of it."""
        self._obstacles = self._directories(self.unloadable) if self.unloadable else {}

    def _directories(self, paths: Collection[str]) -> dict[str, dict[str, str]]:
        """By the directory, the names in it that lead to one of `paths`."""
        tables: dict[str, dict[str, str]] = defaultdict(dict)
        for path in paths:
            directory, _, name = path.rpartition("/")
            tables[directory or "/"][name] = path
        for link in self.links:
            directory, _, name = link.rpartition("/")
            place = self.canonical(directory or "/")
            target = self.canonical(link)
            if target in paths:
                tables[place][name] = target
        return dict(tables)

    def overlay(self, directory: str, libraries: tuple[HostLibrary, ...]) -> "Tree":
        """This tree with `libraries` in `directory`, under their file names and sonames, over what was there."""
        other = self._copy()
        real = self.canonical(directory)
        table = dict(self._tables.get(real, _NOTHING))
        for library in libraries:
            path = posixpath.join(real, posixpath.basename(library.path))
            table[posixpath.basename(path)] = table[library.soname] = path
            other.linkage[path], other.host[path] = _linkage(library), library
        other._tables = self._tables | {real: table}
        return other

    def relinked(self, directory: str, libraries: tuple[HostLibrary, ...], scanned: Iterable[str]) -> "Tree":
        """This tree with `libraries` in `directory` under their full names, and links as ldconfig then makes them.

        `scanned` are the directories that it goes through. In each, a soname becomes a link to the file of the highest
        version that has it, whoever brought the file; where a plain file bears the soname it stays (elf/ldconfig.c,
        search_dir and create_links).
        """
        other = self._copy()
        real = self.canonical(directory)
        tables = {real: dict(self._tables.get(real, _NOTHING))}
        for library in libraries:
            name = _full_name(library)
            path = posixpath.join(real, name)
            tables[real][name] = path
            other.linkage[path], other.host[path] = _linkage(library), library
        for place in map(self.canonical, scanned):
            if place in self._tables:
                tables.setdefault(place, dict(self._tables[place]))
        for place, table in tables.items():
            other._link(place, table)
        other._tables = self._tables | tables
        return other

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """File name or soname to the files that carry it; those that do by both stand twice."""
        found: dict[str, list[str]] = defaultdict(list)
        for directory in self.directories():
            for name, path in self.table(directory).items():
                found[name].append(path)
        for path, linkage in self.linkage.items():
            if linkage.soname:
                found[linkage.soname].append(path)
        return dict(found)

    def _copy(self) -> "Tree":
        other = object.__new__(Tree)
        other.__dict__.update(self.__dict__)
        for worked_out in ("by_name", "components"):
            other.__dict__.pop(worked_out, None)
        other.linkage, other.host = dict(self.linkage), dict(self.host)
        return other

    def _link(self, directory: str, table: dict[str, str]) -> None:
        best: dict[str, tuple[bool, tuple, str]] = {}
        for name, path in table.items():
            soname = self.linkage[path].soname
            if not soname or not name.startswith("lib") or ".so" not in name:
                continue
            # The link of the soname itself, and the one for the compiler, count only where no file is there.
            target = posixpath.basename(path)
            link = path != f"{directory}/{name}" and (target == soname or target == name.rpartition(".so")[0] + ".so")
            rank = (not link, version_key(name), path)
            best[soname] = max(rank, best.get(soname, rank))
        for soname, (_, _, path) in best.items():
            if table.get(soname) != f"{directory}/{soname}" and f"{directory}/{soname}" not in self.unloadable:
                table[soname] = path

    def canonical(self, path: str) -> str:
        """`path` with `.`, `..` and the recorded symlinks resolved inside the root; it need not exist."""
        found = self._canonical.get(path)
        if found is None:
            found = self._canonical[path] = self._in_directory(path) or self._resolve(path)
        return found

    def _in_directory(self, path: str) -> str:
        """What `path` leads to, by its directory, which others share; "" where that takes more than a step."""
        if path.count("/") > _DEEPEST:
            return ""
        directory, _, name = path.rpartition("/")
        above = self.canonical(directory) if directory else "/"
        if name in ("", ".") or above.endswith(_LOOP):
            return above
        if name == "..":
            return above.rpartition("/")[0] or "/"
        place = "" if above == "/" else above
        target = self.links.get(f"{place}/{name}")
        for _ in range(_LINK_LIMIT):
            if target is None:
                return f"{place}/{name}"
            if "/" in target or target in ("", ".", ".."):
                return ""
            name, target = target, self.links.get(f"{place}/{target}")
        return ""

    def _resolve(self, path: str) -> str:
        todo = path.split("/")[::-1]
        done, links = "", 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            target = self.links.get(f"{done}/{part}")
            if target is None:
                done = f"{done}/{part}"
                continue
            links += 1
            if links > _LINK_LIMIT:
                return f"{done}/{part}{_LOOP}"
            done = "" if target.startswith("/") else done
            todo += target.split("/")[::-1]
        return done or "/"

    def default_directories(self) -> tuple[str, ...]:
        """What ldconfig goes through after ld.so.conf: the directories built into glibc's loaders of this tree."""
        built_in = (linkage.loader_directories for linkage in self.linkage.values())
        return tuple(dict.fromkeys([*itertools.chain.from_iterable(built_in), *_DEFAULTS]))

    def table(self, directory: str) -> Mapping[str, str]:
        """Names in `directory` that lead to ELF files, with the canonical path of each."""
        return self._tables.get(self.canonical(directory), _NOTHING)

    def searched(self, directory: str) -> Mapping[str, str]:
        """As `table`, with what is no ELF file and stops the loader's search all the same."""
        obstacles = self._obstacles.get(self.canonical(directory)) if self._obstacles else None
        return {**obstacles, **self.table(directory)} if obstacles else self.table(directory)

    def file(self, path: str) -> str:
        """Canonical path of the ELF file at `path`; empty where there is none."""
        directory, _, name = path.rpartition("/")
        return self.table(directory or "/").get(name, "")

    def named(self, path: str) -> str:
        """As `file`, or that of what is named as a library and is none."""
        directory, _, name = path.rpartition("/")
        return self.searched(directory or "/").get(name, "")

    def frozen_with(self, program: str) -> list[str]:
        """The libraries that a program brings with it, or unpacks, which PyInstaller made; none of others."""
        home = self.image.tree.frozen.get(program)
        inside = (path for path in self.linkage if path.startswith(f"{home.rstrip('/')}/")) if home else ()
        return [path for path in inside if self.linkage[path].type == "shared"]

    @cached_property
    def components(self) -> frozenset[str]:
        """Names on the way to ELF files and to links: no path with another one, unless by `..`, leads to a library."""
        known = *self._tables, *self._obstacles, *self.links
        places = itertools.chain.from_iterable(place.split("/") for place in known)
        return frozenset(itertools.chain((".", ".."), places))

    def directories(self) -> Iterator[str]:
        """Canonical directories that hold ELF files or links to them."""
        return iter(self._tables)


def version_key(name: str) -> tuple[tuple[int, int], ...]:
    """Sorts file names as ldconfig does: runs of digits by value, and after other characters (_dl_cache_libcmp)."""
    parts = re.findall(_RUNS, name)
    return tuple((1, int(part)) if part.isdigit() else (0, ord(part)) for part in parts)


def _full_name(library: HostLibrary) -> str:
    """The file name that a driver library has, "libcuda.so.396.44", where the host was asked; else its path's."""
    name = posixpath.basename(library.path)
    stem, dot, _ = name.partition(".so")
    return f"{stem}{dot}.{library.version}" if library.version and dot else name


def _linkage(library: HostLibrary) -> Linkage:
    return Linkage(
        elf_class=class_of(library.machine),
        machine=library.machine,
        soname=library.soname,
        needed=library.needed,
        verneed=library.verneed,
        verdef=library.verdef,
        markers=library.markers,
    )
