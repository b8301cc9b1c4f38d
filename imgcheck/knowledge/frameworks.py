"""Frameworks that open libraries by themselves before they use a GPU (rules/analysis/frameworks.toml)."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.versions import compare


def _within(release: str, since: str, before: str) -> bool:
    """Whether a release is of those `since` one and `before` another; not where it is not known and decides."""
    if not release:
        return not since and not before
    return compare(release, since) >= 0 and (not before or compare(release, before) < 0)


class OpenedLibrary(Data, frozen=True):
    """One library that a framework opens."""

    name: str
    """The soname up to its version, a path from $ORIGIN, or sonames of which one does, with " or " between them."""
    version: str = ""
    versions: tuple[str, ...] = ()
    """Names under which the framework's configuration may have the version, the first one first."""
    since: str = ""
    before: str = ""
    """The first release of the framework that opens it, and the first that does not any more; empty where none is."""
    packages: tuple[str, ...] = ()
    """The Python packages of the framework that open it, where it comes as several; empty: whichever it is."""

    def opened_by(self, release: str, package: str) -> bool:
        """Whether that release of the framework opens it, installed as the Python package of that name."""
        return _within(release, self.since, self.before) and (not self.packages or package in self.packages)

    def asked_for(self, defined: Mapping[str, str]) -> str:
        """What it is opened by where the framework's configuration defines these versions; empty if that lacks it."""
        version = self.version or next((defined[name] for name in self.versions if defined.get(name)), "")
        if self.versions and not version:
            return ""
        return f"{self.name}.{version}" if version else self.name


class Framework(Data, frozen=True):
    """What a framework, or some releases of it, opens, and what comes of it where something is missing."""

    id: str
    component: str
    """As components of a profile are called."""
    opener: str
    """Beginning of the name, or of the last parts of the path, of the file that opens the libraries."""
    libraries: tuple[OpenedLibrary, ...]
    loaded_by: tuple[str, ...]
    """Components that may have loaded them before, from wherever Python packages have them."""
    without: str
    """What it does where one of them is missing."""
    remedy: str
    sources: tuple[str, ...]
    since: str = ""
    before: str = ""
    """The first release that this is about, and the first of which it is not any more; empty where none is."""
    seeks: tuple[str, ...] = ()
    """Directories in which it looks before it asks for a name: from $ORIGIN, where `opener` is, or by a variable."""
    loads_packages: bool = False
    """It loads what NVIDIA's Python packages have of them by their paths, before it asks for them by name."""
    goes_on: bool = False
    """It works without them, on the CPU."""
    config: str = ""
    """Name of the file in its package that defines their versions."""

    def covers(self, release: str) -> bool:
        """Whether it is about that release; not where it is not known and decides."""
        return _within(release, self.since, self.before)


@lru_cache(maxsize=4)
def frameworks(knowledge: Knowledge) -> tuple[Framework, ...]:
    """All of them."""
    return msgspec.convert(knowledge.table("analysis/frameworks.toml")["framework"], tuple[Framework, ...])


def framework_of(knowledge: Knowledge, component: str, release: str) -> Framework | None:
    """What is known of a release of the component of that name."""
    entries = (each for each in frameworks(knowledge) if each.component == component)
    return next((each for each in entries if each.covers(release)), None)
