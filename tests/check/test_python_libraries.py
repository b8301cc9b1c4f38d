"""LIB006: libraries that Python packages open by name when they are imported."""

from pathlib import Path

import pytest

from imgcheck.documents.report import Finding
from imgcheck.knowledge.python import openers
from tests.check.contexts import KNOWLEDGE, findings, judged_libraries
from tests.loader.builder import Root

SITE = "/usr/lib/python3.11/site-packages"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    root = Root(tmp_path / "root")
    root.program("/usr/bin/python3.11")
    root.write(f"{SITE}/magic/__init__.py", "from . import loader\n")
    root.write(f"{SITE}/cairosvg/__init__.py", "import cairocffi\n")
    root.write(f"{SITE}/cairocffi/__init__.py", "import ctypes\n")
    root.write(f"{SITE}/optional.py", "try:\n    import magic\nexcept ImportError:\n    magic = None\n")
    return root


def found(root: Root, code: str) -> list[Finding]:
    return findings(judged_libraries(root.profile(), "python3.11", "-c", code), "LIB006")


@pytest.mark.parametrize(
    ("code", "severity", "way"),
    [
        ("import magic", "fail", ("python -c",)),
        ("import cairosvg", "fail", ("python -c", "cairosvg")),
        ("import optional", "risk", ("python -c", "optional")),
    ],
)
def test_what_opens_a_library_that_the_image_lacks(root: Root, code: str, severity: str, way: tuple[str, ...]) -> None:
    (finding,) = found(root, code)
    assert finding.severity == severity
    assert finding.evidence[0].way == way
    assert finding.subject in ("magic", "cairocffi")
    assert finding.predicted_error == openers(KNOWLEDGE)[finding.subject].error


@pytest.mark.parametrize("path", ["/usr/lib/x86_64-linux-gnu/libmagic.so.1", "/opt/conda/lib/libmagic.so.1.0.0"])
def test_one_that_is_there_is_enough_wherever_it_lies(root: Root, path: str) -> None:
    root.library(path)
    assert found(root, "import magic") == []


def test_nothing_is_said_of_what_nothing_imports(root: Root) -> None:
    assert found(root, "import ctypes") == []


def test_another_module_may_bring_the_library(root: Root) -> None:
    root.write(f"{SITE}/openslide/__init__.py", "import ctypes\n")
    (finding,) = found(root, "import openslide")
    assert finding.subject == "openslide"
    root.write(f"{SITE}/openslide_bin/__init__.py", "")
    assert found(root, "import openslide") == []


def test_each_entry_has_its_source_and_names_a_library() -> None:
    for opener in openers(KNOWLEDGE).values():
        assert opener.sources
        assert opener.libraries
        assert all(opener.libraries)
        assert opener.id.isidentifier()
