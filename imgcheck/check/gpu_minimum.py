"""What an image's GPU code needs of any host, stated from its evidence alone."""

from collections.abc import Iterator, Set

from imgcheck.check.gpu_code import capability_of, ptx_fits, tally
from imgcheck.check.gpu_use import held_runtimes, needs_driver, runtimes_of
from imgcheck.documents.facts import LIBCUDA, CodeFacts, GpuCode
from imgcheck.documents.image import FileRecord, ImageProfile
from imgcheck.knowledge import Knowledge, cuda, gpus
from imgcheck.versions import parse

Statement = tuple[str, str, tuple[str, ...]]
"""What is needed, how much of it, and why: ("GPU driver", "384.81 or newer", ("CUDA runtime 9.0 in ...",))."""

_SHOWN = 3


def minimum(image: ImageProfile, knowledge: Knowledge) -> Iterator[Statement]:
    """The driver and the GPUs that the image's GPU code needs; nothing where it has none.

    Judged over the image's own code; NVIDIA's libraries count where there is no other. A GPU that a single file lacks
    code for is named apart, since what decides is whether that file's kernels are called. Limits: docs/gpu.md.
    """
    files = [(r, image.objects[r.object]) for r in image.files if r.object in image.objects]
    yield from _driver(files, held_runtimes(image), knowledge)
    code = [(r, f.gpu) for r, f in files if f.gpu and f.gpu.modules]
    own = [(r, gpu) for r, gpu in code if not _vendor(knowledge, r.path)] or code
    if own:
        yield from _targets(own, knowledge)
    amd = sorted({target for _, f in files if f.gpu for target in f.gpu.amd})
    if amd:
        yield "AMD GPU", ", ".join(amd), ()


def _vendor(knowledge: Knowledge, path: str) -> bool:
    name = path.rpartition("/")[2]
    return any(name.startswith(entry.sonames) for entry in cuda.vendor_libraries(knowledge))


def _driver(files: list[tuple[FileRecord, CodeFacts]], held: Set[str], knowledge: Knowledge) -> Iterator[Statement]:
    demands: dict[str, list[str]] = {}
    for record, facts in files:
        for driver, why in _demands(record.path, facts, held, knowledge):
            demands.setdefault(driver, []).append(f"{why} in {record.path}")
    if demands:
        newest = max(demands, key=parse)
        reasons = demands[newest]
        more = (f"and {len(reasons) - _SHOWN} more files",) if len(reasons) > _SHOWN else ()
        yield "GPU driver", f"{newest} or newer", (*reasons[:_SHOWN], *more)
    else:
        linked = [r.path for r, f in files if needs_driver(f)]
        if linked:
            yield "GPU driver", f"any that has {LIBCUDA}", tuple(linked[:_SHOWN])


def _demands(path: str, facts: CodeFacts, held: Set[str], knowledge: Knowledge) -> Iterator[tuple[str, str]]:
    for version, _ in runtimes_of(path, facts, held):
        driver = cuda.min_driver(knowledge, version)
        if driver:
            yield driver, f"CUDA runtime {version}"
    for name in facts.linkage.driver_functions if facts.linkage else ():
        since = cuda.function_since(knowledge, name)
        driver = cuda.first_driver(knowledge, since) if since else None
        if driver:
            yield driver, f"driver function {name} (CUDA {since})"
    modules = facts.gpu.modules if facts.gpu else ()
    only_ptx = [entry.partition("@")[2] for m in modules if not m.sass for entry in (*m.ptx, *m.relocatable)]
    if only_ptx:
        isa = min(only_ptx, key=parse)
        first = cuda.ptx_cuda(knowledge, isa)
        driver = cuda.first_driver(knowledge, first) if first else None
        if driver:
            yield driver, f"PTX {isa} without machine code"


def _targets(code: list[tuple[FileRecord, GpuCode]], knowledge: Knowledge) -> Iterator[Statement]:
    groups: dict[str, list[str]] = {"native": [], "jit": [], "partly": [], "none": []}
    lacking: set[str] = set()
    compiled: set[str] = set()  # PTX ISA versions
    for capability in gpus.capabilities(knowledge):
        tallies = [(r, tally(knowledge, gpu, capability, "")) for r, gpu in code]
        best = {each.best for _, each in tallies}
        runs = best & {"native", "jit"}
        if not runs:
            groups["none"].append(capability)
        elif best - {"native", "jit"}:
            groups["partly"].append(capability)
            lacking |= {r.path for r, each in tallies if each.best not in ("native", "jit")}
        else:
            groups["native" if best == {"native"} else "jit"].append(capability)
            fitting = zip(code, tallies, strict=True)
            compiled.update(*(_compiled(gpu, capability, knowledge) for (_, gpu), (_, t) in fitting if t.best == "jit"))
    names = {"native": "GPU, native", "jit": "GPU, by JIT of PTX", "partly": "GPU, in part", "none": "GPU, not on"}
    for key, label in names.items():
        if groups[key]:
            because = tuple(f"no code in {path}" for path in sorted(lacking)[:_SHOWN]) if key == "partly" else ()
            reader = _reader(compiled, knowledge) if key == "jit" else ""
            yield label, f"compute capability {', '.join(groups[key])}{reader}", because or _listed(code, key)


def _compiled(gpu: GpuCode, capability: str, knowledge: Knowledge) -> Iterator[str]:
    """ISA versions of the PTX of a file that a driver may compile for `capability`."""
    for entry in (each for module in gpu.modules for each in (*module.ptx, *module.relocatable)):
        target, _, isa = entry.partition("@")
        if ptx_fits(knowledge, target, capability):
            yield isa


def _reader(isas: Set[str], knowledge: Knowledge) -> str:
    """The driver that reads PTX of all these versions."""
    first = cuda.ptx_cuda(knowledge, max(isas, key=parse)) if isas else None
    driver = cuda.first_driver(knowledge, first) if first else None
    return f", with driver {driver} or newer" if driver else ""


def _listed(code: list[tuple[FileRecord, GpuCode]], key: str) -> tuple[str, ...]:
    if key not in ("native", "jit"):
        return ()
    entries = {e for _, gpu in code for m in gpu.modules for e in (m.sass if key == "native" else m.ptx)}
    targets = sorted({capability_of(entry.partition("@")[0]) for entry in entries} - {""}, key=parse)
    kind = "machine code" if key == "native" else "PTX"
    return (f"{kind} for {', '.join(targets)}",) if targets else ()
