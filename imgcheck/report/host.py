"""A HostProfile for people: every fact, and plainly which ones are not known."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from imgcheck.documents.host import Fact, Gpu, HostProfile
from imgcheck.report.console import render, text


def host_table(host: HostProfile) -> str:
    return render(_parts(host), terminal=True)


def _parts(host: HostProfile) -> Iterator[RenderableType]:
    yield text(host.name, "bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold", style="dim")
    for label, fact in _facts(host):
        grid.add_row(text(f"  {label}"), _value(fact), text(fact.source))
    yield grid


def _facts(host: HostProfile) -> Iterator[tuple[str, Fact]]:
    cpu, driver = host.cpu, host.driver
    yield "architecture", cpu.architecture
    yield "CPU", cpu.model
    yield "microarchitecture", cpu.microarchitecture
    yield "CPU features", _mapped(cpu.features, " ".join)
    yield "kernel", host.kernel
    yield "glibc", host.glibc
    yield "distribution", host.distribution
    yield "NVIDIA kernel module", driver.kernel_module
    yield "NVIDIA libraries", driver.userland
    yield "driver's CUDA", driver.cuda
    yield "GPUs", _mapped(host.gpus, lambda gpus: "\n".join(_gpu(gpu) for gpu in gpus))
    yield "fabrics", _mapped(host.fabrics, ", ".join)
    yield "libraries to inject", _mapped(host.libraries, lambda found: f"{len(found)} recorded")
    yield "runtimes", _mapped(host.runtimes, lambda found: ", ".join(f"{r.id} {r.version}".strip() for r in found))


def _mapped(fact: Fact, words: Callable[[Any], str]) -> Fact[str]:
    return Fact(fact.state, words(fact.value), fact.source) if fact.known and fact.value is not None else fact


def _value(fact: Fact) -> RenderableType:
    if fact.unknown:
        return text("unknown", "magenta")
    if fact.absent:
        return text("none", "yellow")
    lines = [text(part) for part in str(fact.value).split("\n")]
    return lines[0] if len(lines) == 1 else _stacked(lines)


def _stacked(lines: list) -> Table:
    grid = Table.grid()
    for part in lines:
        grid.add_row(part)
    return grid


def _gpu(gpu: Gpu) -> str:
    kind = gpu.target or (f"compute capability {gpu.compute_capability}" if gpu.compute_capability else "unknown kind")
    return f"{gpu.name or gpu.pci_id} ({kind}{', MIG' if gpu.mig else ''})"
