"""The data behind LIB and KRN rules: the driver's libraries, optional Python modules, packages, kernel floors."""

from functools import lru_cache

import msgspec

from imgcheck import versions
from imgcheck.check.context import Context
from imgcheck.globs import fits
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.loader.glibc import glibc_version


class Driver(Data, frozen=True):
    sonames: tuple[str, ...]
    compute: tuple[str, ...]
    sources: tuple[str, ...]


class Python(Data, frozen=True):
    optional_modules: tuple[str, ...]
    sources: tuple[str, ...]


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
        return any(fits(soname, pattern) for pattern in self.driver.sonames)

    def for_compute(self, soname: str) -> bool:
        """Whether computing on the GPU opens `soname`."""
        return any(fits(soname, pattern) for pattern in self.driver.compute)


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
    return next((e.remedy for e in _packages(knowledge) if any(fits(soname, glob) for glob in e.sonames)), "")


@lru_cache(maxsize=4)
def _packages(knowledge: Knowledge) -> tuple[Package, ...]:
    return msgspec.convert(knowledge.table("analysis/packages.toml")["package"], tuple[Package, ...])


def image_glibc(context: Context) -> str:
    """Version of the glibc that the image's files load, the oldest of several; empty where it is not known."""
    records = [record for record in context.image.files if record.path in context.closure.libcs]
    pairs = [(record.path, context.image.facts(record).linkage) for record in records]
    numbers = [number for path, linkage in pairs if linkage and (number := glibc_version(path, linkage))]
    return min(numbers, key=versions.parse, default="")
