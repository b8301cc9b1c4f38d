"""Which image a reference brings, and what is said of it."""

from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.documents import HostProfile, ImageProfile, decode, encode
from imgcheck.documents.host import Cpu, known
from tests.images import ImageBuilder, write_layout


@pytest.fixture
def layout(tmp_path: Path) -> str:
    builders = [ImageBuilder(architecture=name).layer({"etc/which": name}) for name in ("amd64", "arm64", "ppc64le")]
    return f"oci:{write_layout(tmp_path / 'multi', *builders)}"


def _host(directory: Path, architecture: str) -> str:
    path = directory / f"{architecture}.json"
    cpu = Cpu(architecture=known(architecture, "--arch"))
    path.write_bytes(encode(HostProfile(schema_version="1.0", name=architecture, cpu=cpu)))
    return str(path)


@pytest.mark.parametrize(
    ("host", "platform"), [("aarch64", "linux/arm64"), ("ppc64le", "linux/ppc64le"), ("x86_64", "linux/amd64")]
)
def test_platform_is_that_of_the_hosts_unless_one_is_asked_for(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str, platform: str
) -> None:
    main(["image", layout, "--no-store", "--host-probe", _host(tmp_path, host)])
    assert platform in capsys.readouterr().out
    main(["image", layout, "--no-store", "--platform", "linux/arm64", "--host-probe", _host(tmp_path, host)])
    assert "linux/arm64" in capsys.readouterr().out


def test_notes_of_the_source_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = ImageBuilder(architecture="").layer({"etc/name": "x"}).write(tmp_path / "layout")
    assert main(["profile", f"oci:{layout}", "--no-store"]) == 0
    captured = capsys.readouterr()
    assert decode(captured.out.encode(), ImageProfile, "x").platform.architecture == "amd64"
    assert "imgcheck: note: the config names no architecture; linux/amd64 is assumed\n" in captured.err


def test_file_whose_name_means_a_registry_is_told_how_to_be_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IMGCHECK_DEFAULT_REGISTRY", "localhost:1")
    (tmp_path / "app").write_bytes(b"")
    assert main(["image", "app"]) == 2
    assert "for what lies here write ./app" in capsys.readouterr().err
    assert main(["image", "other/name"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("imgcheck: other/name: localhost:1: connection refused\n")
    assert "no file or directory of that name is here either" in said
    assert "write ./" not in said


@pytest.mark.parametrize("command", [("image",), ("profile",), ("convert", "--to", "rootfs", "out")])
def test_platform_that_is_asked_for_and_that_the_index_lacks_is_refused(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command[0], layout, "--platform", "linux/s390x", *command[1:]]) == 2
    said = capsys.readouterr().err
    assert "no image for linux/s390x there\n  there is linux/amd64, linux/arm64, linux/ppc64le; " in said
    assert not (tmp_path / "out").exists()


def test_platform_of_the_host_that_the_index_lacks_is_no_reason_to_refuse(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["image", layout, "--no-store", "--host-probe", _host(tmp_path, "s390x")])
    assert "no image for s390x there: that for linux/amd64 was taken" in capsys.readouterr().err


def test_platform_that_an_image_without_an_index_lacks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = ImageBuilder().layer({"etc/name": "x"}).write(tmp_path / "layout")
    assert main(["profile", f"oci:{single}", "--no-store", "--platform", "linux/s390x"]) == 0
    assert "no image for linux/s390x there: that for linux/amd64 was taken" in capsys.readouterr().err
