"""Who chooses among implementations is often not the file that holds them: shapes of real libraries, in small."""

from pathlib import Path

import pytest

from imgcheck.documents.facts import Isa
from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

KERNELS = """
#define FAST(isa) __attribute__((noinline, target(isa), optimize("O3")))
#define K(name, isa) {linkage} FAST(isa) void name(float *a, int *n, int m) {{ \\
    for (int i = 0; i < m; i++) {{ a[i] = a[i] * a[i] + 1; n[i] = n[i] > 5 ? n[i] * 3 : n[i]; }} }}
#define ALL(f) K(f##_0, "default") K(f##_1, "sse4.1") K(f##_2, "avx") K(f##_3, "avx2,fma") K(f##_4, "avx512f,avx512bw")
ALL(sin) ALL(cos) ALL(tan) ALL(log) ALL(exp) ALL(pow) ALL(erf) ALL(cbrt)
"""
"""Eight functions in five versions each; with neutral names once the file is stripped."""
TABLES = "".join(
    f"{{place}} void (*const {f}_table[])(float *, int *, int) = {{{{{', '.join(f'{f}_{k}' for k in range(5))}}}}};\n"
    for f in ("sin", "cos", "tan", "log", "exp", "pow", "erf", "cbrt")
)
SHARED = ("-O2", "-shared", "-fPIC", "-s")


def required(found: Isa) -> list[tuple[str, str]]:
    return [(use.feature, use.reason) for use in found.uses if use.answer == "required"]


def library(source: str, *flags: str) -> Path:
    return compile_c(source, *SHARED, *flags, out="lib.so")


def test_versions_that_a_library_exports_are_chosen_by_its_callers() -> None:
    """As libjsvml.so of OpenJDK: the caller asks the CPU and looks up `sinf16_z0` or `sinf4_ex`."""
    found = analyse(library(KERNELS.format(linkage="")))
    assert not required(found)


def test_versions_in_tables_are_chosen_by_what_another_library_says() -> None:
    """As libjxl.so and libhwy_contrib.so: libhwy.so tells the row, a table of pointers holds the versions."""
    calls = "".join(
        f"void do_{f}(float *a, int *n, int m) {{ {f}_table[row()](a, n, m); }}\n" for f in ("sin", "cos", "tan")
    )
    tables = TABLES.format(place="static")
    found = analyse(library(f"{KERNELS.format(linkage='static')}{tables}extern int row(void);\n{calls}"))
    assert not required(found)


def test_versions_in_exported_tables_are_chosen_after_a_query() -> None:
    """As mca_op_avx.so of Open MPI: one function asks, another hands out pointers from the tables."""
    source = KERNELS.format(linkage="static").replace('K(f##_0, "default") K(f##_1, "sse4.1")', "")
    for name in ("sin", "cos", "tan", "log", "exp", "pow", "erf", "cbrt"):
        source += f"void *{name}_table[] = {{{name}_2, {name}_3, {name}_4}};\n"
    source += """
#include <cpuid.h>
static unsigned flags;
int open_component(void) {
    unsigned a, b, c, d, e;
    __cpuid(1, a, b, c, d);
    e = c;
    __cpuid_count(7, 0, a, b, c, d);
    flags = (e >> 28 & 1) << 3 | b & 1 << 5 | (b >> 16 & 1) << 8;
    return 0;
}
void *query(int i) {
    return flags & 0x100 ? sin_table[2 + i] : flags & 0x20 ? cos_table[1 + i] : flags & 8 ? log_table[i] : 0;
}
"""
    assert not required(analyse(library(source)))


BOTH_ARMS = """
#include <cpuid.h>
#include <stdio.h>
static int n[999];
__attribute__((noinline, target("avx2"), optimize("O3"))) static void wide(void) {
    for (int i = 0; i < 999; i++) n[i] += 3 * i;
}
int main() {
    unsigned a, b, c, d;
    __cpuid_count(7, 0, a, b, c, d);
    if (b & bit_AVX2) wide();
    else for (int i = 0; i < 999; i++) n[i] += 5 * i;
    printf("%d\\n", n[9]);
    return 0;
}
"""


@pytest.mark.parametrize("march", ["x86-64", "sandybridge"])
def test_the_other_arm_of_a_test_is_not_shielded(march: str) -> None:
    path = compile_c(BOTH_ARMS, "-O3", f"-march={march}")
    found = analyse(path)
    for model in ("Nehalem", "SandyBridge"):
        assert predicted(found, MODELS[model]) == observed(path, "qemu-x86_64", model), model


VERSIONS = """
#include <stdio.h>
static double x[99];
__attribute__((target_clones("default", "avx512f"), noinline, optimize("O3"))) void f(void) {
    for (int i = 0; i < 99; i++) x[i] = x[i] * 3 + 1;
}
int main() { f(); printf("%f\\n", x[4]); return 0; }
"""


@pytest.mark.parametrize("march", ["x86-64", "haswell"])
def test_a_choice_without_an_alternative_is_none(march: str) -> None:
    path = compile_c(VERSIONS, "-O2", f"-march={march}")
    found = analyse(path)
    for model in ("SandyBridge", "Haswell"):
        assert predicted(found, MODELS[model]) == observed(path, "qemu-x86_64", model), model


TWO_TESTS = """
#include <stdio.h>
extern char *getenv(const char *);
static float x[64];
__attribute__((noinline, target("avx"))) static void work(int big) {
    if (big) {
        if (!__builtin_cpu_supports("avx")) goto plain;
        __asm__ volatile("vzeroupper" ::: "xmm1");
    } else {
        if (!__builtin_cpu_supports("avx")) goto plain;
        __asm__ volatile("vxorps %%xmm1, %%xmm1, %%xmm1" ::: "xmm1");
    }
    for (int i = 0; i < 64; i += 8) __asm__ volatile("vmovups %%ymm1, (%0)" : : "r"(x + i) : "memory");
    return;
plain:
    for (int i = 0; i < 64; i++) __asm__ volatile("movl $0, (%0)" : : "r"(x + i) : "memory");
}
int main() { work(getenv("BIG") != 0); printf("%f\\n", x[4]); return 0; }
"""


def test_code_behind_either_of_two_tests_is_behind_a_test() -> None:
    """As memory functions of Go: a loop that is entered from two places, each after a test of its own."""
    path = compile_c(TWO_TESTS, "-O2", "-fno-tree-tail-merge")
    assert observed(path, "qemu-x86_64", "Nehalem") == "runs"
    assert predicted(analyse(path), MODELS["Nehalem"]) == "runs"


BY_EITHER_WAY = """
#include <cpuid.h>
static unsigned mixed;
static int numbers[8];
__attribute__((noinline)) static void init(void) {{
    unsigned a, b, c, d;
    __cpuid_count(7, 0, a, b, c, d);
    mixed = b * 2654435761u;
}}
__attribute__((noinline)) static void wide(int *p)
{{ __asm__ volatile("vmovdqu (%0), %%ymm0; vpaddd %%ymm0, %%ymm0, %%ymm0; vzeroupper" : : "r"(p) : "memory"); }}
__attribute__((noinline)) static void work(int *p, int n) {{
    if (n > 3) {{ __asm__ volatile("nop"); if ({first}) goto fast; }}
    else {{ __asm__ volatile("nop; nop"); if ({second}) goto fast; }}
    return;
fast:
    wide(p);
}}
int main(int n, char **v) {{ init(); work(numbers, n); return 0; }}
"""


def test_tests_that_are_not_understood_shield_code_by_whichever_of_them_it_is_reached() -> None:
    """As behind a static object of C++, which is tested where it was made and where it was there already."""
    both = compile_c(BY_EITHER_WAY.format(first="mixed >> 9 & 1", second="mixed % 5 == 1"), "-O2", "-s")
    assert not required(analyse(both))
    one = compile_c(BY_EITHER_WAY.format(first="mixed >> 9 & 1", second="p[0] == 1"), "-O2", "-s")
    assert ("avx2", "Reached at load or start without a test of the CPU on the way.") in required(analyse(one))


REGISTERED = """
#include <cpuid.h>
struct entry {{ void (*manage)(void); void (*invoke)(float *); }};
extern struct entry table[64];
#define BODY(n) {{ for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }}
#define PLAIN(n) __attribute__((noinline)) void plain##n(float *a) BODY(n)
#define WIDE(n) static __attribute__((noinline, target("fma"))) void wide##n(float *a) BODY(n)
#define WRAP(n) static void wrap##n(float *a) {{ a[0] += n; wide##n(a); a[1] += n; }} \\
    static void manage##n(void) {{ table[n].invoke(0); }} \\
    __attribute__((visibility("hidden"))) struct entry entry##n = {{manage##n, wrap##n}};
#define ALL(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8)
ALL(PLAIN) ALL(WIDE) ALL(WRAP)
#define SET(n) table[n] = {entry};
static __attribute__((noinline)) void set_all(void) {{ ALL(SET) }}
#define USE(n) plain##n(a);
void use(float *a) {{ ALL(USE) }}
void open_library(void) {{
    unsigned a, b, c = 0, d;
    __get_cpuid(1, &a, &b, &c, &d);
    if ({when}) set_all();
}}
"""


@pytest.mark.parametrize(("when", "answer"), [("c >> 12 & 1", "dispatched"), ("1", "required")])
@pytest.mark.parametrize("entry", ["(struct entry){manage##n, wrap##n}", "entry##n"])
def test_wrappers_whose_addresses_are_taken_behind_a_test_are_no_ordinary_callers(
    entry: str, when: str, answer: str
) -> None:
    """As in PennyLane: std::function keeps its two functions in a pair, which is read and stored at once."""
    found = analyse(library(REGISTERED.format(entry=entry, when=when), "-O3", "-mavx"))
    assert {use.answer for use in found.uses if use.feature == "fma"} == {answer}


MISTAKEN = """
#include <immintrin.h>
__attribute__((noinline, target("avx2"))) static void wide(int *p) {
    _mm256_storeu_si256((__m256i *)p, _mm256_add_epi32(_mm256_loadu_si256((__m256i *)p), _mm256_set1_epi32(3)));
}
__attribute__((noinline)) static int element(int *p) {
    int found;
    __asm__("pextrd $1, %1, %0" : "=r"(found) : "x"(_mm_loadu_si128((__m128i *)p)));
    return found;
}
__attribute__((noinline)) static void generate(int *p) {
    if (__builtin_cpu_supports("avx2")) wide(p);
    else if (OTHERWISE) p[5] = element(p) + p[3];
    else p[5] = p[1] + p[3];
}
__attribute__((noinline)) static void once(int *p) { p[7]++; generate(p); }
__attribute__((noinline)) static void twice(int *p) { p[7] += 2; generate(p + 8); generate(p); }
static void (*const ways[])(int *) = {once, twice};
void run(int *p, unsigned n) { ways[n & 1](p); }
"""


@pytest.mark.parametrize(
    ("otherwise", "answer"), [("p[0] & 1", "unknown"), ('__builtin_cpu_supports("sse4.1")', "dispatched")]
)
def test_code_behind_the_failed_test_of_another_feature_is_not_dispatched(otherwise: str, answer: str) -> None:
    """As the SSE2 code of Rust's crate chacha20 0.10, which uses SSE4.1: only pointers lead there."""
    found = analyse(library(MISTAKEN.replace("OTHERWISE", otherwise)))
    answers = {use.feature: use.answer for use in found.uses}
    assert (answers["sse4_1"], answers["avx2"]) == (answer, "dispatched"), found.uses


NAMED_BY_ADDRESS = """
#include <cpuid.h>
#include <stdio.h>
char flags[64];
static int x[64];
__attribute__((noinline)) static void wide(void) {
    __asm__ volatile("vpaddd (%0), %%ymm1, %%ymm1; vzeroupper" : : "r"(x) : "xmm1", "memory");
}
__attribute__((noinline)) static void ask(void) {
    flags[9] = __builtin_cpu_supports("avx2") ? 1 : 0;
}
int main(void) {
    int wanted;
    ask();
    __asm__ volatile("movzbl flags+9, %0" : "=r"(wanted));
    if (wanted) wide();
    printf("%d\\n", x[3]);
    return 0;
}
"""


def test_a_variable_that_code_names_by_its_address_alone_is_read_all_the_same() -> None:
    """As clang and Zig do at -O0 in programs that cannot be moved: no scan for relative operands finds such readers."""
    path = compile_c(NAMED_BY_ADDRESS, "-O1", "-no-pie", "-fno-pie")
    assert observed(path, "qemu-x86_64", "Nehalem") == predicted(analyse(path), MODELS["Nehalem"]) == "runs"


def test_a_level_is_followed_out_of_a_long_function_that_finds_it() -> None:
    """As FAISS does: it also lists what there is, lets the user choose less, and leads to no version itself."""
    source = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char listed[4][32]; static int count; static int level;
static __attribute__((noinline)) void add(const char *name, int value)
{ snprintf(listed[count++ & 3], 32, "%s=%d", name, value); }
static __attribute__((noinline)) int detect(void)
{
    int best = 0;
    __builtin_cpu_init();
    add("none", 0);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        add("avx2", best = 1);
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) add("avx512", best = 2);
    }
    for (int i = 0; i < count; i++) printf("%s%s", i ? ", " : "levels: ", listed[i]);
    const char *wanted = getenv("LEVEL");
    for (int i = 0; wanted && i <= best; i++) if (!strncmp(wanted, listed[i], strlen(wanted))) best = i;
    return best;
}
static __attribute__((constructor)) void start(void) { level = detect(); }
#define VERSION(name, isa) __attribute__((noinline, target(isa))) static float name(const float *a, int n) \\
{ float s = 0; for (int i = 0; i < n; i++) s += a[i] * a[i]; __asm__ volatile(CODE_##name ::: "xmm0"); return s; }
#define CODE_plain ""
#define CODE_wide "vpaddd %%ymm0, %%ymm0, %%ymm0; vzeroupper"
#define CODE_widest "vpaddd %%zmm0, %%zmm0, %%zmm0; vzeroupper"
VERSION(plain, "sse2") VERSION(wide, "avx2,fma") VERSION(widest, "avx512f,avx512bw")
__attribute__((noinline)) float norm(const float *a, int n)
{ switch (level) { case 1: return wide(a, n); case 2: return widest(a, n); default: return plain(a, n); } }
int main(int argc, char **argv)
{
    float a[64];
    for (int i = 0; i < 64; i++) a[i] = i * argc;
    printf(" %g\\n", norm(a, 64));
    return 0;
}
"""
    found = analyse(path := compile_c(source, "-O2", "-s"))
    for model in ("Nehalem", "Haswell"):
        assert (predicted(found, MODELS[model]), observed(path, "qemu-x86_64", model)) == ("runs", "runs")
