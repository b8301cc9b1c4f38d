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
