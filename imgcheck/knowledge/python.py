"""Python packages that open libraries of the system by name when they are imported (rules/python/opened.toml)."""

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
