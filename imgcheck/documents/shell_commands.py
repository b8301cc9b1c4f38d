r"""The commands of a shell's script in one string, as a profile keeps them: read by who follows them, and no one else.

One command a line: a note, and each word behind a tab; `\n`, `\t` and `\\` stand for a newline, a tab and a backslash.
The note, nothing where all is as `ShellCommand` has it by default:

    [c][f][WHEN,...][?DECIDES][:FUNCTION]

`c` conditional, `f` forgiven. A reader that made a thousand structures of them took a twentieth of a preflight.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from imgcheck.errors import DocumentError

_NUMBER = r"-?[0-9]{1,9}"
_NOTE = re.compile(rf"(c?)(f?)((?:{_NUMBER}(?:,{_NUMBER})*)?)(?:\?({_NUMBER}))?(?::(.+))?", re.DOTALL)
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_ESCAPED = re.compile(r"[\\\n\t]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t"}
_KEPT = 256
"""Scripts whose commands are kept as they were read: some are followed again and again."""


class ShellCommand(Struct, frozen=True):
    """A simple command of a shell's text, its words as templates (imgcheck.loader.shell)."""

    words: tuple[str, ...]
    """Assignments before the command's name included."""
    conditional: bool = False
    """It runs only where something else went one way."""
    function: str = ""
    """The function in whose body it stands; "=" for that of the command before it."""
    forgiven: bool = False
    """The text goes on where it fails: `|| true`."""
    when: tuple[int, ...] = ()
    """Numbers of the conditions that have to hold before it runs; below zero: that must not hold."""
    decides: int = 0
    """The number of the condition that this is, and no command (imgcheck.loader.script_tests)."""


def packed(commands: Iterable[ShellCommand]) -> str:
    """`commands` as `unpacked` reads them."""
    return "\n".join(map(_line, commands))


def _line(command: ShellCommand) -> str:
    note = f"{'c' * command.conditional}{'f' * command.forgiven}{','.join(map(str, command.when))}"
    note += f"?{command.decides}" if command.decides else ""
    note += f":{command.function}" if command.function else ""
    return "\t".join(map(_with_escapes, (note, *command.words)))


def _with_escapes(text: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


@lru_cache(_KEPT)
def unpacked(text: str) -> tuple[ShellCommand, ...]:
    """The commands of which `packed` has made `text`. Raises DocumentError where it has not."""
    return tuple(map(_command, text.split("\n"))) if text else ()


def _command(line: str) -> ShellCommand:
    note, *words = map(_without_escapes, line.split("\t")) if "\\" in line else line.split("\t")
    told = _NOTE.fullmatch(note)
    if told is None or not words:
        raise DocumentError(f"damaged commands of a script: {line[:40]!r}")
    conditional, forgiven, when, decides, function = told.groups(default="")
    numbers = tuple(map(int, when.split(","))) if when else ()
    return ShellCommand(tuple(words), bool(conditional), function, bool(forgiven), numbers, int(decides or 0))


def _without_escapes(text: str) -> str:
    return _ESCAPE.sub(lambda found: _PLAIN.get(found[1], found[1]), text)
