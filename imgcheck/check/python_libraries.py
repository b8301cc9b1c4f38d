"""LIB006: libraries of the system that Python packages open by name when they are imported."""

import fnmatch
import posixpath

from imgcheck.check.context import Answers, Context
from imgcheck.documents.report import Evidence, Finding
from imgcheck.knowledge.python import Opener, openers


def opened(context: Context, answers: Answers) -> None:
    """LIB006 for the modules that texts name which run."""
    roots = context.roots
    known = openers(context.knowledge) if roots.ways else {}
    imported = [known[name] for name in known.keys() & roots.ways.keys()]
    if not imported:
        return answers.answer("LIB006", "not-applicable", "no module that is known to open libraries is imported")
    names = _names(context)
    missing = ((each, _missing(each, names)) for each in sorted(imported, key=lambda each: each.id))
    findings = [_finding(context, opener, absent) for opener, absent in missing if absent]
    return answers.conclude("LIB006", findings, f"the image has what {_listed(imported)} opens when it is imported")


def _listed(found: list[Opener]) -> str:
    return ", ".join(sorted(opener.id for opener in found))


def _missing(opener: Opener, names: set[str]) -> list[str]:
    """The libraries that nothing in the image has the name of."""
    if not names.isdisjoint(opener.brought_by):
        return []
    absent = (each for each in opener.libraries if not any(_is_there(name, names) for name in each))
    return [f"lib{alternatives[0].rstrip('*')}" for alternatives in absent]


def _finding(context: Context, opener: Opener, absent: list[str]) -> Finding:
    wanted = " and ".join(absent)
    certain = opener.id in context.roots.modules
    return context.finding(
        "LIB006",
        "fail" if certain else "risk",
        opener.id,
        (
            Evidence(
                path=_place(context, opener.id),
                reach="import" if certain else "path",
                way=context.ways.behind(opener.id),
                detail=f"opens {wanted}, and the image has none",
            ),
        ),
        libraries=wanted,
        error=opener.error,
        remedy=opener.remedy,
    )


def _names(context: Context) -> set[str]:
    """Names of the image's files and links, and of its top-level modules up to their first point."""
    tree = context.image.tree
    paths = (*(record.path for record in context.image.files), *tree.symlinks)
    names = {posixpath.basename(path) for path in paths}
    names |= {linkage.soname for _, linkage in context.linked}
    modules = (posixpath.basename(code.path) for code in tree.python_code)
    return names | {name.partition(".")[0] for name in (*names, *modules)}


def _is_there(library: str, names: set[str]) -> bool:
    return bool(fnmatch.filter(names, f"lib{library}.so*"))


def _place(context: Context, module: str) -> str:
    """The text of a module, or its package."""
    codes = context.image.tree.python_code
    return next((code.path for code in codes if posixpath.basename(code.path) in (module, f"{module}.py")), module)
