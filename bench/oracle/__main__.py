"""The record of the CPU verdict: what it says of programs and packages against what QEMU's CPU models do with them.

    python -m bench.oracle [--half tuning|held-out] [--only builds|packages|programs]

A miss is "runs" where the program died, a false alarm "dies" where it ran. Needs gcc, qemu-user and PyPI.
"""

import argparse
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.binaries.isa.variants import is_variant_path
from imgcheck.documents.facts import Isa
from tests.isa.programs import MODELS, SOURCES, predicted
from tests.tools import cache_directory, compile_c, need

MARCHES = ("x86-64", "nehalem", "sandybridge", "haswell", "skylake-avx512")
STYLES = {"O2-stripped": ("-O2", "-s"), "O3": ("-O3",), "O0": ("-O0",), "static": ("-O2", "-static", "-s")}
_RANK = ("runs", "unknown", "dies")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
"""Variables such as OPENBLAS_CORETYPE choose kernels whatever the CPU is; none may leak into a run."""
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """Something to run: its name, half, command, environment, and the ELF files that the run loads."""

    name: str
    half: str
    command: tuple[str, ...]
    files: tuple[Path, ...]


def builds() -> Iterator[Case]:
    for number, (name, march, style) in enumerate(product(SOURCES, MARCHES, STYLES)):
        program = compile_c(SOURCES[name], f"-march={march}", *STYLES[style])
        half = "tuning" if number % 2 else "held-out"
        yield Case(f"{name} -march={march} {style}", half, (str(program),), (program,))


def programs(corpus: dict) -> Iterator[Case]:
    for entry in corpus["program"]:
        path = Path(need(entry["command"][0])).resolve()
        loaded = subprocess.run(["ldd", str(path)], capture_output=True, text=True).stdout.split()
        files = [Path(word).resolve() for word in loaded if word.startswith("/")]
        yield Case(" ".join(entry["command"]), entry["half"], (str(path), *entry["command"][1:]), (path, *files))


def packages(corpus: dict) -> Iterator[Case]:
    for entry in corpus["package"]:
        place = cache_directory("oracle", entry["name"])
        wanted = [entry["name"], *entry.get("needs", ())]
        if not any(place.iterdir()):
            pip = [
                sys.executable,
                "-m",
                "pip",
                "-q",
                "install",
                "--only-binary",
                ":all:",
                "--target",
                str(place),
                *wanted,
            ]
            subprocess.run(pip, check=True)
        start = f"import sys; sys.path[:0] = [{str(place)!r}]\n"
        # -S: the interpreter's own site-packages must not stand in for what was installed.
        command = (str(Path(sys.executable).resolve()), "-S", "-c", start + entry["code"])
        yield Case(entry["name"], entry["half"], command, _loaded(command, entry["code"]))


def _loaded(command: tuple[str, ...], code: str) -> tuple[Path, ...]:
    """The ELF files that the workload maps when it runs on this machine."""
    show = "\nprint('\\n'.join({l.split()[-1] for l in open('/proc/self/maps') if ' r-xp ' in l and '/' in l}))"
    program = [*command[:-1], command[-1] + show]
    done = subprocess.run(program, capture_output=True, text=True, env=_ENVIRONMENT)
    if done.returncode:
        raise SystemExit(f"the workload itself fails: {code}\n{done.stderr}")
    loaded = (line for line in done.stdout.splitlines() if line.startswith("/") and not is_variant_path(line))
    return tuple(map(Path, loaded))


_judged: dict[Path, Isa | None] = {}


def said(case: Case, features: set[str]) -> tuple[str, str]:
    """The worst answer of the case's files on such a CPU, and the file and feature it rests on."""
    worst, why = "runs", ""
    for path in case.files:
        if path not in _judged:
            _judged[path] = analyse_isa(Elf(path.read_bytes()))
        found = _judged[path]
        answer = predicted(found, features) if found else "runs"
        if _RANK.index(answer) > _RANK.index(worst):
            lacking = [use for use in found.uses if use.feature not in features and use.answer != "dispatched"]
            worst, why = answer, f"{path.name}: {lacking[0].feature} in {lacking[0].function}: {lacking[0].reason}"
    return worst, why


def done(case: Case, model: str) -> str:
    # A package may refuse by itself where it would trap: both end the job.
    command = [need("qemu-x86_64"), "-cpu", model, *case.command]
    try:
        status = subprocess.run(command, capture_output=True, timeout=600, env=_ENVIRONMENT).returncode
    except subprocess.TimeoutExpired:
        return "timeout"
    if status in (-4, 132):
        return "dies"
    return "refuses" if status in (1, 3) else "runs" if status == 0 else f"status {status}"


def judge(case: Case, tally: dict[str, Counter], notes: list[str]) -> None:
    for model, features in MODELS.items():
        answer, why = said(case, features)
        end = done(case, model)
        died = end in ("dies", "refuses")
        if not died and end != "runs":
            kind = "no verdict (QEMU)"
        elif answer == "unknown":
            kind = "undecided"
        else:
            kind = "right" if (answer == "dies") == died else "miss" if died else "false alarm"
        tally[case.half][kind] += 1
        if kind != "right":
            notes.append(f"{kind:12} {case.half:9} {model:12} {case.name}: said {answer}, {end}. {why}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--half", choices=("tuning", "held-out"))
    options.add_argument("--only", choices=("builds", "packages", "programs"))
    chosen = options.parse_args()
    corpus = tomllib.loads((_HERE / "packages.toml").read_text(encoding="utf-8"))
    kinds = {"builds": builds(), "programs": programs(corpus), "packages": packages(corpus)}
    for kind, cases in kinds.items():
        if chosen.only not in (None, kind):
            continue
        tally: dict[str, Counter] = defaultdict(Counter)
        notes: list[str] = []
        for case in cases:
            if chosen.half in (None, case.half):
                judge(case, tally, notes)
        print(f"\n{kind}: models {', '.join(MODELS)}")
        for half, counts in sorted(tally.items()):
            print(f"  {half:9}", dict(counts))
        print(*(f"    {note}" for note in notes), sep="\n")


if __name__ == "__main__":
    main()
