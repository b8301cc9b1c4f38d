"""Annotations of pull and merge requests: GitHub's workflow commands, GitLab's code-quality report."""

import json

from imgcheck.documents.report import Report
from imgcheck.report.formats import Rendering
from imgcheck.report.location import location, message

_GITHUB = {"fail": "error", "risk": "warning", "degraded": "notice", "info": "notice"}
_GITLAB = {"fail": "critical", "risk": "major", "degraded": "minor", "info": "info"}


def github(report: Report, rendering: Rendering) -> str:
    """One workflow command a finding: `::error file=...,line=...,title=...::message`."""
    lines = []
    for finding in report.findings:
        place = location(finding, rendering)
        # Without a Dockerfile the path lies in the image, not in the repository, where no annotation could stand.
        where = f"file={_property(place.path)},line={place.line}," if rendering.dockerfile else ""
        title = _property(f"{finding.rule} {finding.title}")
        lines.append(f"::{_GITHUB[finding.severity]} {where}title={title}::{_data(message(finding))}")
    return "".join(line + "\n" for line in lines)


def gitlab(report: Report, rendering: Rendering) -> str:
    """GitLab's code-quality format: a JSON array of issues with fingerprint, severity and location."""
    issues = []
    for finding in report.findings:
        place = location(finding, rendering)
        issues.append(
            {
                "description": f"{finding.rule}: {message(finding)}",
                "check_name": finding.rule,
                "fingerprint": finding.fingerprint,
                "severity": _GITLAB[finding.severity],
                "location": {"path": place.path, "lines": {"begin": place.line}},
            }
        )
    return json.dumps(issues, indent=1) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
