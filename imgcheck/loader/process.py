"""One process as ld.so builds it: objects loaded breadth first, what is missing, which versions are not there."""

import posixpath
from collections.abc import Collection

from msgspec import Struct

from imgcheck.documents.facts import Linkage
from imgcheck.loader.glibc import LIBC, newest_node
from imgcheck.loader.system import UNSTOPPED, Found, Plan, Refused, System

# ld.so knows no limit; a chain of libraries in a hostile image must not make the search quadratic.
_CHAIN_LIMIT = 128


class Object:
    """A loaded file (a link_map of glibc, a dso of musl)."""

    __slots__ = ("_chain", "_plan", "defined", "libraries", "linkage", "loader", "opened", "real", "reason", "system")

    def __init__(
        self, system: System, opened: str, real: str, linkage: Linkage, loader: "Object | None", reason: str = ""
    ) -> None:
        self.system, self.opened, self.real, self.linkage, self.loader = system, opened, real, linkage, loader
        self.reason = reason
        self.defined = system.defined(real)
        """Symbol versions."""
        self.libraries: list[tuple[str, Object | None]] = []
        """Names it asks for with what they became, in order."""
        self._chain: tuple[tuple[str, tuple[str, ...]], ...] | None = None
        self._plan: Plan | None = None

    @property
    def origin(self) -> str:
        """$ORIGIN: the directory of the path by which it was opened, links not resolved (the program's: resolved)."""
        return posixpath.dirname(self.opened)

    @property
    def chain(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(file, directories) of the RPATH of this object, of what loaded it, and so on up to the program."""
        if self._chain is None:
            # Chains are as deep as the longest path of first requests: walked up to the first one known.
            pending: list[Object] = []
            at: Object | None = self
            while at is not None and at._chain is None:
                pending.append(at)
                at = at.loader
            above = at._chain or () if at is not None else ()
            for item in reversed(pending):
                own = item._directories(item._inherited)
                above = item._chain = ((item.opened, own), *above)[:_CHAIN_LIMIT] if own else above
            return above
        return self._chain

    @property
    def _inherited(self) -> tuple[str, ...]:
        # musl treats both tags alike; glibc hands down RPATH only.
        return self.linkage.rpath or (self.linkage.runpath if self.system.kind == "musl" else ())

    def _directories(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return self.system.directories(paths, self.origin) if paths else ()

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            runpath = self._directories(self.linkage.runpath)
            self._plan = self.system.plan(self.chain, runpath, "nodeflib" in self.linkage.flags)
        return self._plan


class Miss(Struct, frozen=True):
    """A library that an object needs and the loader does not find."""

    object: Object
    name: str
    refused: Refused = UNSTOPPED
    """The file of the name that it stops at."""


class VersionMiss(Struct, frozen=True):
    """A symbol version that an object needs and the file that was chosen does not define."""

    object: Object
    name: str
    provider: Object
    version: str


class Process:
    """`path` started as a program, or opened by `within` (dlopen) where that is given."""

    def __init__(self, system: System, path: str, opened: str = "", within: "Process | None" = None) -> None:
        self.system, self.within = system, within
        self.objects: list[Object] = []
        self.misses: list[Miss] = []
        self._names: dict[str, Object] = {}
        self._reals: dict[str, Object] = {}
        self._refused: dict[tuple[Object, str], Refused] = {}
        """By who asks for it, and the name."""
        linkage = system.tree.linkage[path]
        self.main: Object = Object(system, opened or path, path, linkage, within.main if within else None)
        self._add(self.main)
        if within is None:
            self._add_interpreter()
            for name in system.preload:
                self._load(name, self.main)
        self._load_dependencies()

    def _add_interpreter(self) -> None:
        system = self.system
        if system.real and self.main.real != system.real:
            linkage = system.tree.linkage[system.real]
            self._add(Object(system, system.interpreter, system.real, linkage, None, "interpreter"))

    def _add(self, item: Object) -> None:
        self.objects.append(item)
        self._reals.setdefault(item.real, item)
        self._names.setdefault(item.opened, item)
        # musl knows a library by the name it was asked for, never by its soname.
        if item.linkage.soname and self.system.kind == "glibc":
            self._names.setdefault(item.linkage.soname, item)

    def loaded(self, name: str) -> Object | None:
        """The loaded object that `name` means, here or in the process that opened this one."""
        found = self._names.get(name)
        return found if found is not None or self.within is None else self.within.loaded(name)

    @property
    def all_misses(self) -> list[Miss]:
        """What is missing here, and in the process that opened this one."""
        return self.misses + (self.within.all_misses if self.within else [])

    def found(self, paths: Collection[str]) -> set[str]:
        """Those of the files at `paths` that are loaded, here or in the process that opened this one."""
        return self._reals.keys() & paths | (self.within.found(paths) if self.within else set())

    def keep(self, opened: "Process") -> None:
        """Let what was opened within this process stay loaded: the next file that is opened finds it by its name."""
        self._names = opened._names | self._names
        self._reals = opened._reals | self._reals

    def _load_dependencies(self) -> None:
        for item in self.objects:  # grows while it is walked: breadth first, as _dl_map_object_deps
            linkage, libraries = item.linkage, item.libraries
            for name in (*linkage.needed, *linkage.filters) if linkage.filters else linkage.needed:
                found = self._load(name, item)
                libraries.append((name, found))
                if found is None:
                    self.misses.append(Miss(item, name, self._refused.get((item, name), UNSTOPPED)))
            for name in linkage.auxiliary:  # optional by definition
                libraries.append((name, self._load(name, item)))

    def _load(self, name: str, requester: Object) -> Object | None:
        if "$" in name:
            name = self.system.replaced(name, requester.origin)
        # Here and not by `loaded`: most names of an image are those of its C library.
        known = self._names.get(name)
        if known is None and self.within is not None:
            known = self.within.loaded(name)
        if known is not None:
            return known
        if self.system.kind == "musl" and self.system.is_self(name):
            return self._interpreter_as(name)
        if "/" in name:
            found = self.system.at_path(name, requester.origin)
        else:
            found = self.system.find(name, requester.plan)
        if isinstance(found, Refused):
            self._refused[requester, name] = found
            return None
        return self._take(name, found, requester) if found is not None else None

    def _take(self, name: str, found: Found, requester: Object) -> Object:
        same = self._reals.get(found.real) or (self.within._reals.get(found.real) if self.within else None)
        if same is None:
            linkage = self.system.tree.linkage[found.real]
            same = Object(self.system, found.opened, found.real, linkage, requester, found.reason)
            self._add(same)
        self._names.setdefault(name, same)
        return same

    def _interpreter_as(self, name: str) -> Object | None:
        found = self._reals.get(self.system.real) or (self.within._reals.get(self.system.real) if self.within else None)
        if found is not None:
            self._names[name] = found
        return found

    def foreign_libc(self) -> tuple[Object, Object] | None:
        """The C library that is loaded, where it is of another release than the loader, and this.

        The two share symbols of GLIBC_PRIVATE, which hardly a release leaves as they were. An older loader tells none:
        its own C library lies beside it, or else in its default directories.
        """
        system, loaded, loader = self.system, self._names.get(LIBC), self._reals.get(self.system.real)
        if system.kind == "musl" or loaded is None or loader is None or loader is self.main:
            return None
        told = {loaded.linkage.glibc_release, loader.linkage.glibc_release}
        if "" not in told:
            return (loaded, loader) if len(told) == 2 else None
        own = system.tree.table(posixpath.dirname(system.real)).get(LIBC, "") or system.libc
        if own in ("", loaded.real):
            return None
        releases = {newest_node(system.tree.linkage[path]) for path in (own, loaded.real)}
        return (loaded, loader) if len(releases) == 2 and "" not in releases else None

    def version_misses(self) -> list[VersionMiss]:
        """Versions that are not there, as _dl_check_map_versions finds them."""
        return [VersionMiss(item, *each) for item in self.objects for each in self.absent_versions(item.linkage)]

    def absent_versions(self, linkage: Linkage) -> list[tuple[str, Object, str]]:
        """Name, provider and version of what one of these objects needs and does not find.

        A provider without any version definition passes ("no version information available" is a mere warning), and
        so does a weak reference. musl checks no versions.
        """
        absent: list[tuple[str, Object, str]] = []
        if self.system.kind == "musl":
            return absent
        names, within = self._names, self.within
        for need in linkage.verneed:
            provider = names.get(need.library)
            if provider is None and within is not None:
                provider = within.loaded(need.library)
            if provider is not None and not provider.defined.issuperset(need.versions) and provider.defined:
                missing = (v for v in need.versions if v not in provider.defined and v not in need.weak)
                absent += [(need.library, provider, version) for version in missing]
        return absent
