"""One way to print with rich: text is never markup, width and colour as the terminal has them."""

import io
import os
import shlex
import sys
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from imgcheck.report.text import clipped, safe
from imgcheck.report.width import columns

_PIPE_WIDTH = 120
_LONGEST_COMMAND = 300
"""Characters of an image's command."""


def render(parts: Iterable[RenderableType], terminal: bool) -> str:
    """`parts` as text: with colours where `terminal` is meant and standard output is one, else plain."""
    colour = terminal and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_terminal=colour,
        no_color=not colour,
        color_system="auto" if colour else None,
        width=columns(_PIPE_WIDTH) if terminal else _PIPE_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def text(content: str, style: str = "") -> Text:
    """`content`, whoever wrote it, as text that steers nothing."""
    return Text(safe(content), style=style, overflow="fold")


def line(*pieces: str | tuple[str, str]) -> Text:
    """One line of plain or (content, style) pieces."""
    result = Text(overflow="fold")
    for piece in pieces:
        content, style = (piece, "") if isinstance(piece, str) else piece
        result.append(safe(content), style)
    return result


def indented(part: RenderableType, by: int) -> Padding:
    return Padding(part, (0, 0, 0, by))


def command_line(words: Iterable[str]) -> str:
    """An image's command as one types it in a shell, cut where it is long."""
    return clipped(shlex.join(words), _LONGEST_COMMAND)
