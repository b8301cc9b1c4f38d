"""A report, or the lack of one, in the few lines that a job's owner reads."""

from collections.abc import Iterable, Iterator

from imgcheck.documents.report import Finding, Report
from imgcheck.errors import ImgcheckError
from imgcheck.knowledge.schedulers import Outcome, Row, Scheduler
from imgcheck.preflight.kept import Answer
from imgcheck.report.runtimes import under
from imgcheck.report.text import safe

_OUTCOMES: dict[str, Outcome] = {
    "compatible": "compatible",
    "degraded": "compatible",
    "unknown": "undecided",
    "at-risk": "undecided",
    "incompatible": "incompatible",
}
_LONGEST = 500
"""Characters of a line: Slurm cuts what a TaskProlog prints at about 4 KB, and a reader earlier."""
_LONGEST_SUMMARY = 1000
_SHOWN = 3
"""Findings told in full, each of another rule; the rest by title."""


def outcome_of(report: Report, requeue: bool) -> Outcome:
    """What a report means for a job; `requeue` where an image that does not fit shall try another node."""
    outcome = _OUTCOMES[report.verdict]
    return "elsewhere" if requeue and outcome == "incompatible" else outcome


def report_lines(report: Report, reference: str) -> list[str]:
    """One line where all is well, else what fails, what one would see, where, and the way out."""
    outcome = _OUTCOMES[report.verdict]
    shown = under(report, report.host.name, report.runtime)
    head = f"imgcheck: {outcome}: {reference} on {report.host.name} under {shown}"
    if outcome == "compatible":
        return [head]
    severity = "fail" if outcome == "incompatible" else "risk"
    findings = [finding for finding in report.findings if finding.severity == severity]
    unknown = [check for check in report.checks if check.outcome == "unknown"] if outcome == "undecided" else []
    lines = [head, *_findings(findings), *(f"{check.rule} not known: {check.reason}" for check in unknown)]
    return [*lines, f"this host: {report.host.description}"] if report.host.description else lines


def trouble_lines(error: ImgcheckError, goes_on: bool) -> list[str]:
    """Why nothing was checked."""
    lines = [f"imgcheck: not checked: {error.message}", *([error.hint] if error.hint else [])]
    return [*lines, "the job goes on unchecked"] if goes_on else lines


def answer_for(scheduler: Scheduler, outcome: Outcome, lines: Iterable[str]) -> Answer:
    """What the scheduler is told of `lines`, on the streams and with the status that it understands."""
    row = scheduler.row(outcome)
    shown = [_clipped(safe(" ".join(line.split())), _LONGEST) for line in lines]
    message = _filled(row.message, shown)
    stdout, stderr = _filled(row.stdout, shown), _filled(row.stderr, shown)
    return Answer(row.exit, stdout, stderr, scheduler.message_file, message, scheduler.speaker)


def lets_run(row: Row) -> bool:
    """Whether the job goes on: neither the exit status nor what is printed stops it."""
    return row.exit == 0


def _findings(findings: list[Finding]) -> Iterator[str]:
    first = {finding.rule: finding for finding in reversed(findings)}
    told = [finding for finding in findings if first[finding.rule] is finding][:_SHOWN]
    for finding in told:
        yield f"{finding.rule} {finding.title}"
        yield f"you would see: {finding.predicted_error}"
        if finding.evidence:
            yield f"where: {': '.join(filter(None, (finding.evidence[0].path, finding.evidence[0].detail)))}"
        yield f"way out: {finding.remedy}"
    others = [finding for finding in findings if finding not in told]
    if others:
        named = "; ".join(f"{finding.rule} {finding.title}" for finding in others[:_SHOWN])
        more = f"; {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        yield f"and {named}{more}"


def _filled(templates: Iterable[str], lines: list[str]) -> str:
    return "".join(f"{text}\n" for template in templates for text in _texts(template, lines))


def _texts(template: str, lines: list[str]) -> list[str]:
    # One placeholder a template: text of an image that reads like a placeholder is never filled again.
    if "{line}" in template:
        return [template.replace("{line}", line) for line in lines]
    summary = _clipped("; ".join(line.strip() for line in lines), _LONGEST_SUMMARY)
    if "{summary}" in template:
        return [template.replace("{summary}", summary)]
    quoted = '"' + summary.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return [template.replace("{quoted}", quoted)]


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 4].rstrip() + " ..."
