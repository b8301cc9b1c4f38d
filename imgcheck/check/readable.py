"""IMG001: what could not be read of the image, where that leaves the verdict open."""

import posixpath
import re

from imgcheck.check.context import Answers, Context
from imgcheck.documents.report import Evidence

_LIBRARY = re.compile(r"\.so(?:\.|$)")
_PROGRAMS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")


def check(context: Context) -> Answers:
    """Unknown where a program or library that the command may reach could not be read; else ok."""
    answers = Answers()
    decisive: list[Evidence] = []
    others: list[Evidence] = []
    for path, reason in sorted(context.image.unreadable.items()):
        evidence, may_run = _judged(context, path, reason)
        (decisive if may_run else others).append(evidence)
    for subject, evidence in (("reached", decisive), ("unreached", others)):
        if evidence:
            values = {"path": evidence[0].path, "reason": evidence[0].detail, "count": len(evidence)}
            answers.found(context.finding("IMG001", "info", subject, tuple(evidence), **values))
    if decisive:
        more = f" and {len(decisive) - 1} more" if len(decisive) > 1 else ""
        answers.answer("IMG001", "unknown", f"{decisive[0].path}{more} could not be read: {decisive[0].detail}")
    elif others:
        answers.answer("IMG001", "ok", "what could not be read is nothing that the command reaches")
    else:
        answers.answer("IMG001", "ok", "every program and library of the image was read")
    return answers


def _judged(context: Context, path: str, reason: str) -> tuple[Evidence, bool]:
    """The evidence for an unreadable file, and whether it may run: as a program, or as a library that is loaded."""
    record = next((record for record in context.image.files if record.path == path), None)
    named_as_code = bool(_LIBRARY.search(posixpath.basename(path)))
    if record is None:
        return Evidence(path, detail=reason), named_as_code or posixpath.dirname(path) in _PROGRAMS
    reached = context.closure.reach(path) in ("entry", "import")
    return context.evidence(record, reason), reached and (record.executable or named_as_code)
