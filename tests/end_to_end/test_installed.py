"""The package as users install it: wheel, sdist and editable, each in a fresh environment outside the checkout."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.tools import CHECKOUT, pip, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel built from it."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", directory, CHECKOUT)
    return directory


def _install(directory: Path, *what: str | Path) -> Path:
    """The `imgcheck` of a fresh environment in which `what` is installed."""
    venv.create(directory, with_pip=True)
    pip("install", *what, python=directory / "bin/python")
    return directory / "bin/imgcheck"


def _works(program: Path, elsewhere: Path) -> None:
    """The data of rules/ came along: the command runs in a directory and environment that know no checkout."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(elsewhere)}
    options = {"cwd": elsewhere, "env": environment, "capture_output": True, "text": True}
    rules = subprocess.run([program, "rules"], **options)
    assert rules.returncode == 0, rules.stderr
    assert "CPU001" in rules.stdout
    checked = subprocess.run([program, "image", f"oci:{CHECKOUT}/demo/skylake512", "--host-probe"], **options)
    assert checked.returncode in (0, 1, 3), checked.stderr


def test_wheel_works_outside_the_checkout(packages: Path, tmp_path: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    _works(_install(tmp_path / "venv", wheel), tmp_path)


def test_sdist_works_outside_the_checkout(packages: Path, tmp_path: Path) -> None:
    (sdist,) = packages.glob("*.tar.gz")
    _works(_install(tmp_path / "venv", sdist), tmp_path)


def test_editable_installation_works(tmp_path: Path) -> None:
    _works(_install(tmp_path / "venv", "--editable", CHECKOUT), tmp_path)


def test_wheel_holds_every_data_file_and_no_tests(packages: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {f"imgcheck/{path.relative_to(CHECKOUT)}" for path in (CHECKOUT / "rules").rglob("*") if path.is_file()}
    assert data <= names
    assert not [name for name in names if not name.startswith(("imgcheck/", "imgcheck-"))]
