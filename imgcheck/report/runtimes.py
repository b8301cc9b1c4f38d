"""Under which of a host's runtimes a verdict holds, in words. Imports next to nothing: a preflight says it too."""

from imgcheck.documents.report import Report

_NAMED = 3
"""Runtimes that are named one by one where all of them have the same verdict."""


def under(report: Report, host: str, runtime: str) -> str:
    """The runtimes that the verdict on `host` is of, where `runtime` is the one that decides for it.

    All of them where they agree, so that nobody tries another one in vain; else the one that decides, which is the
    best of them.
    """
    cells = [cell for cell in report.cells if cell.host == host]
    if len(cells) < 2:
        return runtime
    if len({cell.verdict for cell in cells}) > 1:
        return f"{runtime}, the best of {len(cells)}"
    others = [cell.runtime for cell in cells if cell.runtime != runtime]
    return ", ".join([runtime, *others]) if len(cells) <= _NAMED else f"each of {len(cells)} runtimes"
