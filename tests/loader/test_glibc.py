"""The version of a C library."""

import pytest

from imgcheck.documents.facts import Linkage
from imgcheck.loader.glibc import glibc_version

LIBC = Linkage(elf_class=64, machine="x86_64", type="shared", verdef=("GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_PRIVATE"))


@pytest.mark.parametrize(
    ("path", "version"),
    [("/lib64/libc-2.31.so", "2.31"), ("/lib64/libc.so.6", "2.17"), ("/lib64/libc-2.x.so", "2.17"),
     ("/lib64/libc-2.31.so.old", "2.17"), ("/lib64/mylibc-2.31.so", "2.17")],
)  # fmt: skip
def test_the_name_tells_it_and_else_the_newest_symbol_version(path: str, version: str) -> None:
    assert glibc_version(path, LIBC) == version
