"""The record of the CPU verdict: what it says of programs and packages against what CPUs do with them.

    python -m bench.oracle [--half tuning|held-out|second|third] [--only builds|packages|programs] [--run-only]

A miss is "runs" where the program died of SIGILL, a false alarm "dies" where it ran. Where a program refuses the CPU
by itself, "dies" is right, since the job ends, and "runs" is counted apart: SIGILL is foreseen here, other words not.
Of the held-out half only sums are printed, unless --details asks for more. Needs gcc, qemu-user, apt and PyPI.
"""

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.oracle.corpus import Case, Entry, UnusableError, builds, packages, programs
from bench.oracle.runs import End, end, models
from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.documents.facts import Isa
from tests.isa.programs import applies, predicted

_RANK = ("runs", "unknown", "dies")
_KINDS = ("right", "of them dead", "miss", "false alarm", "undecided", "own refusal", "no verdict")
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
            wanted = "required" if answer == "dies" else "unknown"
            lacking = (use for use in found.uses if use.feature not in features and applies(use, features))
            use = next((use for use in lacking if use.answer == wanted), None)
            said_by = f"{use.feature} in {use.function}: {use.reason}" if use else "its own start code refuses the CPU"
            worst, why = answer, f"{path.name}: {said_by}"
    return worst, why


def kind_of(answer: str, ended: End) -> str:
    """How an answer stands to what happened."""
    if ended.kind == "no verdict":
        return "no verdict"
    if answer == "unknown":
        return "undecided"
    if ended.kind == "refuses":
        return "right" if answer == "dies" else "own refusal"
    if answer == ended.kind:
        return "right"
    return "miss" if ended.kind == "dies" else "false alarm"


def record(kind: str, entries: Iterator[Entry], half: str | None, details: bool) -> None:
    """Prints the sums of one kind by half, and what was not right where it may be told."""
    tally: dict[str, Counter] = defaultdict(Counter)
    notes: list[str] = []
    for entry, case in _usable(entries, half):
        for model, features in models().items():
            (answer, why), ended = said(case, features), end(case, model)
            found, counts = kind_of(answer, ended), tally[entry.half]
            counts[found] += 1
            counts["runs"] += 1
            counts["of them dead"] += found == "right" and ended.kind != "runs"
            if found != "right" and (details or entry.half != "held-out"):
                told = f"{found:12} {entry.half:9} {model:14} {entry.name}"
                notes.append(f"{told}: said {answer}, {ended.kind} {ended.words}. {why}")
    print(f"\n{kind} on {', '.join(models())}")
    for name, counts in sorted(tally.items()):
        print(f"  {name:9} runs {counts['runs']}", *(f"{k} {counts[k]}" for k in _KINDS if counts[k]), sep="   ")
    print(*(f"    {note}" for note in notes), sep="\n", flush=True)


def _usable(entries: Iterator[Entry], half: str | None) -> Iterator[tuple[Entry, Case]]:
    for entry in entries:
        if half in (None, entry.half):
            try:
                yield entry, entry.make()
            except (UnusableError, AssertionError, subprocess.TimeoutExpired) as error:
                print(f"left out: {entry.name}: {error}", file=sys.stderr, flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", choices=("tuning", "held-out", "second", "third"))
    options.add_argument("--only", choices=("builds", "packages", "programs"))
    options.add_argument("--details", action="store_true", help="tell the wrong and open answers of the held-out half")
    options.add_argument("--run-only", action="store_true", help="run what has not run yet, and judge nothing")
    chosen = options.parse_args()
    kinds = {"builds": builds, "programs": programs, "packages": packages}
    for kind in [chosen.only] if chosen.only else kinds:
        if chosen.run_only:
            for _, case in _usable(kinds[kind](), chosen.half):
                for model in models():
                    end(case, model)
        else:
            record(kind, kinds[kind](), chosen.half, chosen.details)


if __name__ == "__main__":
    main()
