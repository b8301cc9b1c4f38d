"""Writing to standard streams that may lead nowhere. Imports nothing that a preflight would have to load."""

import os

TYPE_CHECKING = False
"""Of type checkers alone True, as that of `typing`, for which a kept answer has no time."""
if TYPE_CHECKING:
    from typing import TextIO


def put(stream: "TextIO", text: str) -> None:
    """Write `text` at once. Where nobody reads or the disk is full, the exit status alone tells."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        # What is left in the buffer would be tried again at the end.
        lead_nowhere(stream)


def lead_nowhere(stream: "TextIO") -> None:
    """Let `stream` take whatever is still written to it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != stream.fileno():
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def pass_on(handle: int, data: bytes) -> None:
    """Write `data` to a stream that is open as `handle`. Where nobody reads or the disk is full, nothing is told."""
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError:
        pass
