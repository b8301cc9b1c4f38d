"""The data behind LIB and KRN rules: the driver's libraries, optional Python modules, packages, kernel floors."""

import posixpath
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from imgcheck import versions
from imgcheck.check.context import Context
from imgcheck.globs import Index, fits_any
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.loader.glibc import glibc_version

_SHOWN = 3


class Driver(Data, frozen=True):
    sonames: tuple[str, ...]
    compute: tuple[str, ...]
    sources: tuple[str, ...]


class Python(Data, frozen=True):
    optional_modules: tuple[str, ...]
    sources: tuple[str, ...]
    loads_from_prefix: tuple[str, ...] = ()
    """Packages that load libraries by their paths from `lib` of the prefix that they are installed in."""


class Kernel(Data, frozen=True):
    oldest: str
    glibc_checks_until: str
    system_calls: dict[str, str]
    """System call to the glibc that first makes it without a fallback for EPERM."""
    vsyscall_until: str
    sources: tuple[str, ...]


class LoaderRules(Data, frozen=True):
    """rules/analysis/driver_libraries.toml."""

    driver: Driver
    python: Python
    kernel: Kernel

    def of_driver(self, soname: str) -> bool:
        """Whether the host's driver brings `soname`, so that no image is expected to."""
        return fits_any(soname, self.driver.sonames)

    def for_compute(self, soname: str) -> bool:
        """Whether computing on the GPU opens `soname`."""
        return fits_any(soname, self.driver.compute)


class Package(Data, frozen=True):
    """Libraries that come together, and how an image gets them (rules/analysis/packages.toml)."""

    id: str
    sonames: tuple[str, ...]
    remedy: str
    sources: tuple[str, ...]


@lru_cache(maxsize=4)
def loader_rules(knowledge: Knowledge) -> LoaderRules:
    return msgspec.convert(knowledge.table("analysis/driver_libraries.toml"), LoaderRules)


def package_remedy(knowledge: Knowledge, soname: str) -> str:
    """How an image gets `soname`; empty where no entry knows it."""
    return _remedies(knowledge).first(soname) or ""


def path_remedy(files: Iterable[str]) -> str:
    """How the loader comes to find `files`, which lie in the image where it does not look."""
    directories = list(dict.fromkeys(map(posixpath.dirname, files)))
    which, them = ("The file is", "it") if len(directories) == 1 else ("The files are", "them")
    return (
        f"{which} in the image: add {':'.join(directories)} to LD_LIBRARY_PATH (ENV in the Dockerfile), or name {them} "
        "in /etc/ld.so.conf.d and run ldconfig in the same layer."
    )


def elsewhere_note(files: Sequence[str]) -> str:
    """Where the image has `files`, which the loader does not find; empty where there are none."""
    return f" The image holds {', '.join(files)}, which is in none of these." if files else ""


def places(searched: Sequence[str]) -> str:
    """The directories that were sought, in order; in the middle of a long list only their number."""
    names = list(dict.fromkeys(posixpath.normpath(place) for place in searched))
    if len(names) > 2 * _SHOWN + 1:
        names[_SHOWN:-_SHOWN] = [f"{len(names) - 2 * _SHOWN} more directories"]
    return ", ".join(names)


@lru_cache(maxsize=4)
def _remedies(knowledge: Knowledge) -> Index[str]:
    packages = msgspec.convert(knowledge.table("analysis/packages.toml")["package"], tuple[Package, ...])
    return Index((glob, package.remedy) for package in packages for glob in package.sonames)


def image_glibc(context: Context) -> str:
    """Version of the glibc that the image's files load, the oldest of several; empty where it is not known."""
    numbers = [number for record, linkage in context.libcs if (number := glibc_version(record.path, linkage))]
    return min(numbers, key=versions.parse, default="")


def glibc_of(context: Context, path: str) -> str:
    """Version of the glibc in the process of the file at `path`; where no process is seen, `image_glibc`."""
    record = context.records.get(context.closure.libc_of(path))
    linkage = context.image.facts(record).linkage if record else None
    return glibc_version(record.path, linkage) if record and linkage else image_glibc(context)
