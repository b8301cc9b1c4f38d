"""Shell patterns for names of libraries, most of which no name begins like: those cost one comparison."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")

_WILDCARDS = "*?["


def fits(name: str, pattern: str) -> bool:
    """Whether `name` is one that `pattern` stands for, as fnmatch.fnmatchcase says."""
    head, rest = parts(pattern)
    if not name.startswith(head):
        return False
    if "?" in rest or "[" in rest:
        import fnmatch  # its expressions take longer to make than most checks take

        return fnmatch.fnmatchcase(name, pattern)
    return _holds(name[len(head) :], rest.split("*")) if rest else name == head


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether `name` is one that one of `patterns` stands for."""
    return any(fits(name, pattern) for pattern in patterns)


class Index(Generic[T]):
    """Values by shell patterns: finds the first whose pattern a name fits, by what the patterns begin with."""

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        self._by_head: dict[str, list[tuple[int, str, T]]] = {}
        for order, (pattern, value) in enumerate(entries):
            self._by_head.setdefault(parts(pattern)[0], []).append((order, pattern, value))
        self._lengths = {len(head) for head in self._by_head}

    def first(self, name: str) -> T | None:
        """The value of the first pattern that stands for `name`; None where none does."""
        near = [each for length in self._lengths for each in self._by_head.get(name[:length], ())]
        fitting = [(order, value) for order, pattern, value in near if fits(name, pattern)]
        return min(fitting, key=lambda each: each[0])[1] if fitting else None


def _holds(text: str, pieces: list[str]) -> bool:
    """Whether `text` holds `pieces` in their order, the last one at its end."""
    *inner, last = pieces
    at = 0
    for piece in inner:
        at = text.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    return text[at:].endswith(last)


@lru_cache(maxsize=4096)
def parts(pattern: str) -> tuple[str, str]:
    """What stands before the first wildcard of `pattern`, and the rest with it."""
    at = min((pattern.find(sign) for sign in _WILDCARDS if sign in pattern), default=len(pattern))
    return pattern[:at], pattern[at:]
