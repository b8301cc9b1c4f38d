"""`convert --host-probe` says what the runtimes of the target will meet on a host."""

import json
from pathlib import Path

import pytest

from imgcheck.cli import main
from tests.images import Directory, File, ImageBuilder
from tests.tools import compile_c


@pytest.fixture(scope="session")
def static() -> Path:
    return compile_c("int main(void) { return 0; }", "-static", out="static")


def _image(static: Path, **config: object) -> ImageBuilder:
    image = ImageBuilder(entrypoint=("/bin/static",), **config)
    return image.layer({"bin": Directory(), "bin/static": File(static.read_bytes(), 0o755)})


def _host(tmp_path: Path, *options: str, architecture: str = "amd64") -> str:
    path = tmp_path / "host.json"
    assert main(["probe", "--arch", architecture, "--gpu", "none", "--driver", "none", *options, "-o", str(path)]) == 0
    return str(path)


def _convert(tmp_path: Path, reference: str, target: str, *options: str) -> int:
    return main(["convert", reference, "--to", target, str(tmp_path / "out"), "--quiet", *options])


def test_without_a_host_nothing_is_checked(static, tmp_path, capsys):
    layout = _image(static, architecture="arm64").write(tmp_path / "layout")
    assert _convert(tmp_path, f"oci:{layout}", "sandbox", "--platform", "linux/arm64") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("run it with: apptainer run")


@pytest.mark.parametrize("target", ["sandbox", "sif", "udocker", "charliecloud", "rootfs", "oci"])
def test_a_foreign_architecture_is_named_and_is_exit_1_though_it_was_converted(target, static, tmp_path, capsys):
    layout = _image(static).write(tmp_path / "layout")
    host = _host(tmp_path, architecture="ppc64le")
    assert _convert(tmp_path, f"oci:{layout}", target, "--host-probe", host) == 1
    out = capsys.readouterr().out
    assert "INCOMPATIBLE" in out
    assert "ARCH001" in out
    assert (tmp_path / "out").exists()


def test_the_runtimes_are_those_of_the_target(static, tmp_path, capsys):
    layout = _image(static).write(tmp_path / "layout")
    _convert(tmp_path, f"oci:{layout}", "charliecloud", "--host-probe", _host(tmp_path))
    assert "under charliecloud" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["udocker", "charliecloud"])
def test_what_the_conversion_mends_does_not_count(target, static, tmp_path, capsys):
    layout = _image(static, working_directory="/nowhere", user="app:staff").write(tmp_path / "layout")
    host = _host(tmp_path, "--cpu", "haswell", "--kernel", "5.14.0", "--glibc", "2.34")
    assert main(["image", f"oci:{layout}", "--host-probe", host, "--runtime", target, "--quiet"]) == 1
    assert "/etc/passwd" in capsys.readouterr().out
    assert _convert(tmp_path, f"oci:{layout}", target, "--host-probe", host) in (0, 3)
    assert "INCOMPATIBLE" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_layer_is_fetched_once_for_conversion_and_check(static, tmp_path, registry):
    layout = _image(static).write(tmp_path / "layout", tag="test")
    manifest = json.loads((layout / "index.json").read_bytes())["manifests"][0]["digest"]
    blob = json.loads((layout / "blobs" / manifest.replace(":", "/")).read_bytes())["layers"][0]["digest"]
    reference = registry.push(f"oci:{layout}:test", "hosts/once:1")
    assert _convert(tmp_path, reference, "rootfs", "--plain-http", "--host-probe", _host(tmp_path)) in (0, 3)
    log = (registry.directory.parent / "docker-registry.out").read_text()
    assert log.count(f'"GET /v2/hosts/once/blobs/{blob}') == 1


def test_an_existing_destination_is_refused_before_anything_is_read(static, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    layout = _image(static).write(tmp_path / "layout")
    for blob in (layout / "blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            blob.write_bytes(b"")
    assert _convert(tmp_path, f"oci:{layout}", "rootfs", "--host-probe", _host(tmp_path)) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_udocker_repository_is_not_made_another_target(static, tmp_path, capsys):
    layout = _image(static).write(tmp_path / "layout")
    host = _host(tmp_path)
    assert _convert(tmp_path, f"oci:{layout}", "udocker", "--name", "app") == 0
    before = sorted((tmp_path / "out").iterdir())
    began = (tmp_path / "out").stat().st_mtime_ns
    assert _convert(tmp_path, f"oci:{layout}", "rootfs", "--host-probe", host) == 2
    assert "exists" in capsys.readouterr().err
    assert (sorted((tmp_path / "out").iterdir()), (tmp_path / "out").stat().st_mtime_ns) == (before, began)
