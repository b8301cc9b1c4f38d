"""A preflight beside `python3 -c pass`: wall time, processor time and peak memory.

`python -m bench.preflight` writes bench/preflight.md, for the profile of TensorFlow GPU 1.12.0 on Debian (the image of
bench/tf112) and for that of an image with one program. imgcheck is the tree of integrations/install, as nodes have it,
and Python is the one that runs it. The commands take turns, so that other work on the machine meets all of them.
"""

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench.tf112 import Measured, measure
from demo.build import LAYOUT
from tests.end_to_end.hosts import describe
from tests.end_to_end.real_image import tensorflow_layout
from tests.installation import installed_tree, version_in
from tests.tools import need

ROUNDS = 25
SETTLED = 11
"""Seconds after which a file is known by its times, without its bytes: profiles on nodes are older."""
TARGET = Path(__file__).resolve().with_suffix(".md")
ANY_VERDICT = (0, 1, 3)
PASS = "`python3 -c pass`"
# The kernel's count for a process that was waited for begins with the memory of its parent; this one begins at exec.
PEAK = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from imgcheck.cli import main
main(sys.argv[1:])
sys.exit(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def main() -> None:
    """Measure and write the page."""
    imgcheck, python = installed_tree() / "bin/imgcheck", need("python3")
    with tempfile.TemporaryDirectory() as work:
        images = {"TensorFlow": tensorflow_layout("1.12.0"), "one program": f"oci:{LAYOUT}"}
        profiles = {name: f"{work}/{number}.json" for number, name in enumerate(images)}
        for name, reference in images.items():
            measure(imgcheck, "profile", reference, "-o", profiles[name])
        cache = ("--runtime", "apptainer-nv", "--cache", f"{work}/kept")
        asked = {name: (imgcheck, "preflight", profile, *cache) for name, profile in profiles.items()}
        # A driver brings libraries that the profile cannot know, so that the loader's work is partly done anew.
        driver = ("--host", describe(Path(work))["v100"])
        rows: dict[str, list[Measured]] = {PASS: []}
        time.sleep(SETTLED)
        for command in asked.values():
            measure(*command, statuses=ANY_VERDICT)
        for round in range(ROUNDS):
            rows[PASS].append(measure(python, "-c", "pass"))
            for name, command in asked.items():
                found = measure(*command, statuses=ANY_VERDICT)
                # Another time limit is another question about the same probe and profile.
                worked_out = measure(*command, "--timeout", str(100 + round), statuses=ANY_VERDICT)
                rows.setdefault(f"{name}: answer kept", []).append(found)
                rows.setdefault(f"{name}: profile and probe kept", []).append(worked_out)
                on_gpu = measure(*command, *driver, "--timeout", str(100 + round), statuses=ANY_VERDICT)
                rows.setdefault(f"{name}: profile kept, a host with a V100 and driver 396.44", []).append(on_gpu)
        # The first of the two makes the answer that the second finds.
        peaks = [_peak(python, *asked["TensorFlow"][1:], "--timeout", "99") for _ in range(2)]
        size = Path(profiles["TensorFlow"]).stat().st_size // 1000
    TARGET.write_text(_page(rows, size, *peaks))
    print(TARGET.read_text())


def _peak(python: str, *arguments: str) -> int:
    """Peak resident memory of a preflight, in megabytes."""
    command = [python, "-I", "-S", "-B", "-c", PEAK, str(version_in(installed_tree()) / "packages"), *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return int(done.stderr.split()[-1]) // 1024


def _page(rows: dict[str, list[Measured]], size: int, new: int, kept: int) -> str:
    bare = _medians(rows[PASS])
    lines = [
        "# A preflight beside the start of Python",
        "",
        f"Made by `python -m bench.preflight`: {ROUNDS} rounds in turn, medians (smallest), on {os.cpu_count()} CPUs "
        f"of {platform.machine()}, with the tree of integrations/install and the system's Python. The profile of "
        f"Debian with TensorFlow GPU 1.12.0 has {size} KB; the other image has one program.",
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
