"""Turns the findings of one rule into its outcome."""

from collections.abc import Iterable

from imgcheck.check.context import Answers
from imgcheck.documents.report import Finding, Outcome

_ORDER: tuple[Outcome, ...] = ("fail", "risk", "degraded")


def conclude(answers: Answers, rule: str, findings: Iterable[Finding], fine: str, unknown: str = "") -> None:
    """Adds `findings` and the rule's outcome: the worst of them, else `unknown` where given, else ok with `fine`.

    An open question does not hide a certain failure, and findings that are only information leave it open.
    """
    found = tuple(findings)
    for finding in found:
        answers.found(finding)
    worst = next((level for level in _ORDER if any(f.severity == level for f in found)), None)
    if worst and (worst != "degraded" or not unknown):
        answers.answer(rule, worst, "; ".join(f.title for f in found if f.severity == worst))
    elif unknown:
        answers.answer(rule, "unknown", unknown)
    else:
        notes = [finding.title for finding in found]
        answers.answer(rule, "ok", fine if not notes else f"{fine} (not reached by the command: {'; '.join(notes)})")
