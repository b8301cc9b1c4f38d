"""What an image needs, for people, where no host was named; the document itself for programs."""

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.table import Table

from imgcheck.check.needs import Need, needs, with_minimum
from imgcheck.documents import ImageProfile, encode
from imgcheck.knowledge import Knowledge
from imgcheck.loader.kept import with_loads
from imgcheck.report.console import command_line, line, render, text


def _table(image: ImageProfile, knowledge: Knowledge, terminal: bool) -> str:
    return render(_parts(image, knowledge), terminal)


def _json(image: ImageProfile, knowledge: Knowledge, _terminal: bool) -> str:
    return encode(with_loads(with_minimum(image, knowledge))).decode()


FORMATS: dict[str, Callable[[ImageProfile, Knowledge, bool], str]] = {"table": _table, "json": _json}


def _parts(image: ImageProfile, knowledge: Knowledge) -> Iterator[RenderableType]:
    yield line((image.reference, "bold"), f"  ({image.platform})")
    if image.components:
        yield line("  ", ", ".join(component.label for component in image.components))
    command = (*image.config.entrypoint, *image.config.command)
    if command:
        yield line("  runs ", command_line(command))
    yield text("")
    yield text("What it needs of a host", "bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for need in needs(image, knowledge):
        grid.add_row(text(f"  {need.what}"), _words(need))
    yield grid
    for path, reason in image.unreadable.items():
        yield line(("  could not be read: ", "magenta"), path, f" ({reason})")
    yield text("")
    yield text("Hold it against a host with --host-probe.", "dim")


def _words(need: Need) -> Table:
    grid = Table.grid()
    grid.add_column(overflow="fold")
    grid.add_row(text(need.needed))
    for reason in need.because:
        grid.add_row(text(reason, "dim"))
    return grid
