"""Builds the images of images.toml: each a small OCI layout of real programs that hold what decides its scenario."""

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from tests.images import Directory, File, ImageBuilder, Member, Symlink
from tests.seeds.gpu_code import embedded, fatbin
from tests.tools import compile_c, need, run

_HERE = Path(__file__).parent
_LIBRARIES = "usr/local/lib/python3.6/dist-packages/tensorflow"
_HEADER = f"{_LIBRARIES}/include/external/local_config_cuda/cuda/cuda/cuda_config.h"
_DRIVER_CUDA = {"390.30": 9010, "396.44": 9020}
_MULTIARCH = {"amd64": "x86_64-linux-gnu", "ppc64le": "powerpc64le-linux-gnu"}
_LOADER = {"amd64": "lib64/ld-linux-x86-64.so.2", "ppc64le": "lib64/ld64.so.2"}
_COMPILER = {"amd64": "gcc", "ppc64le": "powerpc64le-linux-gnu-gcc"}
_FLAG = {"amd64": "-march", "ppc64le": "-mcpu"}


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of images.toml."""

    id: str
    march: str
    """What gcc's -march (-mcpu for ppc64le) takes."""
    cuda: str
    """Version of the CUDA runtime in the image."""
    architecture: str = "amd64"
    libcuda: str = ""
    """Version of the driver library that the image brings; empty where it brings none."""
    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    """What the framework says that it was built for; empty where it says nothing."""
    environment: tuple[str, ...] = ()
    labels: dict[str, str] = {}


@cache
def recipes() -> dict[str, Recipe]:
    """Every image by its id."""
    table = tomllib.loads((_HERE / "images.toml").read_text())["image"]
    return {recipe.id: recipe for recipe in msgspec.convert(table, list[Recipe])}


def build(recipe: Recipe) -> ImageBuilder:
    """The image of a recipe."""
    environment = recipe.environment or (f"LD_LIBRARY_PATH=/usr/local/cuda-{recipe.cuda}/lib64",)
    image = ImageBuilder(
        architecture=recipe.architecture,
        entrypoint=("/usr/local/bin/train",),
        environment=("PATH=/usr/local/bin:/usr/bin:/bin", *environment),
        labels=recipe.labels,
    )
    image.layer(_base(recipe.architecture), "ADD rootfs.tar /")
    image.layer(_cuda(recipe), f"RUN apt-get install -y cuda-cudart-{recipe.cuda.replace('.', '-')}")
    if recipe.libcuda:
        image.layer(_driver(recipe), f"RUN apt-get install -y libcuda1={recipe.libcuda}")
    flags = f"{_FLAG[recipe.architecture]}={recipe.march}"
    return image.layer(_framework(recipe), f"RUN bazel build --copt={flags} //tensorflow:libtensorflow_framework.so")


def _compile(recipe: Recipe, name: str, *flags: str, out: str, extra: str = "") -> Path:
    source = (_HERE / "sources" / f"{name}.c").read_text() + extra
    return compile_c(source, "-O2", *flags, out=out, compiler=_COMPILER[recipe.architecture])


@cache
def _base(architecture: str) -> dict[str, Member]:
    """The C library of the compiler, and its loader."""
    compiler = need(_COMPILER[architecture])
    loader = _LOADER[architecture]
    files = {name: _library_of(compiler, Path(name).name) for name in (loader, "libc.so.6")}
    return {
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "etc/group": "root:x:0:\n",
        **dict.fromkeys(("dev", "proc", "sys", "root", "usr/lib64"), Directory()),
        "tmp": Directory(0o1777),
        loader: files[loader],
        f"lib/{_MULTIARCH[architecture]}/libc.so.6": files["libc.so.6"],
    }


def _library_of(compiler: str, name: str) -> Path:
    found = Path(run(compiler, f"-print-file-name={name}").stdout.strip())
    # Native compilers do not look where the loader lies.
    return found if found.is_absolute() else Path("/lib64") / name


def _cuda(recipe: Recipe) -> dict[str, Member]:
    directory = f"usr/local/cuda-{recipe.cuda}"
    soname = f"libcudart.so.{recipe.cuda}"
    library = _compile(recipe, "libcudart", f"-DCUDA={_number(recipe.cuda)}", *_shared(soname), out=soname)
    return {f"{directory}/lib64/{soname}": library, f"{directory}/version.txt": f"CUDA Version {recipe.cuda}.0\n"}


def _driver(recipe: Recipe) -> dict[str, Member]:
    directory = f"usr/lib/{_MULTIARCH[recipe.architecture]}"
    file = f"libcuda.so.{recipe.libcuda}"
    return {f"{directory}/{file}": libcuda(recipe), f"{directory}/libcuda.so.1": Symlink(file)}


def libcuda(recipe: Recipe) -> Path:
    """The driver library of an image; where it brings none, one that a host could inject."""
    version = recipe.libcuda or "390.30"
    defines = (f'-DDRIVER="{version}"', f"-DCUDA={_DRIVER_CUDA[version]}")
    return _compile(recipe, "libcuda", *defines, *_shared("libcuda.so.1"), out=f"libcuda.so.{version}")


def _framework(recipe: Recipe) -> dict[str, Member]:
    (cudart,) = (path for name, path in _cuda(recipe).items() if "libcudart" in name)
    march = f"{_FLAG[recipe.architecture]}={recipe.march}"
    library = _compile(
        recipe, "framework", "-O3", "-ffast-math", march, "-DGPU", *_shared("libtensorflow_framework.so"),
        "-Wl,--no-as-needed", str(libcuda(recipe)), str(cudart),
        out="libtensorflow_framework.so", extra=embedded(fatbin(recipe.sass, recipe.ptx, recipe.cuda)),
    )  # fmt: skip
    program = _compile(
        recipe, "program", str(library), f"-Wl,-rpath,/{_LIBRARIES}", "-Wl,--allow-shlib-undefined", out="train"
    )
    members: dict[str, Member] = {
        f"{_LIBRARIES}/libtensorflow_framework.so": library,
        "usr/local/bin/train": File(program.read_bytes(), 0o755),
    }
    if recipe.capabilities:
        members[_HEADER] = _capability_header(recipe)
        members[f"{_LIBRARIES}_gpu-1.12.0.dist-info/METADATA"] = "Name: tensorflow-gpu\nVersion: 1.12.0\n"
    return members


def _capability_header(recipe: Recipe) -> str:
    """The header that TensorFlow 1.x installs with the settings of its build."""
    targets = ",".join(f'CudaVersion("{capability}")' for capability in recipe.capabilities)
    return f'#define TF_CUDA_CAPABILITIES {targets}\n#define TF_CUDA_VERSION "{recipe.cuda}"\n'


def _shared(soname: str) -> tuple[str, ...]:
    return "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-Wl,--allow-shlib-undefined"


def _number(version: str) -> int:
    major, minor = (int(part) for part in version.split("."))
    return major * 1000 + minor * 10
