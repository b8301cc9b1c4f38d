"""The installed command, run as users run it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tools import CHECKOUT


def imgcheck(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """`imgcheck ARGUMENTS` in a process of its own; status and output are the caller's to judge."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "imgcheck", *map(str, arguments)]
    return subprocess.run(
        command, **{"capture_output": True, "text": True, "env": environment, "timeout": 900} | options
    )
