"""What is reached by addresses: of comparisons and callbacks, in data of programs that cannot be moved, by exports.

Where a program is run, QEMU's CPU models say what happens. What dies must not be said to run; where the way there is
not certain, unknown is an answer, too.
"""

import json
from pathlib import Path

import pytest

from imgcheck.documents.facts import Answer
from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c, need, run

KERNEL = """
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
static float x[64];
#define VECTOR for (int i = 0; i < 64; i += 8) \\
    __asm__ volatile("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper" \\
                     : : "r"(x + i) : "memory", "xmm1")
__attribute__((noinline)) static int use(const void *a, const void *b) { VECTOR; return a < b; }
__attribute__((noinline)) static int use_avx2(const void *a, const void *b) { VECTOR; return a < b; }
__attribute__((noinline)) static int plain(const void *a, const void *b) { x[3] += 1; return a < b; }
static unsigned asked; /* for something else */
__attribute__((constructor)) static void ask(void) { asked = __builtin_cpu_supports("sse4.2"); }
"""
DYING = {
    "a comparison for qsort": "int main(void) { int v[4] = {3, 1, 2, 0}; qsort(v, 4, sizeof *v, use);"
    ' printf("%d %u\\n", v[0], asked); return 0; }',
    "what runs at the end": "static void leave(void) { use(x, x + 1); }"
    'int main(void) { atexit(leave); printf("%u\\n", asked); return 0; }',
    "a destructor": "__attribute__((destructor)) static void leave(void) { use(x, x + 1); }"
    'int main(int n, char **words) { if (__builtin_cpu_supports("avx2")) use(x, x + n);'
    ' printf("%u\\n", asked); return 0; }',
    "one of two callbacks that lead to it": "__attribute__((noinline)) static int list(int n)"
    ' { printf("list %d\\n", n); return n; }'
    "__attribute__((noinline)) static int code(int n) { return n + use(x, x + n); }"
    "int main(int n, char **words) { int (*run)(int) = n > 3 ? list : code;"
    ' printf("%u\\n", asked); return run(n) < 0; }',
    "a pointer that is replaced too late": "static int (*chosen)(const void *, const void *) = use;"
    "__attribute__((noinline)) static int early(void) { return chosen(x, x + 1); }"
    "int main(void) { int n = early(); chosen = plain; return n + chosen(x, x) < 0; }",
    "what is handed on by reference": "struct work { int (*run)(const void *, const void *); };"
    "__attribute__((noinline, noipa)) static int start(struct work *w) { return w->run(x, x + 1); }"
    'int main(void) { printf("%u\\n", asked); int (*run)(const void *, const void *) = use;'
    ' __asm__("" : "+r"(run)); struct work w = {run}; return start(&w) < 0; }',
    "a version by name without a test": "__attribute__((noinline)) static int stream(int n)"
    " { return n > 0 ? use_avx2(x, x + n) : plain(x, x + n); }"
    'int main(int n, char **words) { printf("%u\\n", asked); return stream(n) < 0; }',
    "a version by name that a callback picks by size": "__attribute__((noinline)) static int order(const void *a,"
    " const void *b) { return a != b ? use_avx2(a, b) : plain(a, b); }"
    'int main(void) { int v[4] = {3, 1, 2, 0}; qsort(v, 4, sizeof *v, order); printf("%d %u\\n", v[0], asked);'
    " return 0; }",
}
FLAGS = [("-O2",), ("-O2", "-no-pie", "-fno-pie"), ("-O2", "-s"), ("-O2", "-static", "-s")]


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("shape", DYING)
def test_what_dies_is_not_said_to_run(shape: str, flags: tuple[str, ...]) -> None:
    path = compile_c(KERNEL + DYING[shape], *flags)
    assert observed(path, "qemu-x86_64", "Nehalem") == "dies"
    assert predicted(analyse(path), MODELS["Nehalem"]) != "runs"
    assert predicted(analyse(path), MODELS["Haswell"]) == "runs"


CHOSEN = {
    "flags that a pointer in data leads to": "static unsigned char flags[8], *current = flags;"
    '__attribute__((constructor)) static void init(void) { flags[2] = __builtin_cpu_supports("avx2") != 0; }'
    "__attribute__((noinline)) static int has(int k) { return current[k]; }"
    "int main(void) { return (has(2) ? use : plain)(x, x + 1) < 0; }",
    "a callback behind a test": 'int main(void) { int v[4] = {3, 1, 2, 0}; if (__builtin_cpu_supports("avx2"))'
    " qsort(v, 4, sizeof *v, use); else qsort(v, 4, sizeof *v, plain); return v[0] < 0; }",
    "a level that is found out once": "static int level = -1;"
    '__attribute__((noinline)) static int find(void) { return __builtin_cpu_supports("avx2") != 0; }'
    "int main(void) { int n = 0, l = level; if (l < 0) l = level = find();"
    " for (int i = 0; i < 9; i++) n += l ? use(x, x + i) : plain(x, x + i); return n < 0; }",
    "a thread's level that is found out once": "static __thread int level = -1;"
    '__attribute__((noinline)) static int find(void) { return __builtin_cpu_supports("avx2") != 0; }'
    "int main(void) { int n = 0; if (level < 0) level = find();"
    " for (int i = 0; i < 9; i++) n += level ? use(x, x + i) : plain(x, x + i); return n < 0; }",
}


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("shape", CHOSEN)
def test_what_a_test_chooses_is_said_to_run(shape: str, flags: tuple[str, ...]) -> None:
    path = compile_c(KERNEL + CHOSEN[shape], *flags)
    for model in ("Nehalem", "SandyBridge", "Haswell"):
        assert observed(path, "qemu-x86_64", model) == "runs"
        assert predicted(analyse(path), MODELS[model]) == "runs"


REGISTERED = """
__attribute__((noinline, noipa)) void keep(int a, int b, int c, int d, int e, int f, void *kernel) { }
__attribute__((noinline)) int kernel(const void *a, const void *b) { return use(a, b); }
__attribute__((constructor)) static void enter(void) { CALL; }
int main(void) { printf("%u\\n", asked); return 0; }
"""
"""As C++ libraries enter their kernels in a table: the address of an exported function is the seventh parameter."""


@pytest.mark.parametrize("call, ends", [("keep(1, 2, 3, 4, 5, 6, kernel)", "runs"), ("kernel(x, x + 1)", "dies")])
def test_an_address_that_is_pushed_for_a_callee_is_no_call(call: str, ends: str) -> None:
    flags = ("-O2", "-fPIC", "-rdynamic", "-mtune=core2", "-mpush-args", "-mno-accumulate-outgoing-args")
    path = compile_c(KERNEL + REGISTERED.replace("CALL", call), *flags)
    listing = run(need("objdump"), "-d", "--disassemble=enter", path).stdout
    assert ("push" in listing) == (ends == "runs")  # through the slot of a linker that may put another function there
    assert observed(path, "qemu-x86_64", "Nehalem") == ends
    said = predicted(analyse(path), MODELS["Nehalem"])
    assert said == "dies" if ends == "dies" else said != "dies"


SEEMING_JUMP = """
    .globl early
    .type early, @function
early: .cfi_startproc
    jmp 1f
    .fill 30, 1, 0x90
    xor %eax, %eax
    ret
1:  cmp $5, %edi
    .byte BRANCH
    .long use - . - 4
    .fill 16, 1, 0x90
    ret
    .cfi_endproc
    .size early, . - early
"""
"""A branch back by 23 bytes, whose distance with what follows looks like a jump; and a jump, with a prefix or not."""


@pytest.mark.parametrize("branch, ends", [("0x7c, 0xe9", "runs"), ("0xf2, 0xe9", "dies"), ("0x90, 0xe9", "dies")])
def test_a_distance_that_looks_like_a_jump_is_none(branch: str, ends: str) -> None:
    code = KERNEL.replace("static int use(", "int use(") + "int early(int n);"
    code += f"__asm__({json.dumps(SEEMING_JUMP.replace('BRANCH', branch))});"
    path = compile_c(code + 'int main(void) { printf("%u\\n", asked); return early(1) < 0; }', "-O2")
    assert observed(path, "qemu-x86_64", "Nehalem") == ends
    assert predicted(analyse(path), MODELS["Nehalem"]) == ends


HANDED_OUT = """
static unsigned flags[4];
__attribute__((constructor)) static void init(void) { flags[0] = TOLD ? 256 : 0; }
__attribute__((noinline, noipa)) static unsigned *known(void) {
    unsigned *at; __asm__("movabs %1, %0" : "=r"(at) : "i"(flags)); return at;
}
__attribute__((noinline, noipa)) static int has(void) { return (known()[0] & 256) != 0; }
int main(void) { if (has()) use(x, x + 1); else plain(x, x + 1); return 0; }
"""


@pytest.mark.parametrize(("told", "ends"), [('__builtin_cpu_supports("avx2")', "runs"), ('getenv("PATH")', "dies")])
@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-s")], ids=" ".join)
def test_flags_whose_address_a_function_hands_out_as_a_number(flags: tuple[str, ...], told: str, ends: str) -> None:
    """So clang makes it without optimisation, in programs that cannot be moved."""
    kernel, _, _ = KERNEL.partition("static unsigned asked")
    path = compile_c(kernel + HANDED_OUT.replace("TOLD", told), "-no-pie", "-fno-pie", *flags)
    assert observed(path, "qemu-x86_64", "Nehalem") == ends
    assert predicted(analyse(path), MODELS["Nehalem"]) == ends


STORED = """
struct kernels { int (*run)(const void *, const void *); };
__attribute__((noinline, noipa)) static void choose(struct kernels *to, int told) {
    __asm__("movq %1, %0" : "=m"(to->run) : "i"(plain));
    if (told) __asm__("movq %1, %0" : "=m"(to->run) : "i"(use));
}
int main(void) {
    struct kernels found;
    choose(&found, __builtin_cpu_supports("avx2"));
    return found.run(x, x + 1) < 0;
}
"""


def test_functions_whose_addresses_are_stored_as_numbers() -> None:
    """Where nothing else tells of them: stripped, without unwind entries, in programs that cannot be moved."""
    path = compile_c(KERNEL + STORED, "-O2", "-s", "-no-pie", "-fno-pie", "-fno-asynchronous-unwind-tables")
    for model in ("Nehalem", "Haswell"):
        assert observed(path, "qemu-x86_64", model) == "runs"
        assert predicted(analyse(path), MODELS[model]) == "runs"


BY_NAME = """
#include <string.h>
static const char *volatile wanted = "avx2";
__attribute__((noinline)) static int has(const char *name) {
    if (!strcmp(name, "avx2")) return __builtin_cpu_supports("avx2") != 0;
    if (!strcmp(name, "avx")) return __builtin_cpu_supports("avx") != 0;
    return 0;
}
int main(void) { return (has(wanted) ? use : plain)(x, x + 1) < 0; }
"""


@pytest.mark.parametrize("flags", [("-O2",), ("-O2", "-no-pie", "-fno-pie"), ("-O2", "-s")], ids=" ".join)
def test_which_feature_is_asked_for_by_name_the_caller_decides(flags: tuple[str, ...]) -> None:
    path = compile_c(KERNEL + BY_NAME, *flags)
    for model in ("Nehalem", "SandyBridge", "Haswell"):
        assert observed(path, "qemu-x86_64", model) == "runs"
        assert predicted(analyse(path), MODELS[model]) == "runs"


LIBRARY = KERNEL + "int (*known(void))(const void *, const void *) { return asked ? plain : 0; }"


def library(more: str, *flags: str) -> Path:
    return compile_c(LIBRARY + more, "-O2", "-shared", "-fPIC", *flags)


def answer(path: Path, feature: str) -> Answer:
    return next(use.answer for use in analyse(path).uses if use.feature == feature)


def test_an_export_that_uses_it_without_a_test_is_not_called_dispatched() -> None:
    wide = library("int enter(int n) { return use(x, x + n); }", "-march=haswell")
    assert answer(wide, "avx2") == "unknown"


def test_the_entry_point_that_linkers_give_a_library_is_no_start() -> None:
    """Older versions of ld let it be where the code begins, whatever lies there."""
    begun = 'int enter(int n) { return __builtin_cpu_supports("avx2") ? use(x, x + n) : plain(x, x + n); }'
    assert answer(library(begun, "-Wl,-e,use"), "avx2") == "dispatched"


SAYS = """
#include <stdarg.h>
#include <stdio.h>
__attribute__((noinline)) static int say(const char *format, ...) {{
    va_list more; va_start(more, format); int n = vprintf(format, more); va_end(more); return n;
}}
int main(int n, char **words) {{ return say({words}) < 0; }}
"""


@pytest.mark.parametrize("flags", [("-O1",), ("-O0",), ("-O2", "-s")], ids=" ".join)
def test_registers_stored_for_variable_arguments_are_used_for_floating_point_numbers_alone(flags: tuple[str]) -> None:
    whole = compile_c(SAYS.format(words='"%d\\n", n'), "-mavx", *flags)
    assert observed(whole, "qemu-x86_64", "Conroe") == "runs"
    assert predicted(analyse(whole), MODELS["Conroe"]) == "unknown"
    floating = compile_c(SAYS.format(words='"%f\\n", n / 2.0'), "-mavx", *flags)
    assert observed(floating, "qemu-x86_64", "Conroe") == "dies"
    assert predicted(analyse(floating), MODELS["Conroe"]) == "dies"


OWN = """
#include <stdio.h>
#include <string.h>
static float x[64];
__attribute__((noinline)) static int near(int n) {
    __asm__ volatile("movups (%0), %%xmm1; pmulld %%xmm1, %%xmm1; movups %%xmm1, (%0)" : : "r"(x) : "memory", "xmm1");
    return n;
}
static struct { int (*volatile run)(int); } work = {near};
int main(int n, char **words) { return strlen(words[0]) > 5000 || work.run(n) < 0; }
"""


@pytest.mark.parametrize(
    "flags", [("-O2", "-static"), ("-O2", "-static", "-s"), ("-O1", "-static-pie", "-fPIE")], ids=" ".join
)
def test_what_a_c_library_linked_in_asks_says_nothing_of_the_program(flags: tuple[str, ...]) -> None:
    path = compile_c(OWN, *flags)
    assert observed(path, "qemu-x86_64", "Conroe") == "dies"
    assert predicted(analyse(path), MODELS["Conroe"]) == "unknown"


INTERFACE = """
#include <stdint.h>
uint64_t asked;
__attribute__((constructor)) static void ask(void) { asked = __builtin_cpu_supports("aes") != 0; }
#define MIX(name, k) uint64_t name(uint64_t a, uint64_t b) { return a << (b & 31) ^ (a + k) >> (b & 15); }
MIX(first, 1) MIX(second, 2) MIX(third, 3)
"""


def test_what_most_exports_use_is_not_called_dispatched() -> None:
    def built(*flags: str) -> Path:
        return compile_c(INTERFACE, "-O2", "-shared", "-fPIC", *flags)

    assert answer(built("-mbmi2"), "bmi2") == "unknown"
    assert not any(use.feature == "bmi2" for use in analyse(built()).uses)
