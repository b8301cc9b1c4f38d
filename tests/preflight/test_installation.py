"""The tree of integrations/install as a compute node finds it: another user's, read-only, in an empty environment."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgcheck.loader import code
from tests.installation import installed_tree
from tests.peers import as_unprivileged
from tests.tools import CHECKOUT, cache_directory, need, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def moved_tree() -> Iterator[Path]:
    """The tree at another place than it was made for."""
    directory = Path(tempfile.mkdtemp(prefix="shared-", dir=cache_directory("tmp")))
    directory.chmod(0o755)
    yield Path(shutil.copytree(installed_tree(), directory / "software with spaces"))
    shutil.rmtree(directory)


def _bare(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [need("python3"), "-c", "import os, sys; os.execve(sys.argv[1], sys.argv[1:], {})", program]
    return subprocess.run(
        as_unprivileged(*command, *map(str, arguments)), capture_output=True, text=True, cwd="/", timeout=120, env={}
    )


def test_a_preflight_works_with_nothing_in_the_environment_and_nothing_writable(moved_tree, public_tmp):
    program = moved_tree / "bin/imgcheck"
    profile = public_tmp / "demo.json"
    run(program, "profile", f"oci:{CHECKOUT}/demo/skylake512", "--no-store", "-o", profile)
    host = public_tmp / "haswell.json"
    run(program, "probe", "--cpu", "haswell", "--gpu", "none", "--driver", "none", "-o", host)
    before = _files(moved_tree)
    done = _bare(program, "preflight", profile, "--host", host, "--runtime", "apptainer")
    assert (done.returncode, done.stderr) == (1, "")
    assert "CPU001" in done.stdout
    assert _bare(program, "preflight", profile, "--host", host, "--runtime", "apptainer").stdout == done.stdout
    probed = _bare(program, "preflight", profile, "--scheduler", "slurm-task")
    assert "imgcheck: " in probed.stdout, probed.stderr
    assert _files(moved_tree) == before


def test_an_image_is_read_with_nothing_in_the_environment(moved_tree, public_tmp):
    layout = Path(shutil.copytree(CHECKOUT / "demo/skylake512", public_tmp / "layout"))
    done = _bare(moved_tree / "bin/imgcheck", "preflight", f"oci:{layout}", "--no-store", "--runtime", "apptainer")
    assert done.returncode in (0, 1), done.stderr
    assert f"oci:{layout}" in done.stdout


def test_the_users_own_python_settings_do_not_matter(moved_tree, public_tmp):
    (public_tmp / "msgspec.py").write_text("raise SystemExit('the wrong one')")
    environment = {"PYTHONPATH": str(public_tmp), "PYTHONHOME": "/nonexistent", "PYTHONSTARTUP": "/nonexistent"}
    done = subprocess.run([moved_tree / "bin/imgcheck", "rules"], capture_output=True, text=True, cwd=public_tmp,
                          env=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "CPU001" in done.stdout


def test_the_tree_believes_what_a_checkout_of_its_version_has_worked_out():
    recorded = installed_tree() / "lib/packages/imgcheck/loader" / code.RECORD
    assert recorded.read_text() == code.of_files()


def test_it_installs_from_a_wheelhouse_without_a_network(tmp_path):
    wheels = tmp_path / "wheels"
    pip = f"{sys.executable} -m pip"
    run(*pip.split(), "wheel", "--quiet", "--wheel-dir", wheels, CHECKOUT)
    settings = {"PYTHON": need("python3"), "PIP": pip, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PATH": "/usr/bin:/bin"}
    offline = ("--no-index", "--find-links", wheels)
    run(CHECKOUT / "integrations/install/install.sh", tmp_path / "tree", *offline, env=settings)
    assert run(tmp_path / "tree/bin/imgcheck", "--version", env={}).stdout.startswith("imgcheck ")


def _files(tree: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in tree.rglob("*")}
