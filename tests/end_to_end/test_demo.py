"""The bundled image: what `make demo` says of it is what it does."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from demo.build import LAYOUT, build
from tests.end_to_end.command import imgcheck
from tests.tools import CHECKOUT, need, run


def _layer_digests(layout: Path) -> list[str]:
    index = json.loads((layout / "index.json").read_bytes())
    manifest = json.loads(_blob(layout, index["manifests"][0]["digest"]))
    return json.loads(_blob(layout, manifest["config"]["digest"]))["rootfs"]["diff_ids"]


def _blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs" / digest.replace(":", "/")).read_bytes()


@pytest.mark.parametrize(
    ("cpu", "status", "verdict"), [("broadwell", 1, "incompatible"), ("skylake_avx512", 0, "compatible")]
)
def test_bundled_image_needs_avx512(cpu: str, status: int, verdict: str, tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    imgcheck(
        "probe", "--cpu", cpu, "--gpu", "none", "--driver", "none", "--kernel", "4.15", "--glibc", "2.27", "-o", host
    )
    done = imgcheck("image", f"oci:{LAYOUT}", "--host-probe", host, "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (status, verdict)
    assert ("CPU001" in {finding["rule"] for finding in report["findings"]}) is (status == 1)


def test_example_of_the_readme_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = (CHECKOUT / "README.md").read_text().partition("```console\n")[2].partition("```")[0]
    probe, image, status = (part for part in block.split("$ ") if part)
    (tmp_path / "demo").symlink_to(CHECKOUT / "demo")
    monkeypatch.chdir(tmp_path)
    assert imgcheck(*probe.split()[1:]).returncode == 0
    command, _, shown = image.partition("\n")
    done = imgcheck(*command.split()[1:])
    assert done.stdout == shown
    assert status == f"echo $?\n{done.returncode}\n"


@pytest.mark.slow
def test_bundled_image_is_what_its_recipe_makes(tmp_path: Path) -> None:
    assert _layer_digests(build(tmp_path)) == _layer_digests(LAYOUT)


@pytest.mark.slow
def test_bundled_program_dies_on_an_emulated_broadwell(tmp_path: Path) -> None:
    run(need("umoci"), "unpack", "--rootless", "--image", f"{LAYOUT}:skylake512", tmp_path / "bundle")
    program = tmp_path / "bundle/rootfs/usr/local/bin/matmul"
    emulated = subprocess.run([need("qemu-x86_64"), "-cpu", "Broadwell", program], capture_output=True)
    assert emulated.returncode == -signal.SIGILL
