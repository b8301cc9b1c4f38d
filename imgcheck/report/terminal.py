"""The report that a tired person understands in ten seconds: verdict, failures, what is fine, what is not known."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from imgcheck.documents.report import VERDICTS, Cell, Evidence, Finding, Report
from imgcheck.report import across, runtimes
from imgcheck.report.console import command_line, indented, line, render, text
from imgcheck.report.text import clipped

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


_REACHES = {
    "import": "imported",
    "path": "path: may be run or loaded that way, on a condition or without being needed",
    "unreached": "unreached: nothing leads there",
}
"""How the command comes to a file, where it is not among what it starts."""
_ONLY_THERE = "path: nothing is seen to run or load it, but it may be"
"""The same of a file that lies in PATH, or where something may look for it."""


@dataclass(frozen=True)
class _Extent:
    """How much of each finding is told."""

    evidence: int
    brief: int
    """Findings of one rule and severity that are listed after the one told in full."""
    why: int
    detail: int


_LONGEST = 1000
"""Characters of a title, an error or a way out, which hold words of the image."""
_USUAL = _Extent(evidence=2, brief=8, why=360, detail=240)
_VERBOSE = _Extent(evidence=1000, brief=1000, why=100_000, detail=100_000)


def terminal_report(report: Report, terminal: bool, verbose: bool = False) -> str:
    """The whole report as text; `terminal` allows colours where standard output is one; `verbose` shortens nothing."""
    return render(_parts(report, _VERBOSE if verbose else _USUAL), terminal)


def _parts(report: Report, extent: _Extent) -> Iterator[RenderableType]:
    yield from _headline(report)
    yield from _requirements(report)
    found = across.findings(report)
    for severity, title, style in _SEVERITIES:
        counting = [each for each in found if each.finding.severity == severity and not each.finding.waived]
        if counting:
            yield text("")
            yield text(title, style)
        for _, group in groupby(counting, key=lambda each: each.finding.rule):
            yield from _rule(list(group), style, extent)
    yield from _waived([each for each in found if each.finding.waived])
    waived = {each.finding.rule for each in found if each.finding.waived}
    fine = [check for check in report.checks if check.outcome == "ok" and check.rule not in waived]
    on = f" on {report.host.label}" if report.requirements else ""
    yield from _checks(f"Checked and fine{on}", [(check.rule, check.reason) for check in fine], "green")
    questions = [(question.check.rule, question.reason) for question in across.undecided(report)]
    yield from _checks("Could not be checked", questions, "bold magenta")
    yield from _notes(report)
    yield from _cells(report)


def _headline(report: Report) -> Iterator[RenderableType]:
    sign, style = _VERDICT_STYLE[report.verdict]
    shown = runtimes.under(report, report.host.name, report.runtime)
    under = f" under {shown}" if shown and not report.requirements else ""
    yield line((f"{sign} {report.verdict.upper()}{under}", style))
    image = report.image
    yield _hanging("  image", line(image.reference, f"  ({image.platform})"))
    if image.components:
        yield _hanging("", text(", ".join(image.components)))
    if image.command:
        yield _hanging("  runs", text(command_line(image.command)))
    if "policy" in report.tool:
        yield _hanging("  policy", text(report.tool["policy"]))
    if not report.requirements:
        yield _hanging("  host", text(report.host.label))
        if report.host.description:
            yield _hanging("", text(report.host.description))
    yield from _reservations(report)
    fails = sorted({cell.runtime for cell in report.cells if cell.verdict == "incompatible"})
    if fails and report.verdict != "incompatible":
        yield _hanging("  fails under", text(", ".join(fails)), "bold")


def _reservations(report: Report) -> Iterator[RenderableType]:
    """What the verdict leaves open, or leaves out, told at once: its sections come at the end."""
    questions = across.undecided(report)
    if report.verdict == "unknown" and questions:
        more = f" (and {len(questions) - 1} more, below)" if len(questions) > 1 else ""
        yield _hanging("  open", text(f"{clipped(questions[0].reason, _LONGEST)}{more}"), "bold magenta")
    waived = [each.finding for each in across.findings(report) if each.finding.waived]
    failing = sum(finding.severity == "fail" for finding in waived)
    if failing and report.verdict != "incompatible":
        yield _hanging("  waived", text(f"{failing} that would fail, below"), "bold")


def _requirements(report: Report) -> Iterator[RenderableType]:
    """The verdict on each host of several, the worst first, with what the host is."""
    if not report.requirements:
        return
    failing = across.failing(report)
    yield text("")
    yield text(f"Fails {failing}" if failing else "On each host", "bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    for _ in range(3):
        grid.add_column(overflow="fold")
    for each in sorted(report.requirements, key=lambda each: -VERDICTS.index(each.verdict)):
        sign, style = _VERDICT_STYLE[each.verdict]
        host = each.host
        verdict = line("  ", (f"{sign} {each.verdict}", style))
        grid.add_row(verdict, text(host.label, "bold"), text(across.under(each, report)), text(host.description, "dim"))
    yield grid


def _rule(group: list[across.Across], style: str, extent: _Extent) -> Iterator[RenderableType]:
    """The first finding of a rule in full; the others, which it explains too, with their title and place."""
    yield from _finding(group[0], style, extent)
    others = group[1 : 1 + extent.brief]
    for each in others:
        yield indented(_titled(each.finding, style), 2)
        if each.hosts != group[0].hosts:
            yield indented(_labelled("on", each.on), 4)
        for evidence in each.finding.evidence[:1]:
            yield indented(_evidence(evidence, extent), 4)
    hidden = len(group) - 1 - len(others)
    if hidden:
        yield indented(line((group[0].finding.rule, style), f"  and {hidden} more like it; --verbose lists all"), 2)


def _finding(each: across.Across, style: str, extent: _Extent) -> Iterator[RenderableType]:
    finding = each.finding
    yield indented(_titled(finding, style), 2)
    if each.hosts:
        yield indented(_labelled("on", each.on), 4)
    yield indented(_labelled("you see", clipped(finding.predicted_error, _LONGEST), "italic"), 4)
    yield indented(_labelled("why", clipped(" ".join(finding.why.split()), extent.why)), 4)
    for evidence in finding.evidence[: extent.evidence]:
        yield indented(_evidence(evidence, extent), 4)
    hidden = len(finding.evidence) - extent.evidence
    if hidden > 0:
        yield indented(line(f"         and {hidden} more places; --verbose lists all"), 4)
    yield indented(_labelled("way out", clipped(" ".join(finding.remedy.split()), _LONGEST)), 4)


def _waived(found: list[across.Across]) -> Iterator[RenderableType]:
    if not found:
        return
    yield text("")
    yield text("Waived", "bold")
    for each in found:
        finding = each.finding
        yield indented(line(f"{finding.rule}  ", (finding.title, "bold"), f" ({finding.severity})"), 2)
        if each.hosts:
            yield indented(_labelled("on", each.on), 4)
        for evidence in finding.evidence[:1]:
            yield indented(_labelled("where", evidence.path), 4)
        yield indented(_labelled("because", finding.waived), 4)


def _notes(report: Report) -> Iterator[RenderableType]:
    if report.notes:
        yield text("")
        yield text("Policy", "bold yellow")
        yield from (indented(text(note), 2) for note in report.notes)


def _titled(finding: Finding, style: str) -> Table:
    return _hanging(finding.rule, text(clipped(finding.title, _LONGEST), "bold"), style, len(finding.rule) + 2)


def _hanging(label: str, content: Text, style: str = "", width: int = 9) -> Table:
    """`content` behind `label`; where it takes several lines, they stand below one another."""
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=max(width, len(label) + 1), no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(text(label, style), content)
    return grid


def _labelled(label: str, content: str, style: str = "") -> Table:
    grid = _label_grid()
    for index, part in enumerate(content.splitlines()):
        grid.add_row(text(label if index == 0 else ""), text(part, style))
    return grid


def _evidence(evidence: Evidence, extent: _Extent) -> Table:
    grid = _label_grid()
    told = _ONLY_THERE if evidence.reach == "path" and not evidence.way else _REACHES.get(evidence.reach, "")
    reach = f"  [{told}]" if told else ""
    grid.add_row(text("where"), line((evidence.path or "the image's configuration", "cyan"), reach))
    if evidence.way:
        grid.add_row("", line(("by ", "dim"), " > ".join(evidence.way)))
    for detail in evidence.detail.splitlines():
        grid.add_row("", text(clipped(detail, extent.detail)))
    if evidence.history:
        grid.add_row("", line((f"added by {_shortened(evidence.history)}", "dim")))
    return grid


def _label_grid() -> Table:
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _shortened(history: str) -> str:
    words = " ".join(history.split()).removeprefix("/bin/sh -c ").removeprefix("#(nop) ")
    return clipped(words, 160)


def _checks(title: str, checks: list[tuple[str, str]], style: str) -> Iterator[RenderableType]:
    if not checks:
        return
    yield text("")
    yield text(title, style)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for rule, reason in checks:
        grid.add_row(text(f"  {rule}"), text(reason))
    yield grid


def _cells(report: Report) -> Iterator[RenderableType]:
    if len(report.cells) <= max(1, len(report.requirements)):
        return
    hosts = {cell.host for cell in report.cells}
    yield text("")
    yield text("Under each runtime" if len(hosts) == 1 else "On each host, under each runtime", "bold")
    grid = Table.grid(padding=(0, 2))
    if len(hosts) > 1:
        grid.add_column(overflow="fold")
    grid.add_column(no_wrap=True)
    for _ in range(2):
        grid.add_column(overflow="fold")
    ordered = sorted(report.cells, key=lambda cell: (cell.host, VERDICTS.index(cell.verdict), cell.reason))
    for (host, verdict, reason), group in groupby(ordered, key=lambda cell: (cell.host, cell.verdict, cell.reason)):
        grid.add_row(*_row(host if len(hosts) > 1 else None, verdict, reason, list(group)))
    yield grid


def _row(host: str | None, verdict: str, reason: str, cells: list[Cell]) -> list[RenderableType]:
    sign, style = _VERDICT_STYLE[verdict]
    names = ", ".join(cell.runtime for cell in cells)
    row: list[RenderableType] = [line("  ", (f"{sign} {verdict}", style)), text(names), text(reason)]
    return row if host is None else [text(f"  {host}"), *row]
