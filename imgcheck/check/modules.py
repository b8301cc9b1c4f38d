"""LIB005: packages whose extension modules are for other Pythons than the one that runs."""

import posixpath
from collections import defaultdict

from imgcheck.check.context import Answers, Context
from imgcheck.documents.report import Finding


def misfits(context: Context, answers: Answers) -> None:
    """LIB005 by what the loader's model tells of the packages that texts name."""
    if context.roots.misfits:
        answers.conclude("LIB005", [_finding(context)], "")
    elif context.roots.imports:
        answers.answer("LIB005", "ok", "what is imported and has extension modules has some for the Python that runs")
    else:
        answers.answer("LIB005", "not-applicable", "the command loads no extension module of Python")


def _finding(context: Context) -> Finding:
    # Expressions of no use where there is nothing to tell.
    from imgcheck.loader.python import family_of_module, pythons, version_of_directory, version_of_module

    packages: dict[str, list[str]] = defaultdict(list)
    for path in context.roots.misfits:
        packages[_module(context, path).partition(".")[0]].append(path)
    program, version = next(iter(pythons(context.roots.entries).items()), ("", ""))  # a profile may say what it likes
    python = f"Python {version}".rstrip()

    def built_for(path: str) -> str:
        same = version_of_module(path) == version and family_of_module(path)
        return f"{version_of_module(path)} with {family_of_module(path)}" if same else version_of_module(path)

    # Most of all tells a package that consists of them.
    ordered = sorted(packages, key=lambda package: (-len(packages[package]), package))
    path = packages[ordered[0]][0]
    details = {packages[each][0]: f"for Python {built_for(packages[each][0])}" for each in ordered}
    return context.finding(
        "LIB005",
        "risk",
        ordered[0],
        (
            context.evidence_at(program, f"{python}, which the command starts"),
            *(context.evidence_at(each, detail) for each, detail in details.items()),
        ),
        path=path,
        # Where no Python but that one looks, not even the text of the package is found.
        module=ordered[0] if version_of_directory(path) not in ("", version) else _module(context, path),
        python=python,
        made_for=built_for(path),
        program=program,
    )


def _module(context: Context, path: str) -> str:
    """The name by which Python knows the module at `path`: numpy._core._multiarray_umath."""
    tree = context.image.tree
    places = [*tree.python_paths, *(posixpath.dirname(code.path) for code in tree.python_code)]
    place = max((place for place in places if path.startswith(f"{place}/")), key=len, default=posixpath.dirname(path))
    directory, _, name = path.removeprefix(f"{place}/").rpartition("/")
    return f"{directory}/{name.partition('.')[0]}".strip("/").replace("/", ".")
