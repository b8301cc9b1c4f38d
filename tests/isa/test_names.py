"""Which function names are variants for some CPUs, by the field's conventions and no others."""

import pytest

from imgcheck.binaries.isa.names import clones, family, family_for_any_cpu, generation, generations
from tests.isa.programs import MODELS, analyse, observed, predicted
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


LEFT_OVER = ["add_bytes_c", "TOY_ref_keypair", "dgemm_kernel_GENERIC", "f_generic.part.0", "sum_plain", "sum_c.cold",
             "__moment_generic_MOD_sums", "_ZNK4scan8fallback14implementation5indexEPKh"]  # fmt: skip
VERSIONS = ["add_bytes_avx2", "TOY_avx2_keypair", "dgemm_kernel_HASWELL", "f_avx512", "sum_sse4_1",
            "__moment_avx2_MOD_sums", "_ZNK4scan7haswell14implementation5indexEPKh"]  # fmt: skip
OF_ANY_KIND = ["main", "c", "parse_c_string", "igemm_fallback_wrapper",
               "genericfind", "_ZN5Eigen8internal13scalar_sum_opE", "_ZN18fallback3fE",
               "plain_text", "_Z10sum_scalarv"]  # fmt: skip


def test_names_of_what_is_left_where_no_other_version_fits() -> None:
    assert {family_for_any_cpu(name) for name in LEFT_OVER} == {family(name, "x86_64") for name in VERSIONS}
    assert {family_for_any_cpu(name) for name in OF_ANY_KIND} == {""}


TABLE = """
#include <stdio.h>
#include <stdlib.h>
struct version { const char *name; unsigned needs; unsigned (*count)(const unsigned *, int); };
static __attribute__((noinline, target("avx2"))) unsigned count_avx2(const unsigned *p, int n)
{ unsigned s = 0; for (int i = 0; i < n; i++) s += p[i] * 3;
  __asm__ volatile("vpaddd %%ymm0, %%ymm0, %%ymm0; vzeroupper" ::: "xmm0"); return s; }
static __attribute__((noinline)) unsigned count_NAME(const unsigned *p, int n)
{ unsigned s = 0; for (int i = 0; i < n; i++) s += __builtin_popcount(p[i]); return s; }
unsigned count_elsewhere(const unsigned *p, int n);
struct version best = {"avx2", 32, count_avx2}, last = {"last", 0, count_NAME};
struct version *versions[] = {&best, &last};
unsigned numbers[64];
__attribute__((noinline)) unsigned has(void) { return __builtin_cpu_supports("avx2") ? 32 : 0; }
int main(int argc, char **argv)
{
    const char *wanted = getenv("VERSION");
    struct version *chosen = NULL;
    for (int i = 0; i < 2 && !chosen; i++)
        if ((versions[i]->needs & has()) == versions[i]->needs && (!wanted || *wanted == *versions[i]->name))
            chosen = versions[i];
    if (!chosen) return 0;
    printf("%u\\n", chosen->count(numbers, 64));
    return 0;
}
"""


def test_what_is_left_by_its_name_is_not_called_dispatched() -> None:
    """Which entry of a table is picked is not followed; the version that asks for nothing uses POPCNT."""
    path = compile_c(TABLE.replace("NAME", "generic"), "-O2", "-march=nehalem")
    assert (predicted(analyse(path), MODELS["Conroe"]), observed(path, "qemu-x86_64", "Conroe")) == ("unknown", "dies")
    fitting = analyse(compile_c(TABLE.replace("NAME", "generic"), "-O2"))
    assert {predicted(fitting, features) for features in MODELS.values()} == {"runs"}


def test_of_one_source_compiled_for_many_cpus_the_names_tell_nothing() -> None:
    """As volk does it: what is named for any CPU is there once for each kind of CPU."""
    wide = TABLE.partition("unsigned count_elsewhere")[0].replace("NAME", "generic")
    wide += "unsigned count_elsewhere(const unsigned *p, int n) { return n > 99 ? count_generic(p, n) : 0; }"
    other = compile_c(wide, "-O2", "-march=nehalem", "-c", out="other.o")
    both = compile_c(TABLE.replace("NAME", "generic").replace("versions[] = {", 'versions[] = {&(struct version){"x", '
                     "1 << 20, count_elsewhere}, "), "-O2", str(other))  # fmt: skip
    popcnt = next(use for use in analyse(both).uses if use.feature == "popcnt")
    assert popcnt.answer == "dispatched"
