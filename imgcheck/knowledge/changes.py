"""Versions from which on a component does something otherwise (rules/analysis/changes.toml)."""

from functools import lru_cache

import msgspec

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.versions import at_least, parse

_FILE = "analysis/changes.toml"


class Change(Data, frozen=True):
    """What a component does from one version on."""

    id: str
    of: str
    """The component."""
    since: str
    note: str
    sources: tuple[str, ...]


def does(knowledge: Knowledge, change: str, version: str) -> bool:
    """Whether a component of `version` does what the entry `change` says; not where the version is not known."""
    return bool(parse(version)) and at_least(version, changes(knowledge)[change].since)


@lru_cache(maxsize=4)
def changes(knowledge: Knowledge) -> dict[str, Change]:
    """Id to change."""
    return {entry.id: entry for entry in msgspec.convert(knowledge.table(_FILE)["change"], tuple[Change, ...])}
