"""integrations/install: another version into a tree that holds one, and runs that fail.

A stand-in for pip lays down an imgcheck that says its version, beside the real module that the launcher asks for the
bundle; the real one is in test_installation.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installation import version_in
from tests.tools import CHECKOUT

INSTALL = CHECKOUT / "integrations/install/install.sh"

PIP = f"""#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/imgcheck"
echo "def main(): print('version', '$VERSION')" >"$2/imgcheck/cli.py"
cp '{CHECKOUT}/imgcheck/bundle.py' "$2/imgcheck"
[ "$VERSION" != broken ]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    pip = tmp_path / "pip"
    pip.write_text(PIP)
    pip.chmod(0o755)
    return tmp_path / "a tree"


def _install(tree: Path, version: str, **more: str) -> subprocess.CompletedProcess[str]:
    settings = {"PYTHON": sys.executable, "PIP": str(tree.parent / "pip"), "VERSION": version, **more}
    return subprocess.run([INSTALL, tree], capture_output=True, text=True, env=os.environ | settings, timeout=120)


def _says(*command: object, cwd: str | Path = "/") -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=cwd, timeout=60)
    return done.stdout + done.stderr


def _content(tree: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in tree.rglob("*")}


def test_a_newer_version_replaces_the_old_one_and_nothing_else(tree):
    (tree / "lib").mkdir(parents=True)
    (tree / "lib/site").write_text("kept")
    for version in ("1", "2"):
        assert _install(tree, version).returncode == 0
        assert _says(tree / "bin/imgcheck") == f"version {version}\n"
    assert sorted(path.name for path in (tree / "lib").iterdir()) == sorted([version_in(tree).name, "site"])


def test_every_user_may_read_a_tree_whatever_the_umask_was(tree):
    before = os.umask(0o077)
    try:
        assert _install(tree, "1").returncode == 0
    finally:
        os.umask(before)
    for path in (tree, *tree.rglob("*")):
        assert path.stat().st_mode & 0o055 == (0o055 if path.is_dir() or path.name == "imgcheck" else 0o044), path


def test_the_script_never_leads_to_no_version(tree):
    """The old files are there until bin/imgcheck names the new ones."""
    assert _install(tree, "1").returncode == 0
    mv = tree.parent / "mv"
    mv.write_text(f'#!/bin/sh\n"{tree}/bin/imgcheck"\n{shutil.which("mv")} "$@"\n"{tree}/bin/imgcheck"\n')
    mv.chmod(0o755)
    done = _install(tree, "2", PATH=f"{tree.parent}:{os.environ['PATH']}")
    assert done.stdout == "version 1\nversion 2\n", done.stderr


def test_a_failed_run_leaves_the_old_version_as_it_was(tree):
    assert _install(tree, "1").returncode == 0
    before = _content(tree)
    assert _install(tree, "broken").returncode != 0
    assert _content(tree) == before


def test_a_failed_first_run_leaves_nothing_and_can_be_tried_again(tree):
    assert _install(tree, "broken").returncode != 0
    assert _content(tree) == {}
    assert _install(tree, "1").returncode == 0
    assert _says(tree / "bin/imgcheck") == "version 1\n"


def test_without_patchelf_it_says_so_in_one_line_and_changes_nothing(tree):
    done = _install(tree, "1", OWN_PYTHON="1", PATCHELF="no-such-patchelf")
    assert done.returncode == 1
    assert done.stderr.startswith("install.sh: OWN_PYTHON=1 needs no-such-patchelf: install patchelf")
    assert done.stderr.count("\n") == 1
    assert not tree.exists()


def test_a_patchelf_that_fails_is_told_in_one_line_and_leaves_nothing(tree):
    done = _install(tree, "1", OWN_PYTHON="1", PATCHELF="false")
    assert done.returncode == 1
    assert done.stderr.startswith("own_python.py: Command '['false'")
    assert done.stderr.count("\n") == 1
    assert _content(tree) == {}


def test_the_script_may_be_run_by_sh_from_its_own_directory(tree):
    assert _install(tree, "1").returncode == 0
    for command, cwd in ((("sh", "imgcheck"), "bin"), (("sh", "bin/imgcheck"), "."), (("./imgcheck",), "bin")):
        assert _says(*command, cwd=tree / cwd) == "version 1\n"
