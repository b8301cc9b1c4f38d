"""A test of the CPU shields what every CPU that passes it has, and nothing else, in whatever form programs ask.

Each build asks for one feature and then uses another. QEMU's CPU models say which of the builds die.
"""

import pytest

from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

PLACES = {
    "ssse3": (1, "c", 9), "sse4.2": (1, "c", 20), "popcnt": (1, "c", 23), "aes": (1, "c", 25), "avx": (1, "c", 28),
    "fma": (1, "c", 12), "avx2": (7, "b", 5), "bmi2": (7, "b", 8), "avx512f": (7, "b", 16), "avx512vl": (7, "b", 31),
}  # fmt: skip
"""Feature -> leaf, register and bit of CPUID that tell of it."""

LEAF = "unsigned a, b, c, d; if (__get_cpuid_max(0, 0) < 7) return 0; __cpuid_count({leaf}, 0, a, b, c, d);"
ASKS = {
    "builtin": "return __builtin_cpu_supports(NAME);",
    "mask": LEAF + "return (R & 1u << BIT) != 0;",
    "shift": LEAF + "return R >> BIT & 1;",
    "bt": LEAF + 'unsigned char is; __asm__("bt %2, %1; setc %0" : "=q"(is) : "r"(R), "i"(BIT)); return is;',
    "several": LEAF + "return (R & (1u << BIT | FIRST)) == (1u << BIT | FIRST);",
    "enabled": "unsigned a, b, c, d, low, high; __cpuid(0, a, b, c, d); if (a < 7) return 0; __cpuid(1, a, b, c, d);"
    ' if (!(c & bit_OSXSAVE)) return 0; __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));'
    " if ((low & 6) != 6) return 0; __cpuid_count({leaf}, 0, a, b, c, d); return (R & 1u << BIT) != 0;",
    "library": "unsigned a, b, c, d; return __get_cpuid_count({leaf}, 0, &a, &b, &c, &d) && (R & 1u << BIT);",
}
"""How a program asks for the feature NAME, which is bit BIT of register R."""

ARRIVES = {
    "inline": "int main() { START if (ask()) use(); else plain(); END }",
    "kept": "static int kept; __attribute__((constructor)) static void init(void) { kept = ask(); }"
    "int main() { START if (kept) use(); else plain(); END }",
    "packed": "static unsigned flags; __attribute__((constructor)) static void init(void) {"
    " if (__builtin_cpu_supports(\"sse3\")) flags |= 2; if (ask()) flags |= 8; }"
    "int main() { START if (flags & 8) use(); else plain(); END }",
    "pointer": "static void (*f)(void);"
    "__attribute__((constructor)) static void init(void) { f = ask() ? use : plain; }"
    "int main() { START f(); END }",
    "there": "static void (*f)(void);"
    "__attribute__((constructor)) static void init(void) { if (ask()) f = use; }"
    "int main() { START if (f) use(); else plain(); END }",
    "table": "static void (*const table[])(void) = {plain, use}; static int level;"
    "__attribute__((constructor)) static void init(void) { level = ask() != 0; }"
    "int main() { START table[level](); END }",
    "object": "struct cpu { int vendor; char has; }; static struct cpu *cpu; int main() { START"
    " cpu = calloc(1, sizeof *cpu); cpu->has = ask() != 0; if (cpu->has) use(); else plain(); END }",
    "refuses": "int main() { START if (!ask()) return 3; use(); END }",
    "resolver": "static void (*resolve(void))(void) { __builtin_cpu_init(); return ask() ? use : plain; }"
    "void best(void) __attribute__((ifunc(\"resolve\"))); int main() { START best(); END }",
}  # fmt: skip
"""How the answer arrives at the branch."""

SOURCE = """
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#define NAME "{asked}"
#define BIT {bit}
#define R {register}
#define FIRST (1u << {first})
static float x[64];
static unsigned long n[64];
#define START for (int i = 0; i < 64; i++) n[i] = x[i] = i;
#define END printf("%f %lu\\n", x[7], n[9]); return 0;
__attribute__((noinline, target("{used}"))) static void use(void) {{ {body} }}
__attribute__((noinline)) static void plain(void) {{ for (int i = 0; i < 64; i++) x[i] += n[i]; }}
{place} static int ask(void) {{ {ask} }}
{arrives}
"""
VECTOR = 'for (int i = 0; i < 64; i += 16) __asm__ volatile("{}" : : "r"(x + i) : "memory", "xmm1");'
BODIES = {
    "sse4.2": "for (int i = 0; i < 64; i++) n[i] = __builtin_ia32_crc32di(n[i], 7);",
    "avx": VECTOR.format("vmovups (%0), %%ymm1; vaddps %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"),
    "avx2": VECTOR.format("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"),
    "fma": VECTOR.format("vmovups (%0), %%ymm1; vfmadd132ps (%0), %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"),
    "avx512f": VECTOR.format("vmovups (%0), %%zmm1; vaddps %%zmm1, %%zmm1, %%zmm1; vmovups %%zmm1, (%0); vzeroupper"),
    "bmi2": "for (int i = 0; i < 64; i++) n[i] = __builtin_ia32_pdep_di(n[i], 0x5555);",
}
CONTRADICTED = [("avx", "avx2", "SandyBridge"), ("sse4.2", "avx", "Nehalem"), ("avx2", "avx512f", "Haswell")]
"""Asked for, used, and a CPU that has the one and lacks the other."""
FITTING = [
    ("avx", "avx", "Nehalem"), ("avx2", "avx2", "SandyBridge"), ("avx2", "fma", "SandyBridge"),
    ("avx2", "bmi2", "Nehalem"), ("avx512f", "avx512f", "Haswell"), ("avx512f", "avx2", "SandyBridge"),
    ("sse4.2", "sse4.2", "Conroe"), ("fma", "avx2", "SandyBridge"),
]  # fmt: skip
"""Asked for, used, and a CPU that lacks both: every CPU with the one has the other, so the test is enough."""


def program(ask: str, arrives: str, asked: str, used: str, *flags: str):
    leaf, register, bit = PLACES[asked]
    first = {(1, "c"): 0, (7, "b"): 0}[leaf, register]
    source = SOURCE.format(
        asked=asked, bit=bit, register=register, first=first, used=used, body=BODIES[used], arrives=ARRIVES[arrives],
        ask=ASKS[ask].replace("{leaf}", str(leaf)),
        place=f"__attribute__(({'always_inline' if arrives in ('inline', 'refuses') else 'noinline'}))",
    )  # fmt: skip
    return compile_c(source, "-O2", "-s", *flags)


ENABLED = [("enabled", "inline"), ("enabled", "kept")]
FORMS = (
    [(ask, "inline") for ask in ASKS if ask != "enabled"]
    + [(ask, way) for way in list(ARRIVES)[1:] for ask in ("builtin", "mask")]
    + ENABLED
)
"""Every way to ask with one way to arrive, and every way to arrive with two ways to ask."""


def some(form: int) -> list[tuple[str, str, str]]:
    """Two of the fitting pairs for each form, all of them in turn."""
    return [FITTING[(2 * form + k) % len(FITTING)] for k in range(2)]


@pytest.mark.parametrize(
    ("ask", "arrives", "asked", "used", "model"),
    [(*form, *pair) for number, form in enumerate(FORMS) for pair in some(number)],
)
def test_a_fitting_test_shields(ask: str, arrives: str, asked: str, used: str, model: str) -> None:
    path = program(ask, arrives, asked, used)
    assert observed(path, "qemu-x86_64", model) == "runs"
    found = analyse(path)
    assert predicted(found, MODELS[model]) == "runs", [(u.feature, u.answer, u.reason) for u in found.uses]


def contradicted(form: int) -> tuple[str, str, str]:
    """One of the pairs for each form, all of them in turn; who asks whether AVX is enabled asks for that, too."""
    pairs = [pair for pair in CONTRADICTED if FORMS[form] not in ENABLED or pair[1] != "avx"]
    return pairs[form % len(pairs)]


@pytest.mark.parametrize(
    ("ask", "arrives", "asked", "used", "model"),
    [(*form, *contradicted(number)) for number, form in enumerate(FORMS)],
)
def test_a_test_for_another_feature_shields_nothing(ask: str, arrives: str, asked: str, used: str, model: str) -> None:
    """It dies on `model`, and on all CPUs like it; what lacks the one and what has the other runs."""
    path = program(ask, arrives, asked, used)
    assert observed(path, "qemu-x86_64", model) == "dies"
    found = analyse(path)
    for name, features in MODELS.items():
        told = [(u.feature, u.answer, u.reason) for u in found.uses]
        assert (name, predicted(found, features)) == (name, observed(path, "qemu-x86_64", name)), told


ENDING = """
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline, noreturn)) static void fatal(char *words) {{ puts(words); abort(); }}
__attribute__((noreturn)) void leave(char *words);
__attribute__((used, noreturn)) void left(char *words) {{ fatal(words); }}
__asm__(".type leave, @function; leave: .cfi_startproc; xor %esi, %esi; jmp left;"
        ".cfi_endproc; .size leave, . - leave");
__attribute__((noreturn)) void toss(char *words);
__asm__(".type tossed, @function; tossed: .cfi_startproc; xor %esi, %esi; into: xor %edx, %edx; call left;"
        ".cfi_endproc; .size tossed, . - tossed; .type toss, @function; toss: .cfi_startproc; sub $8, %rsp;"
        ".cfi_adjust_cfa_offset 8; jmp into; .cfi_endproc; .size toss, . - toss");
__attribute__((noinline, target("avx2"))) static void wide(int *a) {{
    for (int i = 0; i < 64; i += 8) *(int __attribute__((vector_size(32))) *)(a + i) += 3;
}}
int main(int n, char **v) {{
    static int numbers[64];
    unsigned a, b = 0, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    if (__builtin_expect(n > 9, 0)) {{ puts("many"); {end}; }}
    puts("few");
    if (__builtin_expect({test}, 0)) wide(numbers);
    puts("done");
    return 0;
}}
"""


@pytest.mark.parametrize("end", ["fatal(v[0])", "leave(v[0])", "toss(v[0])", "abort()", "exit(4)", "__builtin_trap()"])
@pytest.mark.parametrize(("test", "answer"), [("b >> 5 & 1", "dispatched"), ("n > 3", "required")])
def test_nothing_goes_on_behind_a_call_that_never_returns(end: str, test: str, answer: str) -> None:
    """As in Qt 5, OpenSSL 3.0, OpenCV and Go: what stands behind such a call, a test leads to."""
    found = analyse(compile_c(ENDING.format(end=end, test=test), "-O1", "-fno-reorder-blocks-and-partition", "-s"))
    assert {use.answer for use in found.uses if use.feature == "avx2"} == {answer}


WORKAROUND = """
#include <cpuid.h>
#include <stdio.h>
static unsigned long long cache;
static int x[64];
__attribute__((noinline)) static unsigned long long find(void) {{
    unsigned a, maker, c, d, b, word;
    __cpuid(0, a, maker, c, d);
    __cpuid(1, a, b, word, d);
    __cpuid_count(7, 0, a, b, c, d);
    unsigned long long all = (word >> 28 & 1) << 14 | (word >> 20 & 1) << 11 | (b >> 5 & 1) << 15 | 1ull << 63;
    unsigned long long some = all & 0xf9ffffffffff3fff;
    unsigned long long other = (maker ^ 0x756e6547u) | (all & 0x4000);
    __asm__("test %1, %1; cmovne %2, %0" : "+r"(some) : "r"(other), "r"(all) : "cc");
    return cache = some;
}}
__attribute__((noinline)) static void fast(void) {{
    __asm__ volatile("vmovdqu (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vzeroupper" : : "r"(x) : "memory", "xmm1");
}}
int main(void) {{
    unsigned long long found = cache ? cache : find();
    if (found >> {bit} & 1) fast();
    printf("%d\\n", x[1]);
    return 0;
}}
"""


@pytest.mark.parametrize(("bit", "ends"), [(14, "dies"), (15, "runs")])
def test_bits_that_are_cleared_for_one_maker_of_cpus_tell_what_they_did(bit: int, ends: str) -> None:
    """As in the cache of Rust's std_detect, where the test rests on a bit of AVX and the maker's name."""
    path = compile_c(WORKAROUND.format(bit=bit), "-O2")
    assert observed(path, "qemu-x86_64", "SandyBridge") == ends
    assert predicted(analyse(path), MODELS["SandyBridge"]) == ends


KEPT = """
#include <cpuid.h>
#include <stdio.h>
static int x[64];
__attribute__((noinline)) static int has(void) {{
    static int state;
    if (!state) {{
        unsigned a, b, c = 0, d, low, high;
        const unsigned need = bit_OSXSAVE | bit_AVX | bit_FMA;
        state = 1;
        if (__get_cpuid(1, &a, &b, &c, &d) && (c & need) == need) {{
            __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
            state = (low & 6) == 6 ? 2 : 1;
        }}
    }}
    return state == {wanted};
}}
int main(void) {{
    if (has()) __asm__ volatile("vfmadd132ps %%ymm0, %%ymm0, %%ymm0" : : : "xmm0");
    printf("%d\\n", x[1]);
    return 0;
}}
"""


@pytest.mark.parametrize(("wanted", "ends"), [(2, "runs"), (1, "dies")])
@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
def test_an_answer_that_is_kept_and_told_from_none_yet(wanted: int, ends: str, level: str) -> None:
    path = compile_c(KEPT.format(wanted=wanted), level)
    assert observed(path, "qemu-x86_64", "SandyBridge") == ends
    assert predicted(analyse(path), MODELS["SandyBridge"]) == ends


FAR = """
#include <cpuid.h>
#include <stdio.h>
static volatile int flags = -1;
static int x[64];
static int find(void) {
    unsigned a, b, c, d;
    int found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (d >> 26 & 1) found |= 2;
    if (c >> 19 & 1) found |= 16;
    return found;
}
#define USE(n) __asm__ volatile("pinsrd $" #n ", %0, %%xmm0" : : "r"(x[n]) : "xmm0")
__attribute__((noinline)) static void scan(void) {
    if (flags < 0) flags = find();
    if (flags & 16) USE(1);
    else if (flags & 2) USE(2);
    puts("scanned");
}
__attribute__((noinline)) static void step(void) { puts("step"); scan(); puts("done"); }
#define THROUGH(name, next) \\
    __attribute__((noinline)) static void name(void) { void (*volatile f)(void) = next; f(); puts(#name); }
THROUGH(f1, step) THROUGH(f2, f1) THROUGH(f3, f2) THROUGH(f4, f3) THROUGH(f5, f4) THROUGH(f6, f5)
int main(void) { void (*volatile f)(void) = f6; f(); return 0; }
"""


def test_a_function_that_asks_before_some_of_its_uses_alone_is_no_proof_that_it_was_asked_before_the_others() -> None:
    """As where link-time optimisation inlines kernels of files that were compiled for more (minimap2)."""
    path = compile_c(FAR, "-O1")
    assert observed(path, "qemu-x86_64", "Conroe") == "dies"
    assert predicted(analyse(path), MODELS["Conroe"]) == "unknown"


PICKED = """
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
static int x[64];
static void plain(void) {{ puts("plain"); }}
#define VERSION(name, n) \\
    static void name(void) {{ __asm__ volatile("pinsrd $" #n ", %0, %%xmm0" : : "r"(x[n]) : "xmm0"); puts(#name); }}
VERSION(first, 1) VERSION(second, 2)
static void (*one)(void) = plain, (*other)(void) = plain;
__attribute__((noinline)) static void pick(unsigned c) {{ if (c >> {bit} & 1) one = first; }}
__attribute__((noinline)) static void pick_by_model(unsigned a) {{ if ((a >> 4 & 15) == 13) other = second; }}
int main(void) {{
    unsigned a = 0, b, c = 0, d;
    __get_cpuid(1, &a, &b, &c, &d);
    pick(c);
    pick_by_model(a);
    one();
    other();
    return 0;
}}
"""


@pytest.mark.parametrize(("bit", "ends"), [(9, "dies"), (19, "runs")])
def test_a_version_that_is_picked_by_too_little_beside_one_that_nobody_understands(bit: int, ends: str) -> None:
    path = compile_c(PICKED.format(bit=bit), "-O1")
    assert observed(path, "qemu-x86_64", "Conroe") == ends
    assert predicted(analyse(path), MODELS["Conroe"]) == ends


BY_MODEL = """
#include <cpuid.h>
#include <stdio.h>
static unsigned long x[8];
static void plain(void) {{ puts("plain"); }}
#define VERSION(n) static void v##n(void) {{ \\
    __asm__ volatile("adcx %0, %0; add $" #n ", %0" : "+r"(x[n]) : : "cc"); puts("v" #n); }}
VERSION(1) VERSION(2) VERSION(3) VERSION(4) VERSION(5) VERSION(6)
static void (*chosen)(void) = plain;
__attribute__((constructor)) static void init(void) {{
    unsigned a, b, c, d;
    __cpuid(0x80000001, a, b, c, d);
    if (!(d >> 29 & 1)) return;
    __cpuid(1, a, b, c, d);
    switch ((a >> 4 & 15) | (a >> 12 & 0xf0)) {{
    case 0x3d: chosen = v1; break;
    case 0x3e: chosen = v2; break;
    case 0x3f: chosen = v3; break;
    case 0x40: chosen = v4; break;
    case 0x41: chosen = v5; break;
    case 0x43: chosen = v6; break;
    }}
}}
int main(void) {{ chosen(); return 0; }}
"""


def test_what_a_table_of_models_leads_to_is_behind_what_the_table_says() -> None:
    """As in GMP, which knows CPUs by their family and model: that these have the feature nobody can see."""
    path = compile_c(BY_MODEL.format(), "-O2")
    assert observed(path, "qemu-x86_64", "Conroe") == "runs"
    assert predicted(analyse(path), MODELS["Conroe"]) == "runs"
