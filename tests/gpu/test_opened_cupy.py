"""GPU014 on CuPy's own modules: where they find NVRTC and where they fail, in a process and by imgcheck."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from imgcheck.check.context import Context
from imgcheck.check.gpu import check
from imgcheck.documents.image import Component, FileRecord, ImageProfile
from imgcheck.documents.report import Finding
from imgcheck.loader.model import Loader
from imgcheck.loader.roots import find_roots
from imgcheck.profile.components import detect
from tests.gpu_files import INJECTING, KNOWLEDGE, V100, gpu_file, host, module
from tests.loader.builder import Root
from tests.loader.walk import profile_of
from tests.tools import need, pypi_wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the modules are for Python 3.11"),
]

SITE = "/usr/local/lib/python3.11/dist-packages"
PATHFINDER = "cuda-pathfinder==1.9.1"
CUPY_13, CUPY_14 = "cupy-cuda12x==13.6.0", "cupy-cuda12x==14.2.0"
_OPTIONS = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64")
STUB = "from types import SimpleNamespace\n_environment = SimpleNamespace(_log=lambda message: None)\n"
"""What the modules ask of the package that is not there."""
ASKS = """
import site, sys
site.getsitepackages = lambda: [sys.argv[1]]
sys.path.insert(0, sys.argv[1])
from cupy_backends.cuda.libs import nvrtc
try:
    nvrtc.getVersion()
except (AssertionError, SystemError):
    pass  # the library is there, and has none of its functions
"""


class Case(NamedTuple):
    """A CuPy, where libnvrtc lies, and a variable of the image."""

    cupy: str
    library: str = ""
    variable: str = ""
    directory: str = ""


PACKAGED_12, PACKAGED_13 = f"{SITE}/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", f"{SITE}/nvidia/cu13/lib/libnvrtc.so.13"
OWN = "/opt/cuda/lib64/libnvrtc.so.12"
MISSED = [Case(CUPY_13), Case(CUPY_13, PACKAGED_12), Case(CUPY_13, OWN, "CUDA_PATH", "/opt/cuda"), Case(CUPY_14)]
ASIDE = Case(CUPY_14, OWN)
FOUND = [
    Case(CUPY_13, OWN, "LD_LIBRARY_PATH", "/opt/cuda/lib64"),
    Case(CUPY_14, OWN, "LD_LIBRARY_PATH", "/opt/cuda/lib64"),
    Case(CUPY_14, OWN, "CUDA_PATH", "/opt/cuda"),
    Case(CUPY_14, OWN, "CUDA_HOME", "/opt/cuda"),
    Case(CUPY_14, "/opt/conda/lib/libnvrtc.so.12", "CONDA_PREFIX", "/opt/conda"),
    Case(CUPY_14, PACKAGED_12),
    Case(CUPY_14, PACKAGED_13),
]


def unpack(requirement: str, site: Path, *parts: str) -> None:
    """Files of a wheel whose paths contain one of `parts`."""
    with zipfile.ZipFile(pypi_wheel(requirement, *_OPTIONS)) as archive:
        for name in archive.namelist():
            if any(part in name for part in parts):
                archive.extract(name, site)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the wheels have of the modules that decide, for each CuPy."""
    found = {}
    for cupy in (CUPY_13, CUPY_14):
        found[cupy] = site = tmp_path_factory.mktemp("site")
        unpack(cupy, site, "cuda/__init__", "/_softlink.", "/api/", "/stream.", "/libs/__init__", "/nvrtc.", "METADATA")
        unpack(PATHFINDER, site, "cuda/")
        (site / "cupy").mkdir(exist_ok=True)
        (site / "cupy/__init__.py").write_text(STUB)
    return found


def root_of(case: Case, packages: dict[str, Path], place: Path) -> Root:
    need("gcc")
    root = Root(place)
    shutil.copytree(packages[case.cupy], root.at(SITE), dirs_exist_ok=True)
    if case.library:
        root.library(case.library)
    return root


def said(root: Root, case: Case) -> str:
    """How the process of CuPy ends; empty where it finds the library."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "CONDA_", "LD_"))}
    own = {case.variable: str(root.at(case.directory))} if case.variable else {}
    command = [sys.executable, "-W", "ignore", "-c", ASKS, str(root.at(SITE))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**kept, **own})
    return done.stderr.strip().rpartition("\n")[2]


def judged(root: Root, case: Case, *others: Component) -> tuple[str, list[Finding]]:
    image = profile_of(root.path, (f"{case.variable}={case.directory}",) if case.variable else ())
    texts = {
        f"/{path.relative_to(root.path)}": path.read_bytes() for path in root.at(SITE).glob("cupy*.dist-info/METADATA")
    }
    components = (*detect(image.files, image.objects, texts, image.config), *others)
    context = cell(replace(image, components=components))
    answers = check(context)
    (outcome,) = (result.outcome for result in answers.checks if result.rule == "GPU014")
    return outcome, [finding for finding in answers.findings if finding.rule == "GPU014"]


def cell(image: ImageProfile) -> Context:
    """A cell of the image in which a larger file of CuPy holds GPU code."""
    roots = find_roots(image)
    closure = Loader(image, roots).close()
    record = FileRecord(f"{SITE}/cupy/cuda/thrust.so", "with-code", 0)
    objects = {**image.objects, "with-code": gpu_file(module(["70"]))}
    image = replace(image, files=(*image.files, record), objects=objects)
    return Context(image, host(V100, driver="550.54.14"), INJECTING, KNOWLEDGE, closure, roots=roots)


@pytest.mark.parametrize("case", MISSED)
def test_a_missing_nvrtc_fails_with_cupys_words(case: Case, packages: dict[str, Path], tmp_path: Path) -> None:
    root = root_of(case, packages, tmp_path / "root")
    outcome, (found,) = judged(root, case)
    words = found.predicted_error.removesuffix("[...]")
    assert (outcome, found.subject) == ("fail", "CuPy")
    assert words
    assert said(root, case).startswith(words)
    assert "{" not in found.title + found.why + found.remedy


@pytest.mark.parametrize("case", FOUND)
def test_an_nvrtc_that_cupy_finds_is_fine(case: Case, packages: dict[str, Path], tmp_path: Path) -> None:
    root = root_of(case, packages, tmp_path / "root")
    assert said(root, case) == ""
    assert judged(root, case) == ("ok", [])


def test_an_nvrtc_where_a_variable_may_lead_is_a_risk(packages: dict[str, Path], tmp_path: Path) -> None:
    root = root_of(ASIDE, packages, tmp_path / "root")
    assert "DynamicLibNotFoundError" in said(root, ASIDE)
    assert judged(root, ASIDE)[0] == "risk"


def test_pytorch_may_have_loaded_nvrtc_before(packages: dict[str, Path], tmp_path: Path) -> None:
    case = Case(CUPY_13, PACKAGED_12)
    root = root_of(case, packages, tmp_path / "root")
    assert judged(root, case, Component("PyTorch", "2.5.1"))[0] == "risk"


def test_the_interpreters_rpath_leads_to_condas_libraries(packages: dict[str, Path], tmp_path: Path) -> None:
    case = Case(CUPY_13, "/opt/conda/lib/libnvrtc.so.12")
    root = root_of(case, packages, tmp_path / "root")
    assert judged(root, case)[0] == "fail"
    root.program("/opt/conda/bin/python3.11", flags=["-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"])
    assert judged(root, case) == ("ok", [])
