"""The header walk against NVIDIA's cuobjdump: the same images, targets and kinds in every file."""

import mmap
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.gpu import archive, cubin, engine, fatbin
from imgcheck.documents.facts import GpuModule
from tests import debian_nonfree, gpu_toolchain, gpu_wheels
from tests.tools import run

pytestmark = pytest.mark.slow

_ALL = ("75", "80", "86", "87", "88", "89", "90", "100", "103", "107", "110", "120", "121")
_LISTED = re.compile(r"^(ELF|PTX) file +\d+: \S*?sm_(\d+[af]?)\.\S*$", re.MULTILINE)


def gencode(*targets: str, ptx: str = "") -> tuple[str, ...]:
    flags = [word for t in targets for word in ("-gencode", f"arch=compute_{t},code=sm_{t}")]
    return (*flags, "-gencode", f"arch=compute_{ptx},code=compute_{ptx}") if ptx else tuple(flags)


def walked(path: Path) -> Counter[str]:
    """What our walk finds in a file: images by kind and target, `f` written as cuobjdump does, without it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        counts = _walked(view)
        view.release()
    return counts


def _walked(view: memoryview) -> Counter[str]:
    if view[:8] == archive.MAGIC:
        return sum((_walked(member) for member in archive.members(view)), Counter())
    if view[:4] == fatbin.MAGIC:
        areas = [view]
    elif view[:4] == b"\x7fELF":
        elf = Elf(bytes(view) if len(view) < 1 << 28 else view)
        if elf.e_machine == cubin.MACHINE:
            return Counter([f"ELF {cubin.target(elf)}"])
        areas = [area for found in engine.areas(elf) for area in found]
    else:
        return Counter()
    names = {fatbin.PTX: "PTX", fatbin.CUBIN: "ELF"}
    entries = [e for area in areas for c in fatbin.containers(area) for e in c.entries if e.kind in names]
    return Counter(f"{names[e.kind]} {e.target.rstrip('f')}" for e in entries)


def listed(path: Path, old: bool = False) -> Counter[str]:
    """What cuobjdump lists: today's, or 11.8, since today's refuses Kepler and much code made before CUDA 12.8."""
    if not old:
        return _names(run(gpu_toolchain.cuobjdump(), "-all", "-lelf", "-lptx", path).stdout)
    # 11.8 takes the two lists one at a time and ends with an error where one of them is empty.
    listings = (subprocess.run([debian_nonfree.cuobjdump(), "-all", option, path], capture_output=True, text=True)
                for option in ("-lelf", "-lptx"))  # fmt: skip
    return sum((_names(listing.stdout) for listing in listings), Counter())


def _names(text: str) -> Counter[str]:
    return Counter(f"{kind} {target.rstrip('f')}" for kind, target in _LISTED.findall(text))


_FORMS = {
    "each target": gencode(*_ALL, ptx="121"),
    "exact targets": gencode("90a", "100a", "103a", "120a", ptx="90a"),
    "family targets": gencode("100f", "120f", ptx="100f"),
    "everything packed": (*gencode("80", "90", ptx="90"), "-Xfatbin", "-compress-all"),
    "packed small": (*gencode("80", "90", ptx="90"), "-compress-mode", "size"),
    "packed fast": (*gencode("80", "90", ptx="90"), "-compress-mode", "speed"),
    "unpacked": (*gencode("80", "90", ptx="90"), "-compress-mode", "none"),
    "relocatable": ("-rdc=true", *gencode("80", "90", ptx="90")),
    "link-time optimised": ("-rdc=true", "-gencode", "arch=compute_90,code=[sm_90,lto_90]"),
    "debug": ("-G", "-lineinfo", *gencode("90", ptx="90")),
}


@pytest.mark.parametrize("flags", _FORMS.values(), ids=_FORMS.keys())
def test_programs_of_nvcc(flags: tuple[str, ...]) -> None:
    program = gpu_toolchain.nvcc(*flags, out="program")
    assert walked(program) == listed(program)
    assert walked(program)


@pytest.mark.parametrize("target", _ALL)
@pytest.mark.parametrize("kind", ["cubin", "fatbin"])
def test_single_images_of_nvcc(target: str, kind: str) -> None:
    image = gpu_toolchain.nvcc(f"-{kind}", f"-arch=sm_{target}", out=f"image.{kind}")
    assert walked(image)[f"ELF {target}"] == 1
    assert walked(image) == listed(image)


def test_concatenated_entries_hold_the_same_targets_as_plain_ones() -> None:
    flags = gencode("80", "90", "100", "120", ptx="120")
    plain, packed = (gpu_toolchain.nvcc("-fatbin", *flags, *more, out="i.fatbin") for more in ((), ("--concat",)))
    kinds = {entry.kind for c in fatbin.containers(memoryview(packed.read_bytes())) for entry in c.entries}
    assert kinds == {fatbin.PTX, fatbin.CUBIN}
    assert packed.read_bytes() != plain.read_bytes()
    assert walked(packed) == walked(plain) == listed(packed)


def test_a_program_without_section_headers_holds_the_same_code() -> None:
    program = gpu_toolchain.nvcc(*gencode("80", "90", ptx="90"), out="program")
    stripped = bytearray(program.read_bytes())
    stripped[40:48], stripped[60:64] = bytes(8), bytes(4)  # e_shoff; e_shnum and e_shstrndx
    whole, bare = (engine.read_gpu(memoryview(data), Elf(data)) for data in (program.read_bytes(), bytes(stripped)))
    assert whole is not None
    assert bare is not None
    assert bare.modules == whole.modules
    assert whole.modules == (GpuModule(1, ("80", "90"), ("90@9.5",)),)


def test_the_toolkit_and_the_runtime_of_a_program() -> None:
    program = gpu_toolchain.nvcc(*gencode("80", "90", ptx="90"), out="program").read_bytes()
    found = engine.read_gpu(memoryview(program), Elf(program))
    assert found is not None
    assert (found.toolkit, found.cudart) == ("13.5", "13.5")


@pytest.mark.parametrize(
    ("release", "target", "isa"), [("11.8", "37", "6.0"), ("12.4", "90a", "8.0"), ("12.9", "100a", "8.6")]
)
def test_cubins_of_older_toolkits(release: str, target: str, isa: str) -> None:
    data = gpu_toolchain.cubin(target, release, isa).read_bytes()
    found = engine.read_gpu(memoryview(data), Elf(data))
    assert found is not None
    assert (found.modules, found.toolkit) == ((GpuModule(1, (target,)),), release)


def test_object_archives() -> None:
    library = gpu_toolchain.nvcc("-lib", "-rdc=true", *gencode("80", "90a", ptx="90"), out="lib.a")
    assert walked(library) == listed(library)
    found = engine.read_gpu(memoryview(library.read_bytes()), None)
    assert found is not None
    assert {target for module in found.modules for target in module.sass} == {"80", "90a"}


@pytest.mark.parametrize("requirement", gpu_wheels.WHEELS)
def test_libraries_of_published_wheels(requirement: str) -> None:
    assert compared(requirement, old=False)


@pytest.mark.parametrize("requirement", gpu_wheels.OLD_WHEELS)
def test_libraries_of_older_wheels(requirement: str) -> None:
    assert compared(requirement, old=True)


def compared(requirement: str, old: bool) -> int:
    """How many libraries of a wheel have GPU code; each is compared."""
    wheel, count = gpu_wheels.wheel_of(requirement), 0
    for name in gpu_wheels.libraries(wheel):
        with gpu_wheels.member(wheel, name) as path:
            ours = walked(path)
            if ours:
                # 11.8 is older than the suffix `a` and lists such code without it.
                wanted = _without_suffix(ours) if old else ours
                assert wanted == listed(path, old), name
                count += 1
    return count


def _without_suffix(counts: Counter[str]) -> Counter[str]:
    folded: Counter[str] = Counter()
    for name, count in counts.items():
        folded[name.rstrip("a")] += count
    return folded


LAUNCHING = """
__global__ void child(float *a) { a[threadIdx.x] *= 2; }
__global__ void parent(float *a) { child<<<1, 32>>>(a); }
int main() { float *a; cudaMalloc(&a, 128); parent<<<1, 1>>>(a); return cudaDeviceSynchronize(); }
"""


@pytest.mark.parametrize("source", [gpu_toolchain.CUDA_SOURCE, LAUNCHING])
def test_relocatable_code_is_told_by_object(source: str) -> None:
    """Nvcc links no machine code of PTX alone; its device runtime, which it adds, has some for every GPU."""
    program = gpu_toolchain.nvcc("-rdc=true", *gencode(ptx="80"), out="app", source=source)
    found = engine.read_gpu(memoryview(program.read_bytes()), Elf(program.read_bytes()))
    assert found is not None
    (module,) = found.modules
    assert (module.sass, module.ptx) == ((), ())
    own, runtime = module.objects
    assert not own.sass and [entry.partition("@")[0] for entry in own.ptx] == ["80"]
    assert {"75", "80", "90", "100"} <= set(runtime.sass)


PLAIN = "__global__ void plain(float *a) { a[threadIdx.x] *= 3; }\nvoid launch() { plain<<<1, 1>>>(0); }\n"


def test_a_module_of_its_own_gets_nothing_of_relocatable_code_beside_it() -> None:
    """Paddle's libphi.so has 561 modules without PTX beside one that was linked: only this one has it in its parts."""
    alone = gpu_toolchain.nvcc("-c", *gencode("80"), out="plain.o", source=PLAIN)
    program = gpu_toolchain.nvcc("-rdc=true", *gencode("80", ptx="90"), str(alone), out="mixed")
    found = engine.read_gpu(memoryview(program.read_bytes()), Elf(program.read_bytes()))
    assert found is not None
    linked, plain = sorted(found.modules, key=lambda module: not module.objects)
    assert linked.count == plain.count == 1
    assert plain.sass == ("80",) and not plain.objects
    assert {entry.partition("@")[0] for each in linked.objects for entry in each.ptx} == {"90"}
