"""The formats of a Report, by the name that `-o` takes; the first is what a person gets."""

from collections.abc import Callable
from dataclasses import dataclass

from imgcheck.documents import Report, encode
from imgcheck.documents.report import FailOn
from imgcheck.knowledge import Knowledge
from imgcheck.report.history import Origins


@dataclass(frozen=True)
class Rendering:
    """What a format may use besides the report."""

    knowledge: Knowledge
    origins: Origins | None = None
    """Findings are then located at the lines of a Dockerfile, where one brought the file."""
    terminal: bool = False
    """The text goes to standard output, so that colours may be used where that is a terminal."""
    verbose: bool = False
    """The table shortens nothing."""
    fail_on: FailOn = "fail"
    """What is this bad or worse fails the gate."""


def _table(report: Report, rendering: Rendering) -> str:
    from imgcheck.report.terminal import terminal_report

    return terminal_report(report, rendering.terminal, rendering.verbose)


def _json(report: Report, _rendering: Rendering) -> str:
    return encode(report).decode()


def _sarif(report: Report, rendering: Rendering) -> str:
    from imgcheck.report.sarif import sarif

    return sarif(report, rendering)


def _junit(report: Report, rendering: Rendering) -> str:
    from imgcheck.report.junit import junit

    return junit(report, rendering.fail_on)


def _markdown(report: Report, _rendering: Rendering) -> str:
    from imgcheck.report.markdown import markdown

    return markdown(report)


def _github(report: Report, rendering: Rendering) -> str:
    from imgcheck.report.annotations import github

    return github(report, rendering)


def _gitlab(report: Report, rendering: Rendering) -> str:
    from imgcheck.report.annotations import gitlab

    return gitlab(report, rendering)


FORMATS: dict[str, Callable[[Report, Rendering], str]] = {
    "table": _table,
    "json": _json,
    "sarif": _sarif,
    "junit": _junit,
    "markdown": _markdown,
    "github": _github,
    "gitlab": _gitlab,
}
