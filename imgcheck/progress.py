"""Progress of long work: everything reports it, and the command line draws it."""

from typing import Protocol


class Progress(Protocol):
    """Receives advances of named pieces of work, possibly from several threads."""

    def start(self, task: str, total: int | None = None) -> None:
        """Begin (or restart) `task`; `total` is in bytes, None where it is not known."""

    def advance(self, task: str, amount: int) -> None:
        """`amount` more bytes of `task` are done."""

    def finish(self, task: str) -> None:
        """`task` is complete."""


class Silent:
    """A Progress that shows nothing."""

    def start(self, task: str, total: int | None = None) -> None:
        pass

    def advance(self, task: str, amount: int) -> None:
        pass

    def finish(self, task: str) -> None:
        pass


SILENT = Silent()
