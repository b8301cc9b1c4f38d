"""Versions in the code of CUDA runtimes and driver libraries, on stand-ins that a C compiler makes."""

import json
from pathlib import Path

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.gpu.engine import read_gpu
from imgcheck.documents.facts import ForwardCompat, GpuCode
from tests.tools import compile_c

_DRIVER = "int cuDriverGetVersion(int *v) { if (!v) return 1; *v = %d; return 0; }\n"
_RUNTIME = """
const char *cudaGetErrorString(int code) { return "CUDA driver version is insufficient for CUDA runtime version"; }
int cudaRuntimeGetVersion(int *v) { if (!v) return 1; *v = %d; return 0; }
"""
_SHARED = ("-shared", "-fPIC", "-O2", "-nostdlib")


def read(path: Path) -> GpuCode | None:
    data = path.read_bytes()
    return read_gpu(memoryview(data), Elf(data))


def library(source: str, soname: str, *flags: str, compiler: str = "gcc") -> GpuCode | None:
    return read(compile_c(source, *_SHARED, f"-Wl,-soname,{soname}", *flags, out=soname, compiler=compiler))


@pytest.mark.parametrize(("number", "version"), [(9010, "9.1"), (12040, "12.4"), (13000, "13.0")])
@pytest.mark.parametrize("compiler", ["gcc", "aarch64-linux-gnu-gcc"])
def test_driver_library(number: int, version: str, compiler: str) -> None:
    found = library(_DRIVER % number, "libcuda.so.1", compiler=compiler)
    assert found is not None
    assert (found.driver_cuda, found.stub, found.cudart) == (version, False, "")


def test_driver_version_in_its_strings() -> None:
    path = 'const char *rc = "/usr/share/nvidia/nvidia-application-profiles-390.30-rc";\n'
    found = library(_DRIVER % 9010 + path, "libcuda.so.1")
    assert found is not None
    assert found.driver_version == "390.30"


def test_link_stub() -> None:
    found = library("int cuDriverGetVersion(int *v) { return 34; }\n", "libcuda.so.1")
    assert found is not None
    assert (found.stub, found.driver_cuda) == (True, "")


@pytest.mark.parametrize("compiler", ["gcc", "aarch64-linux-gnu-gcc"])
def test_static_runtime_in_a_stripped_library(compiler: str) -> None:
    found = library(_RUNTIME % 9000, "libapp.so", "-s", compiler=compiler)
    assert found is not None
    assert found.cudart == "9.0"


def test_on_power_the_runtime_is_plainly_unknown() -> None:
    assert library(_RUNTIME % 8000, "libapp.so", compiler="powerpc64le-linux-gnu-gcc") is None


def test_a_number_without_the_runtimes_texts_is_no_runtime() -> None:
    assert library("int f(int *v) { *v = 9000; return 0; }\n", "libapp.so") is None


def test_two_versions_in_one_file_are_no_version() -> None:
    both = _RUNTIME % 9000 + "int other(int *v) { if (!v) return 1; *v = 10010; return 0; }\n"
    assert library(both, "libapp.so") is None


def note(text: str) -> str:
    quoted = json.dumps(text)[1:-1]
    return (
        '__asm__(".section .note.cuda.fwd_compatibility,\\"a\\",@note\\n.long 19, 1f - 0f, 1\\n'
        f'.asciz \\"NVIDIA Corporation\\"\\n.balign 4\\n0: .ascii \\"{json.dumps(quoted)[1:-1]}\\"\\n1:\\n.text");\n'
    )


def test_forward_compatibility_note() -> None:
    text = '{"Format":1,"CUDA Version":"12.9","Driver":[535,550],"Device":[1,2]}'
    found = library(_DRIVER % 12090 + note(text), "libcuda.so.1")
    assert found is not None
    assert found.forward_compat == ForwardCompat("12.9", (535, 550), (1, 2))


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"Driver": 5}', '{"Driver": ["x"]}', '{"Device": {"a": []}}', "[1]", r'{"CUDA version": "\ud800"}',
     '{"Driver": [99999999999999999999999]}', '{"Driver": [1e999]}', '{"CUDA version": "' + "1" * 5000 + '.0"}'],
)  # fmt: skip
def test_hostile_notes(text: str) -> None:
    found = library(_DRIVER % 12090 + note(text), "libcuda.so.1")
    assert found is not None
    assert found.forward_compat in (None, ForwardCompat(""))
