"""Markdown for a pull-request comment."""

import html
import re

from imgcheck.documents.report import Cell, Finding, Report
from imgcheck.report.text import safe

_SIGNS = {"compatible": "✅", "degraded": "⚠️", "unknown": "❔", "at-risk": "⚠️", "incompatible": "❌"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")


def markdown(report: Report) -> str:
    """Verdict, findings folded open, what could not be checked, and the table of cells."""
    image, host = report.image, report.host
    lines = [
        f"### {_SIGNS[report.verdict]} imgcheck: {report.verdict}",
        "",
        f"{_code(image.reference)} on **{_text(host.name)}** under {_code(report.runtime)}",
    ]
    if image.components:
        lines += ["", _text(", ".join(image.components))]
    for finding in report.findings:
        lines += ["", *_finding(finding)]
    undecided = [check for check in report.checks if check.outcome == "unknown"]
    if undecided:
        lines += ["", "**Could not be checked**", ""]
        lines += [f"- {check.rule}: {_text(check.reason)}" for check in undecided]
    if len(report.cells) > 1:
        lines += ["", "| host | runtime | verdict | |", "|---|---|---|---|"]
        lines += [_row(cell) for cell in report.cells]
    return "\n".join(lines) + "\n"


def _finding(finding: Finding) -> list[str]:
    lines = [
        f"**{finding.rule}** ({finding.severity}) {_text(finding.title)}",
        "",
        *(f"> {_text(part)}" for part in finding.predicted_error.splitlines()),
        "",
        _text(finding.why),
        "",
        f"*Way out:* {_text(finding.remedy)}",
        "",
    ]
    for evidence in finding.evidence[:5]:
        brought = f" (added by {_code(evidence.history)})" if evidence.history else ""
        detail = f": {_text(evidence.detail)}" if evidence.detail else ""
        lines.append(f"- {_code(evidence.path)}{detail}{brought}")
    if len(finding.evidence) > 5:
        lines.append(f"- and {len(finding.evidence) - 5} more")
    return lines


def _row(cell: Cell) -> str:
    return f"| {_text(cell.host)} | {cell.runtime} | {_SIGNS[cell.verdict]} {cell.verdict} | {_text(cell.reason)} |"


def _text(content: str) -> str:
    """Words of images or hosts as plain text: neither HTML, nor markup, nor a mention of somebody."""
    return _SPECIAL.sub(r"\\\1", html.escape(safe(" ".join(content.split())), quote=False))


def _code(content: str) -> str:
    # Inside <code>, entities stand for themselves and Markdown reads nothing but them; the table's bar is escaped too.
    return "<code>" + _text(content) + "</code>"
