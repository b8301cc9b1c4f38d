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
_EVIDENCE_SHOWN = 3


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
        for finding in findings:
            yield from _finding(finding, style)
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


def _finding(finding: Finding, style: str) -> Iterator[RenderableType]:
    yield indented(line((finding.rule, style), "  ", (finding.title, "bold")), 2)
    for index, predicted in enumerate(finding.predicted_error.splitlines()):
        yield indented(line("you see  " if index == 0 else "         ", (predicted, "italic")), 4)
    yield indented(_labelled("why", finding.why), 4)
    for evidence in finding.evidence[:_EVIDENCE_SHOWN]:
        yield indented(_evidence(evidence), 4)
    hidden = len(finding.evidence) - _EVIDENCE_SHOWN
    if hidden > 0:
        yield indented(line(f"         and {hidden} more; -o json lists all"), 4)
    yield indented(_labelled("way out", finding.remedy), 4)


def _labelled(label: str, content: str) -> Table:
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(text(label), text(" ".join(content.split())))
    return grid


def _evidence(evidence: Evidence) -> Table:
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    reach = f"  [{evidence.reach}]" if evidence.reach in ("path", "unreached", "import") else ""
    grid.add_row(text("where"), line((evidence.path, "cyan"), reach))
    for detail in evidence.detail.splitlines():
        grid.add_row("", text(detail))
    if evidence.history:
        grid.add_row("", line((f"added by {_shortened(evidence.history)}", "dim")))
    return grid


def _shortened(history: str) -> str:
    words = " ".join(history.split()).removeprefix("/bin/sh -c ").removeprefix("#(nop) ")
    return words if len(words) <= 160 else words[:157] + "..."


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
