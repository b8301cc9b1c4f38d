"""Runs the cases on a machine with a GPU and writes what happened: Python's standard library and the driver alone.

    python3 device.py CASES [--jobs N] > ends.json

`CASES` is the folder that `python -m bench.gpu_oracle make` wrote; nothing of imgcheck is needed here. A case that runs
is run again with CUDA_DISABLE_PTX_JIT=1: what then fails had been compiled by the driver.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_TIME_LIMIT = 120
_WORDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--jobs", type=int, default=8)
    arguments = parser.parse_args()
    cases = json.loads((arguments.cases / "cases.json").read_text())
    with ThreadPoolExecutor(arguments.jobs) as pool:
        ends = list(pool.map(lambda case: end(arguments.cases / case["name"], case), cases))
    json.dump({case["name"]: each for case, each in zip(cases, ends, strict=True)}, sys.stdout, indent=1)


def end(folder: Path, case: dict) -> dict:
    """The exit status, the last words, and whether the driver compiled PTX for it."""
    found = _run(folder, case, {})
    if found["code"] == 0:
        found["compiled"] = _run(folder, case, {"CUDA_DISABLE_PTX_JIT": "1"})["code"] != 0
    return found


def _run(folder: Path, case: dict, more: dict) -> dict:
    program = folder.resolve() / case["program"]
    program.chmod(0o755)
    command = [str(program), *case["arguments"]]
    own = ":".join(str(folder.resolve() / each) for each in case["libraries"])
    path = ":".join(filter(None, (own, os.environ.get("LD_LIBRARY_PATH", ""))))
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": path, "CUDA_CACHE_DISABLE": "1", **more}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=_TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return {"code": -1, "text": "time limit"}
    return {"code": done.returncode, "text": (done.stdout + done.stderr).strip()[-_WORDS:]}


if __name__ == "__main__":
    main()
