"""Threads that may not be had: on login nodes and in cgroups their number is limited."""

import threading

from imgcheck.errors import LimitError

WAY_OUT = "the limit of processes may be reached (ulimit -u, or pids.max of the cgroup): raise it, or end others"


def start(thread: threading.Thread) -> threading.Thread:
    """Start `thread`, which has not been started before. LimitError where the system gives none."""
    try:
        thread.start()
    except RuntimeError as error:  # as the library's documentation has it, of a second start; in fact of this as well
        raise LimitError("no thread could be started", WAY_OUT) from error
    return thread
