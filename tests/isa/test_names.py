"""Which function names are variants for some CPUs, by the field's conventions and no others."""

import pytest

from imgcheck.binaries.isa.names import clones, generation, generations
from tests.isa.programs import analyse
from tests.tools import compile_c


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


OFFERED = """
#include <cpuid.h>
#include <immintrin.h>
int cipher_NAME(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) ? TOLD : 0;
}
__attribute__((noinline, target("aes"))) long cipher_begin(__m128i *at, int count) {
    for (int i = 0; i < count; i++) at[i] = _mm_aesenc_si128(at[i], at[i + 1]);
    return count;
}
long cipher_run(__m128i *at, int count) { return cipher_begin(at, count) + 1; }
"""


@pytest.mark.parametrize(
    ("name", "told", "answer"),
    [
        ("is_available", "c >> 25 & 1", "dispatched"),
        ("is_available", "c >> 20 & 1", "unknown"),
        ("rounds", "c >> 25 & 1", "unknown"),
    ],
)
def test_who_calls_exports_is_taken_to_ask_the_one_that_tells_whether_they_may_be(
    name: str, told: str, answer: str
) -> None:
    """As libsodium's AES-256-GCM, which has but one version."""
    found = analyse(compile_c(OFFERED.replace("NAME", name).replace("TOLD", told), "-O2", "-shared", "-fPIC", "-s"))
    (use,) = (use for use in found.uses if use.feature == "aes")
    assert use.answer == answer, use.reason
