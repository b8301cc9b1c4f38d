"""Which paths are variants for some CPUs, by the field's conventions and no others."""

import pytest

from imgcheck.binaries.isa.names import is_clone
from imgcheck.binaries.isa.variants import is_variant_path


@pytest.mark.parametrize("path", [
    "/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libz.so.1",
    "/lib64/haswell/libm.so.6",
    "/opt/mkl/libmkl_avx512.so.2",
    "/opt/mkl/libmkl_def.so.2",
    "/usr/lib/ollama/libggml-cpu-haswell.so",
    "/x/embree4/libembree_avx2.so",
])  # fmt: skip
def test_variant_paths(path: str) -> None:
    assert is_variant_path(path)


@pytest.mark.parametrize("path", [
    "/usr/lib/libfoo.so.2",
    "/usr/lib/libdef.so",
    "/usr/lib/foo-v2/lib_v3.so",
    "/opt/avx/bin/server",
    "/usr/bin/fma",
])  # fmt: skip
def test_ordinary_paths(path: str) -> None:
    assert is_variant_path(path) is None


@pytest.mark.parametrize("name", ["memcpy_avx_unaligned", "f.avx2", "f.arch_haswell", "sgemm_kernel_SKYLAKEX",
                                  "_ZN2cv8opt_AVX24funcE", "x264_pixel_sad_16x16_avx512", "foo_X86_V3"])  # fmt: skip
def test_clone_names(name: str) -> None:
    assert is_clone(name, "x86_64")


@pytest.mark.parametrize("name", ["main", "avxenable", "_ZN6format3runEv", "parse_v2", "assessment", "fmall"])
def test_ordinary_names(name: str) -> None:
    assert not is_clone(name, "x86_64")
