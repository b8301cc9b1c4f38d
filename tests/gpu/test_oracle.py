"""Real driver libraries and real CUDA runtimes, run without a GPU: what the versions in their code and our rule say.

cudaGetDeviceCount returns 35 where the runtime refuses the driver, else another error, since there is no GPU.
"""

import mmap
import subprocess
import sys
import zipfile
from itertools import product
from pathlib import Path

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.gpu.engine import read_gpu
from imgcheck.documents.facts import GpuCode
from imgcheck.knowledge import cuda
from imgcheck.versions import compare
from tests import debian_nonfree
from tests.gpu_files import KNOWLEDGE
from tests.tools import cache_directory, pip, pypi_directory

pytestmark = pytest.mark.slow

_RUNTIMES = {
    "11.8": "nvidia-cuda-runtime-cu11==11.8.89",
    "12.0": "nvidia-cuda-runtime-cu12==12.0.146",
    "12.4": "nvidia-cuda-runtime-cu12==12.4.127",
    "12.9": "nvidia-cuda-runtime-cu12==12.9.79",
    "13.0": "nvidia-cuda-runtime==13.0.88",
    "13.1": "nvidia-cuda-runtime==13.1.80",
}
_COUNT = """
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
print(runtime.cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))
"""
_VERSION = """
import ctypes, sys
version = ctypes.c_int()
ctypes.CDLL(sys.argv[1]).cuDriverGetVersion(ctypes.byref(version))
print(version.value)
"""
_INSUFFICIENT = 35


def read(path: Path) -> GpuCode:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = read_gpu(memoryview(bytes(data)), Elf(bytes(data)))
    assert found is not None
    return found


def library(requirement: str) -> Path:
    return next(pypi_directory(requirement).glob("nvidia/*/lib/libcudart.so.*"))


def python(script: str, path: Path, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, env=environment, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize("version", _RUNTIMES)
def test_runtime_version_in_the_code(version: str) -> None:
    assert read(library(_RUNTIMES[version])).cudart == version


@pytest.mark.parametrize("branch", debian_nonfree.LIBCUDA)
def test_driver_version_in_the_code(branch: str) -> None:
    path = debian_nonfree.libcuda(branch)
    found = read(path)
    own = python(_VERSION, path, LD_LIBRARY_PATH=debian_nonfree.library_path(branch))
    assert found.driver_cuda == cuda.version_of(own)
    assert found.driver_cuda == cuda.driver_cuda(KNOWLEDGE, branch)
    assert found.driver_version == path.name.removeprefix("libcuda.so.")
    assert not found.stub


@pytest.mark.parametrize(("version", "branch"), list(product(_RUNTIMES, debian_nonfree.LIBCUDA)))
def test_every_runtime_on_every_driver(version: str, branch: str) -> None:
    driver, path = debian_nonfree.libcuda(branch), debian_nonfree.library_path(branch)
    # A driver library that does not load gives 35 as well, and would prove nothing.
    assert python(_VERSION, driver, LD_LIBRARY_PATH=path)
    answer = python(_COUNT, library(_RUNTIMES[version]), LD_LIBRARY_PATH=path)
    floor = cuda.runtime_floor(KNOWLEDGE, version)
    assert floor
    assert (answer == _INSUFFICIENT) == (compare(read(driver).driver_cuda, floor) < 0)


def test_no_driver_library_is_error_35(tmp_path: Path) -> None:
    assert python(_COUNT, library(_RUNTIMES["12.4"]), LD_LIBRARY_PATH=str(tmp_path)) == _INSUFFICIENT


@pytest.mark.parametrize("requirement", ["nvidia-cuda-runtime==13.0.88", "nvidia-cuda-runtime-cu12==12.4.127"])
def test_runtime_version_in_code_for_aarch64(requirement: str, tmp_path: Path) -> None:
    options = ("--no-deps", "--only-binary", ":all:", "--platform", "manylinux2014_aarch64")
    wheels = cache_directory("wheels-aarch64", requirement)
    if not list(wheels.glob("*.whl")):
        pip("download", *options, "--dest", wheels, requirement)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as files:
        name = next(n for n in files.namelist() if "/lib/libcudart.so." in n)
        found = read(Path(files.extract(name, tmp_path)))
    assert requirement.partition("==")[2].startswith(found.cudart)
    assert found.cudart
