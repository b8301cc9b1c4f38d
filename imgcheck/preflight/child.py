"""Work of a child that may be given up: what waits in a file system that is gone hears no signal, not even SIGKILL.

Imports nothing that a kept answer would have to load, but for `select`.
"""

import os
import select
import time

from imgcheck.streams import pass_on

TYPE_CHECKING = False
"""Of type checkers alone True, as that of `typing`, for which a kept answer has no time."""
if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE = 1 << 16
_KILL = 9
"""signal.SIGKILL, without that module."""


class Said:
    """What a child wrote, and its exit status: 128 and the number of the signal that ended it, as shells have it."""

    __slots__ = ("_status", "_stderr", "_stdout")

    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self._status = status
        self._stdout = stdout
        self._stderr = stderr

    def passed_on(self) -> int:
        """Write it to this process's own streams; the exit status."""
        pass_on(1, self._stdout)
        pass_on(2, self._stderr)
        return self._status


def said_within(seconds: float, work: "Callable[[], int]") -> Said | None:
    """What a child says that does `work`, which returns its exit status; None where it has not ended in time.

    Then it is killed and not waited for: what it hangs in holds it. It has none of this process's output, which
    somebody may read to its end. Raises OSError where there can be no child.
    """
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.dup2(to_out, 1)
        os.dup2(to_err, 2)
        # A tenth of its time would go into taking the profile apart again.
        os._exit(work())
    os.close(to_out)
    os.close(to_err)
    texts = _read([out, err], time.monotonic() + seconds)
    if texts is None:
        os.kill(child, _KILL)
        return None
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Said(status if status >= 0 else 128 - status, texts[out], texts[err])


def _read(pipes: list[int], end: float) -> dict[int, bytes] | None:
    """All that comes by each of `pipes`; None where one is still open at the time `end`."""
    texts = dict.fromkeys(pipes, b"")
    while pipes:
        ready, _, _ = select.select(pipes, (), (), max(end - time.monotonic(), 0))
        if not ready:
            return None
        for pipe in ready:
            data = os.read(pipe, _PIECE)
            texts[pipe] += data
            if not data:
                pipes.remove(pipe)
    return texts
