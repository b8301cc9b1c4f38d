"""Profiles attached to images in a real registry, on a node that fetches no layer."""

import pytest

from imgcheck.cli import main
from tests.tools import CHECKOUT

pytestmark = pytest.mark.slow


@pytest.fixture
def image(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    settings = tmp_path / ".config/containers"
    settings.mkdir(parents=True)
    (settings / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
    return registry.push(f"oci:{CHECKOUT}/demo/skylake512", "preflight/demo:1")


def test_an_attached_profile_that_is_trusted_decides(place, image, capsys):
    asked = (image, "--host", place.host(), "--runtime", "apptainer", "--trust-attached", "--scheduler", "lsf")
    assert place.preflight(*asked) == 0
    assert "not checked" in capsys.readouterr().out
    assert main(["attach", image, "--no-store"]) == 0
    assert place.preflight(*asked) == 99
    assert "CPU001" in capsys.readouterr().out
    assert place.preflight(*asked, "--attached-digest", "sha256:" + "0" * 64) == 0
    assert place.preflight(*[word for word in asked if word != "--trust-attached"]) == 0
