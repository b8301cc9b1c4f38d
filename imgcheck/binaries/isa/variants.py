"""Which paths are one variant of a file for some CPUs, chosen by the loader or by the program that opens them."""

import tomllib
from functools import cache, lru_cache

from imgcheck.knowledge.store import rules_directory


@cache
def _rules() -> dict:
    return tomllib.loads((rules_directory() / "analysis" / "variants.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1 << 16)
def is_variant_path(path: str) -> str | None:
    """The reason why the file at `path` is loaded only where the CPU fits, in one phrase; None where nothing says so.

    Knows ld.so's hwcaps directories and the ISA tokens of rules/analysis/variants.toml, set off in a component of
    the path by `-`, `_`, `.` or its ends.
    """
    rules = _rules()
    *directories, name = path.strip("/").split("/")
    for directory in directories:
        if directory in rules["hwcaps"]:
            return f"lies in a {directory} directory, which the loader searches only where the CPU has that level"
        if directory in rules["legacy_hwcaps"]:
            return f"lies in a hardware-capability directory ({directory})"
    token = next((t for t in rules["tokens"] if _holds(name, t, rules["families"])), None)
    return f"its name says that it is the {token} variant of a family of files" if token else None


def _holds(name: str, token: str, families: dict[str, str]) -> bool:
    lowered = name.lower()
    if token in families and not lowered.startswith(families[token]):
        return False
    start = lowered.find(token)
    while start >= 0:
        end = start + len(token)
        before, after = lowered[start - 1 : start], lowered[end : end + 1]
        # The suffix ".so" follows a token as often as a separator does, and a name never begins with its variant.
        if before and before in "-_." and (not after or after in "-_."):
            return True
        start = lowered.find(token, end)
    return False
