"""The host's shared libraries: where the loader finds them, and what those that runtimes inject need."""

import os
import re
import struct
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from imgcheck.documents.host import Fact, HostLibrary, absent, known, unknown
from imgcheck.errors import ElfError
from imgcheck.host.files import Root
from imgcheck.knowledge import Knowledge
from imgcheck.loader.cache import read_cache

if TYPE_CHECKING:
    from imgcheck.binaries.elf import Elf

# Where drivers lie that are not in the loader's cache: NixOS, WSL, sites that unpack NVIDIA's archive.
_DIRECTORIES = (
    "/usr/lib64", "/lib64", "/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/lib/aarch64-linux-gnu", "/usr/lib/powerpc64le-linux-gnu", "/lib/powerpc64le-linux-gnu", "/usr/lib64/nvidia",
    "/usr/lib/nvidia", "/usr/lib", "/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/usr/local/nvidia/lib64",
)  # fmt: skip
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 21: "ppc64le", 22: "s390x", 243: "riscv64",
             258: "loongarch64"}  # fmt: skip


class Libraries:
    """The loader's view of a host: its cache first, then the directories where drivers are known to lie."""

    def __init__(self, root: Root, machine: str) -> None:
        self._root = root
        self._machine = machine

    def find(self, soname: str) -> str:
        """Path of the first library called `soname` that is for this machine; "" where there is none."""
        return next((path for name, path in self._candidates() if name == soname and self._fits(path)), "")

    def matching(self, patterns: Iterable[str], places: Iterable[str] = ()) -> dict[str, str]:
        """File name to path of every library for this machine whose name is like one of `patterns`.

        `places` are further directories, in which one component may be `*`.
        """
        wanted = re.compile("|".join(_glob(pattern) for pattern in patterns) or r"(?!)")
        found: dict[str, str] = {}
        for name, path in (*self._candidates(), *self._files_in(places)):
            if name not in found and wanted.fullmatch(name) and self._fits(path):
                found[name] = path
        return found

    @property
    def readable(self) -> bool:
        """Whether there was anything to look at."""
        return bool(self._cached) or any(self._root.names(directory) for directory in _DIRECTORIES)

    def _candidates(self) -> Iterator[tuple[str, str]]:
        yield from self._cached
        for directory in (*self._environment(), *_DIRECTORIES):
            for name in self._listing(directory):
                yield name, f"{directory}/{name}"

    def _files_in(self, places: Iterable[str]) -> Iterator[tuple[str, str]]:
        for place in places:
            head, star, tail = place.partition("/*")
            inner = [f"{head}/{name}{tail}" for name in self._root.names(head) or ()] if star else [place]
            for directory in inner:
                yield from ((name, f"{directory}/{name}") for name in self._listing(directory))

    def _environment(self) -> list[str]:
        path = os.environ.get("LD_LIBRARY_PATH", "") if self._root.live else ""
        return [part for part in path.split(":") if part.startswith("/")]

    def _listing(self, directory: str) -> list[str]:
        if directory not in self._listings:
            names = self._root.names(directory) or []
            self._listings[directory] = [name for name in names if ".so" in name]
        return self._listings[directory]

    @cached_property
    def _listings(self) -> dict[str, list[str]]:
        return {}

    @cached_property
    def _cached(self) -> list[tuple[str, str]]:
        return [(entry.soname, entry.path) for entry in read_cache(self._root.data("/etc/ld.so.cache") or b"")]

    def _fits(self, path: str) -> bool:
        """A shared object for this machine by its ELF header (e_machine is the u16 at 18)."""
        head = self._root.head(path, 20)
        if len(head) < 20 or head[:4] != b"\x7fELF":
            return False
        order = "<" if head[5] == 1 else ">"
        (number,) = struct.unpack_from(f"{order}H", head, 18)
        return _MACHINES.get(number) == self._machine


def _glob(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


def injectable(root: Root, knowledge: Knowledge, libraries: Libraries, driver: bool) -> Fact[tuple[HostLibrary, ...]]:
    """The host libraries that runtimes inject; those of the driver only where there is one (`driver`).

    Each is told apart by its file name, and read with the linkage engine.
    """
    if not libraries.readable:
        return unknown("neither /etc/ld.so.cache nor a library directory can be read")
    injected = {name for runtime in knowledge.runtimes.values() for name in runtime.libraries} if driver else set()
    # MPI and fabrics: what sites bind into containers by hand or by hook, besides the runtimes' own lists.
    fabric = knowledge.table("mpi/mpi.toml")["probe"]
    found = libraries.matching(sorted(injected)) | libraries.matching(fabric["libraries"], fabric["directories"])
    by_file: dict[str, HostLibrary] = {}
    for path in found.values():
        real = root.real(path)
        if real not in by_file and (library := _read(root, path, real)):
            by_file[real] = library
    if not by_file:
        return absent("no library that a runtime injects is in the loader's cache or directories")
    return known(tuple(sorted(by_file.values(), key=lambda item: (item.soname, item.path))), "the loader's cache")


def _read(root: Root, path: str, real: str) -> HostLibrary | None:
    from imgcheck.binaries.elf import Elf
    from imgcheck.binaries.linkage.read import read_linkage

    mapped = root.mapped(path)
    if mapped is None:
        return None
    try:
        elf = Elf(mapped)
        linkage = read_linkage(elf)
    except ElfError:
        return None
    soname = linkage.soname or PurePosixPath(path).name
    return HostLibrary(
        path=path,
        soname=soname,
        machine=linkage.machine,
        version=version_suffix(real),
        needed=linkage.needed,
        verneed=linkage.verneed,
        verdef=linkage.verdef,
        functions=_driver_exports(elf) if fnmatchcase(soname, "libcuda.so*") else (),
        markers=linkage.markers,
    )


def _driver_exports(elf: "Elf") -> tuple[str, ...]:
    from imgcheck.binaries.linkage.symbols import DynamicStrings, DynamicSymbols

    symbols = DynamicSymbols(elf, DynamicStrings(elf))
    return tuple(sorted(set(symbols.names(symbols.starting("cu", symbols.defined)))))


def version_suffix(path: str) -> str:
    """The version that a library's file name ends with: "libcuda.so.396.44" gives "396.44"; "" for "libcuda.so.1"."""
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", PurePosixPath(path).name)
    return match[1] if match else ""
