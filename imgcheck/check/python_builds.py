"""LIB008: extension modules that were built with a release of a package which the one in the image does not take."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from imgcheck.check.context import Answers, Context
from imgcheck.check.python_modules import package_of
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Finding
from imgcheck.globs import fits
from imgcheck.knowledge.python import Build, builds

_CYTHON = "cython-sizes"
_OF_DEBIAN = "/usr/lib/python3/dist-packages"
_BEFORE_DEBIANS = "/usr/local/lib/python3.*/dist-packages"
"""Where pip puts packages, and Debian's Python looks first (wiki.debian.org/Python)."""
Modules = list[FileRecord]


def built_for_others(context: Context, answers: Answers) -> None:
    """LIB008 for all modules, by how the command reaches them."""
    told = any(linkage.python_module and linkage.markers for _, linkage in context.linked)
    known = builds(context.knowledge) if told else ()
    marked = {build.id: _marked(context, build) for build in known}
    if not any(marked.values()):
        return answers.answer("LIB008", "not-applicable", "no module was built for another release of what it needs")
    findings = [
        _finding(context, build, package, modules)
        for build in known
        for package, modules in _refused(context, build, marked[build.id]).items()
    ]
    return answers.conclude("LIB008", findings, "the image has the releases that its modules were built for")


def _marked(context: Context, build: Build) -> Modules:
    """Modules of other packages that have the marker."""
    own = f"/{build.package}/"
    return [record for record, linkage in context.linked if build.id in linkage.markers and own not in record.path]


def _refused(context: Context, build: Build, modules: Modules) -> dict[str, Modules]:
    """Those that the package refuses, by their own packages."""
    within = f"/{build.package}/"
    files = [record.path for record in context.image.files if within in record.path]
    taking, refusing = (set(_places(files, glob)) for glob in (build.needs, build.refuses))
    found: dict[str, Modules] = defaultdict(list)
    for record in modules:
        place, package = _site(record.path)
        if refusing and taking.isdisjoint(_imported_from(place, taking | refusing)):
            found[package].append(record)
    return found


def _imported_from(place: str, places: set[str]) -> set[str]:
    """From which of the `places` where the package lies one in the directory `place` gets it; of several from any."""
    if place == _OF_DEBIAN:
        before = {each for each in places if fits(each, _BEFORE_DEBIANS)}
        if before:
            return before
    return {place} & places or places


def _places(files: Iterable[str], glob: str) -> Iterator[str]:
    """The directories in which one of `files` has the name that `glob` stands for."""
    depth = glob.count("/") + 1
    for path in files:
        parts = path.split("/")
        if fits("/".join(parts[-depth:]), glob):
            yield "/".join(parts[:-depth])


def _site(path: str) -> tuple[str, str]:
    """The directory in which the package of the module at `path` lies, or a module alone, and its name."""
    directory, _, name = (package_of(path) or path).rpartition("/")
    return directory, name.partition(".")[0]


def _finding(context: Context, build: Build, package: str, modules: Modules) -> Finding:
    modules.sort(key=lambda record: (context.closure.rank(record.path), record.path.count("/"), record.path))
    first = modules[0]
    linkage = context.image.facts(first).linkage
    of_cython = linkage is not None and _CYTHON in linkage.markers
    return context.finding(
        "LIB008",
        "fail",
        package,
        tuple(context.evidence(record, f"built for {build.made_for}") for record in modules),
        made_for=build.made_for,
        found=build.refused_by,
        path=first.path,
        error=build.error_of_cython if of_cython else build.error,
        remedy=build.remedy.replace("{subject}", package),
    )
