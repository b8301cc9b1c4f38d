"""LIB005: extension modules that are for another Python than the one which runs, and what a real one says of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from imgcheck.check.context import Answers
from imgcheck.loader.roots import find_roots
from tests.check.contexts import findings, judged_libraries, outcome
from tests.loader.builder import Root

VENV = "/opt/venv"
OLD, NEW = (f"{VENV}/lib/python3.{minor}/site-packages" for minor in (11, 12))
TAG = "cpython-311-x86_64-linux-gnu"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A virtual environment that was made with Python 3.11 and came to an image with Python 3.12."""
    made = Root(tmp_path / "root")
    made.program("/usr/bin/python3.12")
    made.link(f"{VENV}/bin/python", "/usr/bin/python3.12")
    made.write("/app/run.py", "import alpha\n")
    made.write(f"{OLD}/alpha/__init__.py", "from . import core\n")
    module(made, f"{OLD}/alpha/core.{TAG}.so")
    return made


def module(root: Root, path: str) -> None:
    root.write("/module.h", f"void PyInit_{Path(path).name.partition('.')[0]}(void){{}}\n")
    root.library(path, flags=["-x", "c", "-include", str(root.at("/module.h"))])


def judged(root: Root, *command: str) -> Answers:
    return judged_libraries(root.profile(), *(command or (f"{VENV}/bin/python", "/app/run.py")))


def test_a_virtual_environment_of_another_python_is_a_risk(root: Root) -> None:
    (finding,) = findings(judged(root), "LIB005")
    assert (finding.severity, finding.subject) == ("risk", "alpha")
    assert finding.predicted_error == "ModuleNotFoundError: No module named 'alpha'"
    assert "alpha/core." in finding.why and "Python 3.12" in finding.why


def test_a_module_for_another_c_library_is_a_risk(root: Root) -> None:
    """Packages with such modules do without them, as charset_normalizer does, or fail."""
    root.write(f"{NEW}/alpha/__init__.py", "from . import core\n")
    root.at(f"{OLD}/alpha/core.{TAG}.so").unlink()
    module(root, f"{NEW}/alpha/core.cpython-312-x86_64-linux-musl.so")
    answers = judged(root)
    (finding,) = findings(answers, "LIB005")
    assert finding.severity == "risk"
    assert "for Python 3.12 with musl" in finding.why
    assert not [each for each in answers if each.rule == "LIB001" and each.severity == "fail"]


def test_what_no_text_imports_is_not_told(root: Root) -> None:
    root.write("/app/run.py", "import json\n")
    assert not findings(judged(root), "LIB005")


def test_nothing_is_told_where_the_imports_are_not_known(root: Root) -> None:
    assert not findings(judged(root, f"{VENV}/bin/python", "/mounted/run.py"), "LIB005")


def test_a_command_without_python_is_not_asked(root: Root) -> None:
    root.program("/usr/bin/tool")
    assert outcome(judged(root, "/usr/bin/tool"), "LIB005") == "not-applicable"


@pytest.mark.parametrize("name", ["core.abi3.so", "core.so", "core.cpython-312-x86_64-linux-gnu.so"])
def test_one_module_that_fits_is_enough(root: Root, name: str) -> None:
    root.write(f"{NEW}/alpha/__init__.py", "from . import core\n")
    module(root, f"{NEW}/alpha/{name}")
    assert outcome(judged(root), "LIB005") == "ok"


def test_a_package_that_lies_elsewhere_as_text_does_without_modules(root: Root) -> None:
    root.write(f"{NEW}/alpha/__init__.py", "")
    assert not findings(judged(root), "LIB005")


def test_packages_of_a_python_that_does_not_run_are_left_alone(root: Root) -> None:
    root.program("/usr/local/bin/python3.11")
    module(root, f"/usr/local/lib/python3.11/site-packages/beta/core.{TAG}.so")
    root.write("/usr/local/lib/python3.11/site-packages/beta/__init__.py", "")
    root.write("/app/run.py", "import beta\n")
    assert not findings(judged(root), "LIB005")


def test_the_text_is_that_of_a_real_python(tmp_path: Path) -> None:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    root = Root(tmp_path / "root")
    root.program(f"/usr/bin/python{running}")
    root.write("/app/run.py", "import alpha\n")
    root.write("/app/lib/alpha/__init__.py", "from alpha.core import name\n")
    module(root, "/app/lib/alpha/core.cpython-39-x86_64-linux-gnu.so")
    (finding,) = findings(judged(root, "env", "PYTHONPATH=/app/lib", f"python{running}", "/app/run.py"), "LIB005")
    environment = {"PYTHONPATH": str(root.at("/app/lib")), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(root.at("/app/run.py"))], capture_output=True, text=True, env=environment
    )
    assert done.stderr.strip().splitlines()[-1] == finding.predicted_error


_STANDARD = "/usr/lib/python3.12/lib-dynload"


@pytest.mark.parametrize(
    ("text", "severities"),
    [
        ("import json\n", {"_lzma": "risk", "_ssl": "risk", "_sqlite3": "info"}),
        ("import lzma, ssl, sqlite3\n", {"_lzma": "fail", "_ssl": "fail", "_sqlite3": "fail"}),
        ("import beta\n", {"_lzma": "fail", "_ssl": "risk", "_sqlite3": "info"}),
    ],
)
def test_a_module_of_the_standard_library_counts_where_it_is_imported(
    root: Root, text: str, severities: dict[str, str]
) -> None:
    root.write("/app/run.py", text)
    root.write(f"{NEW}/beta/__init__.py", "import lzma\n")
    for name in severities:
        root.library(f"/tmp/libof{name}.so")
        root.write("/module.h", f"void PyInit_{name}(void){{}}\n")
        flags = ["-x", "c", "-include", str(root.at("/module.h")), "-x", "none"]
        root.library(f"{_STANDARD}/{name}.cpython-312-x86_64-linux-gnu.so", [f"/tmp/libof{name}.so"], flags)
        root.at(f"/tmp/libof{name}.so").unlink()
    found = {each.subject: each.severity for each in findings(judged(root), "LIB001")}
    assert found == {f"libof{name}.so": severity for name, severity in severities.items()}


@pytest.mark.parametrize("python", [f"{VENV}/bin/python", "/usr/bin/python3.12"])
def test_a_virtual_environment_has_no_packages_of_its_python_by_default(root: Root, python: str) -> None:
    root.write("/app/run.py", "import beta\n")
    module(root, f"{NEW}/gamma/core.cpython-312-x86_64-linux-gnu.so")
    path = "/usr/lib/python3.12/site-packages/beta/core.cpython-312-x86_64-linux-gnu.so"
    module(root, path)
    roots = find_roots(root.profile(), (python, "/app/run.py"))
    assert path in roots.imports
    assert (path in roots.perhaps) == (python != "/usr/bin/python3.12")


def test_a_link_to_debians_python_is_no_virtual_environment(root: Root) -> None:
    root.write("/app/run.py", "import beta\n")
    root.link("/usr/local/bin/python", "/usr/bin/python3.12")
    module(root, "/usr/local/lib/python3.12/dist-packages/gamma/core.cpython-312-x86_64-linux-gnu.so")
    path = "/usr/lib/python3/dist-packages/beta/core.cpython-312-x86_64-linux-gnu.so"
    module(root, path)
    roots = find_roots(root.profile(), ("/usr/local/bin/python", "/app/run.py"))
    assert path in {*roots.imports} - {*roots.perhaps}


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("try:\n    from . import core\nexcept ImportError:\n    core = None\n", "risk"),
        ("try:\n    from .more import core\nexcept:  # none\n    pass\nelse:\n    x = 1\n", "risk"),
        (
            "try:\n    import alpha.core\nexcept (OSError, ImportError) as e:\n    raise ImportError('no') from e\n",
            "fail",
        ),
        ("try:\n    from . import core\nexcept AttributeError:\n    core = None\n", "fail"),
        ("try:\n    from . import core\nfinally:\n    x = 1\n", "fail"),
        ("try:\n    from . import core\nexcept ImportError:\n    pass\nfrom . import more\n", "fail"),
    ],
)
def test_a_module_without_which_its_package_goes_on_is_a_risk(root: Root, text: str, severity: str) -> None:
    root.library("/tmp/libx.so.1")
    root.write(f"{NEW}/alpha/__init__.py", text)
    root.write(f"{NEW}/alpha/more.py", "from . import core\n")
    root.write("/module.h", "void PyInit_core(void){}\n")
    flags = ["-x", "c", "-include", str(root.at("/module.h")), "-x", "none"]
    root.library(f"{NEW}/alpha/core.cpython-312-x86_64-linux-gnu.so", ["/tmp/libx.so.1"], flags)
    root.at("/tmp/libx.so.1").unlink()
    (finding,) = findings(judged(root), "LIB001")
    assert finding.severity == severity


def test_of_modules_of_one_name_python_takes_the_first_by_its_suffix(root: Root) -> None:
    from importlib.machinery import EXTENSION_SUFFIXES

    assert [suffix.replace(f"cpython-3{sys.version_info.minor}", "cpython-312") for suffix in EXTENSION_SUFFIXES] == [
        ".cpython-312-x86_64-linux-gnu.so",
        ".abi3.so",
        ".so",
    ]
    root.write(f"{NEW}/alpha/__init__.py", "from . import core\n")
    names = ["cpython-312-x86_64-linux-gnu.so", "abi3.so", "so"]
    for at in (2, 1, 0):
        module(root, f"{NEW}/alpha/core.{names[at]}")
        module(root, f"{NEW}/alpha/core.avx2.{names[at]}")
        found = find_roots(root.profile(), (f"{VENV}/bin/python", "/app/run.py")).imports
        own = {path.removeprefix(f"{NEW}/alpha/") for path in found if path.startswith(NEW)}
        assert {name for name in own if "avx2" not in name} == {f"core.{names[at]}"}
        assert f"core.avx2.{names[at]}" in own  # which the package opens itself
