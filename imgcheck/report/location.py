"""Where a finding is shown by tools that want a file and a line, and what it says there."""

from typing import NamedTuple

from imgcheck.documents.report import Finding, Report
from imgcheck.report.across import Across, findings
from imgcheck.report.formats import Rendering
from imgcheck.report.history import Origins
from imgcheck.report.text import safe


class Location(NamedTuple):
    path: str
    """Relative path: of the Dockerfile where a line of it brought the file, else of the file in the image."""
    line: int
    in_source: bool = False
    """It is in the Dockerfile."""


def location(finding: Finding, rendering: Rendering) -> Location:
    """The first evidence's place; that of the image as a whole for a finding without evidence."""
    first = finding.evidence[0] if finding.evidence else None
    if first is None or not first.path:  # such as a variable that the image's configuration lacks
        return whole(rendering)
    line = rendering.origins.line_of(first) if rendering.origins else None
    if rendering.origins and line:
        return Location(rendering.origins.path, line, in_source=True)
    return Location(safe(first.path).lstrip("/"), 1)


def whole(rendering: Rendering) -> Location:
    """The place of what concerns no single file."""
    return Location(rendering.origins.path, 1, in_source=True) if rendering.origins else Location("image", 1)


def unplaced(report: Report, origins: Origins) -> int:
    """How many history lines brought files with findings and are no line of the Dockerfile."""
    first = [each.finding.evidence[0] for each in findings(report) if each.finding.evidence]
    lines = {(evidence.layer, evidence.history) for evidence in first if evidence.history}
    return len(lines - origins.lines.keys())


def message(across: Across) -> str:
    """What the finding says, in plain lines."""
    finding = across.finding
    lines = [
        f"{finding.title}.",
        f"Waived: {finding.waived}" if finding.waived else "",
        f"On {across.on}." if across.hosts else "",
    ]
    lines += [f"Predicted: {finding.predicted_error}", finding.why, f"Way out: {finding.remedy}"]
    for evidence in finding.evidence[:3]:
        lines.append(": ".join(part for part in (evidence.path, evidence.detail) if part))
        lines += [f"  added by {evidence.history}"] if evidence.history else []
    return "\n".join(safe(part) for text in lines for part in text.splitlines())
