"""What nothing but tables in the data lead to: methods of classes, structures of functions, rows of a list.

Each program is held against QEMU's models of CPUs. Where somebody was careful, it must not be said to die; where the
fault is one that happens, it must not be said to run.
"""

from pathlib import Path

import pytest

from imgcheck.documents.facts import Isa
from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

STYLES = {"O2": ("-O2", "-s"), "O1 named": ("-O1",), "static": ("-O2", "-static", "-s")}
OPAQUE = """
#include <stdio.h>
#include <stdlib.h>
#define LONELY __attribute__((noinline, noclone))
#define FAST(isa) __attribute__((noinline, noclone, target(isa)))
#define ADD_WIDE __asm__ volatile("vpaddd %%ymm0, %%ymm0, %%ymm0; vzeroupper" ::: "xmm0")
"""

CLASSES = """
struct Codec { virtual ~Codec() {} virtual int encode(int n) = 0; virtual int weigh(int n) = 0; };
SHARED_WITH_ALL int weigh_any(int n)
{ int k = n; BODY_OF_SHARED return k * 3; }
struct Plain final : Codec {
    int encode(int n) override { return n + 1; }
    int weigh(int n) override { return weigh_any(n); }
};
struct Wide final : Codec {
    FAST("avx2") int encode(int n) override { ADD_WIDE; return n + 1; }
    FAST("avx2") int weigh(int n) override { return weigh_any(n); }
};
LONELY Codec *make_plain() { return new Plain; }
LONELY Codec *make_wide() { return new Wide; }
int main(int argc, char **)
{
    Codec *codec = __builtin_cpu_supports("avx2") ? make_wide() : make_plain();
    printf("%d\\n", codec->encode(argc) + codec->weigh(argc));
    delete codec;
    return 0;
}
"""
"""A function of a header, of which the linker keeps the copy that the file for AVX2 brings."""


def built(source: str, style: str, compiler: str = "g++", *more: str) -> Path:
    flags = (*STYLES[style], *more)
    return compile_c(OPAQUE + source, *flags, compiler=compiler, language="c++" if compiler == "g++" else "c")


def answers(found: Isa, feature: str) -> set[str]:
    return {use.answer for use in found.uses if use.feature == feature}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("is_wide", [True, False])
def test_what_all_classes_have_must_not_use_more_than_one_of_them_may(is_wide: bool, style: str) -> None:
    body = '__asm__ volatile("vpslld $1, %%ymm1, %%ymm1; vzeroupper" ::: "xmm1");' if is_wide else ""
    source = CLASSES.replace("BODY_OF_SHARED", body).replace("SHARED_WITH_ALL", "LONELY static")
    found = analyse(path := built(source, style))
    assert observed(path, "qemu-x86_64", "Nehalem") == ("dies" if is_wide else "runs")
    assert predicted(found, MODELS["Nehalem"]) == ("unknown" if is_wide else "runs")
    assert predicted(found, MODELS["Haswell"]) == observed(path, "qemu-x86_64", "Haswell") == "runs"


ONCE = """
#include <pthread.h>
struct backend { const char *name; int (*widen)(int); int (*dot)(int); };
LONELY static int widen_plain(int n) { return n * 3; }
LONELY static int dot_plain(int n) { return n * 5; }
FAST("f16c") static int widen_fast(int n)
{ __asm__ volatile("vcvtph2ps %%xmm0, %%xmm1" ::: "xmm1"); return n * 3; }
FAST("avx") static int dot_fast(int n)
{ __asm__ volatile("vaddps %%ymm1, %%ymm1, %%ymm1; vzeroupper" ::: "xmm1"); return n * 5; }
static const struct backend plain = {"plain", widen_plain, dot_plain}, fast = {"fast", widen_fast, dot_fast};
LONELY const struct backend *get_plain(void) { return &plain; }
LONELY const struct backend *get_fast(void) { return &fast; }
static const struct backend *chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void choose(void) { chosen = ASKED ? get_fast() : get_plain(); }
LONELY const struct backend *current(void) { pthread_once(&once, choose); return chosen; }
LONELY int step5(int n) { return current()->widen(n) + current()->dot(n); }
LONELY int step4(int n) { return step5(n + 1) + 1; }
LONELY int step3(int n) { return step4(n + 1) + 1; }
LONELY int step2(int n) { return step3(n + 1) + 1; }
int main(int argc, char **argv) { printf("%d %s\\n", step2(argc), current()->name); return 0; }
"""
"""Far from `main`, and by a function that the C library calls."""
AVX, BOTH = '__builtin_cpu_supports("avx")', '__builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c")'


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("asked", "end", "said"), [(AVX, "dies", "unknown"), (BOTH, "runs", "runs")])
def test_a_table_that_a_function_hands_out_behind_a_test_is_what_that_picks(
    asked: str, end: str, said: str, style: str
) -> None:
    found = analyse(path := built(ONCE.replace("ASKED", asked), style, "gcc", "-pthread"))
    assert observed(path, "qemu-x86_64", "SandyBridge") == end
    assert predicted(found, MODELS["SandyBridge"]) == said
    assert predicted(found, MODELS["Haswell"]) == observed(path, "qemu-x86_64", "Haswell") == "runs"


def test_the_reason_names_the_kind_of_cpu_that_gets_there() -> None:
    (use,) = (
        use for use in analyse(built(ONCE.replace("ASKED", AVX), "O2", "gcc", "-pthread")).uses if use.feature == "f16c"
    )
    assert (use.answer, use.given) == ("unknown", (("avx",),)), use.reason


ROWS = """
#include <cpuid.h>
#include <string.h>
struct row { const char *name; unsigned needs; int (*run)(int); };
LONELY int sum(int n) { return n + 1; }
LONELY int bits(int n) { return n + 2; }
FAST("bmi2") int gather(int n) { __asm__ volatile("pextl %%ecx, %%ecx, %%eax" ::: "eax"); return n + 3; }
LONELY int gather_plain(int n) { return n + 3; }
FAST("popcnt") int count(int n) { __asm__ volatile("popcntl %%ecx, %%eax" ::: "eax"); return n + 2; }
FAST("avx2") int sum_wide(int n) { ADD_WIDE; return n + 1; }
static const struct row rows[] = {
    {"bits", 2, count}, {"bits", 0, bits}, {"gather", 12, gather}, {"gather", 0, gather_plain},
    {"sum", 4, sum_wide}, {"sum", 0, sum},
};
LONELY unsigned flags(void)
{
    unsigned a, b, c, d, found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (c & bit_POPCNT) found |= 2;
    int ymm = 0;
    if (c & bit_OSXSAVE) { unsigned low; __asm__("xgetbv" : "=a"(low) : "c"(0) : "edx"); ymm = (low & 6) == 6; }
    if (ymm && __get_cpuid_count(7, 0, &a, &b, &c, &d)) { if (b & bit_AVX2) found |= 4; if (b & bit_BMI2) found |= 8; }
    return found;
}
LONELY const struct row *lookup(const char *name, unsigned have)
{
    SEARCH
}
int main(int argc, char **argv)
{
    static const char *names[] = {"bits", "gather", "sum"};
    int total = 0;
    for (int i = 0; i < 3; i++) total += lookup(names[i], flags())->run(argc);
    printf("%d\\n", total);
    return 0;
}
"""
LOOP = """for (unsigned i = 0; i < 6; i++) if (!strcmp(rows[i].name, name) && !(rows[i].needs & ~have)) return rows + i;
    return rows + 5;"""
MERGED = """unsigned kind = name[0] == 'g' ? 1 : name[0] == 's' ? 2 : 0;
    const struct row *found;
    __asm__("cmp $1, %k1; je 1f; cmp $2, %k1; je 2f;"
            "test $2, %b2; lea 24(%3), %%rcx; lea (%3), %0; jmp 3f;"
            "1: not %k2; test $12, %b2; lea 48(%3), %%rcx; lea 72(%3), %0; jmp 3f;"
            "2: test $4, %b2; lea 120(%3), %%rcx; lea 96(%3), %0;"
            "3: cmove %%rcx, %0" : "=&r"(found) : "r"(kind), "r"(have), "r"(rows) : "rcx", "cc");
    return found;"""
"""As clang 19 makes of the loop: one conditional move for all names, behind comparisons that differ."""


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("search", [LOOP, MERGED])
def test_rows_are_searched_by_what_they_need(search: str, style: str) -> None:
    found = analyse(path := built(ROWS.replace("SEARCH", search), style, "gcc", "-fno-inline"))
    for model in ("Nehalem", "SandyBridge", "Haswell"):
        assert observed(path, "qemu-x86_64", model) == "runs"
        assert predicted(found, MODELS[model]) != "dies", found.uses


LAZY = """
struct lazy { unsigned long held; int once; };
LONELY static unsigned long detect(void) { return __builtin_cpu_supports("avx2") ? 2 : 1; }
LONELY void settle(struct lazy *of)
{
    if (__atomic_load_n(&of->once, __ATOMIC_ACQUIRE)) return;
    of->held = ((unsigned long (*)(void))of->held)();
    __atomic_store_n(&of->once, 1, __ATOMIC_RELEASE);
}
static struct lazy level = {(unsigned long)detect, 0};
FAST("avx2") int wide(int n) { ADD_WIDE; return n + 1; }
LONELY int plain(int n) { return n + 1; }
int main(int argc, char **argv)
{
    settle(&level);
    printf("%d\\n", (unsigned char)level.held == TAKEN ? wide(argc) : plain(argc));
    return 0;
}
"""


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("taken", "end", "said"), [("2", "runs", {"runs"}), ("1", "dies", {"dies", "unknown"})])
def test_a_variable_that_first_points_to_what_tells_holds_that_later(
    taken: str, end: str, said: set[str], style: str
) -> None:
    """As Rust's LazyLock: what sets it gets its address, and knows nothing of what it sets."""
    found = analyse(path := built(LAZY.replace("TAKEN", taken), style, "gcc"))
    assert observed(path, "qemu-x86_64", "Nehalem") == end
    assert predicted(found, MODELS["Nehalem"]) in said
