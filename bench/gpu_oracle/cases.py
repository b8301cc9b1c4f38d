"""The cases: small images whose GPU code a driver takes or refuses, made with NVIDIA's compilers or cut from wheels.

Each case is a folder that imgcheck reads as an image (`dir:`) and that a machine with a GPU runs. Most hold one module
alone (a cubin, PTX or a fatbin), which `cuModuleLoadData` loads; programs bring their own CUDA runtime.
"""

import mmap
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.gpu.fatbin import CONTAINER, containers
from imgcheck.binaries.gpu.fatbin import PTX as PTX_KIND
from tests import debian_nonfree, gpu_toolchain
from tests.gpu_wheels import OLD_WHEELS, WHEELS, libraries, member, wheel_of
from tests.tools import cache_directory, compile_c, run

LIBRARIES = "usr/lib64"


class Case(msgspec.Struct, frozen=True):
    """One entry of cases.json."""

    name: str
    program: str
    """Path below the case's folder."""
    arguments: tuple[str, ...] = ()
    """Of the program, which is started in the case's folder."""
    libraries: tuple[str, ...] = ()
    """Directories of the case for LD_LIBRARY_PATH."""
    runtime: str = "nvidia"
    """How imgcheck is to take the host's driver libraries: "nvidia" injects them, "docker" does not."""


CUBINS = {
    "11.8": ("7.8", "35 37 50 52 53 60 61 62 70 72 75 80 86 87 89 90"),
    "12.4": ("8.0", "50 60 70 75 80 86 87 89 90 90a"),
    "12.9": ("8.7", "52 70 75 80 86 87 89 90 90a 100 100a 101 120 120a"),
    "13.0": ("9.0", "75 80 86 87 88 89 90 90a 100 100a 100f 103 110 120 121"),
    "13.5": ("9.5", "75 80 89 90 90a 100 100f 120"),
}
"""By release of ptxas: the PTX version of the source, and targets."""

PTX = {
    "2.3": "10 13 20", "3.1": "30 35", "4.2": "20 35 50 52 53", "5.0": "30 35 37 60 61 62", "6.0": "35 60 70",
    "6.3": "50 70 75", "7.0": "52 75 80", "7.8": "35 60 80 87 89 90", "8.0": "70 90 90a", "8.4": "80 90",
    "8.6": "90 100 100a", "8.7": "75 90 120", "8.8": "90 90a 100f", "9.0": "75 80 88 90 90a 100 100a 110",
    "9.1": "75 80 90 90a", "9.2": "80 90", "9.3": "90", "9.5": "75 90 90a 100",
}  # fmt: skip
"""By PTX version: targets that its text names."""

_SOURCE = """
#include <cstdio>
__global__ void scale(float *data, float factor) { data[threadIdx.x] *= factor; }
int main() {
  float values[32], *data = nullptr;
  for (int i = 0; i < 32; i++) values[i] = i;
  cudaError_t end = cudaMalloc(&data, sizeof values);
  if (!end) end = cudaMemcpy(data, values, sizeof values, cudaMemcpyHostToDevice);
  if (!end) { scale<<<1, 32>>>(data, 3); end = cudaGetLastError(); }
  if (!end) end = cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost);
  for (int i = 0; !end && i < 32; i++) if (values[i] != 3 * i) { puts("wrong values"); return 2; }
  printf("%d %s\\n", end, end ? cudaGetErrorString(end) : "right");
  return end != cudaSuccess;
}
"""


def _for(*targets: str) -> tuple[str, ...]:
    """Options of nvcc for targets as "sm_80" (machine code) or "compute_80" (PTX)."""
    options: list[str] = []
    for target in targets:
        number = target.partition("_")[2]
        options += ["-gencode", f"arch=compute_{number},code={target}"]
    return tuple(options)


PROGRAMS = {
    "sass-75": _for("sm_75"), "sass-80": _for("sm_80"), "sass-89": _for("sm_89"), "sass-90": _for("sm_90"),
    "sass-90a": _for("sm_90a"), "sass-100": _for("sm_100"), "sass-100f": _for("sm_100f"), "sass-120": _for("sm_120"),
    "ptx-75": _for("compute_75"), "ptx-80": _for("compute_80"), "ptx-90": _for("compute_90"),
    "ptx-90a": _for("compute_90a"), "ptx-100": _for("compute_100"), "sass-80-ptx-80": _for("sm_80", "compute_80"),
    "sass-90-ptx-90": _for("sm_90", "compute_90"), "sass-100-ptx-100": _for("sm_100", "compute_100"),
    "sass-75-90": _for("sm_75", "sm_90"), "all-compressed": ("-Xfatbin", "-compress-all", *_for("sm_90")),
    "rdc-sass-90": ("-rdc=true", *_for("sm_90")), "rdc-sass-80": ("-rdc=true", *_for("sm_80")),
    "rdc-ptx-80": ("-rdc=true", *_for("compute_80")), "rdc-ptx-90": ("-rdc=true", *_for("compute_90")),
    "rdc-sass-75-ptx-75": ("-rdc=true", *_for("sm_75", "compute_75")),
    "rdc-sass-80-ptx-80": ("-rdc=true", *_for("sm_80", "compute_80")),
    "debug-90": ("-G", *_for("sm_90")),
}  # fmt: skip
"""Programs by nvcc 13.0 and 13.5, by name and options."""

_PUBLISHED = (*OLD_WHEELS, *WHEELS)
_MODULE_LIMIT = 600_000
"""Bytes of a module cut from a published library: all of the cases travel together."""
_PER_LIBRARY = 6
_STUB = 2560
"""Bytes: smaller cubins may be without code."""


def make(root: Path) -> list[Case]:
    """Writes every case below `root`, and cases.json."""
    root.mkdir(parents=True)
    makers = _cubins, _ptx, _texts, _fatbins, _concatenated, _programs, _drivers, _published
    cases = [case for make_cases in makers for case in make_cases(root)]
    (root / "cases.json").write_bytes(msgspec.json.format(msgspec.json.encode(cases)))
    return cases


def _module(root: Path, name: str, file: str, content: bytes, kernel: str = "scale", **more: object) -> Case:
    """A module beside the program that loads it and, where a `kernel` is named, runs that."""
    (root / name).mkdir()
    (root / name / file).write_bytes(content)
    shutil.copy(_loader(), root / name / "load")
    return Case(name, "load", (file, *filter(None, [kernel])), **more)  # type: ignore[arg-type]


@cache
def _loader() -> Path:
    source = (Path(__file__).parent / "load.c").read_text()
    names = dict.fromkeys(re.findall(r"\b(cu[A-Z]\w+)\(", source))
    stub = compile_c("".join(f"int {name}(void) {{ return 34; }}\n" for name in names), "-shared",
                     "-Wl,-soname,libcuda.so.1", out="libcuda.so")  # fmt: skip
    return compile_c(source, "-O1", f"-L{stub.parent}", "-lcuda", out="load")


def _cubins(root: Path) -> Iterator[Case]:
    for release, (isa, targets) in CUBINS.items():
        for target in targets.split():
            code = gpu_toolchain.cubin(target, release, isa).read_bytes()
            yield _module(root, f"cubin-{release}-{target}", "scale.cubin", code)
    whole = gpu_toolchain.cubin("90", "13.0", "9.0").read_bytes()
    yield _module(root, "cubin-cut-in-half", "scale.cubin", whole[: len(whole) // 2])
    yield _module(root, "cubin-header-alone", "scale.cubin", whole[:64])


def _ptx_text(isa: str, target: str) -> bytes:
    return gpu_toolchain.PTX.format(isa=isa, target=target).encode()


def _ptx(root: Path) -> Iterator[Case]:
    for isa, targets in PTX.items():
        for target in targets.split():
            yield _module(root, f"ptx-{isa}-{target}", "scale.ptx", _ptx_text(isa, target))


_TEXTS: dict[str, tuple[bytes, bytes]] = {
    "line-ends-of-windows": (b"\n", b"\r\n"), "line-ends-of-old-macs": (b"\n", b"\r"),
    "blank-lines-first": (b".version", b"\n\n  \n.version"), "tabs": (b".version ", b"\t.version\t"),
    "version-and-target-in-one-line": (b"9.0\n", b"9.0 "),
    "comment-first": (b".version", b"// made by hand\n//\n.version"),
    "long-comment-first": (b".version", b"//" + b"x" * 6000 + b"\n.version"),
    "many-comments-first": (b".version", b"// a line of a licence\n" * 400 + b".version"),
    "other-version-in-comment": (b".version 9.0", b"/* .version 9.0\n.target sm_90 */\n// .version 8.0\n.version 9.1"),
    "comment-behind-version": (b"9.0\n", b"9.0 // of CUDA 13.0\n/* and */\n"),
}  # fmt: skip
"""What PTX text may look like: what is replaced in such of version 9.0 for sm_90, and by what."""


def _texts(root: Path) -> Iterator[Case]:
    for name, (old, new) in _TEXTS.items():
        text = _ptx_text("9.0", "90")
        yield _module(root, f"text-{name}", "scale.ptx", text.replace(old, new))


_KERNEL = 'extern "C" __global__ void scale(float *data, float factor) { data[threadIdx.x] *= factor; }\n'
_CONCATENATED = {"sass-75-80-90": ("sm_75", "sm_80", "sm_90"), "sass-75-80": ("sm_75", "sm_80")}
"""Code of several targets in one packed entry, as only newer toolkits than the driver make it."""


def _concatenated(root: Path) -> Iterator[Case]:
    for name, targets in _CONCATENATED.items():
        options = ("-fatbin", "-Xfatbin=-concat", "-Xfatbin=-compress-all", *_for(*targets))
        path = gpu_toolchain.nvcc(*options, out="scale.fatbin", source=_KERNEL, release="13.5.37")
        yield _module(root, f"concatenated-{name}", "scale.fatbin", path.read_bytes())


_MIXED = {
    "old-code-old-ptx": ("cubin 80", "ptx 8.0 80"), "fitting-code-new-ptx": ("cubin 90", "ptx 9.5 90"),
    "old-code-new-ptx": ("cubin 80", "ptx 9.5 80"), "newer-code-newer-ptx": ("cubin 100", "ptx 8.6 100"),
    "exact-code": ("cubin 90a",), "exact-ptx": ("ptx 8.0 90a",), "newer-code-old-ptx": ("cubin 120", "ptx 7.0 75"),
    "two-ptx": ("ptx 9.5 90", "ptx 7.0 75"), "two-ptx-newer-last": ("ptx 7.0 75", "ptx 9.5 90"),
    "ampere-both": ("cubin 80", "cubin 86"), "old-and-fitting": ("cubin 75", "cubin 90"),
    "new-ptx-of-old-target": ("ptx 9.5 75", "ptx 9.0 90"),
    "old-code-new-ptx-old-ptx": ("cubin 80", "ptx 9.5 90", "ptx 8.0 80"),
    "same-target-new-first": ("ptx 9.5 90", "ptx 9.0 90"), "same-target-new-last": ("ptx 9.0 90", "ptx 9.5 90"),
    "exact-and-new": ("ptx 9.0 90a", "ptx 9.5 90"), "new-and-exact": ("ptx 9.5 90", "ptx 9.0 90a"),
    "new-exact-and-old": ("ptx 9.5 90a", "ptx 9.0 90"), "old-and-new-exact": ("ptx 9.0 90", "ptx 9.5 90a"),
    "new-exact-old-target": ("ptx 9.5 90a", "ptx 7.0 75"), "newer-target-old-target": ("ptx 8.6 100", "ptx 7.0 75"),
    "exact-code-and-new-ptx": ("cubin 90a", "ptx 9.5 90"), "oldest-target": ("ptx 2.3 10",),
    "oldest-and-old-target": ("ptx 2.3 10", "ptx 3.1 30"), "new-target-too-old": ("ptx 9.5 80", "ptx 2.3 13"),
}  # fmt: skip
"""Fatbins of several images: a cubin's target, or a PTX version and target."""


def _fatbins(root: Path) -> Iterator[Case]:
    for name, images in _MIXED.items():
        yield _module(root, f"fatbin-{name}", "scale.fatbin", _fatbin(name, images))


def _fatbin(name: str, images: tuple[str, ...]) -> bytes:
    work = cache_directory("gpu-code", f"fatbin-{name}")
    options: list[str] = []
    for number, image in enumerate(images):
        kind, *isa, target = image.split()
        path = work / f"{number}.{kind}"
        release = "12.9" if target.startswith("1") else "12.4"
        path.write_bytes(
            _ptx_text(*isa, target) if isa else gpu_toolchain.cubin(target, release, CUBINS[release][0]).read_bytes()
        )
        options.append(f"--image3=kind={'ptx' if isa else 'elf'},sm={target},file={path}")
    run(gpu_toolchain.toolkit() / "bin" / "fatbinary", "-64", "--cicc-cmdline=", f"--create={work}/out", *options)
    return (work / "out").read_bytes()


def _programs(root: Path) -> Iterator[Case]:
    for release in ("13.0.88", "13.5.37"):
        for name, options in PROGRAMS.items():
            folder = root / f"nvcc-{release}-{name}"
            folder.mkdir()
            shutil.copy(gpu_toolchain.nvcc(*options, out="app", source=_SOURCE, release=release), folder / "app")
            yield Case(folder.name, "app")


def _drivers(root: Path) -> Iterator[Case]:
    """Driver libraries of other branches in the image, with nothing injected."""
    for branch in debian_nonfree.LIBCUDA:
        case = _module(
            root, f"libcuda-{branch}", "scale.ptx", _ptx_text("6.0", "60"), libraries=(LIBRARIES,), runtime="docker"
        )
        folder = root / case.name / LIBRARIES
        folder.mkdir(parents=True)
        for directory in debian_nonfree.library_path(branch).split(":"):
            for path in Path(directory).glob("lib*.so.*"):
                shutil.copy(path.resolve(), folder / path.resolve().name)
        (folder / "libcuda.so.1").symlink_to(debian_nonfree.libcuda(branch).name)
        yield case


def _published(root: Path) -> Iterator[Case]:
    for requirement in _PUBLISHED:
        wheel = wheel_of(requirement)
        for name in libraries(wheel):
            label = f"{requirement}-{name.replace('/', '-')}"
            with member(wheel, name) as path, path.open("rb") as file:
                yield from _modules_of(root, label, memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def _modules_of(root: Path, name: str, data: memoryview) -> Iterator[Case]:
    """The smallest module of each set of targets that a library has, at most six."""
    elf = Elf(data)
    found_section = elf.section(".nv_fatbin")
    if found_section is None:
        return
    section = elf.section_data(found_section)
    smallest: dict[tuple, bytes] = {}
    for found in containers(section):
        size = CONTAINER.size + CONTAINER.unpack_from(section, found.offset)[3]
        signature = tuple(sorted((each.kind, each.target, each.version, bool(each.packed)) for each in found.entries))
        code = any(each.kind == PTX_KIND or each.unpacked > _STUB for each in found.entries)
        if code and size < min(_MODULE_LIMIT, len(smallest.get(signature, bytes(_MODULE_LIMIT)))):
            smallest[signature] = bytes(section[found.offset : found.offset + size])
    for number, module in enumerate(sorted(smallest.values(), key=len)[:_PER_LIBRARY]):
        yield _module(root, f"{name}-{number}", "module.fatbin", module, "")
