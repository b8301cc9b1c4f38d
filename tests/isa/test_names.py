"""Which function names are variants for some CPUs, by the field's conventions and no others."""

import pytest

from imgcheck.binaries.isa.names import clones, generation, generations


@pytest.mark.parametrize("name", ["memcpy_avx_unaligned", "f.avx2", "f.arch_haswell", "sgemm_kernel_SKYLAKEX",
                                  "_ZN2cv8opt_AVX24funcE", "x264_pixel_sad_16x16_avx512", "foo_X86_V3",
                                  "_ZN4daal3dotILNS_7CpuTypeE4EEEvv", "_Z3dotIL10SIMD_levelE12EEvv"])  # fmt: skip
def test_clone_names(name: str) -> None:
    assert generation(name, "x86_64") is not None


@pytest.mark.parametrize("name", ["__arm_tpidr2_restore", "__arm_za_disable", "__arm_sme_state", "dot_i8_neon"])
def test_clone_names_of_aarch64(name: str) -> None:
    assert generation(name, "aarch64") is not None


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "avxenable",
        "_ZN6format3runEv",
        "parse_v2",
        "assessment",
        "fmall",
        "_ZN4daal3dotILNS_7CpuTypeE0EEEvv",
        "_ZN4daal3dotILNS_5ColorE4EEEvv",
    ],
)
def test_ordinary_names(name: str) -> None:
    assert generation(name, "x86_64") is None


@pytest.mark.parametrize(
    "name", ["_GLOBAL__sub_I_kernel_avx2.cpp", "_GLOBAL__sub_D_sum_avx512.cc", "_GLOBAL__I_dot_sse4_1"]
)
def test_what_runs_for_a_whole_source_file_is_no_variant(name: str) -> None:
    assert generation(name, "x86_64") is None
    assert [*clones([b"main", name.encode(), b"dot_avx2"], "x86_64")] == [2]


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("sum_sse4_1", "avx"),
        ("sum_avx", "avx512f"),
        ("sse2_to_AVX2", "avx512f"),
        ("sum_avx512_vnni", None),
        ("x_ni", None),
        ("_ZN4daal8dot_avx2ILNS_7CpuTypeE4EEEvv", None),
    ],
)
def test_a_name_excuses_as_much_as_the_newest_generation_in_it(name: str, below: str | None) -> None:
    (number,) = clones([name.encode()], "x86_64").values()
    assert number == generation(name, "x86_64")
    assert generations("x86_64")[number].get("below") == below
