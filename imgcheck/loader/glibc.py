"""What is the C library of GNU, or its loader, and of which version: by sonames and symbol versions."""

from imgcheck import versions
from imgcheck.documents.facts import Linkage

LIBC = "libc.so.6"
_BIONIC, _MUSL = "libc.so", "libc.musl-"
_NUMBERED = {"libc.so.": LIBC, "libm.so.": "libm.so.6", "libdl.so.": "libdl.so.2"}
"""Beginnings of names of which BSD and Solaris have other numbers than glibc."""
_LOADERS = ("ld-linux", "ld64.so")
_MUSL_LOADER = "ld-musl-"
PARTS = ("libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "libutil.so.", *_LOADERS)
"""How the names of the libraries begin that come with glibc itself."""


def is_libc(linkage: Linkage) -> bool:
    """Whether a file is glibc's C library, wherever it lies: links, copies and sysroots name their files otherwise."""
    return linkage.soname == LIBC


def is_loader(linkage: Linkage) -> bool:
    """Whether a file is glibc's dynamic loader."""
    return linkage.soname.startswith(_LOADERS)


def glibc_version(path: str, libc: Linkage) -> str:
    """Version of a C library: of its file name (libc-2.31.so, until glibc 2.34), else its newest version node.

    A release may add no node to libc.so.6, so that the node can be one release behind. Empty where it has none.
    """
    return named_version(path) or newest_node(libc)


def named_version(path: str) -> str:
    """The version in the file name of a C library (libc-2.31.so, until glibc 2.34), else ""."""
    name = path.rpartition("/")[2]
    minor = name.removeprefix("libc-2.").removesuffix(".so")
    return f"2.{minor}" if minor.isdecimal() and name == f"libc-2.{minor}.so" else ""


def newest_node(libc: Linkage) -> str:
    """The newest of its symbol versions that names a release; empty where it has none."""
    names = (name.removeprefix("GLIBC_") for name in libc.verdef if name.startswith("GLIBC_"))
    numbers = [number for number in map(versions.parse, names) if number]
    return ".".join(map(str, max(numbers))) if numbers else ""


def asks_for_musl(linkage: Linkage) -> bool:
    """Whether a program is started by musl's loader."""
    return _MUSL_LOADER in linkage.interpreter


def family_of(linkage: Linkage) -> str:
    """The C library that a file was built for, by the name that it needs of it; "" where it needs none."""
    if any(name.startswith(_MUSL) for name in linkage.needed):
        return "musl"
    if LIBC in linkage.needed:
        return "glibc"
    if _BIONIC in linkage.needed:
        return "bionic"
    foreign = (name.startswith(head) and name != own for name in linkage.needed for head, own in _NUMBERED.items())
    return "of another system" if any(foreign) else ""
