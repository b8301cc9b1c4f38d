"""LIB004: packed relocations (DT_RELR) that the image's glibc leaves out, or refuses."""

from imgcheck import versions
from imgcheck.check.context import Answers, Context
from imgcheck.check.loader_rules import glibc_of
from imgcheck.documents.facts import Linkage
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Finding
from imgcheck.knowledge.changes import does
from imgcheck.loader.glibc import asks_for_musl

_NODE = "GLIBC_ABI_DT_RELR"
_LIBC = "libc.so."


def packed(context: Context, answers: Answers) -> None:
    """LIB004 by the glibc in the process of each file."""
    affected = [(r, linkage) for r, linkage in context.linked if "relr" in linkage.flags and _undeclared(linkage)]
    if not affected:
        answers.answer("LIB004", "not-applicable", "no file has packed relocations without saying so")
        return
    judged = [(record, linkage, glibc_of(context, record.path)) for record, linkage in affected]
    unknown = next(
        (f"{r.path} has packed relocations; the glibc is not known" for r, _, glibc in judged if not glibc), ""
    )
    found = [
        _finding(context, record, glibc, refuses=_applies(context, glibc))
        for record, linkage, glibc in judged
        if glibc and (_checked(linkage) or not _applies(context, glibc))
    ]
    fine = " and ".join(sorted({glibc for _, _, glibc in judged}, key=versions.parse))
    answers.conclude("LIB004", found, f"glibc {fine} applies packed relocations", unknown)


def _applies(context: Context, glibc: str) -> bool:
    """Whether it knows packed relocations, and refuses those that are not declared."""
    return does(context.knowledge, "glibc-applies-relr", glibc)


def _undeclared(linkage: Linkage) -> bool:
    """Whether a file with packed relocations does not say so to its loader, which is none of musl."""
    # Parts of glibc itself, static programs among them, know their own relocations.
    if "static" in linkage.flags or "GLIBC_PRIVATE" in linkage.verdef or asks_for_musl(linkage):
        return False
    return not any(_NODE in need.versions or "GLIBC_PRIVATE" in need.versions for need in linkage.verneed)


def _checked(linkage: Linkage) -> bool:
    """Whether a glibc that knows them asks for the declaration: of files alone that need versions of the C library."""
    return any(need.library.startswith(_LIBC) for need in linkage.verneed)


def _finding(context: Context, record: FileRecord, glibc: str, refuses: bool) -> Finding:
    does = "refuses such a file" if refuses else "does not know them and leaves them out"
    return context.finding(
        "LIB004",
        "fail",
        record.path,
        (context.evidence(record, "has DT_RELR"),),
        variant="refused" if refuses else "",
        program=context.closure.users.get(record.path, record.path),
        path=record.path,
        why=f"{record.path} has packed relocations without naming {_NODE}; the image's glibc {glibc} {does}.",
    )
