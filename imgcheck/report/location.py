"""Where a finding is shown by tools that want a file and a line, and what it says there."""

from typing import NamedTuple

from imgcheck.documents.report import Finding
from imgcheck.report.across import Across
from imgcheck.report.formats import Rendering
from imgcheck.report.text import safe


class Location(NamedTuple):
    path: str
    """Relative path: of the Dockerfile where there is one, else of the file in the image."""
    line: int


def location(finding: Finding, rendering: Rendering) -> Location:
    """The first evidence's place; that of the image as a whole for a finding without evidence."""
    first = finding.evidence[0] if finding.evidence else None
    if first is None or not first.path:  # such as a variable that the image's configuration lacks
        return whole(rendering)
    if rendering.dockerfile:
        return Location(rendering.dockerfile.path, rendering.dockerfile.line_of(first.history))
    return Location(safe(first.path).lstrip("/"), 1)


def whole(rendering: Rendering) -> Location:
    """The place of what concerns no single file."""
    return Location(rendering.dockerfile.path if rendering.dockerfile else "image", 1)


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
