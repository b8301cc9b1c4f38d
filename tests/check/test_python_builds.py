"""LIB008: modules that were built for another release of NumPy, held against real wheels and what Python says."""

import shutil
import subprocess
from pathlib import Path

import pytest

from imgcheck.check.context import Answers
from tests.loader.builder import Root
from tests.loader.roots import debian
from tests.loader.test_library_rules import host, judged, only, outcome
from tests.tools import cache_directory, need, pip

SITE = "/usr/lib/python3.11/site-packages"
OLD, NEW = "numpy==1.26.4", "numpy==2.1.3"
PACKAGES = {"bottleneck": "bottleneck==1.3.7", "pywt": "pywavelets==1.5.0", "contourpy": "contourpy==1.2.0"}
"""Built for NumPy 1: in C, by Cython, and by pybind11, which asks NumPy in a way that both releases know."""


def installed(*requirements: str) -> Path:
    """What pip installs of these for Python 3.11, kept between runs."""
    place = cache_directory("builds") / "+".join(requirements)
    if not (place / "complete").is_file():
        shutil.rmtree(place, ignore_errors=True)
        options = ("--no-cache-dir", "--no-deps", "--no-compile", "--python-version", "3.11", "--only-binary", ":all:")
        pip("install", *options, "--target", place, *requirements)
        (place / "complete").touch()
    return place


def imported(module: str, *places: Path, root: Path) -> subprocess.CompletedProcess[str]:
    """What Debian's Python 3.11 says where it imports the module."""
    for place in places:
        subprocess.run(["cp", "-a", f"{place}/.", str(root / "opt")], check=True)
    command = [need("chroot"), str(root), "/usr/bin/env", "-i", "PYTHONPATH=/opt", "/usr/bin/python3"]
    return subprocess.run([*command, "-c", f"import {module}"], capture_output=True, text=True, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    need("gcc")
    root = Root(tmp_path / "root")
    root.program("/usr/bin/python3.11")
    return root


def install(root: Root, *places: Path, site: str = SITE) -> None:
    for place in places:
        shutil.copytree(place, root.at(site), dirs_exist_ok=True)


def answers(root: Root, module: str) -> Answers:
    return judged(root.profile(), host(), command=("python3.11", "-c", f"import {module}"))


@pytest.mark.parametrize("module", PACKAGES)
@pytest.mark.parametrize("numpy", [OLD, NEW])
def test_what_was_built_for_numpy_1_fails_on_numpy_2_as_python_says(
    root: Root, tmp_path: Path, module: str, numpy: str
) -> None:
    places = installed(PACKAGES[module]), installed(numpy)
    install(root, *places)
    found = answers(root, module)
    chroot = tmp_path / "debian"
    subprocess.run(["cp", "-al", str(debian("bookworm").path), str(chroot)], check=True)
    real = imported(module, *places, root=chroot)
    assert bool(real.returncode) == (outcome(found, "LIB008") == "fail"), real.stderr
    if real.returncode:
        finding = only(found, "LIB008")
        assert finding.title == f"{module} was built for NumPy 1, and the image has NumPy 2"
        assert real.stderr.strip().splitlines()[-1] in finding.predicted_error


def test_the_numpy_beside_the_module_counts_before_that_of_the_system(root: Root) -> None:
    install(root, installed(NEW), site="/usr/lib/python3/dist-packages")
    install(root, installed(PACKAGES["bottleneck"]), installed(OLD))
    assert outcome(answers(root, "bottleneck"), "LIB008") == "ok"


def test_on_debian_the_numpy_that_pip_has_put_in_usr_local_comes_first(root: Root, tmp_path: Path) -> None:
    system, local = "/usr/lib/python3/dist-packages", "/usr/local/lib/python3.11/dist-packages"
    install(root, installed(PACKAGES["bottleneck"]), installed(OLD), site=system)
    install(root, installed(NEW), site=local)
    chroot = tmp_path / "debian"
    subprocess.run(["cp", "-al", str(debian("bookworm").path), str(chroot)], check=True)
    for package, site in ((PACKAGES["bottleneck"], system), (NEW, local)):
        (chroot / site[1:]).mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", f"{installed(package)}/.", str(chroot / site[1:])], check=True)
    real = imported("bottleneck", root=chroot)
    assert real.stderr.strip().splitlines()[-1] in only(answers(root, "bottleneck"), "LIB008").predicted_error


def test_where_a_numpy_that_takes_it_lies_elsewhere_nothing_is_said(root: Root) -> None:
    install(root, installed(OLD), site="/opt/old/site-packages")
    install(root, installed(NEW), site="/opt/new/site-packages")
    install(root, installed(PACKAGES["bottleneck"]))
    assert outcome(answers(root, "bottleneck"), "LIB008") == "ok"


def test_a_module_that_nothing_imports_is_information(root: Root) -> None:
    install(root, installed(PACKAGES["bottleneck"]), installed(NEW))
    assert only(answers(root, "sys"), "LIB008").severity == "info"


def test_an_image_without_such_modules_is_none_of_its_business(root: Root) -> None:
    install(root, installed(NEW))
    assert outcome(answers(root, "numpy"), "LIB008") == "not-applicable"
