"""Naming conventions that tell implementations and CPU queries apart, read from rules/analysis."""

import fnmatch
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
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


def switches(machine: str) -> dict:
    """By feature the `functions` with uses of it that run only where somebody asks for them, and who does."""
    return analysis()["switches"].get(machine, {})


def _tokens(machine: str) -> list[str]:
    return analysis("clones")["x86" if machine in ("x86_64", "i386") else machine]


_BEFORE = r"._@\d"
"""What stands before a token in a name. Mangled names put a length before and an E behind a namespace: N3foo4avx2E."""


_BEHIND = r"[._@\dEI]|C[12]"
"""And what stands behind it, where the name does not end."""
_ENDED = re.compile(rf"\0|{_BEHIND}".encode())


@cache
def _clone_pattern(machine: str) -> re.Pattern[str]:
    joined = "|".join(map(re.escape, sorted(_tokens(machine), key=len, reverse=True)))
    return re.compile(rf"(?:^|[{_BEFORE}])(?:{joined})(?:$|(?-i:{_BEHIND}))", re.IGNORECASE)


@cache
def _clone_finder(machine: str) -> re.Pattern[bytes]:
    """The same for many lowered names, each behind a NUL; it takes capitals behind a token for small letters.

    Tokens are grouped by their first letter, so that each place costs one comparison, not one a token.
    """
    by_letter: dict[str, list[str]] = {}
    for token in sorted(_tokens(machine), key=len, reverse=True):
        by_letter.setdefault(token[0], []).append(re.escape(token[1:]))
    joined = "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in by_letter.items())
    return re.compile(rf"[\0{_BEFORE}](?:{joined})(?=[\0._@\dei]|c[12])".encode())


def is_clone(name: str, machine: str) -> bool:
    """Whether `name` follows a convention of rules/analysis/clones.toml for variants of one function.

    What compilers name after a source file, as they do the initialiser of what it holds, is none: nothing chooses it.
    """
    return not matches(name, analysis("clones")["of_files"]) and bool(_clone_pattern(machine).search(name))


def clones(names: list[bytes], machine: str) -> list[int]:
    """Indices of the clones among `names`, in no order."""
    joined = b"\0" + b"\0".join(names) + b"\0"
    certain: list[int] = []
    doubtful: list[int] = []
    for hit in _clone_finder(machine).finditer(joined.lower()):
        (certain if _ENDED.match(joined, hit.end()) else doubtful).append(hit.start())
    of_files = matching(names, analysis("clones")["of_files"])
    found = [i for i in _holding(names, certain) if i not in of_files]
    more = set(_holding(names, doubtful)).difference(found)
    return found + [i for i in more if is_clone(names[i].decode("utf-8", "backslashreplace"), machine)]


def _holding(names: list[bytes], hits: list[int]) -> list[int]:
    """Indices of those of `names`, joined with a byte between, in which one of the positions lies."""
    if not hits:
        return []
    starts = list(accumulate((len(name) + 1 for name in names), initial=0))
    return sorted({bisect_right(starts, hit) - 1 for hit in hits})


@cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


def matches(name: str, patterns: list[str]) -> bool:
    """Whether a glob of `patterns` fits `name`."""
    return bool(_pattern(tuple(patterns)).match(name))


@cache
def _literals(patterns: tuple[str, ...]) -> tuple[bytes, ...]:
    """Of each glob the longest part without a wildcard: no name fits that does not contain one of them."""
    longest = {max(re.split(r"[*?]", pattern), key=len).encode() for pattern in patterns}
    return tuple(sorted(one for one in longest if not any(other != one and other in one for other in longest)))


def matching(names: list[bytes], patterns: list[str]) -> dict[int, str]:
    """Index and text of those of `names` that a glob of `patterns` fits."""
    joined = b"\0".join(names)
    hits = [at for literal in _literals(tuple(patterns)) for at in _occurrences(joined, literal)]
    found = {i: names[i].decode("utf-8", "backslashreplace") for i in _holding(names, hits)}
    return {i: name for i, name in found.items() if matches(name, patterns)}


def _occurrences(text: bytes, literal: bytes) -> Iterator[int]:
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + 1)
