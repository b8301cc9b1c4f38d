"""The data behind LIB and KRN rules: the driver's libraries, optional Python modules, packages, kernel floors."""

from fnmatch import fnmatchcase

import msgspec

from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data


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
    sources: tuple[str, ...]


class LoaderRules(Data, frozen=True):
    """rules/analysis/driver_libraries.toml."""

    driver: Driver
    python: Python
    kernel: Kernel

    def of_driver(self, soname: str) -> bool:
        """Whether the host's driver brings `soname`, so that no image is expected to."""
        return any(fnmatchcase(soname, pattern) for pattern in self.driver.sonames)

    def for_compute(self, soname: str) -> bool:
        """Whether computing on the GPU opens `soname`."""
        return any(fnmatchcase(soname, pattern) for pattern in self.driver.compute)


class Package(Data, frozen=True):
    """Libraries that come together, and how an image gets them (rules/analysis/packages.toml)."""

    id: str
    sonames: tuple[str, ...]
    remedy: str
    sources: tuple[str, ...]


def loader_rules(knowledge: Knowledge) -> LoaderRules:
    return msgspec.convert(knowledge.table("analysis/driver_libraries.toml"), LoaderRules)


def package_remedy(knowledge: Knowledge, soname: str) -> str:
    """How an image gets `soname`; empty where no entry knows it."""
    entries = msgspec.convert(knowledge.table("analysis/packages.toml")["package"], tuple[Package, ...])
    return next((e.remedy for e in entries if any(fnmatchcase(soname, glob) for glob in e.sonames)), "")
