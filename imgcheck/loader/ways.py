"""What leads to a file that runs: scripts that start programs, texts that import modules, and who loads libraries."""

from collections.abc import Iterable, Iterator

from imgcheck.documents.image import TreeIndex
from imgcheck.loader.closure import Closure, Roots


def way_to(path: str, roots: Roots, closure: Closure, tree: TreeIndex) -> tuple[str, ...]:
    """What leads to the file at `path`, from the command on; empty where the runtime starts it, or nothing leads to it.

    Each leads to the next: scripts and launchers start, texts and top-level modules import, programs and libraries
    load, or have the name of what they may open in their strings.
    """
    if roots.everything or closure.reach(path) == "unreached":
        return ()
    begun = closure.users.get(path, path)
    back = [begun] if begun != path else []
    opener = _opener(begun, roots, closure, tree)
    if opener:
        return (*way_to(opener, roots, closure, tree), opener, *back)
    at = begun if begun in roots.ways else _module(begun, roots.ways, tree.python_paths)
    if at and at != begun:
        back.append(at)
    while (at := roots.ways.get(at, "")) and at not in back:
        back.append(at)
    return tuple(reversed(back))


def _opener(path: str, roots: Roots, closure: Closure, tree: TreeIndex) -> str:
    """What runs and names a file in its strings, where nothing else leads there."""
    if closure.runs(path) or path in roots.entries:
        return ""
    naming = (opener for opener, named in tree.mentions.items() if path in named)
    return next((opener for opener in naming if closure.runs(opener) or opener in roots.ways.values()), "")


def _module(path: str, known: dict[str, str], packages: Iterable[str]) -> str:
    """The one of the `known` top-level modules that a file belongs to; "" where it belongs to none."""
    return next((part for part in _parts(path, packages) if part in known), "")


def _parts(path: str, packages: Iterable[str]) -> Iterator[str]:
    """Names of modules that a file may have: behind a directory of packages, and else beside the text itself."""
    for place in packages:
        if path.startswith(f"{place}/"):
            yield path.removeprefix(f"{place}/").partition("/")[0].partition(".")[0]
    *above, name = path.split("/")
    yield from (name.partition(".")[0], *reversed(above))
