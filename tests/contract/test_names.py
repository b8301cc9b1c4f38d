"""Names that people's scripts hold: rule ids, runtimes, commands, exit statuses. None of them changes its meaning."""

import re

import pytest

from imgcheck.cli import COMMANDS, main
from imgcheck.documents.report import VERDICTS
from imgcheck.knowledge import Knowledge
from tests.end_to_end.command import imgcheck

FIXED_RULES = {
    "ARCH001",
    "CPU001", "CPU002", "CPU003", "CPU004",
    "GPU001", "GPU002", "GPU003", "GPU004", "GPU005", "GPU006", "GPU007", "GPU008", "GPU009", "GPU010", "GPU011",
    "GPU012",
    "LIB001", "LIB002", "LIB003",
    "KRN001",
}  # fmt: skip
RUNTIMES = {
    "docker", "nvidia", "nvidia-docker1", "podman", "podman-nvidia", "apptainer", "apptainer-nv", "singularity",
    "singularity-nv", "udocker", "udocker-nvidia", "charliecloud", "shifter", "sarus", "enroot", "lsf-docker",
}  # fmt: skip


def test_fixed_rules_are_in_the_catalogue() -> None:
    assert set(Knowledge().catalogue) >= FIXED_RULES


def test_runtimes_have_their_names() -> None:
    assert set(Knowledge().runtimes) == RUNTIMES


def test_commands_have_their_names() -> None:
    assert set(COMMANDS) >= {"image", "binary", "probe", "profile", "convert", "explain", "rules"}


def test_verdicts_from_best_to_worst() -> None:
    assert VERDICTS == ("compatible", "degraded", "unknown", "at-risk", "incompatible")


@pytest.mark.parametrize("rule", sorted(FIXED_RULES))
def test_every_rule_can_be_explained_with_its_sources(rule: str) -> None:
    entry = Knowledge().catalogue[rule]
    assert entry.sources
    assert all(source.startswith("https://") for source in entry.sources)
    assert entry.predicted_error
    assert entry.remedy


def test_rules_lists_every_rule() -> None:
    listed = imgcheck("rules").stdout
    assert all(rule in listed for rule in Knowledge().catalogue)


def test_explain_prints_the_entry_with_its_sources() -> None:
    done = imgcheck("explain", "GPU002")
    assert done.returncode == 0
    assert "https://" in done.stdout


def test_explain_repeats_no_line_breaks_no_option_and_shows_no_bare_placeholder(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for rule in Knowledge().catalogue:
        assert main(["explain", rule]) == 0
        sections = capsys.readouterr().out.split("\n\n")
        assert not [part for part in sections if re.fullmatch(r"(Why|Way out)\n  <\w+>", part)], rule
        seen = next(part for part in sections if part.startswith("What you would see"))
        seen = seen.replace("\n    ", " ").splitlines()
        assert len(set(seen)) == len(seen), rule
        assert not [line for part in sections for line in part.splitlines() if re.search(r"\w-$", line)], rule
