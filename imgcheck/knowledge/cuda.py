"""CUDA releases, driver branches, PTX versions and driver functions of rules/tables: looked up, never guessed.

Each table is parsed when first asked for. Versions are strings as people write them: "9.2" for CUDA, "396.44" for
drivers, "6.0" for the PTX ISA. What a table does not hold is None, and the caller says so.
"""

from functools import lru_cache
from typing import Literal

from imgcheck.knowledge.changes import does
from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.versions import at_least, parse


class Release(Data, frozen=True):
    """One CUDA toolkit (rules/tables/cuda/releases.toml)."""

    id: str
    min_driver: str
    """Oldest Linux driver with which its programs start."""
    sources: tuple[str, ...]
    shipped_driver: str = ""
    """Driver with the same CUDA version; empty where not known."""
    runtime_check: Literal["exact", "major", "none"] = "exact"
    """What its libcudart demands of cuDriverGetVersion: its own version, the first of its major, or nothing."""


class Family(Data, frozen=True):
    """Compute capabilities on which code of an `f` target runs."""

    id: str
    capabilities: tuple[str, ...]
    sources: tuple[str, ...]


class Branch(Data, frozen=True):
    """A driver branch and its CUDA version (rules/tables/cuda/drivers.toml)."""

    id: str
    cuda: str
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        if not (self.id.isascii() and self.id.isdigit()):
            raise ValueError(f"`id` {self.id!r} is no branch, such as 535")


class PtxIsa(Data, frozen=True):
    """A PTX ISA version and the first CUDA version that reads it (rules/tables/cuda/ptx.toml)."""

    id: str
    cuda: str
    sources: tuple[str, ...]


class Since(Data, frozen=True):
    """Driver functions that one CUDA version brought (rules/tables/driver_api/)."""

    id: str
    functions: tuple[str, ...]
    sources: tuple[str, ...]


class VendorLibraries(Data, frozen=True):
    """Libraries that ship modules for single targets by design (rules/tables/cuda/libraries.toml)."""

    id: str
    sonames: tuple[str, ...]
    """Beginnings of their sonames."""
    sources: tuple[str, ...]
    optional: bool = False
    """They serve some GPUs alone by design, and programs go on without them."""


def version_of(number: int) -> str:
    """CUDA's version number as text: 9020 is "9.2", 12040 is "12.4"."""
    return f"{number // 1000}.{number % 1000 // 10}"


@lru_cache(maxsize=4)
def releases(knowledge: Knowledge) -> dict[str, Release]:
    """CUDA version to its release, oldest first."""
    entries = sorted(knowledge.entries("tables/cuda", "release", Release), key=lambda entry: parse(entry.id))
    return {entry.id: entry for entry in entries}


@lru_cache(maxsize=4)
def families(knowledge: Knowledge) -> dict[str, tuple[str, ...]]:
    """`f` target ("100f") to the compute capabilities that run it."""
    return {entry.id: entry.capabilities for entry in knowledge.entries("tables/cuda", "family", Family)}


@lru_cache(maxsize=4)
def branches(knowledge: Knowledge) -> dict[str, str]:
    """Driver branch ("396") to its CUDA version, oldest first."""
    entries = sorted(knowledge.entries("tables/cuda", "branch", Branch), key=lambda entry: parse(entry.id))
    return {entry.id: entry.cuda for entry in entries}


@lru_cache(maxsize=4)
def _ptx(knowledge: Knowledge) -> dict[str, str]:
    return {entry.id: entry.cuda for entry in knowledge.entries("tables/cuda", "ptx", PtxIsa)}


@lru_cache(maxsize=4)
def _functions(knowledge: Knowledge) -> dict[str, str]:
    entries = knowledge.entries("tables/driver_api", "since", Since)
    return {name: entry.id for entry in entries for name in entry.functions}


@lru_cache(maxsize=4)
def vendor_libraries(knowledge: Knowledge) -> tuple[VendorLibraries, ...]:
    """NVIDIA's own libraries of GPU code."""
    return tuple(knowledge.entries("tables/cuda", "vendor", VendorLibraries))


def driver_cuda(knowledge: Knowledge, driver: str) -> str | None:
    """CUDA version of a driver: "396.44" gives "9.2"; None where the table lacks its branch."""
    number = parse(driver)
    return branches(knowledge).get(str(number[0])) if number else None


def oldest_cuda(knowledge: Knowledge, driver: str) -> str | None:
    """CUDA version below which none of `driver`'s branch is: that of the branch before where the table lacks its own.

    A newer branch never reads less. None for what is older than the first or is no version at all.
    """
    number = parse(driver)
    if not number:
        return None
    older = [cuda for branch, cuda in branches(knowledge).items() if int(branch) <= number[0]]
    return older[-1] if older else None


def newest_cuda(knowledge: Knowledge, driver: str) -> str | None:
    """CUDA version above which none of `driver`'s branch is: that of the next branch where the table lacks its own.

    None where the table holds no branch so new.
    """
    number = parse(driver)
    return next((cuda for branch, cuda in branches(knowledge).items() if number and int(branch) >= number[0]), None)


def undecided_cuda(knowledge: Knowledge, driver: str) -> str:
    """Why the CUDA version of a driver is not known whose branch the table lacks."""
    oldest, newest = oldest_cuda(knowledge, driver), newest_cuda(knowledge, driver)
    if not oldest:
        return f"no CUDA version is known for driver {driver}"
    upto = f" and {newest} at most" if newest else ""
    return f"the branch of driver {driver} is not known; by those beside it its CUDA is {oldest} at least{upto}"


def first_driver(knowledge: Knowledge, cuda: str) -> str | None:
    """Oldest driver whose CUDA version is `cuda` or newer: "12.4" gives "550.54.14"; None where no source says."""
    for version, release in releases(knowledge).items():
        if at_least(version, cuda) and release.shipped_driver:
            return release.shipped_driver
    return None


def release(knowledge: Knowledge, cuda: str) -> Release | None:
    """The toolkit `cuda` ("11.8", "11.8.89"); None where the table lacks it."""
    number = parse(cuda)
    return releases(knowledge).get(".".join(map(str, number[:2]))) if len(number) >= 2 else None


def runtime_floor(knowledge: Knowledge, cudart: str) -> str | None:
    """CUDA version that libcudart `cudart` demands of the driver: "9.0" for 9.0, "12.0" for 12.4, "" for none.

    A runtime newer than the table is judged by the rule since CUDA 11: the first release of its major version.
    """
    found = release(knowledge, cudart)
    if found:
        check = found.runtime_check
    elif does(knowledge, "cuda-minor-compatibility", cudart):
        check = "major"
    else:
        return None
    return {"exact": cudart, "major": f"{parse(cudart)[0]}.0", "none": ""}[check]


def min_driver(knowledge: Knowledge, cudart: str) -> str | None:
    """Oldest driver with which a program of runtime `cudart` starts; of its major's newest entry where not listed."""
    found = release(knowledge, cudart)
    if found is None:
        major = cudart.partition(".")[0]
        same = [entry for version, entry in releases(knowledge).items() if version.partition(".")[0] == major]
        found = same[-1] if same and does(knowledge, "cuda-minor-compatibility", cudart) else None
    return found.min_driver if found else None


def ptx_cuda(knowledge: Knowledge, isa: str) -> str | None:
    """CUDA version whose driver first reads PTX ISA `isa`: "8.4" gives "12.4"; None where the table lacks it."""
    return _ptx(knowledge).get(isa)


def newest_ptx(knowledge: Knowledge, cuda: str) -> str | None:
    """Newest PTX ISA version that a driver of CUDA version `cuda` reads."""
    read = [isa for isa, first in _ptx(knowledge).items() if at_least(cuda, first)]
    return max(read, key=parse, default=None)


def driver_families(knowledge: Knowledge) -> tuple[str, ...]:
    """What the names of the driver's functions begin with."""
    return tuple(knowledge.table("analysis/markers.toml")["driver"]["prefixes"])


def function_since(knowledge: Knowledge, name: str) -> str | None:
    """CUDA version that brought driver function `name` as exported ("cuLaunchKernelEx" gives "11.6")."""
    return _functions(knowledge).get(name)
