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
    main(["image", layout, "--no-store", "--platform", "linux/386", "--host-probe", _host(tmp_path, host)])
    assert "linux/amd64" in capsys.readouterr().out


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


def test_platform_that_the_image_lacks_is_told_by_convert_as_well(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", layout, "--platform", "linux/s390x", "--to", "rootfs", str(tmp_path / "out")]) == 0
    assert "no image for linux/s390x there: that for linux/amd64 was taken" in capsys.readouterr().err
