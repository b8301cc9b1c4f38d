"""Programs that PyInstaller made, in roots with an older and a fitting C library: what they say and what is said."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.command import imgcheck
from tests.loader.roots import debian
from tests.profile.frozen import pyinstaller
from tests.tools import compile_c, need

pytestmark = pytest.mark.slow
_SYSTEM = (
    "lib64/ld-linux-x86-64.so.2",
    *(f"lib/x86_64-linux-gnu/{name}" for name in (
        "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libz.so.1"
    )),
)  # fmt: skip
"""What the starter and Python's library load of the system."""
_SCRIPT = """
import ctypes, os, sys
ctypes.CDLL(os.path.join(sys._MEIPASS, "libfast.so"))
print("ran")
"""
_FAST = """
float numbers[64];
__attribute__((constructor)) static void begin(void)
{ for (int i = 0; i < 64; i++) numbers[i] = numbers[i] * 3 + i; }
"""
_APP = "/opt/app/app"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    need("objcopy")
    library = compile_c(_FAST, "-shared", "-fPIC", "-O3", "-march=haswell", out="libfast.so")
    work = tmp_path_factory.mktemp("programs")
    options = ("--add-binary", f"{library}:.")
    return {kind: pyinstaller(work / kind[2:], _SCRIPT, kind, *options) for kind in ("--onefile", "--onedir")}


def image(path: Path, suite: str, program: Path) -> Path:
    """A root with the C library of a Debian `suite` and a program as /opt/app/app."""
    system = debian(suite).path
    for name in _SYSTEM:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        command = [need("chroot"), system, "readlink", "-f", f"/{name}"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        shutil.copy2(system / found.lstrip("/"), path / name)
    (path / "tmp").mkdir()
    if program.is_dir():
        shutil.copytree(program, path / "opt/app", symlinks=True)
    else:
        (path / "opt/app").mkdir(parents=True)
        shutil.copy2(program, path / _APP.lstrip("/"))
    return path


def told(root: Path, tmp_path: Path, cpu: str) -> dict[str, Any]:
    """The report on an image of the root that starts the program, on a CPU."""
    host, report = tmp_path / f"{cpu}.json", tmp_path / "report.json"
    imgcheck("probe", "--cpu", cpu, "--glibc", "2.31", "--kernel", "5.10", "-o", host)
    imgcheck("image", f"dir:{root}", "--host-probe", host, "-o", f"json={report}", "--", _APP)
    return json.loads(report.read_text())


def said(root: Path) -> subprocess.CompletedProcess[str]:
    """What the program itself says, with the name for its directory that imgcheck has."""
    done = subprocess.run([need("chroot"), root, _APP], capture_output=True, text=True)
    done.stderr = re.sub(r"/tmp/_MEI\w+/", f"{_APP}!/", done.stderr)
    return done


@pytest.mark.parametrize("kind", ["--onefile", "--onedir"])
def test_an_older_c_library_fails_the_library_of_python(programs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    root = image(tmp_path / "root", "bullseye", programs[kind])
    report, done = told(root, tmp_path, "haswell"), said(root)
    failures = [finding for finding in report["findings"] if finding["severity"] == "fail"]
    assert (report["verdict"], {finding["rule"] for finding in failures}) == ("incompatible", {"LIB002"})
    assert done.returncode != 0
    assert failures[0]["predicted_error"] in done.stderr


@pytest.mark.parametrize("kind", ["--onefile", "--onedir"])
def test_a_program_with_all_that_it_needs_is_compatible(programs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    root = image(tmp_path / "root", "bookworm", programs[kind])
    done = said(root)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert told(root, tmp_path, "haswell")["verdict"] == "compatible"


@pytest.mark.parametrize("kind", ["--onefile", "--onedir"])
def test_what_its_modules_need_of_the_cpu_counts(programs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    root = image(tmp_path / "root", "bookworm", programs[kind])
    report = told(root, tmp_path, "nehalem")
    (finding,) = (finding for finding in report["findings"] if finding["rule"] == "CPU001")
    assert finding["evidence"][0]["path"].endswith("/libfast.so")
    assert (finding["evidence"][0]["reach"], report["verdict"]) == ("path", "at-risk")


@pytest.mark.parametrize("kind", ["--onefile", "--onedir"])
def test_without_its_library_of_python_nothing_runs(programs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    """Of Python's library that is, without one that it needs."""
    root = image(tmp_path / "root", "bookworm", programs[kind])
    (root / "lib/x86_64-linux-gnu/libm.so.6").unlink()
    report, done = told(root, tmp_path, "haswell"), said(root)
    failures = [finding for finding in report["findings"] if finding["severity"] == "fail"]
    assert (report["verdict"], failures[0]["rule"]) == ("incompatible", "LIB001")
    assert done.returncode != 0
    assert failures[0]["predicted_error"] in done.stderr


def test_a_symbol_that_nothing_defines_fails_the_library_of_python(programs: dict[str, Path], tmp_path: Path) -> None:
    root = image(tmp_path / "root", "bookworm", programs["--onedir"])
    library = next((root / "opt/app").rglob("libpython3*"))
    text = "extern int absent; int *Py_Place = &absent;"
    flags = ("-shared", "-fPIC", f"-Wl,-soname,{library.name}")
    shutil.copy2(compile_c(text, *flags, out=library.name), library)
    report, done = told(root, tmp_path, "haswell"), said(root)
    failures = [finding for finding in report["findings"] if finding["severity"] == "fail"]
    assert [finding["rule"] for finding in failures] == ["LIB007"]
    assert failures[0]["predicted_error"] in done.stderr


def test_a_kept_profile_tells_the_same(programs: dict[str, Path], tmp_path: Path) -> None:
    """Its work of the loader is packed with it (loader/kept.py)."""
    root = image(tmp_path / "root", "bullseye", programs["--onefile"])
    report, profile = told(root, tmp_path, "haswell"), tmp_path / "profile.json"
    imgcheck("profile", f"dir:{root}", "-o", profile)
    host = tmp_path / "haswell.json"
    again = json.loads(imgcheck("image", profile, "--host-probe", host, "-o", "json", "--", _APP).stdout)
    assert [f["subject"] for f in again["findings"]] == [f["subject"] for f in report["findings"]]
