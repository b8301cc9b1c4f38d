"""Shell patterns for names of libraries, most of which no name begins like: those cost one comparison."""

from functools import lru_cache

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
