"""Where programs for AArch64 and ppc64le keep what the kernel told of the CPU: right, and with a test for too little.

QEMU's CPU models say what happens.
"""

import os
import tempfile
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.isa.programs import analyse, observed, predicted
from tests.isa.test_words import ARM, ARM_MODELS, POWER, POWER_MODELS
from tests.tools import compile_c, need


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
    "a level that a function called finds out": """
static int level;
__attribute__((noinline)) static void find(void) { level = getauxval(WORD) & BIT ? 2 : 1; }
int main(int n, char **v) {
    level = 0;
    find();
    printf("%ld\\n", level > 1 ? fast(n) : slow(n));
    return 0;
}
""",
    "an answer that is turned around": """
__attribute__((noinline)) static long lacks(void) { return -(long)((getauxval(WORD) & (BIT)) == 0); }
int main(int n, char **v) { printf("%ld\\n", lacks() ? slow(n) : fast(n)); return 0; }
""",
    "a test before a loop of calls": """
int main(int n, char **v) {
    long x = 0;
    int has = (getauxval(WORD) & BIT) != 0;
    for (int i = 0; i < n + 2; i++) x ^= has ? fast(i) : slow(i);
    printf("%ld\\n", x);
    return 0;
}
""",
    "a getauxval that looks its types up": """
static unsigned long *vector, secure;
__attribute__((noipa)) static unsigned long look_up(unsigned long type) {
    if (type == AT_SECURE) return secure;
    for (unsigned long *word = vector; *word; word += 2)
        if (*word == type) return word[1];
    return 0;
}
int main(int n, char **v, char **environment) {
    while (*environment) environment++;
    vector = (unsigned long *)(environment + 1);
    printf("%ld\\n", look_up(WORD) & BIT ? fast(n) : slow(n));
    return look_up(AT_PAGESZ) == 0;
}
""",
    "two bits at once and a wish of the user": """
static unsigned long caps;
__attribute__((noinline)) static int has(void) { return (caps & (BIT | ALWAYS)) == (BIT | ALWAYS); }
__attribute__((noinline)) static int usable(void) { return has() && !getenv("SLOW"); }
int main(int n, char **v) {
    caps = getauxval(WORD);
    printf("%ld\\n", usable() ? fast(n) : slow(n));
    return 0;
}
""",
    "a member of an object that a function tests for others": """
static struct { int enabled, level; unsigned long caps; } cpu;
__attribute__((noinline)) static void find(void) {
    cpu.caps = getauxval(WORD);
    cpu.enabled = !getenv("SLOW");
    cpu.level = 3;
}
__attribute__((noinline)) static int has(void) { return cpu.enabled && cpu.level > 2 && (cpu.caps & BIT); }
int main(int n, char **v) {
    find();
    printf("%ld\\n", has() ? fast(n) : slow(n));
    return 0;
}
""",
    "members of one bit each": """
static struct { unsigned found : 1, other : 1, wanted : 1, more : 1; } cpu;
__attribute__((noinline)) static void find(void) {
    unsigned long caps = getauxval(WORD);
    cpu.other = (caps & 1ul << 3) != 0;
    cpu.wanted = (caps & BIT) != 0;
    cpu.found = 1;
}
__attribute__((noinline)) static int has(void) {
    if (!cpu.found) find();
    return cpu.wanted;
}
int main(int n, char **v) { printf("%ld\\n", has() ? fast(n) : slow(n)); return 0; }
""",
    "members of one byte each that are handed back": """
struct features { unsigned char other, wanted; };
static struct features cpu;
__attribute__((noinline)) static struct features find(void) {
    unsigned long caps = getauxval(WORD);
    struct features f;
    f.other = (caps & 1ul << 3) != 0;
    f.wanted = (caps & BIT) != 0;
    return f;
}
int main(int n, char **v) { cpu = find(); printf("%ld\\n", cpu.wanted ? fast(n) : slow(n)); return 0; }
""",
    "an atomic variable with a mark of its own": """
static _Atomic unsigned long caps;
__attribute__((noinline)) static unsigned long get(void) {
    unsigned long found = __atomic_load_n(&caps, __ATOMIC_ACQUIRE);
    if (!found) {
        found = getauxval(WORD) | 1ul << 63;
        __atomic_store_n(&caps, found, __ATOMIC_RELEASE);
    }
    return found;
}
int main(int n, char **v) { printf("%ld\\n", get() & BIT ? fast(n) : slow(n)); return 0; }
""",
    "members that functions of a table set": """
struct features { int wanted, any, other, more[4]; };
static void set_any(struct features *f, int value) { f->any = value; }
static void set_other(struct features *f, int value) { f->other = value; }
static void set_wanted(struct features *f, int value) { f->wanted = value; }
static const struct { void (*set)(struct features *, int); unsigned long bit; } table[] = {
    {set_any, 1ul << 1}, {set_other, 1ul << 3}, {set_wanted, BIT},
};
static struct features found;
__attribute__((noinline)) static struct features find(void) {
    struct features f = {0};
    unsigned long caps = getauxval(WORD);
    for (int i = 0; i < 3; i++) if ((caps & table[i].bit) == table[i].bit) table[i].set(&f, 1);
    return f;
}
__attribute__((constructor)) static void keep(void) { found = find(); }
int main(int n, char **v) { printf("%ld\\n", (found.wanted ? fast(n) : slow(n)) + found.any); return 0; }
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
STYLES = {
    "O0": ("-O0",),
    "O2, stripped": ("-O2", "-s"),
    "O2, static": ("-O2", "-static", "-s"),
    "O2, lld": ("-O2", "-fuse-ld=lld", "-s"),
    "Os": ("-Os",),
}


_MEMBERS = "members that functions of a table set"
FALSE_ALARMS = {
    *(("ppc64le", _MEMBERS, style) for style in STYLES),  # vectors copy what is handed back
    ("ppc64le", "a test before a loop of calls", "Os"),
    ("ppc64le", "a getauxval that looks its types up", "O0"),
    *(("aarch64", "a getauxval that looks its types up", style) for style in STYLES if style.startswith("O2")),
}
"""Where a test for enough is not seen at all: what is looked up is not compared in the parameter's register."""
_AUXILIARY = "the auxiliary vector behind the environment"
_OPTIMISED = tuple(style for style in STYLES if style != "O0")
MISSED = {
    *(("aarch64", _MEMBERS, style) for style in STYLES),
    *((machine, _AUXILIARY, style) for machine in MACHINES for style in _OPTIMISED),
    *(("ppc64le", "a level that is found out once", style) for style in STYLES if style.startswith("O2")),
}
"""Where a test for too little is not understood, and so taken for one for enough: see docs/cpu.md."""
CASES = [
    pytest.param(*case, too_little, marks=pytest.mark.xfail(reason="not understood", strict=True))
    if case in (MISSED if too_little else FALSE_ALARMS)
    else (*case, too_little)
    for too_little in (False, True)
    for case in product(MACHINES, SHAPES, STYLES)
]


def built(machine: Machine, shape: str, style: str, bit: str) -> Path:
    flags = STYLES[style] if "lld" not in style else (*STYLES[style], f"-B{_directory_of_lld()}")
    return compiled(machine, SHAPES[shape], bit, *flags)


def compiled(machine: Machine, source: str, bit: str, *flags: str) -> Path:
    source = HEAD + source
    for name, text in (
        ("KERNEL", machine.kernel),
        ("WORD", machine.word),
        ("BIT", f"({bit})"),
        ("ALWAYS", f"({machine.always})"),
    ):
        source = source.replace(name, text)
    return compile_c(source, *flags, compiler=machine.compiler)


@cache
def _directory_of_lld() -> str:
    """Cross compilers look for it where nothing else is: beside it, they would take the assembler of this machine."""
    directory = Path(tempfile.gettempdir()) / f"imgcheck-lld-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    link = directory / "ld.lld"
    if not link.exists():
        link.symlink_to(need("ld.lld"))
    return str(directory)


@pytest.mark.parametrize(("machine", "shape", "style", "too_little"), CASES)
def test_a_test_is_followed_and_held_against_what_it_is_for(
    machine: str, shape: str, style: str, too_little: bool
) -> None:
    of = MACHINES[machine]
    path = built(of, shape, style, of.always if too_little else of.bit)
    found = analyse(path)
    said = {model: predicted(found, features) for model, features in of.models.items()}
    assert said == {model: observed(path, of.emulator, model) for model in of.models}


KEPT_FOR_MORE = (
    HEAD
    + """
int main(int n, char **v) { printf("%ld\\n", getauxval(AT_HWCAP2) & 0x00800000 ? fast(n) : slow(n)); return 0; }
"""
)


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-s")], ids=" ".join)
def test_code_behind_a_test_for_less_runs_where_that_is_not_met(flags: tuple[str, ...]) -> None:
    of = MACHINES["ppc64le"]
    kernel = '__asm__ volatile(".long 0x7c630136" ::: "r3")'  # BRW, of ISA 3.1, behind a test for 3.0
    path = compile_c(KEPT_FOR_MORE.replace("KERNEL", kernel), *flags, compiler=of.compiler)
    (use,) = analyse(path).uses
    assert (use.answer, use.given) == ("required", (("arch_3_00",),))
    assert [observed(path, of.emulator, model) for model in of.models] == ["runs", "dies", "runs"]
    assert [predicted(analyse(path), features) for features in of.models.values()] == ["runs", "dies", "runs"]


STARTED_IN_C = """
int main(int n, char **v) { printf("%ld\\n", getauxval(WORD) & BIT ? fast(n) : slow(n)); return 0; }
__attribute__((noipa)) void begin(int (*main)(int, char **), long *stack) {
    exit(main(stack[0], (char **)(stack + 1)));
}
void start(long *stack) { begin(main, stack); }
__asm__(".text\\n.globl _start\\n.type _start,%function\\n_start: GO\\n.skip 128\\n.size _start,.-_start");
"""
GOES = {
    "aarch64": "mov x0, sp; mov x29, 0; b start",
    "ppc64le": "addis 2, 12, .TOC.-_start@ha; addi 2, 2, .TOC.-_start@l; mr 3, 1; stdu 0, -112(1); bl start; nop",
}


@pytest.mark.parametrize("machine", MACHINES)
def test_main_of_a_stripped_program_is_found_where_its_start_goes_to_code_in_c(machine: str) -> None:
    """So musl starts programs; what stands around main asks the CPU, but not for this."""
    of = MACHINES[machine]
    path = compiled(of, STARTED_IN_C.replace("GO", GOES[machine]), of.always, "-O2", "-s", "-nostartfiles")
    said = {model: predicted(analyse(path), features) for model, features in of.models.items()}
    assert said == {model: observed(path, of.emulator, model) for model in of.models}


OBJECT_WITH_A_FLAG = """
struct counter { char on; int count; };
__attribute__((noinline)) void increase(struct counter *c) { if (c->on) __atomic_fetch_add(&c->count, 1, 5); }
int main(int n, char **v) { struct counter c = {1, n}; increase(&c); return 0; }
"""


def test_a_flag_of_ones_own_is_no_test_of_the_cpu() -> None:
    path = compile_c(OBJECT_WITH_A_FLAG, "-O2", "-march=armv8.1-a", compiler=ARM)
    assert [(use.feature, use.answer) for use in analyse(path).uses] == [("atomics", "required")]


TESTED = """
int main(int n, char **v) {
    FIRST
    printf("%ld\\n", getauxval(WORD) & BIT ? fast(n) : slow(n));
    return 0;
}
"""
SORTING = """
static int order(const void *a, const void *b) { return fast(*(const long *)a) - fast(*(const long *)b); }
static long numbers[] = {3, 1, 2};
"""
ELSEWHERE = {
    "a destructor": ('__attribute__((destructor)) static void end(void) { printf("%ld\\n", fast(1)); }', "", "dies"),
    "a comparison": (SORTING, "qsort(numbers, 3, sizeof(long), order);", "unknown"),
}


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-s")], ids=" ".join)
@pytest.mark.parametrize("place", ELSEWHERE)
@pytest.mark.parametrize("machine", MACHINES)
def test_what_others_call_is_shielded_by_no_test_of_main(machine: str, place: str, flags: tuple[str, ...]) -> None:
    of, (own, first, answer) = MACHINES[machine], ELSEWHERE[place]
    path = compiled(of, own + TESTED.replace("FIRST", first), of.bit, *flags)
    dying = [model for model in of.models if observed(path, of.emulator, model) == "dies"]
    assert dying
    assert {predicted(analyse(path), of.models[model]) for model in dying} == {answer}


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-s")], ids=" ".join)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_comparison_behind_a_test_is_shielded(machine: str, flags: tuple[str, ...]) -> None:
    of = MACHINES[machine]
    first = "if (getauxval(WORD) & BIT) qsort(numbers, 3, sizeof(long), order);"
    path = compiled(of, SORTING + TESTED.replace("FIRST", first), of.bit, *flags)
    assert {predicted(analyse(path), features) for features in of.models.values()} == {"runs"}
    assert {observed(path, of.emulator, model) for model in of.models} == {"runs"}


FOR_POWER10 = """
static unsigned long numbers[64] = {1, 2, 3};
static int has;
__attribute__((constructor)) static void find(void) { has = (getauxval(AT_HWCAP2) & 0x00040000) != 0; }
__attribute__((noinline, target("cpu=power10"))) static long best(long x) {
    unsigned long sum = x;
    __asm__ volatile(".long 0x7c630136" ::: "r3");
    for (int i = 0; i < 64; i++) sum += numbers[i];
    return sum;
}
int main(int n, char **v) { printf("%ld\\n", has ? best(n) : slow(n)); return 0; }
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O2", "-s")], ids=" ".join)
def test_stubs_that_lead_to_code_without_a_table_of_contents_are_their_callers_alone(flags: tuple[str, ...]) -> None:
    """GNU ld puts them right behind those of other files' functions, which everybody calls."""
    of = MACHINES["ppc64le"]
    path = compiled(of, FOR_POWER10, of.bit, *flags)
    assert {use.feature: use.answer for use in analyse(path).uses if use.feature == "arch_3_1"} == {
        "arch_3_1": "dispatched"
    }
    assert {observed(path, of.emulator, model) for model in of.models} == {"runs"}
