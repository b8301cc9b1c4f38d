"""Programs whose own start code refuses a CPU: told by the words that they print (rules/analysis/refusals.toml)."""

import re
from collections.abc import Iterable
from functools import cache

import msgspec

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.names import analysis
from imgcheck.documents.facts import Refusal
from imgcheck.knowledge import Knowledge, cpus

_LONGEST_LIST = 2048
"""Bytes of a list of features."""


class _Entry(msgspec.Struct, frozen=True):
    words: str
    section: str
    level: str = ""
    features: dict[str, str] = {}
    """Where they end with a list of names up to a bracket: each name with the feature."""


def refusal(elf: Elf) -> Refusal | None:
    """Below which level, or without which features, the file ends by itself before it does anything, and its words.

    None where it does not.
    """
    for section, pattern in _patterns().items():
        if elf.section(section) and (found := pattern.search(elf.data)):
            entry = _entries()[found[0]]
            return _of_list(elf, found.end(), entry) if entry.features else Refusal(entry.level, entry.words)
    return None


def _of_list(elf: Elf, at: int, entry: _Entry) -> Refusal | None:
    if elf.machine != "x86_64":
        return None
    listed = elf.string(at, _LONGEST_LIST).partition("]")[0]
    features = [entry.features[name] for name in listed.split(", ") if name in entry.features]
    return refusal_of(features, f"{entry.words}{listed}]")


def refusal_of(features: Iterable[str], words: str) -> Refusal | None:
    """That of a program for x86-64 that wants these features, but for what every such CPU has; None without any."""
    knowledge = Knowledge()
    table, given = cpus.features(knowledge, "x86_64"), cpus.baseline(knowledge, "x86_64")
    known = tuple(feature for feature in features if feature in table and feature not in given)
    levels = {table[feature].level for feature in known}
    level = next((level for level in reversed(cpus.LEVELS) if level in levels), cpus.LEVELS[0])
    return Refusal(level, words, known) if known else None


@cache
def _entries() -> dict[bytes, _Entry]:
    found = msgspec.convert(analysis("refusals")["refusal"], list[_Entry])
    return {entry.words.encode(): entry for entry in found}


@cache
def _patterns() -> dict[str, re.Pattern[bytes]]:
    """The words of all refusals of files with one section."""
    words: dict[str, list[bytes]] = {}
    for text, entry in _entries().items():
        words.setdefault(entry.section, []).append(re.escape(text))
    return {section: re.compile(b"|".join(each)) for section, each in words.items()}
