"""A preflight of TensorFlow GPU 1.12.0 beside `python3 -c pass`: wall time, processor time and peak memory.

`python -m bench.preflight` writes bench/preflight.md, for the profile of the image of bench/tf112. The commands take
turns, so that other work on the machine meets both.
"""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.tf112 import Measured, measure
from tests.end_to_end.real_image import tensorflow_layout
from tests.tools import CHECKOUT

ROUNDS = 15
TARGET = Path(__file__).resolve().with_suffix(".md")
NOTHING = (sys.executable, "-c", "pass")
ANY_VERDICT = (0, 1, 3)
# The kernel's count for a process that was waited for begins with the memory of its parent; this one begins at exec.
PEAK = """
import sys
from imgcheck.cli import main
main(sys.argv[1:])
sys.exit(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def main() -> None:
    """Measure and write the page."""
    with tempfile.TemporaryDirectory() as cache:
        profile = f"{cache}/profile.json"
        measure(sys.executable, "-m", "imgcheck", "profile", tensorflow_layout("1.12.0"), "-o", profile)
        preflight = (sys.executable, "-m", "imgcheck", "preflight", profile, "--runtime", "apptainer-nv")
        kept = (*preflight, "--cache", f"{cache}/kept")
        measure(*kept, statuses=ANY_VERDICT)
        rows = {"`python3 -c pass`": [], "preflight, answer kept": [], "preflight, profile and probe kept": []}
        for round in range(ROUNDS):
            rows["`python3 -c pass`"].append(measure(*NOTHING))
            rows["preflight, answer kept"].append(measure(*kept, statuses=ANY_VERDICT))
            # Another time limit is another question about the same probe and profile.
            asked = (*kept, "--timeout", str(100 + round))
            rows["preflight, profile and probe kept"].append(measure(*asked, statuses=ANY_VERDICT))
        peaks = [_peak(*kept[3:], "--timeout", "99"), _peak(*kept[3:], "--timeout", "99")]
    TARGET.write_text(_page(rows, *peaks))
    print(TARGET.read_text())


def _peak(*arguments: str) -> int:
    """Peak resident memory of a preflight, in megabytes."""
    command = [sys.executable, "-c", PEAK, *arguments]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    return int(done.stderr.split()[-1]) // 1024


def _page(rows: dict[str, list[Measured]], new: int, kept: int) -> str:
    bare = _medians(rows["`python3 -c pass`"])
    lines = [
        "# A preflight beside the start of Python",
        "",
        f"Made by `python -m bench.preflight`: {ROUNDS} rounds in turn, medians (smallest), on "
        f"{os.cpu_count()} CPUs of {platform.machine()}, Python {platform.python_version()}. The profile is of Debian "
        f"with TensorFlow GPU 1.12.0, {Path(sys.argv[1]).stat().st_size // 1000} KB.",
        "",
        f"Peak memory: {kept} MB with a kept answer, {new} MB for a new one.",
        "",
        "| command | wall, ms | times `pass` | processor, ms |",
        "|---|---|---|---|",
    ]
    for name, measured in rows.items():
        median, best = _medians(measured), min(each.seconds for each in measured)
        lines.append(
            f"| {name} | {median.seconds * 1e3:.0f} ({best * 1e3:.0f}) | {median.seconds / bare.seconds:.1f} "
            f"| {median.processor * 1e3:.0f} |"
        )
    return "\n".join([*lines, ""])


def _medians(measured: list[Measured]) -> Measured:
    return Measured(*(statistics.median(column) for column in zip(*measured, strict=True)))


if __name__ == "__main__":
    main()
