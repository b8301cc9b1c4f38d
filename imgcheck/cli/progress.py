"""The progress bar: on stderr, only on a terminal, gone when the work is done."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from imgcheck.progress import SILENT, Progress
from imgcheck.report.text import safe

if TYPE_CHECKING:
    import rich.progress


class _Bar:
    """Draws a Progress with rich, whose own calls are safe from several threads."""

    def __init__(self, display: "rich.progress.Progress") -> None:
        self._display = display
        self._tasks: dict[str, rich.progress.TaskID] = {}

    def start(self, task: str, total: int | None = None) -> None:
        if task in self._tasks:
            self._display.reset(self._tasks[task], total=total)
        else:
            self._tasks[task] = self._display.add_task(_short(task), total=total)

    def advance(self, task: str, amount: int) -> None:
        if task in self._tasks:
            self._display.advance(self._tasks[task], amount)

    def finish(self, task: str) -> None:
        if task in self._tasks:
            self._display.remove_task(self._tasks.pop(task))


@contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """A bar per piece of work, or SILENT where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Display

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        yield _Bar(display)


def _short(task: str) -> str:
    text = safe(task)
    return text if len(text) <= 48 else text[:47] + "…"
