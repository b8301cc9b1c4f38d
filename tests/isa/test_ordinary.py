"""Ordinary code of programs that choose other code by the CPU: what stands before it is no test of that.

QEMU's CPU models say which of the builds die.
"""

from itertools import product

import pytest

from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

HEAD = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned words[64];
static __attribute__((noinline, target("avx2"))) unsigned wide(const unsigned *p, int n)
{ unsigned s = 0; for (int i = 0; i < n; i++) s += p[i] * 3; __asm__ volatile("vpaddd %%ymm0, %%ymm0, %%ymm0; vzeroupper" ::: "xmm0"); return s; }
static __attribute__((noinline)) unsigned plain(const unsigned *p, int n)
{ unsigned s = 0; for (int i = 0; i < n; i++) s += p[i] * 3; return s; }
static __attribute__((noinline)) unsigned bits(const unsigned *p, int n)
{ unsigned s = 0; for (int i = 0; i < n; i++) s += __builtin_popcount(p[i]); return s; }
#define FILL for (int i = 0; i < 64; i++) words[i] = i * 2654435761u;
"""  # noqa: E501 - C
FORMS = {
    "the result of a version, by a pointer that replaces itself": """
static unsigned first(const unsigned *p, int n);
static unsigned (*sum)(const unsigned *, int) = first;
static volatile unsigned table[64];
__attribute__((noinline)) int caps(void)
{ return __builtin_cpu_supports("avx2") << 1 | __builtin_cpu_supports("avx"); }
static unsigned first(const unsigned *p, int n)
{
    if (caps() & 2) { for (int i = 0; i < 64; i++) table[i] = i * n; sum = wide; } else sum = plain;
    return (*(unsigned (*volatile *)(const unsigned *, int))&sum)(p, n);
}
int main(void)
{
    FILL
    if (sum(words, 64) == 1) { puts("wrong"); return 1; }
    printf("%u %u\\n", sum(words, 9), bits(words, 64));
    return 0;
}
""",
    "whether all went well": """
static unsigned (*sum)(const unsigned *, int);
static int usable(const char *name)
{ if (!strcmp(name, "wide")) return __builtin_cpu_supports("avx2"); return !strcmp(name, "plain"); }
__attribute__((noinline)) int start(void)
{
    static const char *const order[] = {"wide", "plain"};
    const char *wanted = getenv("VERSION");
    if (wanted && *wanted) {
        if (!usable(wanted)) return -1;
        sum = strcmp(wanted, "wide") ? plain : wide;
        return 0;
    }
    for (int i = 0; i < 2; i++)
        if (usable(order[i])) { sum = i ? plain : wide; break; }
    return 0;
}
int main(void)
{
    FILL
    if (start() != 0) { puts("wrong"); return 1; }
    printf("%u %u\\n", sum(words, 9), bits(words, 64));
    return 0;
}
""",
    "a loop over all versions, one of which may be wrong": """
static unsigned (*sum)(const unsigned *, int) = plain;
__attribute__((noinline)) unsigned found(void)
{ return 1 | __builtin_cpu_supports("avx2") << 1 | __builtin_cpu_supports("avx") << 2; }
__attribute__((noinline)) void allow(unsigned versions) { sum = versions & 2 ? wide : plain; }
int main(void)
{
    FILL
    unsigned expected = sum(words, 64);
    for (unsigned left = found(); left & ~1u; left &= left - 1) {
        allow(left & -left);
        if (sum(words, 64) != expected) { fprintf(stderr, "version %x is wrong\\n", left & -left); return 1; }
    }
    printf("%u %u\\n", expected, bits(words, 64));
    return 0;
}
""",
    "what a function tells that tells what it is given": """
__attribute__((noipa)) int larger(int a, int b) { return a > b ? a : b; }
int main(int argc, char **argv)
{
    FILL
    printf("%d\\n", larger(__builtin_cpu_supports("avx2"), 0));
    if (larger(argc, 1) > 9) { puts("too much"); return 0; }
    printf("%u %u\\n", (__builtin_cpu_supports("avx2") ? wide : plain)(words, 9), bits(words, 64));
    return 0;
}
""",
}
"""What a program looks at before its own code, which counts bits, and of which it chooses no version."""
FORMS["whether all went well, where the program ends if not"] = FORMS["whether all went well"].replace(
    "return 1; }", "exit(1); }"
)
STYLES = {"O2": ("-O2",), "O3, stripped": ("-O3", "-s"), "for size": ("-Os", "-s")}


@pytest.mark.parametrize(("form", "style"), [*product(FORMS, STYLES)])
def test_what_is_no_test_of_the_cpu_shields_nothing(form: str, style: str) -> None:
    """Conroe has no POPCNT."""
    wide = analyse(path := compile_c(HEAD + FORMS[form], *STYLES[style], "-march=nehalem"))
    assert (predicted(wide, MODELS["Conroe"]), observed(path, "qemu-x86_64", "Conroe")) == ("dies", "dies")
    fitting = analyse(path := compile_c(HEAD + FORMS[form], *STYLES[style]))
    assert (predicted(fitting, MODELS["Conroe"]), observed(path, "qemu-x86_64", "Conroe")) == ("runs", "runs")


BY_MODEL = (
    HEAD
    + """
#include <cpuid.h>
static __attribute__((noinline)) int fits(void)
{ unsigned a, b, c, d; __cpuid(1, a, b, c, d); return (a >> 16 & 15) * 16 + (a >> 4 & 15) >= 0x1A; }
int main(void)
{
    if (!fits()) { puts("not on this one"); return STATUS; }
    printf("%u\\n", bits(words, 64));
    return 0;
}
"""
)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("status", "expected"), [(0, "runs"), (1, "dies"), (-1, "dies")])
def test_a_status_tells_that_a_program_gives_up(status: int, expected: str, style: str) -> None:
    """Where it ends well, what stands behind such a test is a choice."""
    path = compile_c(BY_MODEL.replace("STATUS", str(status)), *STYLES[style], "-march=nehalem")
    assert predicted(analyse(path), MODELS["Conroe"]) == expected


def test_a_program_that_never_ends_does_not_give_up() -> None:
    """What it does for ever in the other direction is a choice, too, whatever numbers it brings about there."""
    serving = BY_MODEL.replace("return STATUS;", "volatile int told; for (;;) told = 1;")
    path = compile_c(serving, "-O2", "-march=nehalem")
    assert predicted(analyse(path), MODELS["Conroe"]) == "runs"


FAR = (
    HEAD
    + """
#define STEP(name, next) static __attribute__((noinline)) float name(float x) { return next(x + 1) * 2; }
static __attribute__((noinline)) float last(float x) { return x * 3; }
STEP(seven, last) STEP(six, seven) STEP(five, six) STEP(four, five) STEP(three, four) STEP(two, three) STEP(one, two)
int main(int argc, char **argv)
{
    FILL
    float x = argc * 1.5f;
    printf("%f %u\\n", one(x), (__builtin_cpu_supports("avx2") ? wide : plain)(words, 9));
    return 0;
}
"""
)


def test_the_nearest_use_decides_and_not_the_first_one() -> None:
    path = compile_c(FAR, "-O1", "-march=sandybridge")
    found = analyse(path)
    assert predicted(found, MODELS["Nehalem"]) == "dies" == observed(path, "qemu-x86_64", "Nehalem")
    avx = next(use for use in found.uses if use.feature == "avx")
    assert len(avx.call_path) <= 2


LONG = (
    HEAD
    + """
int main(void)
{
    int level = __builtin_cpu_supports("avx2") ? 2 : 1;
    unsigned s = 0;
    FILL
    for (int i = 0; i < 8; i++) {
        __asm__ volatile(".rept 900; nop; .endr");
        s += level == 2 ? wide(words, i) : plain(words, i);
    }
    printf("%u\\n", s);
    return 0;
}
"""
)


def test_a_long_loop_keeps_what_is_set_before_it() -> None:
    path = compile_c(LONG, "-O0")
    found = analyse(path)
    assert {model: predicted(found, features) for model, features in MODELS.items()} == dict.fromkeys(MODELS, "runs")
    wrong = compile_c(LONG.replace('supports("avx2")', 'supports("avx")'), "-O0")
    assert predicted(analyse(wrong), MODELS["SandyBridge"]) == "dies" == observed(wrong, "qemu-x86_64", "SandyBridge")


BEGUN = (
    HEAD
    + """
__attribute__((noipa)) int begin(int (*own)(int), int n) { FILL return own(n); }
static int own_main(int n)
{
    printf("%f %u\\n", n * 1.5f + 2, (__builtin_cpu_supports("avx2") ? wide : plain)(words, 9));
    return 0;
}
int main(int argc, char **argv) { return begin(own_main, argc); }
"""
)


@pytest.mark.parametrize("flags", [("-O2",), ("-O1", "-s"), ("-O2", "-no-pie", "-fno-pie"), ("-O2", "-static", "-s")])
def test_what_a_runtime_begins_is_the_programs_own_main(flags: tuple[str, ...]) -> None:
    """As in Rust and D: `main` hands it to a function, and does nothing else."""
    wide = analyse(path := compile_c(BEGUN, *flags, "-march=sandybridge"))
    assert predicted(wide, MODELS["Nehalem"]) == "dies" == observed(path, "qemu-x86_64", "Nehalem")
    found = analyse(compile_c(BEGUN, *flags))
    assert {model: predicted(found, features) for model, features in MODELS.items()} == dict.fromkeys(MODELS, "runs")


def test_what_the_programs_own_main_does_behind_tests_is_told_by_them() -> None:
    asked = BEGUN.replace(
        '(__builtin_cpu_supports("avx2") ? wide : plain)(words, 9)',
        '__builtin_cpu_supports("avx") ? wide(words, 9) : plain(words, 9)',
    )
    found = analyse(path := compile_c(asked, "-O2"))
    for model, end in (("Nehalem", "runs"), ("SandyBridge", "dies"), ("Haswell", "runs")):
        assert predicted(found, MODELS[model]) == observed(path, "qemu-x86_64", model) == end


MARKED = (
    HEAD
    + """
#include <cpuid.h>
static unsigned long cache;
__attribute__((noinline)) unsigned long find(void)
{
    unsigned a, b, c, d, low = 0, wide_too = 0;
    __cpuid(1, a, b, c, d);
    unsigned long found = a & 0xff0;
    if ((c >> 26 & 3) == 3) __asm__("xgetbv" : "=a"(low) : "c"(0) : "edx");
    if ((low & 6) == 6) {
        found |= (unsigned long)(c >> 28 & 1) << 14;
        __cpuid_count(7, 0, a, b, wide_too, d);
        found |= (unsigned long)(b >> 5 & 1) << 15;
    }
    return cache = found | 1UL << 63;
}
__attribute__((noinline)) int has_bit(void)
{
    unsigned long flags = __atomic_load_n(&cache, __ATOMIC_RELAXED);
    if (!flags) flags = find();
    return flags >> BIT & 1;
}
int main(int argc, char **argv) { printf("%u\\n", has_bit() ? wide(words, 9) : plain(words, 9)); return 0; }
"""
)


@pytest.mark.parametrize("flags", [("-O2",), ("-O1", "-s"), ("-O2", "-static", "-s")])
@pytest.mark.parametrize(("bit", "end"), [("15", "runs"), ("14", "dies")])
def test_flags_are_kept_beside_a_mark_that_they_are_known(bit: str, end: str, flags: tuple[str, ...]) -> None:
    """As Rust's standard library keeps them, with bits beside that are not understood."""
    found = analyse(path := compile_c(MARKED, *flags, f"-DBIT={bit}"))
    assert predicted(found, MODELS["SandyBridge"]) == observed(path, "qemu-x86_64", "SandyBridge") == end
    for model in ("Nehalem", "Haswell"):
        assert predicted(found, MODELS[model]) == observed(path, "qemu-x86_64", model) == "runs"
