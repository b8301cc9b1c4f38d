"""Kinds of hosts, for people and programs."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from rich.console import RenderableType
from rich.table import Table

from imgcheck.documents.host import HostProfile
from imgcheck.host.summary import summarise
from imgcheck.report.console import render, text


def _table(kinds: Sequence[HostProfile], terminal: bool) -> str:
    return render(_parts(kinds), terminal)


def _json(kinds: Sequence[HostProfile], _terminal: bool) -> str:
    document = {"kind": "hosts", "schema_version": "1.0", "kinds": kinds}
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


FORMATS: dict[str, Callable[[Sequence[HostProfile], bool], str]] = {"table": _table, "json": _json}


def _parts(kinds: Sequence[HostProfile]) -> Iterator[RenderableType]:
    nodes = sum(kind.count for kind in kinds)
    yield text(f"{_counted(nodes, 'node')}: {_counted(len(kinds), 'kind')}", "bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for kind in kinds:
        grid.add_row(text(f"  {kind.count}"), text(summarise(kind)))
        grid.add_row("", text(kind.name, "dim"))
    yield grid


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
