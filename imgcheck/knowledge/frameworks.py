"""Frameworks that open libraries by themselves before they use a GPU (rules/analysis/frameworks.toml)."""

from functools import lru_cache

import msgspec

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data


class OpenedLibrary(Data, frozen=True):
    """One library that a framework opens."""

    name: str
    """The soname up to its version."""
    versions: tuple[str, ...]
    """Names under which the framework's configuration may have that version, the first one first."""
    before: str = ""
    """The release of the framework that does without it; empty where none does."""


class Framework(Data, frozen=True):
    """What a framework opens, and what comes of it where something is missing."""

    id: str
    component: str
    """As components of a profile are called."""
    opener: str
    """Beginning of the name of the file that opens the libraries."""
    config: str
    """Name of the file in its package that defines their versions."""
    libraries: tuple[OpenedLibrary, ...]
    loaded_by: tuple[str, ...]
    """Components that may have loaded them before, from wherever Python packages have them."""
    error: str
    remedy: str
    sources: tuple[str, ...]


@lru_cache(maxsize=4)
def frameworks(knowledge: Knowledge) -> dict[str, Framework]:
    """Name of the component to its framework."""
    entries = msgspec.convert(knowledge.table("analysis/frameworks.toml")["framework"], tuple[Framework, ...])
    return {entry.component: entry for entry in entries}
