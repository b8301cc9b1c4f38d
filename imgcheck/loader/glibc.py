"""The version of a C library, by its name and its symbol versions."""

from imgcheck import versions
from imgcheck.documents.facts import Linkage


def glibc_version(path: str, libc: Linkage) -> str:
    """Version of a C library: of its file name (libc-2.31.so, until glibc 2.34), else its newest version node.

    A release may add no node to libc.so.6, so that the node can be one release behind. Empty where it has none.
    """
    name = path.rpartition("/")[2]
    minor = name.removeprefix("libc-2.").removesuffix(".so")
    if minor.isdecimal() and name == f"libc-2.{minor}.so":
        return f"2.{minor}"
    return newest_node(libc)


def newest_node(libc: Linkage) -> str:
    """The newest of its symbol versions that names a release; empty where it has none."""
    names = (name.removeprefix("GLIBC_") for name in libc.verdef if name.startswith("GLIBC_"))
    numbers = [number for number in map(versions.parse, names) if number]
    return ".".join(map(str, max(numbers))) if numbers else ""
