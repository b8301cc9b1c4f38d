"""RUN012 against a real `udocker setup --nvidia`: what it says of an image is what udocker does with its container."""

import json
import shutil
from pathlib import Path

import pytest

from imgcheck.cli import main
from tests.images import Directory, File, ImageBuilder, Member, Symlink
from tests.peers import Peer
from tests.tools import compile_c

pytestmark = pytest.mark.slow

_DRIVER = "396.44"
_PLACE = "usr/lib/x86_64-linux-gnu"
_REFUSED = "nvidia installation already exists, use --force to overwrite"
_STOPPED = "nvidia file already exists"


def _libcuda() -> Path:
    return compile_c("int cuInit(unsigned f) { return 0; }", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1",
                     out="libcuda.so.1")  # fmt: skip


def _app() -> Path:
    source = "int cuInit(unsigned); int main(void) { return cuInit(0); }"
    return compile_c(source, f"-Wl,--no-as-needed,{_libcuda()}", out="app")


LAYOUTS: dict[str, tuple[dict[str, Member], str]] = {
    "no driver": ({}, ""),
    "another version alone": ({f"{_PLACE}/libcuda.so.410.48": _libcuda}, ""),
    "another version and its link": (
        {f"{_PLACE}/libcuda.so.410.48": _libcuda, f"{_PLACE}/libcuda.so.1": Symlink("libcuda.so.410.48")}, _REFUSED,
    ),
    "the same version": ({f"{_PLACE}/libcuda.so.{_DRIVER}": _libcuda}, _REFUSED),
    "an empty file of a committed container": ({f"{_PLACE}/libcuda.so.1": b""}, _REFUSED),
    "the loader of OpenCL alone": ({f"{_PLACE}/libOpenCL.so.1": _libcuda}, ""),
    "OpenCL's vendor file": ({"etc/OpenCL/vendors/nvidia.icd": b"libnvidia-opencl.so.1\n"}, _REFUSED),
    "a tool of the driver": ({"usr/bin/nvidia-smi": File(b"#!/bin/sh\n", 0o755)}, _REFUSED),
    "a link that leads nowhere": ({f"{_PLACE}/libcuda.so.1": Symlink("libcuda.so.410.48")}, _STOPPED),
    "a driver elsewhere": ({"usr/local/cuda/compat/libcuda.so.1": _libcuda}, ""),
}  # fmt: skip


@pytest.fixture
def driver(udocker: Peer) -> Path:
    """A directory of the host with a driver's libcuda, which udocker finds by LD_LIBRARY_PATH."""
    directory = udocker.home / "driver"
    directory.mkdir()
    shutil.copy2(_libcuda(), directory / f"libcuda.so.{_DRIVER}")
    (directory / "libcuda.so.1").symlink_to(f"libcuda.so.{_DRIVER}")
    return directory


def _host(tmp_path: Path) -> Path:
    """A GPU node of which it is known that libcuda is the only library of the driver."""
    path = tmp_path / "host.json"
    described = ("--arch", "amd64", "--cpu", "haswell", "--gpu", "Tesla K80", "--driver", _DRIVER)
    assert main(["probe", *described, "-o", str(path)]) == 0
    host = json.loads(path.read_text())
    library = {"path": f"/usr/lib64/libcuda.so.{_DRIVER}", "soname": "libcuda.so.1", "version": _DRIVER}
    host["libraries"] = {"state": "known", "value": [library], "source": "test"}
    path.write_text(json.dumps(host))
    return path


def _predicted(layout: Path, host: Path, capsys: pytest.CaptureFixture[str]) -> str:
    status = main(["image", f"oci:{layout}", "--runtime", "udocker-nvidia", "--host-probe", str(host), "-o", "json"])
    printed = capsys.readouterr()
    assert status != 2, printed.err
    findings = json.loads(printed.out)["findings"]
    return next((finding["predicted_error"] for finding in findings if finding["rule"] == "RUN012"), "")


@pytest.mark.parametrize("name", LAYOUTS)
def test_udocker_places_the_driver_or_does_not(name, udocker, driver, converted_rootless, tmp_path, capsys):
    members, said = LAYOUTS[name]
    image = ImageBuilder(entrypoint=("/bin/app",)).layer({"bin": Directory(), "bin/app": _app(), _PLACE: Directory()})
    image.layer({path: member() if callable(member) else member for path, member in members.items()})
    converted_rootless(image, "udocker", udocker.home / "udocker", name="app")
    predicted = _predicted(image.write(tmp_path / "layout"), _host(tmp_path), capsys)
    done = udocker("setup", "--nvidia", "app", LD_LIBRARY_PATH=str(driver))
    assert said in done.stdout + done.stderr
    assert bool(said) == bool(predicted)
    assert said in predicted
    placed = (udocker.home / "udocker/containers/app/ROOT" / _PLACE / f"libcuda.so.{_DRIVER}").exists()
    if said:
        assert done.returncode == 0
        forced = udocker("setup", "--nvidia", "--force", "app", LD_LIBRARY_PATH=str(driver))
        assert _REFUSED not in forced.stdout + forced.stderr
    else:
        assert placed
