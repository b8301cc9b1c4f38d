"""Where a finding is shown by tools that want a file and a line."""

from typing import NamedTuple

from imgcheck.documents.report import Finding
from imgcheck.report.formats import Rendering
from imgcheck.report.text import safe


class Location(NamedTuple):
    path: str
    """Relative path: of the Dockerfile where there is one, else of the file in the image."""
    line: int


def location(finding: Finding, rendering: Rendering) -> Location:
    """The first evidence's place; the Dockerfile's first line, or the root, for a finding without evidence."""
    first = finding.evidence[0] if finding.evidence else None
    if rendering.dockerfile:
        return Location(rendering.dockerfile.path, rendering.dockerfile.line_of(first.history) if first else 1)
    return Location(safe(first.path).lstrip("/") if first else "image", 1)


def message(finding: Finding) -> str:
    """What the finding says, in plain lines."""
    lines = [f"{finding.title}.", f"Predicted: {finding.predicted_error}", finding.why, f"Way out: {finding.remedy}"]
    lines += [f"{evidence.path}: {evidence.detail}" for evidence in finding.evidence[:3]]
    return "\n".join(safe(part) for text in lines for part in text.splitlines())
