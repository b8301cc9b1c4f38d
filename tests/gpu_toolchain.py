"""NVIDIA's own compilers and cuobjdump from PyPI, for tests that need real GPU code; no GPU is needed to run them."""

import hashlib
import shutil
from functools import cache
from pathlib import Path

from tests.tools import cache_directory, kept, need, pypi_directory, run

_PTXAS = {
    "11.8": "nvidia-cuda-nvcc-cu11==11.8.89",
    "12.4": "nvidia-cuda-nvcc-cu12==12.4.131",
    "12.9": "nvidia-cuda-nvcc-cu12==12.9.86",
    "13.0": "nvidia-cuda-nvcc==13.0.88",
    "13.5": "nvidia-cuda-nvcc==13.5.37",
}
"""Releases whose ptxas is on PyPI: 11.8 is the last for sm_35 and sm_37, 12.9 the last for sm_50 to sm_70."""

_RELEASE = "13.5.37"

PTX = """.version {isa}
.target sm_{target}
.address_size 64
.visible .entry scale(.param .u64 data, .param .f32 factor)
{{
  .reg .u64 %rd<3>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [data];
  cvta.to.global.u64 %rd2, %rd1;
  ld.param.f32 %f1, [factor];
  ld.global.f32 %f2, [%rd2];
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%rd2], %f3;
  ret;
}}
"""
"""A kernel that every toolkit and target takes; `isa` is the PTX version, `target` as in sm_TARGET."""

CUDA_SOURCE = (
    "__global__ void scale(float *data, float factor) { data[threadIdx.x] *= factor; }\nint main() { return 0; }\n"
)


@cache
def ptxas(release: str) -> Path:
    """The ptxas of a CUDA release ("11.8")."""
    (program,) = pypi_directory(_PTXAS[release]).glob("nvidia/*/bin/ptxas")
    return program


def cubin(target: str, release: str, isa: str) -> Path:
    """A real cubin for `target` ("37", "90a"), made by the ptxas of `release` from PTX of version `isa`."""

    def make(made: Path) -> None:
        source = made.with_suffix(".ptx")
        source.write_text(PTX.format(isa=isa, target=target))
        run(ptxas(release), f"-arch=sm_{target}", source, "-o", made)

    return kept(cache_directory("gpu-code", f"ptxas-{release}") / f"scale_{target}_{isa}.cubin", make)


@cache
def toolkit(release: str = _RELEASE) -> Path:
    """A directory with nvcc, fatbinary and all that they need, put together from wheels and kept."""

    def make(work: Path) -> None:
        for name in ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime"):
            shutil.copytree(pypi_directory(f"{name}=={release}") / "nvidia" / "cu13", work, dirs_exist_ok=True)
        for program in (*(work / "bin").iterdir(), *(work / "nvvm" / "bin").iterdir()):
            program.chmod(0o755)

    return kept(cache_directory("cuda") / release, make)


def nvcc(*flags: str, out: str, source: str = CUDA_SOURCE, release: str = _RELEASE) -> Path:
    """What nvcc makes of `source` with `flags`, kept by the hash of both."""
    need("gcc")
    key = hashlib.sha256("\0".join((release, out, *flags, source)).encode()).hexdigest()[:24]

    def make(made: Path) -> None:
        text, root = made.with_name("source.cu"), toolkit(release)
        text.write_text(source)
        paths = ("-I", root / "include", "-L", root / "lib")
        run(root / "bin" / "nvcc", "-cudart", "static", *paths, *flags, text, "-o", made)

    return kept(cache_directory("gpu-code", key) / out, make)


@cache
def cuobjdump() -> Path:
    program = pypi_directory(f"nvidia-cuda-cuobjdump=={_RELEASE}") / "nvidia" / "cu13" / "bin" / "cuobjdump"
    program.chmod(0o755)
    return program
