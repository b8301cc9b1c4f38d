"""Frameworks that open libraries by themselves before they use a GPU (rules/analysis/frameworks.toml)."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.versions import compare


class OpenedLibrary(Data, frozen=True):
    """One library that a framework opens."""

    name: str
    """The soname up to its version, or a path that begins with $ORIGIN."""
    version: str = ""
    versions: tuple[str, ...] = ()
    """Names under which the framework's configuration may have the version, the first one first."""
    since: str = ""
    before: str = ""
    """The first release of the framework that opens it, and the first that does not any more; empty where none is."""

    def opened_by(self, release: str) -> bool:
        """Whether that release of the framework opens it; not where it is not known and decides."""
        if not release:
            return not self.since and not self.before
        return compare(release, self.since) >= 0 and (not self.before or compare(release, self.before) < 0)

    def asked_for(self, defined: Mapping[str, str]) -> str:
        """What it is opened by where the framework's configuration defines these versions; empty if that lacks it."""
        version = self.version or next((defined[name] for name in self.versions if defined.get(name)), "")
        if self.versions and not version:
            return ""
        return f"{self.name}.{version}" if version else self.name


class Framework(Data, frozen=True):
    """What a framework opens, and what comes of it where something is missing."""

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
    loads_packages: bool = False
    """It loads what NVIDIA's Python packages have of them by their paths, before it asks for them by name."""
    config: str = ""
    """Name of the file in its package that defines their versions."""


@lru_cache(maxsize=4)
def frameworks(knowledge: Knowledge) -> dict[str, Framework]:
    """Name of the component to its framework."""
    entries = msgspec.convert(knowledge.table("analysis/frameworks.toml")["framework"], tuple[Framework, ...])
    return {entry.component: entry for entry in entries}
