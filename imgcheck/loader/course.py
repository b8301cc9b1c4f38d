"""The course that a script takes: which of its commands run, with which it may end, and what stands behind each."""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial

from imgcheck.documents.shell_commands import ShellCommand
from imgcheck.loader.expansion import ASSIGNMENT, Shell
from imgcheck.loader.launchers import is_worker
from imgcheck.loader.script_tests import decided
from imgcheck.loader.shell import CLOSES, DONE, JOINED, LOOP, LOOSE, NEEDED, OPENS

DECLARING = frozenset({"export", "declare", "local", "typeset", "readonly"})
_STARTING_NOTHING = DECLARING | {
    OPENS, CLOSES, NEEDED, JOINED, LOOSE, LOOP, DONE,
    "break", "cd", "continue", "popd", "pushd", "set", "shift", "unset",
}  # fmt: skip
"""Builtins that are followed and start no program, and what tells of the commands behind it."""
_MOST_CONDITIONS = 12
"""Conditions of which all combinations are looked at."""


class Course:
    """The commands of one text, and what is known of their conditions so far; commands go by their index."""

    def __init__(self, commands: Sequence[ShellCommand]) -> None:
        self._commands = commands
        self._held: dict[int, bool | None] = {}
        self._ends: list[Set[int]] = []
        """Of commands that end it, the conditions that nobody knows."""

    def decide(self, command: ShellCommand, shell: Shell, exists: Callable[[Shell, str, bool], bool | None]) -> None:
        """A condition is found out where a shell comes to it; `exists` is script_tests.Exists behind the shell."""
        self._held[command.decides] = decided(command.words, shell, partial(exists, shell))

    def runs(self, command: ShellCommand) -> bool | None:
        """Whether all conditions hold that have to before a command; None where that cannot be told."""
        told = [self._held.get(abs(number)) for number in command.when]
        if any(one is (number < 0) for one, number in zip(told, command.when, strict=True)):
            return False
        return None if None in told else True

    def is_last(self, index: int) -> bool:
        """Whether nothing is started behind a command."""
        return not any(self._following(self._commands[index], self._commands[index + 1 :]))

    def is_main(self, index: int) -> bool:
        """Whether no program that works is started behind a command but those that are not run where it fails."""
        at = index
        while at and self._commands[at - 1].words == (JOINED,):
            at += 2 if any(each.words == (JOINED,) for each in self._commands[at + 1 : at + 2]) else 1
        names = self._following(self._commands[index], self._commands[at + 1 :])
        return not any(is_worker(posixpath.basename(name)) for name in names)

    def _following(self, command: ShellCommand, after: Sequence[ShellCommand]) -> Iterator[str]:
        """What the commands `after` one may start in the same run, by their names."""
        for later in after:
            apart = any(-number in command.when for number in later.when)
            if not _starts(later) or apart or self.runs(later) is False:
                continue
            name, *rest = (word for word in later.words if not ASSIGNMENT.match(word))
            if name != "exit":
                yield rest[0] if name == "exec" and rest else name
            elif not later.conditional and set(later.when) <= set(command.when):
                return

    def may_end(self, command: ShellCommand, conditional: bool) -> bool:
        """Whether the text may have ended well with a command that runs on a condition, or all of it does."""
        well = command.words[0] == "exec" or not re.fullmatch("[1-9][0-9]*", "".join(command.words[1:]))
        return leaves(command) and well and (conditional or command.conditional or self.runs(command) is None)

    def end(self, command: ShellCommand) -> None:
        """The text ends with a command, where that runs."""
        if not command.conditional and _starts(command):
            self._ends.append({number for number in command.when if self._held.get(abs(number)) is None})

    def always_ends(self) -> bool:
        """Whether every run comes to one of the commands with which the text ends."""
        return _always_one(self._ends)


def leaves(command: ShellCommand) -> bool:
    """Whether the shell ends with a command, or becomes it."""
    return command.words[0] in ("exec", "exit")


def _starts(command: ShellCommand) -> bool:
    """Whether a command may start a program, or ends the script."""
    name = next((word for word in command.words if not ASSIGNMENT.match(word)), "")
    return bool(name) and not command.decides and name not in _STARTING_NOTHING


def _always_one(whens: Sequence[Set[int]]) -> bool:
    """Whether the conditions of one of some commands hold, whatever those turn out to be that are given."""
    if not whens or not all(whens):
        return bool(whens)
    if len({abs(number) for when in whens for number in when}) > _MOST_CONDITIONS:
        return False
    number = next(iter(whens[0]))
    ways = ([when - {sign} for when in whens if -sign not in when] for sign in (number, -number))
    return all(map(_always_one, ways))
