"""The tree of integrations/install as a compute node finds it: another user's, read-only, in an empty environment."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgcheck.loader import code
from tests.installation import installed_tree, tree_with_python, version_in
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


def test_its_modules_come_from_one_file_and_those_of_python_from_elsewhere(moved_tree):
    packages = version_in(moved_tree) / "packages"
    stranger = packages / "textwrap.py"
    stranger.write_text("raise SystemExit(9)")
    (packages / "imgcheck/host").rename(packages / "away")
    try:
        done = _bare(moved_tree / "bin/imgcheck", "probe", "--cpu", "haswell", "--gpu", "none", "--driver", "none")
    finally:
        (packages / "away").rename(packages / "imgcheck/host")
        stranger.unlink()
    assert (done.returncode, done.stderr) == (0, "")
    assert "haswell" in done.stdout


def test_the_tree_believes_what_a_checkout_of_its_version_has_worked_out():
    recorded = version_in(installed_tree()) / "packages/imgcheck/loader" / code.RECORD
    assert recorded.read_text() == code.of_files()


@pytest.fixture(scope="module")
def node() -> Iterator[Path]:
    """A root with a C library, a shell and the tree that brings its own interpreter, and nothing else."""
    root = Path(tempfile.mkdtemp(prefix="node-", dir=cache_directory("tmp")))
    for place in ("bin", "dev", "lib64", "lib/x86_64-linux-gnu", "proc"):
        (root / place).mkdir(parents=True)
    (root / "dev/null").touch()
    shutil.copy("/bin/dash", root / "bin/sh")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", root / "lib64")
    for name in ("c.so.6", "m.so.6", "pthread.so.0", "dl.so.2", "rt.so.1", "util.so.1", "resolv.so.2"):
        shutil.copy(f"/lib/x86_64-linux-gnu/lib{name}", root / "lib/x86_64-linux-gnu")
    shutil.copytree(tree_with_python(), root / "software with spaces", symlinks=True)
    shutil.copytree(CHECKOUT / "demo/skylake512", root / "layout")
    yield root
    shutil.rmtree(root)


def _on(node: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The loader asks /proc for the place of the program.
    enter = 'mount --bind /proc "$1/proc" && exec chroot "$@"'
    program = "/software with spaces/bin/imgcheck"
    command = [need("unshare"), "--mount", "sh", "-c", enter, "sh", node, program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": "/usr/sbin:/usr/bin"})


def test_a_node_without_any_python_reads_an_image_and_stops_it(node):
    described = ("probe", "--cpu", "haswell", "--gpu", "none", "--driver", "none", "-o", "/haswell.json")
    assert _on(node, *described).returncode == 0
    done = _on(node, "preflight", "oci:/layout", "--no-store", "--host", "/haswell.json", "--runtime", "apptainer")
    assert (done.returncode, done.stderr) == (1, "")
    assert "CPU001" in done.stdout


def test_the_tree_with_an_interpreter_leaves_the_c_library_to_the_node(node):
    libraries = {path.name for path in (version_in(node / "software with spaces") / "python/lib").glob("*.so*")}
    assert "libz.so.1" in libraries
    assert not {name for name in libraries if name.startswith(("libc.so", "libm.so", "libpthread", "ld-linux"))}
    (node / "lib/x86_64-linux-gnu/libm.so.6").rename(node / "away")
    try:
        assert "libm.so.6" in _on(node, "--version").stderr
    finally:
        (node / "away").rename(node / "lib/x86_64-linux-gnu/libm.so.6")


def test_it_installs_from_a_wheelhouse_without_a_network(tmp_path):
    wheels = tmp_path / "wheels"
    pip = f"{sys.executable} -m pip"
    run(*pip.split(), "wheel", "--quiet", "--wheel-dir", wheels, CHECKOUT)
    (wheel,) = wheels.glob("imgcheck-*.whl")
    settings = {"PYTHON": need("python3"), "PIP": pip, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PATH": "/usr/bin:/bin"}
    settings["IMGCHECK_SOURCE"] = str(wheel)
    offline = ("--no-index", "--find-links", wheels)
    run(CHECKOUT / "integrations/install/install.sh", tmp_path / "tree", *offline, env=settings)
    assert run(tmp_path / "tree/bin/imgcheck", "--version", env={}).stdout.startswith("imgcheck ")


def _files(tree: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in tree.rglob("*")}
