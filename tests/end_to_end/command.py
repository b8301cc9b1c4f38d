"""The command, run as users run it: in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tools import CHECKOUT


def imgcheck(
    *arguments: str | Path, input: str | None = None, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """`imgcheck ARGUMENTS`, with the words of `prefix` before it; status and output are the caller's to judge."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "imgcheck", *map(str, arguments)],
        capture_output=True,
        text=True,
        input=input,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "NO_COLOR": "1"},
        timeout=900,
    )
