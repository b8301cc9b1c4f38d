"""Facts that one version of the code has found are not taken for those of another."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imgcheck.binaries import analyse
from imgcheck.loader import code
from imgcheck.profile import build

ROOT = Path(__file__).resolve().parent.parent.parent
SHOW = "from imgcheck.profile.build import engines; print(sorted(engines().items()))"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its rules where they may be changed."""
    copy = tmp_path_factory.mktemp("copy")
    for part in ("imgcheck", "rules"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def versions(copy: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", SHOW], cwd=copy, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    "file",
    [
        "imgcheck/binaries/elf.py",
        "imgcheck/binaries/isa/x86/flow.py",
        "imgcheck/binaries/kernels/x86.c",
        "imgcheck/documents/image.py",
        "imgcheck/knowledge/frameworks.py",
        "imgcheck/layers/tree.py",
        "imgcheck/sources/config.py",
        "imgcheck/versions.py",
        "rules/analysis/cudnn.toml",
        "rules/cpus/features.toml",
    ],
)
def test_a_change_of_what_facts_rest_on_is_another_version(copy: Path, file: str) -> None:
    before = versions(copy)
    with (copy / file).open("a") as changed:
        changed.write("\n")
    assert versions(copy) != before


def test_a_change_of_what_only_rules_ask_keeps_the_facts(copy: Path) -> None:
    before = versions(copy)
    with (copy / "rules/catalogue/gpu.toml").open("a") as changed:
        changed.write("\n")
    assert versions(copy) == before


IMPORTED = """
import sys
from imgcheck.binaries.analyse import load_engines
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image
with open_image(sys.argv[1]) as image:
    build_profile(image, SILENT)
load_engines()
print(*(module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "imgcheck"), sep="\\n")
"""


def imported(program: str, *arguments: str) -> set[str]:
    """Files of the package that `program` has imported at its end."""
    command = [sys.executable, "-c", program, *arguments]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_whatever_a_profile_is_made_by_has_a_part_in_its_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/sh", tmp_path / "bin/sh")
    found = imported(IMPORTED, f"dir:{tmp_path}")
    assert str(ROOT / "imgcheck/sources/config.py") in found
    counted = {*map(str, build.sources()), *(str(path) for name in analyse.ENGINES for path in analyse.sources(name))}
    assert found <= counted


def test_whatever_closures_are_worked_out_by_has_a_part_in_theirs() -> None:
    modules = [f"imgcheck.loader.{path.stem}" for path in (ROOT / "imgcheck/loader").glob("[!_]*.py")]
    program = f"import sys, {', '.join(modules)}\n" + IMPORTED.splitlines()[-1]
    found = imported(program)
    unconcerned = {"imgcheck/__init__.py", "imgcheck/errors.py"}
    assert found - {str(ROOT / name) for name in unconcerned} <= set(code.sources())
