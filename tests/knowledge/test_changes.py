"""rules/analysis/changes.toml: every entry is asked for, has its sources, and holds from its version on."""

import pytest

from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.changes import changes, does
from tests.tools import CHECKOUT

KNOWLEDGE = Knowledge()


@pytest.mark.parametrize("name", sorted(changes(KNOWLEDGE)))
def test_every_change_is_asked_for_and_has_sources(name: str) -> None:
    code = [file.read_text() for folder in ("check", "knowledge") for file in (CHECKOUT / "imgcheck" / folder).iterdir()
            if file.suffix == ".py"]  # fmt: skip
    assert any(f'"{name}"' in text for text in code)
    assert all(source.startswith("https://") for source in changes(KNOWLEDGE)[name].sources)


@pytest.mark.parametrize(
    ("version", "holds"), [("", False), ("no version", False), ("2.32", False), ("2.33", True), ("2.41", True)]
)
def test_a_change_holds_from_its_version_on(version: str, holds: bool) -> None:
    assert does(KNOWLEDGE, "glibc-compares-isa-note", version) is holds
