"""Captured hosts: tests/fixtures/hosts holds the text files of a machine, libraries are put in place here."""

import shutil
import struct
from pathlib import Path

from tests.tools import CHECKOUT

_MACHINES = {"x86_64": 62, "aarch64": 183, "ppc64le": 21}


def captured(name: str, destination: Path, machine: str = "x86_64", **libraries: str) -> Path:
    """The capture `name` with `libraries`: file path by soname, for example libcuda="usr/lib64/libcuda.so.396.44".

    Each stands as an ELF header alone, with a link that carries its soname beside it.
    """
    root = destination / name
    shutil.copytree(CHECKOUT / "tests/fixtures/hosts" / name, root)
    for library, path in libraries.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(elf_header(machine))
        (file.parent / SONAMES[library]).symlink_to(file.name)
    return root


SONAMES = {"libcuda": "libcuda.so.1", "libc": "libc.so.6"}


def elf_header(machine: str) -> bytes:
    """A 64-bit little-endian ELF header of a shared object without anything behind it."""
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    return ident + struct.pack("<HHIQQQIHHHHHH", 3, _MACHINES[machine], 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0)
