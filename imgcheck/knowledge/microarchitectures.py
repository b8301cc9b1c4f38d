"""archspec's table of CPU microarchitectures, read as data.

Its Python package imports what it detects the machine's own CPU with, which takes a preflight longer than its rules.
The table's layout: archspec/json/cpu/microarchitectures_schema.json of that package.
"""

import os
from functools import cache

import msgspec

_TABLE = "json/cpu/microarchitectures.json"


class Target(msgspec.Struct, frozen=True, rename={"parents": "from", "part": "cpupart"}):
    """One microarchitecture."""

    parents: tuple[str, ...]
    """Those whose code it runs, directly before it; empty for the root of an architecture."""
    vendor: str
    features: tuple[str, ...]
    """All of them, in the spellings of /proc/cpuinfo."""
    part: str = ""
    """AArch64's `CPU part`."""


class _Document(msgspec.Struct):
    microarchitectures: dict[str, Target]


@cache
def targets() -> dict[str, Target]:
    """Name ("haswell", "neoverse_n1") to microarchitecture."""
    import archspec  # hardly a check asks for the table

    path = f"{os.path.dirname(archspec.__file__)}/{_TABLE}"
    with open(path, "rb") as file:
        return msgspec.json.decode(file.read(), type=_Document).microarchitectures


@cache
def ancestors(name: str) -> tuple[str, ...]:
    """Every microarchitecture whose code `name` runs, the nearest first."""
    parents = targets()[name].parents
    return tuple(dict.fromkeys((*parents, *(above for parent in parents for above in ancestors(parent)))))


def architecture(name: str) -> str:
    """The root above `name`: "x86_64", "aarch64", "ppc64le"."""
    return next(above for above in (name, *ancestors(name)) if not targets()[above].parents)
