"""Objects that keep what the CPU told, and through which programs ask: as C++ has them, beside QEMU's CPU models."""

import pytest

from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

SINGLETON = """
#include <cpuid.h>
#include <cstdio>
#include <cstring>
static float x[64];
__attribute__((noinline)) static void use() {
    for (int i = 0; i < 64; i += 8)
        __asm__ volatile("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"
                         : : "r"(x + i) : "memory", "xmm1");
}
struct features {
    unsigned sse4_2 : 1, avx : 1, avx2 : 1, fma : 1;
    features() {
        std::memset(this, 0, sizeof *this);
        unsigned a, b, c, d, low, high;
        __cpuid(0, a, b, c, d);
        if (a < 7) return;
        __cpuid(1, a, b, c, d);
        sse4_2 = c >> 20 & 1;
        if (!(c & bit_OSXSAVE)) return;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 6) != 6) return;
        avx = c >> 28 & 1;
        fma = c >> 12 & 1;
        __cpuid_count(7, 0, a, b, c, d);
        avx2 = b >> 5 & 1;
    }
};
__attribute__((noinline)) static const features &host() { static const features kept; return kept; }
int main() { if (host().TESTED) use(); std::printf("%f\\n", x[7]); }
"""


@pytest.mark.parametrize("flags", [("-O2", "-s"), ("-O3",), ("-O1", "-no-pie", "-s")], ids=" ".join)
@pytest.mark.parametrize("tested", ["avx2", "sse4_2"])
def test_a_static_object_that_a_function_gives_out(tested: str, flags: tuple[str, ...]) -> None:
    path = compile_c(SINGLETON, *flags, f"-DTESTED={tested}", compiler="g++", language="c++")
    for model in ("Nehalem", "SandyBridge", "Haswell"):
        assert (model, predicted(analyse(path), MODELS[model])) == (model, observed(path, "qemu-x86_64", model))


COMMON = """
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
static float x[64];
__attribute__((noinline)) static void use(void) {
    for (int i = 0; i < 64; i += 8)
        __asm__ volatile("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"
                         : : "r"(x + i) : "memory", "xmm1");
}
static unsigned saves_ymm(unsigned c) {
    unsigned low, high;
    if (!(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6;
}
"""

ACCESSOR = """
enum feature { sse4_2 = 3, sse4_1, popcnt, avx = 9, fma, bmi1, bmi2, avx2 };
static struct info { char *name; unsigned sse4_1 : 1, sse4_2 : 1, popcnt : 1, avx : 1, avx2 : 1, bmi2 : 1; } *info;
__attribute__((noinline)) static void fill(void) {
    unsigned a, b, c, d, highest, ymm;
    info = calloc(1, sizeof *info);
    __cpuid(0, highest, b, c, d);
    __cpuid(1, a, b, c, d);
    info->sse4_1 = c >> 19 & 1, info->sse4_2 = c >> 20 & 1, info->popcnt = c >> 23 & 1;
    ymm = saves_ymm(c);
    info->avx = ymm && c >> 28 & 1;
    if (highest < 7) return;
    __cpuid_count(7, 0, a, b, c, d);
    info->bmi2 = b >> 8 & 1;
    info->avx2 = ymm && b >> 5 & 1;
}
__attribute__((noinline)) static int has(enum feature which) {
    switch (which) {
    case sse4_1: return info->sse4_1;
    case sse4_2: return info->sse4_2;
    case popcnt: return info->popcnt;
    case avx: return info->avx;
    case avx2: return info->avx2;
    case bmi2: return info->bmi2;
    default: return 0;
    }
}
int main(void) { fill(); if (has(TESTED)) use(); if (has(popcnt)) x[0] = 1; printf("%f\\n", x[7] + x[0]); return 0; }
"""

SMALL_MEMBERS = """
struct context { unsigned rounds, sse4_2 : 1, avx2 : 1, used : 1; };
__attribute__((noinline)) static void fill(struct context *to) {
    unsigned a, b, c, d, highest;
    to->rounds = 20;
    __cpuid(0, highest, b, c, d);
    __cpuid(1, a, b, c, d);
    to->sse4_2 = c >> 20 & 1;
    unsigned ymm = saves_ymm(c);
    b = 0;
    if (highest >= 7) __cpuid_count(7, 0, a, b, c, d);
    to->avx2 = ymm && b >> 5 & 1;
}
__attribute__((noinline)) static void run(struct context by_value) {
    if (by_value.TESTED) use();
    printf("%f %u\\n", x[7], by_value.rounds);
}
int main(void) { struct context *own = malloc(sizeof *own); fill(own); run(*own); free(own); return 0; }
"""

RECORD = """
struct record { long kind, family; struct { unsigned sse4_2, avx2; } has; };
static struct record record;
__attribute__((constructor)) static void fill(void) {
    unsigned a, b, c, d, highest;
    __cpuid(0, highest, b, c, d);
    record.kind = 1;
    __cpuid(1, a, b, c, d);
    record.has.sse4_2 = c >> 20 & 1;
    unsigned ymm = saves_ymm(c);
    b = 0;
    if (highest >= 7) __cpuid_count(7, 0, a, b, c, d);
    record.has.avx2 = ymm && b >> 5 & 1;
}
__attribute__((noinline, noclone, noipa)) const struct record *known(void) { return &record; }
int main(void) { if (known()->has.TESTED) use(); printf("%f\\n", x[7]); return 0; }
"""

SECOND_WORD = """
struct words { unsigned long unused; unsigned sse4_2, avx2; };
__attribute__((noinline, noclone, noipa)) struct words ask(void) {
    struct words found = {0, 0, 0};
    unsigned a, b, c, d, highest;
    __cpuid(0, highest, b, c, d);
    __cpuid(1, a, b, c, d);
    found.sse4_2 = c >> 20 & 1;
    unsigned ymm = saves_ymm(c);
    b = 0;
    if (highest >= 7) __cpuid_count(7, 0, a, b, c, d);
    found.avx2 = ymm && b >> 5 & 1;
    return found;
}
int main(void) { if (ask().TESTED) use(); printf("%f\\n", x[7]); return 0; }
"""
PROGRAMS = {"accessor": ACCESSOR, "small members": SMALL_MEMBERS, "record": RECORD, "second word": SECOND_WORD}


@pytest.mark.parametrize("flags", [("-O2",), ("-O2", "-s"), ("-O1", "-no-pie", "-s")], ids=" ".join)
@pytest.mark.parametrize("tested", ["avx2", "sse4_2"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_kept_in_an_object_and_asked_for_through_it(program: str, tested: str, flags: tuple[str, ...]) -> None:
    """As TensorFlow's TestCPUFeature, contexts of libgcrypt, glibc's x86_get_cpuid_feature_leaf and Zstandard do."""
    path = compile_c(COMMON + PROGRAMS[program], *flags, f"-DTESTED={tested}")
    for model in ("Nehalem", "SandyBridge", "Haswell"):
        assert (model, predicted(analyse(path), MODELS[model])) == (model, observed(path, "qemu-x86_64", model))


BY_FLAG = """
#include <cpuid.h>
#include <immintrin.h>
#include <stdlib.h>
struct context { int level; __m128i state[64]; int fast; };
#define MIX(name, round) __attribute__((noinline)) TARGET \\
static long name(__m128i *a, long b, long c, long d, long e, long f) { \\
    for (int i = 0; i < b; i++) a[i] = round(a[i], a[i + 1]); \\
    return c + d + e + f; }
#define TARGET
MIX(mix, _mm_add_epi32) MIX(prepare, _mm_xor_si128)
#undef TARGET
#define TARGET __attribute__((target("aes")))
MIX(mix_fast, _mm_aesenc_si128)
struct context *create(void) {
    struct context *made = malloc(sizeof *made);
    unsigned a, b = 0, c = 0, d;
    __get_cpuid(1, &a, &b, &c, &d);
    made->fast = STORED;
    return made;
}
long by_context(struct context *of, long b) {
    prepare(of->state, 1, 2, 3, 4, 5);
    return of->fast ? mix_fast(of->state, b, 0, 1, 2, 3) : mix(of->state, b, 0, 1, 2, 3);
}
long by_parameter(__m128i *a, long b, long c, long d, long e, long f, int fast) {
    CHOICE
}
"""
CHOICES = {
    "another version": "return fast ? mix_fast(a, b, c, d, e, f) : mix(a, b, c, d, e, f);",
    "its own loop": "if (fast) return mix_fast(a, b, c, d, e, f); while (b--) a[b] = a[b + 1]; return e;",
    "nothing": "return fast ? mix_fast(a, b, c, d, e, f) : 0;",
    "one of several": "if (fast & 1) { if (fast & 32) prepare(a, b, c, d, e, f);"
    " return mix_fast(a, b, c, d, e, f); } return mix(a, b, c, d, e, f);",
    "no object": "if (!fast) { prepare(a, b, c, d, e, f); return 0; } if (b > 7) prepare(a, b, c, d, e, f);"
    " return mix_fast(a, b, c, d, e, f);",
    "a number": "prepare(a, b, c, d, e, f); return b > 7 ? mix_fast(a, b, c, d, e, f) : mix(a, b, c, d, e, f);",
}


@pytest.mark.parametrize("flags", [("-O2",), ("-O1", "-fno-omit-frame-pointer"), ("-O3", "-s")], ids=" ".join)
@pytest.mark.parametrize(
    ("choice", "stored", "answer"),
    [
        ("another version", "c >> 25 & 1", "dispatched"),
        ("its own loop", "c >> 25 & 1", "dispatched"),
        ("one of several", "c >> 25 & 1", "dispatched"),
        ("nothing", "c >> 25 & 1", "unknown"),
        ("no object", "c >> 25 & 1", "unknown"),
        ("a number", "c >> 25 & 1", "unknown"),
        ("another version", "c >> 20 & 1", "unknown"),
    ],
)
def test_a_flag_that_callers_hand_over_chooses_what_the_file_keeps_in_its_objects(
    choice: str, stored: str, answer: str, flags: tuple[str, ...]
) -> None:
    """As Zstandard, whose functions get from their contexts, as a parameter, whether to use BMI2."""
    source = BY_FLAG.replace("CHOICE", CHOICES[choice]).replace("STORED", stored)
    (use,) = (use for use in analyse(compile_c(source, "-shared", "-fPIC", *flags)).uses if use.feature == "aes")
    assert use.answer == answer, use.reason


EMBEDDED = """
#include <cpuid.h>
#include <immintrin.h>
#include <cstdio>
static __m128i keys[64];
__attribute__((noinline, target("aes"))) static void mix_fast(const __m128i *by, long *words) {
    auto a = (__m128i *)words;
    for (int i = 0; i < 16; i++) a[i] = _mm_aesenc_si128(a[i], by[i]);
}
__attribute__((noinline)) static void mix(const __m128i *by, long *words) {
    auto a = (__m128i *)words;
    for (int i = 0; i < 16; i++) a[i] = _mm_add_epi32(a[i], by[i]);
}
__attribute__((noinline)) static bool told(int asked) {
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    return TOLD;
}
struct state { const __m128i *by; bool fast; };
static state found(int asked) {
    if (told(asked)) return {keys + 16, true};
    return {keys, false};
}
struct engine {
    const __m128i *by;
    bool fast;
    __attribute__((noinline)) engine(int asked) {
        static const state kept = found(asked);
        by = kept.by;
        fast = kept.fast;
    }
    void generate(long *words) const { if (fast) mix_fast(by, words); else mix(by, words); }
};
struct generator {
    alignas(16) long words[32];
    unsigned long next = 32;
    engine inner;
    generator(int asked) : inner(asked) {}
    __attribute__((noinline)) long draw() {
        for (;;) {
            if (next >= 32) { next = 2; inner.generate(words); }
            long word = words[next++];
            if (word % 7 || next > 20) return word;
        }
    }
};
int main(int argc, char **) { auto made = new generator(argc); std::printf("%ld\\n", made->draw()); }
"""


@pytest.mark.parametrize("flags", [("-O2",), ("-O3", "-s"), ("-O1", "-no-pie", "-s")], ids=" ".join)
def test_a_flag_in_an_object_within_another_one_leaves_it_open_what_runs(flags: tuple[str, ...]) -> None:
    """As Abseil's Randen, which whatever draws random numbers holds in itself, AES or none."""
    path = compile_c(EMBEDDED.replace("TOLD", "c >> 25 & 1"), *flags, compiler="g++", language="c++")
    assert predicted(analyse(path), MODELS["Nehalem"]) in ("runs", "unknown")
    assert observed(path, "qemu-x86_64", "Nehalem") == "runs"


@pytest.mark.parametrize("flags", [("-O2",), ("-O3", "-s")], ids=" ".join)
@pytest.mark.parametrize("otherwise", ["c >> 20 & 1", "asked > 0"])
def test_a_flag_in_an_object_that_tells_of_something_else_does_not(otherwise: str, flags: tuple[str, ...]) -> None:
    path = compile_c(EMBEDDED.replace("TOLD", otherwise), *flags, compiler="g++", language="c++")
    assert predicted(analyse(path), MODELS["Nehalem"]) == observed(path, "qemu-x86_64", "Nehalem") == "dies"


OF_EACH_OTHER = """
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
struct caps { unsigned first : 1, avx2 : 1, avx512f : 1, avx512dq : 1; };
static void ask(struct caps *c)
{
    unsigned a, b, d, e, low = 0;
    __cpuid(1, a, b, d, e);
    if (d >> 27 & 1) { unsigned high; __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); }
    __cpuid_count(7, 0, a, b, d, e);
    c->avx2 = (low & 6) == 6 && (b >> 5 & 1);
    c->avx512f = (low & 0xe6) == 0xe6 && (b >> 16 & 1);
    c->avx512dq = (low & 0xe6) == 0xe6 && (b >> 17 & 1);
}
static struct caps *available(void)
{
    static struct caps *kept;
    if (!kept) { kept = calloc(1, sizeof *kept); ask(kept); }
    return kept;
}
static int has(const struct caps *c) { return c->avx512f && c->avx512dq && c->avx2; }
__attribute__((noinline, target("avx512dq"))) static void quad(unsigned *p)
{ __asm__ volatile("vpmullq %%zmm0, %%zmm0, %%zmm0; vzeroupper" ::: "xmm0"); p[0]++; }
__attribute__((noinline, target("avx512bw"))) static void bytes(unsigned *p)
{ __asm__ volatile("vpaddb %%zmm0, %%zmm0, %%zmm0; vzeroupper" ::: "xmm0"); p[1]++; }
struct work { const struct caps *caps; unsigned *words; };
static void run(struct work *w) { if (has(w->caps)) quad(w->words); }
int main(void)
{
    unsigned words[4] = {1, 2, 3, 4};
    struct work *w = malloc(sizeof *w);
    w->caps = available(); w->words = words;
    run(w);
    if (__builtin_cpu_supports("avx512bw")) bytes(words);
    printf("%u\\n", words[2]);
    return 0;
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2"])
def test_a_test_that_only_a_close_look_shows_counts_for_what_comes_with_the_feature(level: str) -> None:
    """Every CPU with AVX-512DQ has AVX-512BW and the reverse; the one was said to be used whatever the tests find."""
    found = analyse(path := compile_c(OF_EACH_OTHER, level))
    assert (predicted(found, MODELS["Haswell"]), observed(path, "qemu-x86_64", "Haswell")) == ("runs", "runs")
