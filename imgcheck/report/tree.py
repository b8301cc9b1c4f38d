"""Dependency trees of single files for people and programs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from imgcheck.loader.dependencies import Dependency
from imgcheck.report.console import line, render, text

Trees = Mapping[str, Sequence[Dependency]]
"""File of the image to what it loads, depth first."""


def _table(trees: Trees, terminal: bool) -> str:
    return render(_parts(trees), terminal)


def _json(trees: Trees, _terminal: bool) -> str:
    files = {path: [_entry(dependency) for dependency in found] for path, found in trees.items()}
    document = {"kind": "dependencies", "schema_version": "1.0", "files": files}
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


FORMATS: dict[str, Callable[[Trees, bool], str]] = {"table": _table, "json": _json}


def _entry(dependency: Dependency) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(dependency).items() if value not in ("", (), False)}


def _parts(trees: Trees) -> Iterator[RenderableType]:
    for index, (path, found) in enumerate(trees.items()):
        if index:
            yield text("")
        yield text(path, "bold")
        if not found:
            yield line("  needs no library")
        for dependency in found:
            yield from _dependency(dependency)


def _dependency(dependency: Dependency) -> Iterator[Text]:
    indent = "  " * dependency.depth
    if not dependency.path:
        yield line(indent, dependency.name, " => ", ("not found", "bold red"))
        yield line(indent, f"  sought in {', '.join(dependency.searched) or 'no directory'}")
        return
    opened = dependency.opened if dependency.opened != dependency.name else ""
    leads_to = f" ({dependency.path})" if dependency.path != dependency.opened else ""
    where = f" => {opened}" if opened else ""
    again = ", shown above" if dependency.repeated else ""
    yield line(indent, dependency.name, where, leads_to, (f"  [{dependency.reason}{again}]", "dim"))
    for version in dependency.missing_versions:
        yield line(indent, "  ", (f"version `{version}' not found", "bold red"))
