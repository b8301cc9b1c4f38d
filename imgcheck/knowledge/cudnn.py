"""Frameworks that refuse a cuDNN older than the one they were built with (rules/analysis/cudnn.toml)."""

from functools import lru_cache

import msgspec

from imgcheck.documents.report import Severity
from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.versions import at_least


class Release(Data, frozen=True):
    """The cuDNN that releases of a framework from one on were built with."""

    since: str
    version: str
    """Empty where their package tells it."""


class CudnnUser(Data, frozen=True):
    """A framework that compares the cuDNN it gets with the one it was built with."""

    id: str
    component: str
    """As components of a profile are called."""
    severity: Severity
    """Of an older one."""
    sources: tuple[str, ...]
    releases: tuple[Release, ...] = ()
    """Oldest first."""
    loads_packages: bool = False
    """It loads the cuDNN of NVIDIA's Python package by its path, wherever others lie."""

    def built_with(self, release: str) -> str:
        """The cuDNN of a release by the table; empty where that does not tell."""
        known = [entry.version for entry in self.releases if release and at_least(release, entry.since)]
        return known[-1] if known else ""


@lru_cache(maxsize=4)
def cudnn_users(knowledge: Knowledge) -> dict[str, CudnnUser]:
    """Name of the component to the framework."""
    entries = msgspec.convert(knowledge.table("analysis/cudnn.toml")["framework"], tuple[CudnnUser, ...])
    return {entry.component: entry for entry in entries}
