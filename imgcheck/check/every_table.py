"""Every table read at once, as no command needs it: for who writes data of a site and asks whether they hold."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from imgcheck.check.mpi_facts import mpi_rules
from imgcheck.errors import KnowledgeError
from imgcheck.knowledge import cpus, cuda, gpus
from imgcheck.knowledge.python import builds, openers
from imgcheck.knowledge.schedulers import schedulers
from imgcheck.knowledge.store import Knowledge, rules_directory


def read_all(knowledge: Knowledge) -> None:
    """Raise KnowledgeError for the first entry that is not of its type, or names what no other entry is called."""
    _ = knowledge.catalogue
    for runtime in knowledge.runtimes.values():
        if runtime.with_driver and runtime.with_driver not in knowledge.runtimes:
            raise KnowledgeError(f"runtime {runtime.id}: with_driver names no runtime: {runtime.with_driver}")
    for read in (schedulers, mpi_rules, openers, builds, gpus.products, gpus.amd_generics, cuda.branches, cuda.releases,
                 cuda.families, cuda.vendor_libraries):  # fmt: skip
        read(knowledge)
    cuda.ptx_cuda(knowledge, "")
    cuda.function_since(knowledge, "")
    _read_devices(knowledge)
    _read_cpus(knowledge)
    listed = gpus.capabilities(knowledge)
    stray = next((each for each in gpus.products(knowledge) if each.capability not in listed), None)
    if stray:
        raise KnowledgeError(f"product {stray.id}: no compute capability {stray.capability} in tables/gpus/")


def _read_devices(knowledge: Knowledge) -> None:
    chips = {chip for entry in gpus.capabilities(knowledge).values() for chip in entry.chips}
    ours = Knowledge().table("tables/pci/nvidia.toml")
    for device, entry in knowledge.table("tables/pci/nvidia.toml").items():
        # Ours hold chips of old GPUs without CUDA as well.
        if device not in ours and (
            not isinstance(entry, dict) or "name" not in entry or entry.get("chip") not in chips
        ):
            raise KnowledgeError(f"tables/pci/nvidia.toml: {device}: it has a name, and a chip of tables/gpus/")


def _read_cpus(knowledge: Knowledge) -> None:
    for architecture in cpus.ARCHITECTURES:
        cpus.features(knowledge, architecture)
        cpus.guarded_by(knowledge, architecture, "/")
    cpus.product_of(knowledge, "")
    for product in knowledge.entries("cpus", "product", cpus.Product):
        _named(knowledge, f"product {product.id}", product.microarchitecture)
    for own in knowledge.entries("cpus", "microarchitecture", cpus.Microarchitecture):
        found = _named(knowledge, f"microarchitecture {own.id}", own.id)
        stray = {*own.adds, *own.removes} - cpus.features(knowledge, found.architecture).keys()
        if stray:
            raise KnowledgeError(f"microarchitecture {own.id}: no CPU feature is called {sorted(stray)[0]}")


def _named(knowledge: Knowledge, where: str, name: str) -> cpus.NamedCpu:
    found = cpus.named(knowledge, name)
    if found is None:
        raise KnowledgeError(
            f"{where}: no microarchitecture is called {name}", "archspec's names, or one of [[microarchitecture]]"
        )
    return found


def changes(site: str) -> Iterator[str]:
    """What each file below `site` adds to the entries of the installation, and which it replaces, a line each."""
    ours = rules_directory()
    for path in sorted(Path(site).rglob("*.toml")):
        folder = path.relative_to(site).parent
        beside = [_ids(each) for each in sorted((ours / folder).glob("*.toml"))]
        for key, ids in _ids(path).items():
            known = {each for table in beside for each in table.get(key, ())}
            parts = (("adds", ids - known), ("replaces", ids & known))
            said = [f"{word} {', '.join(sorted(each))}" for word, each in parts if each]
            yield f"{path}: {key}: {'; '.join(said)}"


def _ids(path: Path) -> dict[str, set[str]]:
    """Key to the ids of its entries; of a file without lists of these, its keys."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    listed = {key: [each.get("id", "") for each in value] for key, value in table.items() if isinstance(value, list)}
    if not any(all(ids) for ids in listed.values()):
        return {"keys": set(table)}
    return {key: set(ids) for key, ids in listed.items()}
