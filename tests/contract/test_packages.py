"""The order of the packages: each knows those before it alone, and can be understood without the others."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "imgcheck"
ORDER = (
    "documents", "knowledge", "layers", "binaries", "sources", "loader", "profile", "host", "check", "policy", "report",
    "attach", "convert", "preflight", "cli",
)  # fmt: skip


def imported(file: Path) -> set[str]:
    """The packages of imgcheck that a module imports, at its top or within a function."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [f"{node.module}.{each.name}" for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    names += [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "imgcheck" and part[1:] and part[1] in ORDER}


def test_every_package_has_its_place() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_those_before_it(package: str) -> None:
    before = {*ORDER[: ORDER.index(package) + 1]}
    found = {str(file.relative_to(PACKAGE)): imported(file) - before for file in (PACKAGE / package).rglob("*.py")}
    assert {file: later for file, later in found.items() if later} == {}
