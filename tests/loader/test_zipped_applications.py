"""Applications of Python in one file, as PEX and shiv make them: what they say, and what is said of them."""

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from imgcheck.loader.roots import find_roots
from tests.end_to_end.command import imgcheck
from tests.loader.builder import Root
from tests.loader.roots import debian
from tests.tools import compile_c, need

MODULE = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
float numbers[64];
int gone(int);
static PyObject *answer(PyObject *self, PyObject *none)
{ for (int i = 0; i < 64; i++) numbers[i] = numbers[i] * 3 + i; return PyLong_FromLong(CALLED((int)numbers[7])); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, 0}, {0}};
static struct PyModuleDef fast = {PyModuleDef_HEAD_INIT, "fast", 0, -1, methods};
PyMODINIT_FUNC PyInit_fast(void) { return PyModule_Create(&fast); }
"""
TEXT = "from . import fast\n\n\ndef main():\n    print(fast.answer())\n"
_LIBRARIES = ("libm.so.6", "libz.so.1", "libexpat.so.1")
"""What Debian's Python loads besides the C library."""
NAME = f"fast{sysconfig.get_config_var('EXT_SUFFIX')}"


def wheel(directory: Path, module: Path) -> Path:
    """A package with a compiled module."""
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    tag = f"cp{version}-cp{version}-linux_x86_64"
    members = {
        "quick/__init__.py": TEXT.encode(),
        f"quick/{NAME}": module.read_bytes(),
        "quick-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: quick\nVersion: 1\n",
        "quick-1.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    record = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in members.items()]
    members["quick-1.dist-info/RECORD"] = "\n".join([*record, "quick-1.dist-info/RECORD,,", ""]).encode()
    with zipfile.ZipFile(directory / f"quick-1-{tag}.whl", "w") as made:
        for name, data in members.items():
            made.writestr(name, data)
    return directory / f"quick-1-{tag}.whl"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def compiled(*flags: str, called: str = "") -> Path:
    include = sysconfig.get_paths()["include"]
    options = ("-shared", "-fPIC", "-O3", f"-I{include}", f"-DCALLED={called}", *flags)
    return compile_c(MODULE, *options, out=NAME)


def pex(directory: Path, module: Path) -> Path:
    directory.mkdir()
    options = ("--no-index", "--disable-cache", "-m", "quick:main", "-o", directory / "app.pex")
    subprocess.run([sys.executable, "-m", "pex", wheel(directory, module), *options], check=True, capture_output=True)
    return directory / "app.pex"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian with the Python that runs the applications."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("what this Python makes is not for that of Debian 12")
    root = tmp_path_factory.mktemp("zipped") / "root"
    subprocess.run(["cp", "-al", debian("bookworm").path, root], check=True)
    return root


def said(system: Path, application: Path) -> subprocess.CompletedProcess[str]:
    """What the application itself says."""
    shutil.copy2(application, system / "opt/app.pex")
    command = [need("chroot"), system, "env", "PEX_ROOT=/tmp/unpacked", "/opt/app.pex"]
    return subprocess.run(command, capture_output=True, text=True)


def told(system: Path, application: Path, tmp_path: Path, cpu: str) -> dict[str, Any]:
    """The report on an image with the same Python, little else, and the application as its command."""
    root = Root(tmp_path / cpu)
    for name in ("usr/bin/python3.11", *(f"lib/x86_64-linux-gnu/{each}" for each in _LIBRARIES)):
        root.at(name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(system / name, root.at(name))
    root.at("/opt").mkdir()
    shutil.copy2(application, root.at("/opt/app.pex"))
    host, report = tmp_path / f"{cpu}.json", tmp_path / "report.json"
    imgcheck("probe", "--cpu", cpu, "--glibc", "2.36", "--kernel", "5.10", "-o", host)
    imgcheck("image", f"dir:{root.path}", "--host-probe", host, "-o", f"json={report}", "--", "/opt/app.pex")
    return json.loads(report.read_text())


@pytest.mark.slow
def test_what_a_pex_unpacks_is_a_risk_where_it_fails(system: Path, tmp_path: Path) -> None:
    gone = compile_c("int gone(int x) { return x; }", "-shared", "-fPIC", "-Wl,-soname,libgone.so.1", out="libgone.so")
    application = pex(tmp_path / "made", compiled(str(gone), called="gone"))
    last = said(system, application).stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: libgone.so.1: ")
    report = told(system, application, tmp_path, "haswell")
    (found,) = (finding for finding in report["findings"] if finding["rule"] == "LIB001")
    assert (report["verdict"], found["severity"]) == ("at-risk", "risk")
    assert (found["predicted_error"], found["evidence"][0]["path"]) == (last, inside(application))


@pytest.mark.slow
def test_what_a_pex_unpacks_may_need_more_than_the_cpu_has(system: Path, tmp_path: Path) -> None:
    application = pex(tmp_path / "made", compiled("-march=haswell"))
    done = said(system, application)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    fits, lacks = (told(system, application, tmp_path, cpu) for cpu in ("haswell", "nehalem"))
    assert fits["verdict"] == "compatible", fits["findings"]
    (found,) = (finding for finding in lacks["findings"] if finding["rule"] == "CPU001")
    assert (lacks["verdict"], found["evidence"][0]["path"]) == ("at-risk", inside(application))


def test_what_nothing_starts_is_unreached(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.program("/usr/bin/python3.11")
    root.library("/made/libgone.so.1")
    root.library("/made/fast.so", needs=["/made/libgone.so.1"])
    with zipfile.ZipFile(root.at("/opt.zip"), "w") as made:
        made.write(root.at("/made/fast.so"), "quick/fast.so")
    application = root.at("/opt/app.pyz")
    application.parent.mkdir()
    application.write_bytes(b"#!/usr/bin/env python3.11\n" + root.at("/opt.zip").read_bytes())
    application.chmod(0o755)
    for made in ("/opt.zip", "/made/fast.so", "/made/libgone.so.1"):
        root.at(made).unlink()
    reaches = {
        command: find_roots(root.profile(), command).reach_of_imports.get("/opt/app.pyz!/quick/fast.so")
        for command in (("/opt/app.pyz",), ("python3.11", "/opt/app.pyz", "--help"), ("python3.11", "-c", "pass"))
    }
    assert [*reaches.values()] == ["path", "path", None]


def inside(application: Path) -> str:
    """Where the profile has the module that is in the application."""
    with zipfile.ZipFile(application) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
    return f"/opt/app.pex!/{name}"
