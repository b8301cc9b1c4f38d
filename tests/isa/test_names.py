"""Which function names are variants for some CPUs, by the field's conventions and no others."""

import pytest

from imgcheck.binaries.isa.names import clones, is_clone


@pytest.mark.parametrize("name", ["memcpy_avx_unaligned", "f.avx2", "f.arch_haswell", "sgemm_kernel_SKYLAKEX",
                                  "_ZN2cv8opt_AVX24funcE", "x264_pixel_sad_16x16_avx512", "foo_X86_V3"])  # fmt: skip
def test_clone_names(name: str) -> None:
    assert is_clone(name, "x86_64")


@pytest.mark.parametrize("name", ["__arm_tpidr2_restore", "__arm_za_disable", "__arm_sme_state", "dot_i8_neon"])
def test_clone_names_of_aarch64(name: str) -> None:
    assert is_clone(name, "aarch64")


@pytest.mark.parametrize("name", ["main", "avxenable", "_ZN6format3runEv", "parse_v2", "assessment", "fmall"])
def test_ordinary_names(name: str) -> None:
    assert not is_clone(name, "x86_64")


@pytest.mark.parametrize(
    "name", ["_GLOBAL__sub_I_kernel_avx2.cpp", "_GLOBAL__sub_D_sum_avx512.cc", "_GLOBAL__I_dot_sse4_1"]
)
def test_what_runs_for_a_whole_source_file_is_no_variant(name: str) -> None:
    assert not is_clone(name, "x86_64")
    assert clones([b"main", name.encode(), b"dot_avx2"], "x86_64") == [2]
