"""Markdown for a pull-request comment."""

import html
import re
from itertools import groupby

from imgcheck.documents.report import Cell, Report
from imgcheck.report import across, runtimes
from imgcheck.report.text import safe

_SIGNS = {"compatible": "✅", "degraded": "⚠️", "unknown": "❔", "at-risk": "⚠️", "incompatible": "❌"}
_BRIEF = 20
_SPECIAL = re.compile(r"([\\`*_{}\[\]()+!|~-])")
_INERT = (("@", "@<!-- -->"), ("#", "\\#<!-- -->"), ("://", ":&#47;/"), ("www.", "www&#46;"))
"""Mentions, references to issues and bare links are made of the rendered text, where an escape has gone already."""


def markdown(report: Report) -> str:
    """Verdict, the required hosts, findings, what could not be checked, what is waived, and the table of cells."""
    image = report.image
    lines = [f"### {_SIGNS[report.verdict]} imgcheck: {report.verdict}", "", *_subject(report)]
    if image.components:
        lines += ["", _text(", ".join(image.components))]
    found = across.findings(report)
    counting = [each for each in found if not each.finding.waived]
    for _, group in groupby(counting, key=lambda each: (each.finding.severity, each.finding.rule)):
        lines += ["", *_rule(list(group))]
    lines += _listed("Could not be checked", [f"{q.check.rule}: {_text(q.reason)}" for q in across.undecided(report)])
    lines += _listed("Waived", [_waived(each) for each in found if each.finding.waived])
    lines += _listed("Policy", [_text(note) for note in report.notes])
    if len(report.cells) > max(1, len(report.requirements)):
        lines += ["", "<details><summary>Each host under each runtime</summary>", ""]
        lines += ["| host | runtime | verdict | |", "|---|---|---|---|", *map(_row, report.cells), "", "</details>"]
    return "\n".join(lines) + "\n"


def _subject(report: Report) -> list[str]:
    image = _code(report.image.reference)
    if not report.requirements:
        shown = runtimes.under(report, report.host.name, report.runtime)
        return [f"{image} on **{_text(report.host.label)}** under {_text(shown)}"]
    failing = across.failing(report)
    lines = [f"{image} fails {failing}" if failing else f"{image} on {across.asked(report)}", ""]
    lines += ["| host | runtime | verdict | |", "|---|---|---|---|"]
    for each in report.requirements:
        verdict = f"{_SIGNS[each.verdict]} {each.verdict}"
        under, description = _text(across.under(each, report)), _text(each.host.description)
        lines.append(f"| **{_text(each.host.label)}** | {under} | {verdict} | {description} |")
    return lines


def _listed(title: str, entries: list[str]) -> list[str]:
    return ["", f"**{title}**", "", *(f"- {entry}" for entry in entries)] if entries else []


def _waived(each: across.Across) -> str:
    finding = each.finding
    where = f" on {_text(each.on)}:" if each.hosts else ""
    return f"{finding.rule} ({finding.severity}) {_text(finding.title)},{where} waived: {_text(finding.waived)}"


def _rule(group: list[across.Across]) -> list[str]:
    """The first finding of a rule in full, the others in brief: a comment on GitHub holds 65536 characters."""
    lines = _finding(group[0])
    if len(group) > 1:
        lines += ["", "Likewise:", ""]
    for each in group[1 : 1 + _BRIEF]:
        on = f" (on {_text(each.on)})" if each.hosts and each.hosts != group[0].hosts else ""
        lines.append(f"- {_text(each.finding.title)}{on}")
    hidden = len(group) - 1 - _BRIEF
    return [*lines, f"- and {hidden} more"] if hidden > 0 else lines


def _finding(each: across.Across) -> list[str]:
    finding = each.finding
    lines = [
        f"**{finding.rule}** ({finding.severity}) {_text(finding.title)}",
        "",
        *([f"On {_text(each.on)}.", ""] if each.hosts else []),
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
        place = _code(evidence.path) if evidence.path else "the image's configuration"
        lines.append(f"- {place}{detail}{brought}")
    if len(finding.evidence) > 5:
        lines.append(f"- and {len(finding.evidence) - 5} more")
    return lines


def _row(cell: Cell) -> str:
    return f"| {_text(cell.host)} | {cell.runtime} | {_SIGNS[cell.verdict]} {cell.verdict} | {_text(cell.reason)} |"


def _text(content: str) -> str:
    """Words of images or hosts as plain text: neither HTML, nor markup, nor a link, nor a mention of somebody."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(safe(" ".join(content.split())), quote=False))
    for live, inert in _INERT:
        escaped = escaped.replace(live, inert)
    return escaped


def _code(content: str) -> str:
    # Inside <code>, entities stand for themselves and Markdown reads nothing but them; the table's bar is escaped too.
    return "<code>" + _text(content) + "</code>"
