"""Only what tells of features is knowledge of the CPU: what else it tells shields nothing, in whatever shape.

In each program AVX2 code runs on every CPU, behind a branch on something that CPUID told. QEMU's CPU models say so too.
"""

from pathlib import Path

import pytest

from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

SOURCE = """
#include <cpuid.h>
#include <stdio.h>
#include <string.h>
static float x[64];
__attribute__((noinline)) static void use(void) {{
    for (int i = 0; i < 64; i += 8)
        __asm__ volatile("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"
                         : : "r"(x + i) : "memory", "xmm1");
}}
{asks}
int main(void) {{ {main} printf("%f\\n", x[7]); return 0; }}
"""
CACHES = """
struct sizes { int l1, l2; };
__attribute__((noinline)) static void caches(struct sizes *s) {
    unsigned a, b, c, d;
    for (int i = 0; i < 8; i++) {
        __cpuid_count(4, i, a, b, c, d);
        if ((a & 31) == 0) break;
        if ((a & 31) == 1) s->l1 = ((b >> 22) + 1) * (c + 1);
        if ((a & 31) == 3) s->l2 = ((b >> 22) + 1) * (c + 1);
    }
}
"""
MAKER = """
static int leaves, intel;
__attribute__((noinline)) static void maker(void) {
    unsigned a, b, c, d;
    __cpuid(0, a, b, c, d);
    leaves = a;
    intel = b == signature_INTEL_ebx;
}
"""
NAME = """
static char name[49];
__attribute__((noinline)) static void named(void) {
    unsigned *word = (unsigned *)name;
    for (unsigned i = 0; i < 3; i++, word += 4)
        __cpuid(0x80000002 + i, word[0], word[1], word[2], word[3]);
}
"""
OTHER_REGISTER = """
static int wide;
__attribute__((noinline)) static void ask(void) {
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    wide = d >> 5 & 1;  /* MSR; AVX2 is that bit of another leaf */
}
"""
END = """
__asm__(".bss; .balign 64; numbers: .zero 256; flag: .zero 4; .text");
extern unsigned numbers[] __attribute__((visibility("hidden")));
extern unsigned flag[] __attribute__((visibility("hidden")));
__attribute__((noinline)) static void ask(void) {
    unsigned a, b, c, d;
    __cpuid_count(7, 0, a, b, c, d);
    flag[0] = b >> 5 & 1;
}
"""
UNTOLD = {
    "caches": (CACHES, "struct sizes s = {0, 0}; caches(&s); if (s.l1 != -7) use();"),
    "blocks": (
        CACHES + "static int block = 64; __attribute__((constructor)) static void init(void)"
        " { struct sizes s = {0, 0}; caches(&s); block = s.l2 / 8 + 1; }",
        "if (block > 0) use();",
    ),
    "maker": (MAKER, "maker(); if (leaves > 0 || intel) use();"),
    "a bit of another register": (OTHER_REGISTER, "ask(); if (wide) use();"),
    "the end of an array, where a flag lies": (
        END,
        "ask(); for (unsigned *p = numbers; p != flag; p++) *p = p[1] + 3; use();",
    ),
    "name": (NAME, 'named(); if (!strstr(name, "No such CPU")) use();'),
}


def program(asks: str, main: str, *flags: str) -> Path:
    return compile_c(SOURCE.format(asks=asks, main=main), *flags)


@pytest.mark.parametrize("flags", [("-O2",), ("-O0",), ("-O2", "-fPIC", "-s"), ("-O3", "-static")], ids=" ".join)
@pytest.mark.parametrize("shape", UNTOLD)
def test_what_tells_of_no_feature_shields_nothing(shape: str, flags: tuple[str, ...]) -> None:
    path = program(*UNTOLD[shape], *flags)
    assert observed(path, "qemu-x86_64", "Nehalem") == "dies"
    assert predicted(analyse(path), MODELS["Nehalem"]) != "runs"


PUSHED = """
static int ask(void) {
    unsigned a, b, c, d;
    __asm__("push $1; pop %%rax; cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d));
    return c >> 20 & 1;
}"""
REPEATED = """
static int ask(void) {
    unsigned a, b, c, d, low, high, found = 0;
    __cpuid(1, a, b, c, d);
    if (!(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) return 0;
    if (c & bit_AVX) found |= 2;
    return found & 2;
}"""


@pytest.mark.parametrize("flags", [("-O2",), ("-O1",), ("-O2", "-fPIC", "-s")], ids=" ".join)
@pytest.mark.parametrize(("asks", "model"), [(PUSHED, "Nehalem"), (REPEATED, "SandyBridge")])
def test_a_test_for_too_little_shields_no_more_than_that(asks: str, model: str, flags: tuple[str, ...]) -> None:
    path = program(asks, "if (ask()) use();", *flags)
    assert observed(path, "qemu-x86_64", model) == "dies"
    for each in (model, "Haswell"):
        assert (each, predicted(analyse(path), MODELS[each])) == (each, observed(path, "qemu-x86_64", each))


KEPT = {
    "exchanged": """
    static int ask(void) {
        unsigned a = 7, b, c = 0, d;
        __asm__("xchg %%rbx, %q1; cpuid; xchg %%rbx, %q1" : "+a"(a), "=&r"(b), "+c"(c), "=d"(d));
        return b >> 5 & 1;
    }""",
    "beside a request to Valgrind": """
    static int ask(void) {
        unsigned a, b, c, d;
        unsigned long kept;
        __cpuid_count(7, 0, a, b, c, d);
        __asm__ volatile("mov %1, %0; xchg %%rbx, %%rbx" : "=b"(kept) : "r"((unsigned long)b));
        return kept >> 5 & 1;
    }""",
    "by pointer": """
    struct cpu { char has; int other[20]; } the_cpu;
    __attribute__((constructor)) static void init(void) { the_cpu.has = __builtin_cpu_supports("avx2") != 0; }
    __attribute__((noinline)) static int has(struct cpu *cpu) { return cpu->has; }
    static int ask(void) { return has(&the_cpu); }""",
    "by a member": """
    struct cpu { int flags; }; struct work { int size; struct cpu *cpu; };
    static struct cpu the_cpu;
    __attribute__((constructor)) static void init(void) { the_cpu.flags = __builtin_cpu_supports("avx2") ? 8 : 0; }
    __attribute__((noinline)) static int has(int flags) { return flags & 8; }
    static struct work the_work = {1, &the_cpu};
    static int ask(void) { return has(the_work.cpu->flags); }""",
    "in the place of an argument": """
    __asm__(".text; tell: .cfi_startproc; mov 8(%rsp), %eax; xor %ecx, %ecx; cpuid; mov %ebx, 8(%rsp); ret;"
            ".cfi_endproc; has: .cfi_startproc; push %rbx; sub $16, %rsp; movq $7, (%rsp); call tell;"
            "mov (%rsp), %eax; shr $5, %eax; and $1, %eax; add $16, %rsp; pop %rbx; ret; .cfi_endproc");
    int has(void);
    static unsigned char kept;
    __attribute__((constructor)) static void init(void) { kept = has(); }
    static int ask(void) { return kept & 1; }""",
}


@pytest.mark.parametrize("flags", [("-O2",), ("-O0",), ("-O2", "-fPIC", "-s")], ids=" ".join)
@pytest.mark.parametrize("shape", KEPT)
def test_a_feature_is_followed_to_where_it_is_tested(shape: str, flags: tuple[str, ...]) -> None:
    path = program(KEPT[shape], "if (ask()) use();", *flags)
    for model in ("Nehalem", "Haswell"):
        assert (model, predicted(analyse(path), MODELS[model])) == (model, observed(path, "qemu-x86_64", model))
