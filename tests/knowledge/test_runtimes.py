"""rules/runtimes: the sixteen names, each complete enough for the loader's model and the rules."""

import pytest
from msgspec import ValidationError, convert

from imgcheck.cli import main
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Runtime
from tests.tools import CHECKOUT

KNOWLEDGE = Knowledge()
NAMES = {
    "docker", "nvidia", "nvidia-docker1", "podman", "podman-nvidia", "apptainer", "apptainer-nv", "singularity",
    "singularity-nv", "udocker", "udocker-nvidia", "charliecloud", "shifter", "sarus", "enroot", "lsf-docker",
}  # fmt: skip


def test_the_names_are_those_of_the_contract() -> None:
    assert set(KNOWLEDGE.runtimes) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_injects_says_what_where_and_how_it_is_found(name: str) -> None:
    runtime = KNOWLEDGE.runtimes[name]
    told = (bool(runtime.libraries), bool(runtime.directory), bool(runtime.order))
    assert told == (runtime.injects_driver,) * 3
    assert runtime.programs
    assert runtime.sources
    assert all(source.startswith("https://") for source in runtime.sources)
    if runtime.injects_driver:
        assert runtime.gpu
        assert any(pattern.startswith("libcuda.so") for pattern in runtime.libraries)
        assert any(pattern.startswith("libnvidia-ml.so") for pattern in runtime.libraries)
        assert all(".so*" in pattern for pattern in runtime.libraries)


def test_every_family_is_one_of_a_runtime_and_has_its_sources() -> None:
    assert KNOWLEDGE.families.keys() <= {runtime.family for runtime in KNOWLEDGE.runtimes.values()}
    for family in KNOWLEDGE.families.values():
        assert family.sources and all(source.startswith("https://") for source in family.sources)
        programs = {p for r in KNOWLEDGE.runtimes.values() if r.family == family.id for p in r.programs}
        assert programs >= family.takes_backticks_since.keys() | {family.filtering_program} - {""}
        assert bool(family.filtering_program) == bool(family.lets_pass_since)


def test_changes_stand_newest_first_and_change_something() -> None:
    for runtime in KNOWLEDGE.runtimes.values():
        for change in runtime.changes:
            assert change.order or change.enforces_require
            assert change.note


def test_only_glvnd_lists_carry_dispatch_libraries() -> None:
    carrying = {name for name, runtime in KNOWLEDGE.runtimes.items() if "libGLdispatch.so*" in runtime.libraries}
    assert carrying == {"apptainer-nv", "singularity-nv", "nvidia-docker1"}


def test_a_typo_in_a_key_cannot_pass() -> None:
    with pytest.raises(ValidationError):
        convert({"id": "x", "title": "x", "sources": ["y"], "libary": []}, Runtime)


def test_the_table_of_the_documentation_is_that_of_the_data() -> None:
    rows = [
        f"| `{each.id}` | {each.title} | `{each.started}` | {'yes' if each.injects_driver else 'no'} |"
        for each in KNOWLEDGE.runtimes.values()
    ]
    page = (CHECKOUT / "docs/reports.md").read_text().splitlines()
    assert [line for line in page if line.startswith("| `") and line.endswith(("| yes |", "| no |"))] == rows


def test_what_injects_nothing_names_the_entry_that_does() -> None:
    for runtime in KNOWLEDGE.runtimes.values():
        assert bool(runtime.with_driver) == (not runtime.injects_driver)
        if runtime.with_driver:
            other = KNOWLEDGE.runtimes[runtime.with_driver]
            assert other.injects_driver and other.family == runtime.family


@pytest.mark.parametrize(("command", "listed"), [("image", ["nvidia"]), ("preflight", ["nvidia", "slurm-task"])])
def test_the_help_lists_the_names(command: str, listed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ", ".join(KNOWLEDGE.runtimes) in said
    assert all(name in said for name in listed)
