"""The report that a tired person understands in ten seconds: verdict, failures, what is fine, what is not known."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table

from imgcheck.documents.report import VERDICTS, Cell, CheckResult, Evidence, Finding, Report
from imgcheck.report.console import indented, line, render, text

_VERDICT_STYLE = {
    "compatible": ("✓", "bold green"),
    "degraded": ("!", "bold yellow"),
    "unknown": ("?", "bold magenta"),
    "at-risk": ("!", "bold yellow"),
    "incompatible": ("✗", "bold red"),
}
_SEVERITIES = (
    ("fail", "It will fail", "bold red"),
    ("risk", "It may fail", "bold yellow"),
    ("degraded", "It will run, but not at its best", "bold yellow"),
    ("info", "Worth knowing", "bold"),
)
_EVIDENCE_SHOWN = 2
_BRIEF_SHOWN = 8
"""Findings of one rule and severity that are listed after the one told in full."""
_WHY_SHOWN = 360
_DETAIL_SHOWN = 240


def terminal_report(report: Report, terminal: bool) -> str:
    """The whole report as text; `terminal` allows colours where standard output is one."""
    return render(_parts(report), terminal)


def _parts(report: Report) -> Iterator[RenderableType]:
    yield from _headline(report)
    for severity, title, style in _SEVERITIES:
        findings = [finding for finding in report.findings if finding.severity == severity]
        if findings:
            yield text("")
            yield text(title, style)
        for _, group in groupby(findings, key=lambda finding: finding.rule):
            yield from _rule(list(group), style)
    yield from _checks("Checked and fine", [c for c in report.checks if c.outcome == "ok"], "green")
    yield from _checks("Could not be checked", [c for c in report.checks if c.outcome == "unknown"], "bold magenta")
    yield from _cells(report)


def _headline(report: Report) -> Iterator[RenderableType]:
    sign, style = _VERDICT_STYLE[report.verdict]
    under = f" under {report.runtime}" if report.runtime else ""
    yield line((f"{sign} {report.verdict.upper()}{under}", style))
    image = report.image
    yield line("  image  ", image.reference, f"  ({image.platform})")
    if image.components:
        yield line("         ", ", ".join(image.components))
    if image.command:
        yield line("  runs   ", " ".join(image.command))
    yield line("  host   ", report.host.name)
    if report.host.description and report.host.description != report.host.name:
        yield line("         ", report.host.description)
    fails = sorted({cell.runtime for cell in report.cells if cell.verdict == "incompatible"})
    if fails and report.verdict != "incompatible":
        yield line(("  fails under ", "bold"), ", ".join(fails))


def _rule(findings: list[Finding], style: str) -> Iterator[RenderableType]:
    """The first finding of a rule in full; the others, which it explains too, with their title and place."""
    yield from _finding(findings[0], style)
    others = findings[1 : 1 + _BRIEF_SHOWN]
    for finding in others:
        yield indented(line((finding.rule, style), "  ", (finding.title, "bold")), 2)
        for evidence in finding.evidence[:1]:
            yield indented(_evidence(evidence), 4)
    hidden = len(findings) - 1 - len(others)
    if hidden:
        yield indented(line((findings[0].rule, style), f"  and {hidden} more like it; -o json lists all"), 2)


def _finding(finding: Finding, style: str) -> Iterator[RenderableType]:
    yield indented(line((finding.rule, style), "  ", (finding.title, "bold")), 2)
    yield indented(_labelled("you see", finding.predicted_error, "italic"), 4)
    yield indented(_labelled("why", _clipped(" ".join(finding.why.split()), _WHY_SHOWN)), 4)
    for evidence in finding.evidence[:_EVIDENCE_SHOWN]:
        yield indented(_evidence(evidence), 4)
    hidden = len(finding.evidence) - _EVIDENCE_SHOWN
    if hidden > 0:
        yield indented(line(f"         and {hidden} more places; -o json lists all"), 4)
    yield indented(_labelled("way out", " ".join(finding.remedy.split())), 4)


def _labelled(label: str, content: str, style: str = "") -> Table:
    grid = _label_grid()
    for index, part in enumerate(content.splitlines()):
        grid.add_row(text(label if index == 0 else ""), text(part, style))
    return grid


def _evidence(evidence: Evidence) -> Table:
    grid = _label_grid()
    reach = f"  [{evidence.reach}]" if evidence.reach in ("path", "unreached", "import") else ""
    grid.add_row(text("where"), line((evidence.path, "cyan"), reach))
    for detail in evidence.detail.splitlines():
        grid.add_row("", text(_clipped(detail, _DETAIL_SHOWN)))
    if evidence.history:
        grid.add_row("", line((f"added by {_shortened(evidence.history)}", "dim")))
    return grid


def _label_grid() -> Table:
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _clipped(content: str, limit: int) -> str:
    """`content` cut between words; the JSON report has it whole."""
    return content if len(content) <= limit else content[:limit].rsplit(" ", 1)[0] + " ..."


def _shortened(history: str) -> str:
    words = " ".join(history.split()).removeprefix("/bin/sh -c ").removeprefix("#(nop) ")
    return _clipped(words, 160)


def _checks(title: str, checks: list[CheckResult], style: str) -> Iterator[RenderableType]:
    if not checks:
        return
    yield text("")
    yield text(title, style)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for check in checks:
        grid.add_row(text(f"  {check.rule}"), text(check.reason))
    yield grid


def _cells(report: Report) -> Iterator[RenderableType]:
    if len(report.cells) < 2:
        return
    hosts = {cell.host for cell in report.cells}
    yield text("")
    yield text("Under each runtime" if len(hosts) == 1 else "On each host, under each runtime", "bold")
    grid = Table.grid(padding=(0, 2))
    for _ in range(3 if len(hosts) == 1 else 4):
        grid.add_column(overflow="fold")
    ordered = sorted(report.cells, key=lambda cell: (cell.host, VERDICTS.index(cell.verdict), cell.reason))
    for (host, verdict, reason), group in groupby(ordered, key=lambda cell: (cell.host, cell.verdict, cell.reason)):
        grid.add_row(*_row(host if len(hosts) > 1 else None, verdict, reason, list(group)))
    yield grid


def _row(host: str | None, verdict: str, reason: str, cells: list[Cell]) -> list[RenderableType]:
    sign, style = _VERDICT_STYLE[verdict]
    names = ", ".join(cell.runtime for cell in cells)
    row = [line("  ", (f"{sign} {verdict}", style)), text(names), text(reason)]
    return row if host is None else [text(f"  {host}"), *row]
