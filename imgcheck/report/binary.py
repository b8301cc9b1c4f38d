"""Facts of single files for people and programs."""

from collections.abc import Callable, Iterator

import msgspec
from rich.console import RenderableType
from rich.table import Table

from imgcheck.documents.facts import CodeFacts, GpuCode, Isa, IsaUse, Linkage
from imgcheck.report.console import indented, line, render, text

_STYLES = {"required": "bold red", "dispatched": "green", "unknown": "magenta"}


def _table(facts: dict[str, CodeFacts], terminal: bool) -> str:
    return render(_parts(facts), terminal)


def _json(facts: dict[str, CodeFacts], _terminal: bool) -> str:
    # Its symbols mean something beside those of other files alone.
    told = {path: msgspec.structs.replace(found, symbols=None) for path, found in facts.items()}
    document = {"kind": "binaries", "schema_version": "1.0", "files": told}
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


FORMATS: dict[str, Callable[[dict[str, CodeFacts], bool], str]] = {"table": _table, "json": _json}


def _parts(facts: dict[str, CodeFacts]) -> Iterator[RenderableType]:
    for index, (path, found) in enumerate(facts.items()):
        if index:
            yield text("")
        yield text(path, "bold")
        if found.error:
            yield line("  could not be read wholly: ", found.error)
        if found.linkage:
            yield from _linkage(found.linkage)
        if found.isa:
            yield from _isa(found.isa)
        if found.gpu:
            yield from _gpu(found.gpu)


def _linkage(linkage: Linkage) -> Iterator[RenderableType]:
    yield line(f"  {linkage.machine} {linkage.type}, {linkage.elf_class}-bit")
    rows = (
        ("interpreter", linkage.interpreter),
        ("needs", ", ".join(linkage.needed)),
        ("versions", ", ".join(f"{need.library}: {' '.join(need.versions)}" for need in linkage.verneed)),
        ("kernel", linkage.abi),
        ("ISA note", linkage.isa_level),
    )
    yield from (line(f"  {label:<12}", value) for label, value in rows if value)


def _isa(isa: Isa) -> Iterator[RenderableType]:
    yield line(f"  {'baseline':<12}", isa.baseline or "not above the architecture's own")
    if isa.asks_cpu:
        yield line(f"  {'asks the CPU':<12}", " by ", ", ".join(isa.asks_cpu))
    if isa.refusal:
        wanted = f"without {' '.join(isa.refusal.features)}" if isa.refusal.features else f"below {isa.refusal.level}"
        words = f": {isa.refusal.words}" if isa.refusal.words else ""
        yield line(f"  {'refuses':<12}", f"a CPU {wanted}, by itself{words}")
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for use in isa.uses:
        count = f"{use.count} instructions" if use.count else ""
        grid.add_row(text(use.feature), text(use.answer, _STYLES[use.answer]), text(count), text(use.reason))
        if use.text:
            grid.add_row("", "", "", _instruction(use))
    if isa.uses:
        yield indented(grid, 2)


def _instruction(use: IsaUse) -> RenderableType:
    return line((f"{use.address:#x} {use.function}: {use.text}  [{use.code}]", "dim"))


def _gpu(gpu: GpuCode) -> Iterator[RenderableType]:
    rows = (
        ("CUDA runtime", gpu.cudart),
        ("toolkit", gpu.toolkit),
        ("driver", " ".join(filter(None, (gpu.driver_version, gpu.driver_cuda and f"CUDA {gpu.driver_cuda}")))),
        ("built for", ", ".join(gpu.built_for)),
        ("contains", ", ".join(gpu.libraries)),
        ("AMD targets", ", ".join(gpu.amd)),
    )
    yield from (line(f"  {label:<12}  ", value) for label, value in rows if value)
    for module in gpu.modules:
        kinds = (
            ("SASS", module.sass),
            ("PTX", module.ptx),
            ("LTO", module.lto),
            ("other", module.other),
            ("relocatable PTX", module.relocatable),
        )
        words = "; ".join(f"{name} {' '.join(targets)}" for name, targets in kinds if targets)
        yield line(f"  {module.count:>5} modules  ", words)
