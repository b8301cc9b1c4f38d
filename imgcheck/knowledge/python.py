"""What is known of Python packages: libraries that they open, and releases that they were built for (rules/python)."""

from functools import lru_cache

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data


class Opener(Data, frozen=True):
    """A top-level module, and what comes of it where the libraries are missing."""

    id: str
    """The module."""
    libraries: tuple[tuple[str, ...], ...]
    """Of each list one has to be there, by the name that ctypes.util.find_library takes; `*` stands for any end."""
    error: str
    remedy: str
    sources: tuple[str, ...]
    brought_by: tuple[str, ...] = ()
    """Other modules that bring the libraries."""


@lru_cache(maxsize=4)
def openers(knowledge: Knowledge) -> dict[str, Opener]:
    """By the module."""
    return {entry.id: entry for entry in knowledge.entries("python", "opened", Opener)}


class Build(Data, frozen=True):
    """Extension modules that were built with one release of a package and that a later one does not take."""

    id: str
    """Of the text marker (rules/analysis/markers.toml) by which they are known."""
    package: str
    """The top-level module of the package."""
    made_for: str
    needs: str
    """Glob of a file of the releases that take them, in the directory that the package lies in."""
    refused_by: str
    refuses: str
    """Glob of a file of the releases that do not."""
    error: str
    error_of_cython: str
    """What those see that have the marker `cython-sizes`."""
    remedy: str
    sources: tuple[str, ...]


@lru_cache(maxsize=4)
def builds(knowledge: Knowledge) -> tuple[Build, ...]:
    return tuple(knowledge.entries("python", "build", Build))
