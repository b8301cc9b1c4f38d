"""Where programs for AArch64 and ppc64le keep what the kernel told of the CPU: right, and with a test for too little.

QEMU's CPU models say what happens.
"""

from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.isa.programs import analyse, observed, predicted
from tests.isa.test_words import ARM, ARM_MODELS, POWER, POWER_MODELS
from tests.tools import compile_c


class Machine(NamedTuple):
    compiler: str
    emulator: str
    models: dict[str, set[str]]
    kernel: str
    """What the fast version does to `x`."""
    word: str
    bit: str
    always: str
    """A bit of the same word that every CPU has."""


MACHINES = {
    "aarch64": Machine(
        ARM, "qemu-aarch64", ARM_MODELS,
        '__asm__ volatile(".inst 0x4e829420" ::: "v0")', "AT_HWCAP", "1ul << 20", "1ul << 1",
    ),
    "ppc64le": Machine(
        POWER, "qemu-ppc64le", POWER_MODELS,
        '__asm__ volatile("maddld %0,%0,%0,%0" : "+r"(x))', "AT_HWCAP2", "1ul << 23", "1ul << 31",
    ),
}  # fmt: skip
HEAD = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
__attribute__((noinline)) static long fast(long x) { KERNEL; return x + 1; }
__attribute__((noinline)) static long slow(long x) { return x * 3 + 1; }
"""
SHAPES = {
    "a test in main": """
int main(int n, char **v) { printf("%ld\\n", getauxval(WORD) & BIT ? fast(n) : slow(n)); return 0; }
""",
    "a variable that main fills": """
static unsigned long caps;
static int has(void) { return (caps & BIT) != 0; }
__attribute__((noinline)) static long work(long x) { return has() ? fast(x) : slow(x); }
int main(int n, char **v) { caps = getauxval(WORD); printf("%ld\\n", work(n)); return 0; }
""",
    "a pointer chosen at load": """
static long (*work)(long) = slow;
__attribute__((constructor)) static void choose(void) { if (getauxval(WORD) & BIT) work = fast; }
int main(int n, char **v) { printf("%ld\\n", work(n)); return 0; }
""",
    "a level that is found out once": """
static int level = -1;
__attribute__((noinline)) static int current(void) {
    if (level < 0) level = getauxval(WORD) & BIT ? 2 : 1;
    return level;
}
int main(int n, char **v) {
    for (int i = 0; i < 3; i++) printf("%ld\\n", current() >= 2 ? fast(n) : slow(n));
    return 0;
}
""",
    "a structure that is filled by its address": """
struct features { char any, wanted; };
__attribute__((noinline)) static void find(struct features *f) { f->any = 1; f->wanted = (getauxval(WORD) & BIT) != 0; }
int main(int n, char **v) {
    struct features f;
    find(&f);
    printf("%ld\\n", f.wanted ? fast(n) : slow(n));
    return 0;
}
""",
    "a parameter": """
__attribute__((noinline)) static long work(unsigned long caps, long x) { return caps & BIT ? fast(x) : slow(x); }
int main(int n, char **v) { printf("%ld\\n", work(getauxval(WORD), n)); return 0; }
""",
    "a global object whose address is handed back": """
static struct { long made; unsigned long caps; } info;
__attribute__((noinline)) static void *get(void) {
    if (!info.made) { info.caps = getauxval(WORD); info.made = 1; }
    return &info;
}
int main(int n, char **v) {
    unsigned long *found = get();
    printf("%ld\\n", found[1] & BIT ? fast(n) : slow(n));
    return 0;
}
""",
    "the auxiliary vector behind the environment": """
static unsigned long caps, page;
__attribute__((noinline)) static void find(char **environment) {
    while (*environment) environment++;
    for (unsigned long *word = (unsigned long *)(environment + 1); word[0]; word += 2) {
        if (word[0] == WORD) caps = word[1];
        if (word[0] == AT_HWCAP + AT_HWCAP2 - WORD || word[0] == AT_PAGESZ) page ^= word[1];
    }
}
int main(int n, char **v, char **environment) {
    find(environment);
    printf("%ld\\n", (caps & BIT ? fast(n) : slow(n)) + (long)page);
    return 0;
}
""",
    "a byte of a variable that was written as a whole": """
static union { unsigned long all; unsigned char bytes[8]; } caps;
int main(int n, char **v) {
    caps.all = getauxval(WORD);
    __asm__ volatile("" ::: "memory");
    printf("%ld\\n", caps.bytes[__builtin_ctzl(BIT) / 8] & 1 << __builtin_ctzl(BIT) % 8 ? fast(n) : slow(n));
    return 0;
}
""",
    "a table of functions by a level": """
static long slower(long x) { return x * 7 - 1; }
static long (*const table[])(long) = {slow, slower, fast};
__attribute__((noinline)) static int level(long x) { return getauxval(WORD) & BIT ? 2 : x > 5; }
int main(int n, char **v) { printf("%ld\\n", table[level(n)](n)); return 0; }
""",
    "a switch over a level": """
__attribute__((noinline)) static int level(long x) { return getauxval(WORD) & BIT ? 18 : 3 + (x > 5); }
__attribute__((noinline)) static long work(int level, long x) {
    switch (level) {
CASES
    case 18: return fast(x);
    default: return slow(x);
    }
}
int main(int n, char **v) { printf("%ld\\n", work(level(n), n)); return 0; }
""".replace("CASES", "\n".join(f"    case {i}: return (x ^ {i * i}) / {i + 3} + x % {i + 2};" for i in range(18))),
}
STYLES = {"O0": ("-O0",), "O2, stripped": ("-O2", "-s"), "O2, static": ("-O2", "-static", "-s"), "Os": ("-Os",)}


_AUXILIARY = "the auxiliary vector behind the environment"
_OPTIMISED = tuple(style for style in STYLES if style != "O0")
MISSED = {
    *((machine, _AUXILIARY, style) for machine in MACHINES for style in _OPTIMISED),
    *(("ppc64le", "a level that is found out once", style) for style in ("O2, stripped", "O2, static")),
}
"""Where a test for too little is not understood, and so taken for one for enough: see docs/cpu.md."""
CASES = [
    pytest.param(*case, too_little, marks=pytest.mark.xfail(reason="not understood", strict=True))
    if too_little and case in MISSED
    else (*case, too_little)
    for too_little in (False, True)
    for case in product(MACHINES, SHAPES, STYLES)
]


def built(machine: Machine, shape: str, style: str, bit: str) -> Path:
    source = HEAD + SHAPES[shape]
    for name, text in (("KERNEL", machine.kernel), ("WORD", machine.word), ("BIT", f"({bit})")):
        source = source.replace(name, text)
    return compile_c(source, *STYLES[style], compiler=machine.compiler)


@pytest.mark.parametrize(("machine", "shape", "style", "too_little"), CASES)
def test_a_test_is_followed_and_held_against_what_it_is_for(
    machine: str, shape: str, style: str, too_little: bool
) -> None:
    of = MACHINES[machine]
    path = built(of, shape, style, of.always if too_little else of.bit)
    found = analyse(path)
    said = {model: predicted(found, features) for model, features in of.models.items()}
    assert said == {model: observed(path, of.emulator, model) for model in of.models}
