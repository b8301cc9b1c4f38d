"""Which function names are variants for some CPUs, by the field's conventions and no others."""

import pytest

from imgcheck.binaries.isa.names import is_clone


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
