"""IMG001 to IMG003: what of the image itself could not be read or found, and so leaves the verdict open."""

import posixpath
import re

from imgcheck.check.context import Answers, Context
from imgcheck.documents.report import Evidence

_LIBRARY = r"\.so(?:\.|$)"
_PROGRAMS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")


def check(context: Context) -> Answers:
    """IMG001 unreadable files, IMG002 a command that the image does not hold, IMG003 an image without programs."""
    answers = Answers()
    _unreadable(context, answers)
    _missing_command(context, answers)
    _no_program(context, answers)
    return answers


def _unreadable(context: Context, answers: Answers) -> None:
    decisive: list[Evidence] = []
    others: list[Evidence] = []
    for path, reason in sorted(context.image.unreadable.items()):
        evidence, may_run = _judged(context, path, reason)
        (decisive if may_run else others).append(evidence)
    findings = [
        context.finding("IMG001", "info", subject, tuple(found), path=found[0].path, reason=found[0].detail)
        for subject, found in (("reached", decisive), ("unreached", others))
        if found
    ]
    fine = "nothing that the command reaches was unreadable" if others else "every program and library was read"
    more = f" and {len(decisive) - 1} more" if len(decisive) > 1 else ""
    unknown = f"{decisive[0].path}{more} could not be read: {decisive[0].detail}" if decisive else ""
    answers.conclude("IMG001", findings, fine, unknown)


def _judged(context: Context, path: str, reason: str) -> tuple[Evidence, bool]:
    """The evidence for an unreadable file, and whether it may run: as a program, or as a library that is loaded."""
    record = next((record for record in context.image.files if record.path == path), None)
    named_as_code = bool(re.search(_LIBRARY, posixpath.basename(path)))
    if record is None:
        return Evidence(path, detail=reason), named_as_code or posixpath.dirname(path) in _PROGRAMS
    reached = context.closure.reach(path) in ("entry", "import")
    return context.evidence(record, reason), reached and (record.executable or named_as_code)


def _missing_command(context: Context, answers: Answers) -> None:
    missing = context.roots.missing
    if not context.roots.command:
        answers.answer("IMG002", "not-applicable", "no command is known")
        return
    findings = [
        context.finding("IMG002", "risk", word, (Evidence(word, detail="not in the image"),), command=word)
        for word in missing
    ]
    answers.conclude("IMG002", findings, "the image holds what its command runs")


def _no_program(context: Context, answers: Answers) -> None:
    if any(context.image.facts(record).linkage for record in context.image.files):
        answers.answer("IMG003", "ok", "the image holds programs")
    else:
        answers.answer("IMG003", "unknown", "the image holds no program or library, so there is nothing to check")
