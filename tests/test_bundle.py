"""The compiled modules of a tree in one file: taken where they fit, and what is loaded from them is as it ever was."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import CHECKOUT

MODULES = ("__init__.py", "bundle.py", "versions.py", "errors.py", "policy/__init__.py", "policy/review.py")
USE = "from imgcheck import bundle; bundle.use(); "


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Some modules of imgcheck, compiled as install.sh does, in a bundle alone."""
    package = tmp_path / "imgcheck"
    for name in MODULES:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / "imgcheck" / name, package / name)
    compile = ("-m", "compileall", "-q", "-s", tmp_path, "--invalidation-mode", "unchecked-hash", package)
    subprocess.run([sys.executable, *compile], check=True)
    assert _run(package, "from imgcheck import bundle; bundle.make()").returncode == 0
    for directory in list(package.rglob("__pycache__")):
        shutil.rmtree(directory)
    return package


def _run(package: Path, code: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(package.parent)!r}); {code}"
    return subprocess.run([sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True)


def _spoil(package: Path) -> None:
    for name in MODULES:
        if name not in ("__init__.py", "bundle.py"):
            (package / name).write_text("raise SystemExit(9)")


def test_modules_come_from_the_bundle(package: Path) -> None:
    _spoil(package)
    assert _run(package, "import imgcheck.versions").returncode == 9
    done = _run(package, USE + "from imgcheck.versions import parse; print(parse('3.10'))")
    assert (done.stdout, done.stderr) == ("(3, 10)\n", "")


def test_packages_are_told_from_modules(package: Path) -> None:
    done = _run(
        package, USE + "import imgcheck.policy as p, imgcheck.errors as e; print(p.__path__, p.__file__, e.__file__)"
    )
    place = package / "policy"
    assert done.stdout.split() == [str([str(place)]), str(place / "__init__.py"), str(package / "errors.py")]
    assert _run(package, USE + "import imgcheck.errors; imgcheck.errors.__path__").returncode == 1


def test_compiled_modules_of_another_python_are_passed_over(package: Path) -> None:
    (bundle,) = package.glob("modules.*")
    bundle.write_bytes(bundle.read_bytes().replace(importlib.util.MAGIC_NUMBER, b"\0\0\r\n"))
    done = _run(package, USE + "from imgcheck.versions import parse; print(parse('3.10'))")
    assert (done.stdout, done.stderr) == ("(3, 10)\n", "")
    _spoil(package)
    assert _run(package, USE + "import imgcheck.versions").returncode == 9


def test_what_it_lacks_is_searched_for_as_ever(package: Path) -> None:
    shutil.copy(CHECKOUT / "imgcheck/globs.py", package)
    assert _run(package, USE + "import imgcheck.globs").returncode == 0
    (bundle,) = package.glob("modules.*")
    bundle.unlink()
    assert _run(package, USE + "import imgcheck.versions").returncode == 0


def test_tracebacks_show_the_source(package: Path) -> None:
    done = _run(package, USE + "from imgcheck import versions; versions.parse(7)")
    assert f'File "{package}/versions.py", line ' in done.stderr
    assert "text.lstrip(" in done.stderr


def test_source_and_data_are_read_as_ever(package: Path) -> None:
    (package / "note.txt").write_text("a note")
    source = "import inspect, imgcheck.versions as v; assert inspect.getsource(v) == open(v.__file__).read(); "
    data = "import pkgutil; print(pkgutil.get_data('imgcheck', 'note.txt'))"
    assert _run(package, USE + source + data).stdout == "b'a note'\n"
