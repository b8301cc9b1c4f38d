"""What each scheduler makes of a preflight: exit codes, where its words go, what becomes of job and node."""

from typing import Literal

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data

Outcome = Literal["compatible", "incompatible", "elsewhere", "undecided", "unchecked"]
"""`elsewhere` is an incompatible image whose job shall try another node (`--incompatible requeue`); `unchecked`: the
check itself could not be done, which says nothing about the node."""


class Row(Data, frozen=True):
    """What a preflight does on one outcome."""

    exit: int
    job: str
    """What becomes of the job."""
    node: str
    """What becomes of the node."""
    stdout: tuple[str, ...] = ()
    """Templates of what is printed: one with `{line}` is repeated for every line of the text, `{summary}` is the text
    in one line, `{quoted}` the same as a ClassAd string."""
    stderr: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    """What goes into `Scheduler.message_file`."""


class Scheduler(Data, frozen=True):
    """A place of a scheduler where a preflight can run (rules/schedulers/*.toml)."""

    id: str
    title: str
    runs: str
    """As whom, where and when the scheduler runs it."""
    sources: tuple[str, ...]
    compatible: Row
    incompatible: Row
    elsewhere: Row
    undecided: Row
    unchecked: Row
    speaker: str = ""
    """Variable that numbers the tasks of a job on a node; only number 0 prints."""
    message_file: str = ""
    """File in which the scheduler looks for the reason; written where it exists."""

    def row(self, outcome: Outcome) -> Row:
        return getattr(self, outcome)


NONE = "none"
"""The preset for people and scripts: the exit statuses of every command."""


def schedulers(knowledge: Knowledge) -> dict[str, Scheduler]:
    """Preset by id."""
    return {entry.id: entry for entry in knowledge.entries("schedulers", "scheduler", Scheduler)}
