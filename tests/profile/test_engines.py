"""Facts that one version of the code has found are not taken for those of another."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
        "imgcheck/binaries/isa/kernels/x86.c",
        "imgcheck/documents/image.py",
        "imgcheck/knowledge/frameworks.py",
        "imgcheck/layers/tree.py",
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
