"""Naming conventions that tell implementations and CPU queries apart, read from rules/analysis."""

import fnmatch
import re
import tomllib
from bisect import bisect_right
from functools import cache
from itertools import accumulate

from imgcheck.knowledge.store import rules_directory


@cache
def analysis(name: str = "isa") -> dict:
    """One file of rules/analysis."""
    return tomllib.loads((rules_directory() / "analysis" / f"{name}.toml").read_text(encoding="utf-8"))


def queries(machine: str) -> dict:
    """Patterns of the `functions` that report the CPU's features and of the `data` that holds them."""
    return analysis()["queries"]["x86" if machine in ("x86_64", "i386") else machine]


def _tokens(machine: str) -> list[str]:
    return analysis("clones")["x86" if machine in ("x86_64", "i386") else machine]


@cache
def _clone_pattern(machine: str) -> re.Pattern[str]:
    joined = "|".join(map(re.escape, sorted(_tokens(machine), key=len, reverse=True)))
    # Mangled names put a length before and an E behind a namespace: N3foo4avx2E.
    return re.compile(rf"(?:^|[._@\d])(?:{joined})(?:$|[._@\d]|(?-i:E|I|C[12]))", re.IGNORECASE)


@cache
def _clone_marks(machine: str) -> tuple[str, ...]:
    """The shortest tokens, of which every clone's name contains one: plain searches rule out most names at once."""
    tokens = _tokens(machine)
    return tuple(t for t in tokens if not any(other != t and other in t for other in tokens))


def is_clone(name: str, machine: str) -> bool:
    """Whether `name` follows a convention of rules/analysis/clones.toml for variants of one function."""
    return bool(clones([name], machine))


def clones(names: list[str], machine: str) -> list[int]:
    """Indices of the clones among `names`."""
    lowered = [name.lower() for name in names]
    joined = "\0".join(lowered)
    ends = list(accumulate(len(name) + 1 for name in lowered))
    marked: set[int] = set()
    for mark in _clone_marks(machine):
        at = joined.find(mark)
        while at >= 0:
            index = bisect_right(ends, at)
            marked.add(index)
            at = joined.find(mark, ends[index])
    return [index for index in sorted(marked) if _clone_pattern(machine).search(names[index])]


@cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


def matches(name: str, patterns: list[str]) -> bool:
    """Whether a glob of `patterns` fits `name`."""
    return bool(_pattern(tuple(patterns)).match(name))
