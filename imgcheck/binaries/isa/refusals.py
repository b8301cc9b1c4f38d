"""Programs whose own start code refuses a CPU: told by the words that they print (rules/analysis/refusals.toml)."""

import re
from functools import cache

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.names import analysis
from imgcheck.documents.facts import Refusal


def refusal(elf: Elf) -> Refusal | None:
    """The level below which the file ends by itself before it does anything, and its words; None where it does not."""
    for section, pattern in _patterns().items():
        if elf.section(section) and (found := pattern.search(elf.data)):
            return _refusals()[found[0]]
    return None


@cache
def _refusals() -> dict[bytes, Refusal]:
    return {entry["words"].encode(): Refusal(entry["level"], entry["words"]) for entry in _entries()}


@cache
def _patterns() -> dict[str, re.Pattern[bytes]]:
    """The words of all refusals of files with one section."""
    words: dict[str, list[bytes]] = {}
    for entry in _entries():
        words.setdefault(entry["section"], []).append(re.escape(entry["words"].encode()))
    return {section: re.compile(b"|".join(each)) for section, each in words.items()}


def _entries() -> list[dict[str, str]]:
    return analysis("refusals")["refusal"]
