"""Annotations of pull and merge requests: GitHub's workflow commands, GitLab's code-quality report."""

import hashlib
import json

from imgcheck.documents.report import OF_SEVERITY, Report, at_or_above
from imgcheck.report import across
from imgcheck.report.formats import Rendering
from imgcheck.report.location import Location, location, message, whole
from imgcheck.report.text import safe

_GITHUB = {"fail": "warning", "risk": "warning", "degraded": "notice", "info": "notice"}
"""Of what does not fail the gate."""
_GITLAB = {"fail": "critical", "risk": "major", "degraded": "minor", "info": "info"}


def github(report: Report, rendering: Rendering) -> str:
    """One workflow command a finding: `::error file=...,line=...,title=...::message`, the worst first.

    An error is what fails the gate; what was waived stays, as a notice. GitHub shows ten of a kind for each step, so
    the order decides.
    """
    lines = []
    for each in across.findings(report):
        finding = each.finding
        place = location(finding, rendering)
        # A path in the image is none in the repository: no annotation could stand there.
        where = f"file={_property(place.path)},line={place.line}," if place.in_source else ""
        waived = "waived: " if finding.waived else ""
        title = _property(f"{finding.rule} {waived}{finding.title}")
        fails = at_or_above(OF_SEVERITY[finding.severity], rendering.fail_on)
        level = "notice" if finding.waived else "error" if fails else _GITHUB[finding.severity]
        lines.append(f"::{level} {where}title={title}::{_data(message(each))}")
    open_level = "error" if at_or_above("unknown", rendering.fail_on) else "warning"
    for question in across.undecided(report):
        title = _property(f"{question.check.rule} could not be checked")
        lines.append(f"::{open_level} title={title}::{_data(safe(question.reason))}")
    lines += [f"::warning title=imgcheck policy::{_data(safe(note))}" for note in report.notes]
    return "".join(line + "\n" for line in lines)


def gitlab(report: Report, rendering: Rendering) -> str:
    """GitLab's code-quality format: a JSON array of issues with fingerprint, severity and location."""
    issues = []
    for each in across.findings(report):
        finding = each.finding
        place = location(finding, rendering)
        level = "info" if finding.waived else _GITLAB[finding.severity]
        issues.append(_issue(finding.rule, message(each), each.fingerprint, level, place))
    for question in across.undecided(report):
        rule, reason = question.check.rule, safe(question.reason)
        fingerprint = hashlib.sha256(f"{rule}\0undecided\0{reason}".encode()).hexdigest()[:16]
        issues.append(_issue(rule, f"could not be checked: {reason}", fingerprint, "minor", whole(rendering)))
    return json.dumps(issues, indent=1) + "\n"


def _issue(rule: str, words: str, fingerprint: str, severity: str, place: Location) -> dict[str, object]:
    return {
        "description": f"{rule}: {words}",
        "check_name": rule,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": place.path, "lines": {"begin": place.line}},
    }


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(safe(text)).replace(":", "%3A").replace(",", "%2C")
