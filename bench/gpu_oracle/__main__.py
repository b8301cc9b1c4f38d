"""What imgcheck says of GPU code, beside what a driver and a GPU do with it.

    python -m bench.gpu_oracle make CASES            here: builds the cases; needs gcc, PyPI and Debian's non-free
    imgcheck probe -o host.json                      there: on a machine with an NVIDIA GPU
    python3 device.py CASES > ends.json              there: this folder's device.py, with Python alone
    python -m bench.gpu_oracle judge CASES host.json ends.json

A miss is "runs" where the driver refused the code, a false alarm "fails" where it ran. docs/gpu.md has the record;
h200.host.json and h200.ends.json are of one such machine.
"""

import argparse
import contextlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.gpu_oracle.cases import Case, make
from imgcheck.cli import main as imgcheck
from imgcheck.documents import Report, decode

_FAMILY = "GPU"
_MODULES = ("GPU003", "GPU008", "GPU013")
_UNDECIDED = " undecided ("


def said(root: Path, case: Case, host: Path) -> tuple[str, str]:
    """`fails`, `unknown`, `compiles` or `runs`, and the error that is foreseen."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        imgcheck(
            ["image", f"dir:{root / case.name}", "--host-probe", str(host), "--runtime", case.runtime,
             "--entry", f"/{case.program}", "--no-store", "--no-policy", "-q", "-o", "json"]
        )  # fmt: skip
    report = decode(output.getvalue().encode(), Report, case.name)
    findings = [finding for finding in report.findings if finding.rule.startswith(_FAMILY)]
    # A module that the program opens by its path is not reached as a library is, which makes it information alone.
    failing = [f for f in findings if f.severity == "fail" or (f.severity == "info" and f.rule in _MODULES)]
    if any(_UNDECIDED in evidence.detail for finding in failing for evidence in finding.evidence):
        return "unknown", f"{failing[0].rule}"
    if failing:
        return "fails", f"{failing[0].rule} {failing[0].predicted_error}"
    outcomes = {check.outcome for check in report.checks if check.rule.startswith(_FAMILY)}
    if outcomes & {"risk", "unknown"}:
        return "unknown", "; ".join(f"{f.rule} {f.predicted_error}" for f in findings if f.severity == "risk")
    return ("compiles" if any(finding.rule == "GPU004" for finding in findings) else "runs"), ""


def kind_of(answer: str, ended: str) -> str:
    """How an answer stands to what happened."""
    if answer == "unknown":
        return "undecided"
    if answer == ended:
        return "right"
    if ended == "fails":
        return "miss"
    return "false alarm" if answer == "fails" else "compiles at start or not"


class Judged(msgspec.Struct, frozen=True):
    """One case: what was said of it, with the error that is foreseen, and what happened."""

    case: str
    kind: str
    answer: str
    error: str
    ended: str
    text: str = ""


def judged(root: Path, host: Path, ends: dict[str, dict]) -> Iterator[Judged]:
    """Each case of `root` on the machine of `host`, on which it ended as `ends` tells."""
    for case in msgspec.json.decode((root / "cases.json").read_bytes(), type=list[Case]):
        end = ends[case.name]
        ended = "fails" if end["code"] else "compiles" if end["compiled"] else "runs"
        answer, error = said(root, case, host)
        last = end["text"].splitlines()[-1:]
        yield Judged(case.name, kind_of(answer, ended), answer, error, ended, *last)


def judge(root: Path, host: Path, ends: dict[str, dict]) -> None:
    """Prints the sums, and of each case that failed or was judged otherwise what was said and what happened."""
    tally: Counter[str] = Counter()
    for each in judged(root, host, ends):
        tally[each.kind] += 1
        if each.kind != "right" or each.ended == "fails":
            print(f"{each.kind:12} {each.case}: said {each.answer} ({each.error}), {each.ended}: {each.text}")
    print(*(f"{kind} {count}" for kind, count in sorted(tally.items())), sep="   ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("make").add_argument("cases", type=Path)
    judging = actions.add_parser("judge")
    for name in ("cases", "host", "ends"):
        judging.add_argument(name, type=Path)
    chosen = parser.parse_args()
    if chosen.action == "make":
        print(f"{len(make(chosen.cases))} cases in {chosen.cases}")
    else:
        judge(chosen.cases, chosen.host, json.loads(chosen.ends.read_text()))


if __name__ == "__main__":
    main()
