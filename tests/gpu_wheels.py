"""Published wheels with GPU code that tests and measurements read: CUDA 9.0 to 13, and pip's options for each."""

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools import cache_directory, pypi_wheel

_CP36 = ("--python-version", "3.6", "--implementation", "cp", "--abi", "cp36m", "--platform", "manylinux1_x86_64")
_CP37 = ("--python-version", "3.7", "--implementation", "cp", "--abi", "cp37m", "--platform", "manylinux2010_x86_64")
_CP311 = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64")

WHEELS: dict[str, tuple[str, ...]] = {
    "nvidia-nvjpeg-cu12==12.3.3.54": (),
    "nvidia-curand-cu12==10.3.5.147": (),
    "nvidia-nvjpeg==13.3.2.43": (),
    "nvidia-curand==10.4.5.25": (),
    "cupy-cuda12x==14.2.0": _CP311,
}
"""CUDA 12.3 to 13, 250 MB in all; today's cuobjdump reads them."""

OLD_WHEELS: dict[str, tuple[str, ...]] = {
    "tensorflow-gpu==1.5.0": _CP36,
    "tensorflow-gpu==1.12.0": _CP36,
    "xgboost==0.90": ("--platform", "manylinux1_x86_64"),
    "faiss-gpu==1.6.3": _CP37,
    "catboost==0.24": _CP36,
    "nvidia-nvjpeg-cu11==11.8.0.2": ("--platform", "manylinux1_x86_64"),
    "nvidia-curand-cu11==10.3.0.86": (),
    "nvidia-nccl-cu12==2.16.2": ("--platform", "manylinux1_x86_64"),
}
"""CUDA 9.0 to 12.0, 950 MB in all; they need cuobjdump 11.8."""

LARGE_WHEELS: dict[str, tuple[str, ...]] = {"torch==2.5.1": _CP311, "nvidia-cublas-cu12==12.8.4.1": ()}
"""1.5 GB, for measurements alone."""


@contextmanager
def member(wheel: Path, name: str) -> Iterator[Path]:
    """One file of a wheel, unpacked for as long as it is looked at: all of them would take 10 GB."""
    with tempfile.TemporaryDirectory(dir=cache_directory("tmp")) as directory, zipfile.ZipFile(wheel) as archive:
        yield Path(archive.extract(name, directory))


def libraries(wheel: Path) -> list[str]:
    """Names of the shared objects in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".so" in name.rpartition("/")[2]]


def wheel_of(requirement: str) -> Path:
    """The wheel, from PyPI when it is not kept yet."""
    return pypi_wheel(requirement, *(WHEELS | OLD_WHEELS | LARGE_WHEELS)[requirement])
