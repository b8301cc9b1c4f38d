"""What an image and a host have of message passing: interfaces, launch protocols, fabrics."""

import posixpath
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

import msgspec
from msgspec import Struct

from imgcheck.check.context import Context
from imgcheck.documents.facts import Linkage
from imgcheck.documents.host import HostLibrary
from imgcheck.documents.image import FileRecord
from imgcheck.globs import fits, fits_any, parts
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data


class Probe(Data, frozen=True):
    """What `imgcheck probe` records of a host for these rules."""

    libraries: tuple[str, ...]
    directories: tuple[str, ...]
    sources: tuple[str, ...]


class Abi(Data, frozen=True):
    """One binary interface: programs for it run with every library of it."""

    id: str
    title: str
    family: str
    sonames: tuple[str, ...]
    sources: tuple[str, ...]
    marker: str = ""
    """Group of symbols (rules/analysis/markers.toml) that a file of this interface has."""
    without: str = ""
    """Group of symbols that it has not."""


class Release(Data, frozen=True):
    id: str
    soname: str
    file: str
    """How the version in the file's name begins."""
    title: str
    sources: tuple[str, ...]


class Protocol(Data, frozen=True):
    """How a resource manager tells each process its rank."""

    id: str
    title: str
    host: tuple[str, ...]
    image: tuple[str, ...]
    markers: tuple[str, ...]
    srun: str
    sources: tuple[str, ...]
    built_in: tuple[str, ...] = ()
    """Families whose libraries speak it without help."""


class Launchers(Data, frozen=True):
    names: tuple[str, ...]
    sources: tuple[str, ...]


class Fabric(Data, frozen=True):
    id: str
    title: str
    drivers: tuple[str, ...]
    providers: tuple[str, ...]
    package: str
    sources: tuple[str, ...]


class MpiRules(Data, frozen=True, dict=True):
    """rules/mpi/mpi.toml."""

    probe: Probe
    abi: tuple[Abi, ...]
    release: tuple[Release, ...]
    protocol: tuple[Protocol, ...]
    launchers: Launchers
    fabric: tuple[Fabric, ...]

    def abi_of(self, soname: str, markers: Iterable[str]) -> Abi | None:
        """The interface behind a soname, where `markers` are the symbol groups of the library or of its user."""
        named = self._named(soname)
        if not named:
            return None
        found = set(markers)
        return next((a for a in named if (not a.marker or a.marker in found) and a.without not in found), None)

    def _named(self, soname: str) -> tuple[Abi, ...]:
        """Interfaces one of whose patterns fits `soname`."""
        # Every soname of an image is asked for, and hardly one is of MPI.
        if not soname.startswith(self._beginnings):
            return ()
        if soname not in self._known:
            self._known[soname] = tuple(a for a in self.abi if fits_any(soname, a.sonames))
        return self._known[soname]

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """What stands before the first wildcard of each pattern."""
        return tuple({parts(glob)[0] for abi in self.abi for glob in abi.sonames})

    @cached_property
    def _known(self) -> dict[str, tuple[Abi, ...]]:
        return {}

    def release_of(self, soname: str, version: str) -> str:
        """Release of a library by the version in its file's name; empty where it is not known."""
        found = (each for each in self.release if each.soname == soname)
        return next((each.title for each in found if f"{version}.".startswith(each.file + ".")), "")


@lru_cache(maxsize=8)
def mpi_rules(knowledge: Knowledge) -> MpiRules:
    return msgspec.convert(knowledge.table("mpi/mpi.toml"), MpiRules)


class Use(Struct, frozen=True):
    """A file of the image that is an MPI library, or needs one."""

    record: FileRecord
    linkage: Linkage
    abi: Abi
    soname: str
    """Of the library."""
    is_library: bool
    release: str = ""

    @property
    def title(self) -> str:
        return f"{self.release} ({self.soname})" if self.release else self.abi.title


class MpiFacts:
    """The image and the host of one cell, as the rules on message passing ask them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.rules = mpi_rules(context.knowledge)

    @cached_property
    def _uses(self) -> list[Use]:
        """Best reached first."""
        found = [use for each in self.context.linked for use in self._uses_of(*each)]
        return sorted(
            found, key=lambda use: (self.context.closure.rank(use.record.path), not use.is_library, use.record.path)
        )

    def _uses_of(self, record: FileRecord, linkage: Linkage) -> Iterator[Use]:
        own = self.rules.abi_of(linkage.soname, linkage.markers) if linkage.soname else None
        if own:
            version = posixpath.basename(record.path).partition(".so.")[2]
            release = self.rules.release_of(linkage.soname, version)
            yield Use(record, linkage, own, linkage.soname, True, release)
            return
        for soname in linkage.needed:
            if abi := self.rules.abi_of(soname, linkage.markers):
                yield Use(record, linkage, abi, soname, False)

    def reach(self, use: Use) -> str:
        return self.context.closure.reach(use.record.path)

    @cached_property
    def libraries(self) -> list[Use]:
        return [use for use in self._uses if use.is_library]

    @cached_property
    def candidates(self) -> list[Use]:
        """What decides: the libraries reached best, else the programs whose library the image lacks."""
        found = self.libraries or self._uses
        return [use for use in found if self.reach(use) == self.reach(found[0])]

    @cached_property
    def has_program(self) -> bool:
        """A program or Python module of the image starts MPI itself.

        Without one its library is there for others (HDF5, VTK and OpenCV of distributions), and a single process does.
        """
        return any(_starts_mpi(use) and self.context.closure.runs(use.record.path) for use in self._uses)

    @property
    def self_contained(self) -> bool:
        """The image brings library and launcher, so that it runs on one node without the host's help."""
        return bool(self.libraries) and bool(self._launchers)

    @property
    def needs_host(self) -> bool:
        """It may be the host that starts the processes: a program uses MPI, and the command is no launcher."""
        return self.has_program and not self._starts_itself

    @property
    def _starts_itself(self) -> bool:
        """The command, where one is known, runs the image's own launcher."""
        reach = self.context.closure.reach
        known = any(reach(record.path) != "entry" for record in self.context.image.files)
        return known and any(reach(path) == "entry" for path in self._launchers)

    @cached_property
    def _launchers(self) -> list[str]:
        image, names = self.context.image, self.rules.launchers.names
        links = {target for link, target in image.tree.symlinks.items() if posixpath.basename(link) in names}
        wanted = {*names, *map(posixpath.basename, links)}
        scripts = [script.path for script in image.tree.scripts if posixpath.basename(script.path) in names]
        programs = [
            record.path
            for record in image.files
            if posixpath.basename(record.path) in wanted and not _is_library(self.context, record)
        ]
        return programs + scripts

    # the host ----------------------------------------------------------------------------------------------------

    @cached_property
    def host_libraries(self) -> tuple[HostLibrary, ...]:
        return self.context.host.libraries.value or ()

    @cached_property
    def host_abis(self) -> dict[str, tuple[Abi, HostLibrary]]:
        """Interface id to a library of the host that has it."""
        found: dict[str, tuple[Abi, HostLibrary]] = {}
        for library in self.host_libraries:
            if abi := self.rules.abi_of(library.soname, library.markers):
                found.setdefault(abi.id, (abi, library))
        return found

    @cached_property
    def host_titles(self) -> str:
        names = [
            self.rules.release_of(library.soname, library.version) or abi.title
            for abi, library in self.host_abis.values()
        ]
        return " and ".join(dict.fromkeys(names))

    @cached_property
    def host_protocols(self) -> list[Protocol]:
        """Protocols of the host's resource manager: what Slurm's plugins and the PMI libraries tell."""
        names = [name for lib in self.host_libraries for name in (lib.soname, posixpath.basename(lib.path))]
        return [each for each in self.rules.protocol if _any_like(names, each.host)]

    # the image's protocols ---------------------------------------------------------------------------------------

    def protocols(self, use: Use) -> list[Protocol]:
        """Protocols by which the image's MPI learns its rank."""
        linkages = [f.linkage for f in self.context.image.objects.values() if f.linkage and self._speaks(f.linkage)]
        names = [name for linkage in linkages for name in linkage.needed]
        markers = {marker for linkage in linkages for marker in linkage.markers}
        return [
            each
            for each in self.rules.protocol
            if use.abi.family in each.built_in or markers & set(each.markers) or _any_like(names, each.image)
        ]

    def _speaks(self, linkage: Linkage) -> bool:
        """An MPI library, a plugin of one, or what either loads to speak to a resource manager."""
        patterns = [pattern for protocol in self.rules.protocol for pattern in protocol.image]
        return _any_like(linkage.needed, patterns) or self.rules.abi_of(linkage.soname, linkage.markers) is not None

    # fabrics -----------------------------------------------------------------------------------------------------

    def providers(self, fabric: Fabric) -> tuple[list[str], list[str]]:
        """Files of the image that drive `fabric`, and those that its libibverbs does not take."""
        taken: list[str] = []
        refused: list[str] = []
        for record in self.context.image.files:
            linkage = self.context.image.facts(record).linkage
            names = (linkage.soname if linkage else "", posixpath.basename(record.path))
            if linkage and _any_like(names, fabric.providers):
                (taken if self._verbs_takes(linkage) else refused).append(record.path)
        return taken, refused

    def _verbs_takes(self, provider: Linkage) -> bool:
        wanted = {v for need in provider.verneed if need.library == "libibverbs.so.1" for v in need.versions}
        private = {version for version in wanted if version.startswith("IBVERBS_PRIVATE_")}
        return not private or private <= self._verbs_versions

    @cached_property
    def _verbs_versions(self) -> set[str]:
        linkages = (facts.linkage for facts in self.context.image.objects.values())
        return {v for linkage in linkages if linkage and linkage.soname == "libibverbs.so.1" for v in linkage.verdef}


def _starts_mpi(use: Use) -> bool:
    runs = use.linkage.type == "executable" or use.linkage.python_module
    return not use.is_library and runs and "mpi-user" in use.linkage.markers


def _is_library(context: Context, record: FileRecord) -> bool:
    linkage = context.image.facts(record).linkage
    return linkage is None or linkage.type != "executable"


def _any_like(names: Iterable[str], patterns: Iterable[str]) -> bool:
    found = tuple(patterns)
    return any(name and fits(name, pattern) for name in names for pattern in found)
