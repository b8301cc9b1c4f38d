"""The orders of severities, verdicts and levels, which reports, policies and exit statuses share."""

from typing import get_args

from imgcheck.documents.image import REACHES, RUNS
from imgcheck.documents.report import (
    FAIL_ON,
    OF_OUTCOME,
    OF_SEVERITY,
    SEVERITIES,
    VERDICTS,
    Outcome,
    Verdict,
    at_or_above,
    worst,
)


def test_a_worse_severity_makes_a_worse_verdict() -> None:
    verdicts = [VERDICTS.index(OF_SEVERITY[severity]) for severity in SEVERITIES]
    assert verdicts == sorted(verdicts, reverse=True)
    assert worst(["info", "risk", "degraded"]) == "risk"
    assert worst([]) == "info"


def test_every_word_has_its_place() -> None:
    assert set(VERDICTS) == set(get_args(Verdict))
    assert OF_OUTCOME.keys() == set(get_args(Outcome))
    assert OF_SEVERITY.keys() == set(SEVERITIES)
    assert REACHES[: len(RUNS)] == ("entry", "import")


def test_each_level_fails_on_one_verdict_more_than_the_one_before() -> None:
    failing = [[verdict for verdict in VERDICTS if at_or_above(verdict, level)] for level in FAIL_ON]
    assert failing == [list(VERDICTS[-count:]) if count else [] for count in range(len(FAIL_ON))]
