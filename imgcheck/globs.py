"""Shell patterns for names of libraries, most of which no name begins like: those cost one comparison."""

import re
from functools import lru_cache

_WILDCARDS = re.compile(r"[*?[]")


def fits(name: str, pattern: str) -> bool:
    """Whether `name` is one that `pattern` stands for, as fnmatch.fnmatchcase says."""
    head, rest = parts(pattern)
    if not name.startswith(head):
        return False
    if rest in ("", "*"):
        return bool(rest) or name == head
    import fnmatch  # its expressions take longer to make than most checks take

    return fnmatch.fnmatchcase(name, pattern)


@lru_cache(maxsize=4096)
def parts(pattern: str) -> tuple[str, str]:
    """What stands before the first wildcard of `pattern`, and the rest with it."""
    found = _WILDCARDS.search(pattern)
    at = found.start() if found else len(pattern)
    return pattern[:at], pattern[at:]
