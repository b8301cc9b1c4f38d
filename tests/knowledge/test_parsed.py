"""The parsed form of the rules that a wheel brings: as good as the files, and no better where they were changed."""

import runpy
import shutil
import sys
import types
from pathlib import Path

import pytest

from imgcheck.knowledge import Knowledge, store
from imgcheck.knowledge.store import PARSED, rules_directory
from tests.tools import CHECKOUT


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rules as a wheel has them, and no parser of TOML."""
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object
    parents = interface.__name__.split(".")
    for depth in range(1, len(parents)):
        monkeypatch.setitem(sys.modules, ".".join(parents[:depth]), types.ModuleType(parents[depth - 1]))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    parsed = runpy.run_path(str(CHECKOUT / "hatch_build.py"))["parsed"]
    rules = tmp_path / "rules"
    shutil.copytree(rules_directory(), rules)
    (rules / PARSED).write_text(parsed(rules))
    monkeypatch.setattr(store, "_rules", lambda: str(rules))
    return rules


def _all(knowledge: Knowledge) -> list[dict]:
    files = sorted(path.relative_to(rules_directory()) for path in rules_directory().rglob("*.toml"))
    return [knowledge.table(str(file)) for file in files]


def test_it_says_what_the_files_say(installed, monkeypatch):
    parsed = (installed / PARSED).rename(installed / "aside")
    plain = _all(Knowledge())
    parsed.rename(installed / PARSED)
    monkeypatch.setitem(sys.modules, "tomllib", None)
    assert _all(Knowledge()) == plain


def test_a_changed_file_takes_effect(installed):
    file = installed / "runtimes/podman.toml"
    file.write_text(file.read_text().replace('title = "Podman without CDI"', 'title = "Our Podman"'))
    assert "Our Podman" in {runtime.title for runtime in Knowledge().runtimes.values()}


@pytest.mark.parametrize("damage", [b"", b"{", b'{"catalogue/cpu.toml": []}', b"\xff"])
def test_a_damaged_one_is_left_aside(installed, damage):
    (installed / PARSED).write_bytes(damage)
    assert "CPU001" in Knowledge().catalogue
