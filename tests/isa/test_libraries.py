"""Real libraries that choose at run time: what they hold is dispatched, what they were built for is required."""

from pathlib import Path

import numpy as np
import pytest

from tests.debian import unpacked
from tests.isa.programs import analyse, answers
from tests.tools import cache_directory, compile_c, missing

DEBIAN = Path("/usr/lib/x86_64-linux-gnu")
WIDE = {"avx", "avx2", "avx512f", "avx512vl", "avx512bw", "fma", "bmi2"}


def wide(path: Path) -> set[str]:
    return {answer for feature, answer in answers(path).items() if feature in WIDE}


@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "libcrypto.so.3", "libgmp.so.10"])
def test_system_libraries_dispatch(name: str) -> None:
    path = DEBIAN / name
    if not path.exists():
        missing(f"needs {path}")
    assert wide(path) <= {"dispatched"}
    assert "required" not in answers(path).values()


def test_libc_says_how_it_asks() -> None:
    found = analyse(DEBIAN / "libc.so.6")
    assert "IFUNC" in found.asks_cpu
    assert "avx512f" in {use.feature for use in found.uses}


def test_numpy_dispatches_above_its_baseline() -> None:
    (module,) = Path(np.__file__).parent.glob("_core/_multiarray_umath.*.so")
    assert wide(module) == {"dispatched"}
    for blas in Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*"):
        assert wide(blas) == {"dispatched"}


def test_openblas_of_debian_chooses_by_the_model_of_the_cpu_or_as_the_user_asks() -> None:
    """Its chooser has seven jump tables: one for a variable, the others for families and models of makers."""
    directory = unpacked(
        cache_directory("packages") / "libopenblas0-pthread", "libopenblas0-pthread", ["bookworm"], "main"
    )
    (library,) = directory.glob("usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r*.so")
    assert set(answers(library).values()) == {"dispatched"}


PARTLY_WIDE = """
#include <cpuid.h>
#pragma GCC push_options
#pragma GCC target("TARGET")
#define PLAN(n) __attribute__((noinline)) void plan##n(float *a) { for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }
PLAN(1) PLAN(2) PLAN(3) PLAN(4) PLAN(5) PLAN(6)
#pragma GCC pop_options
#define DO(n) void do##n(float *a) { for (int i = 0; i < 64; i++) a[i] /= n + 1; plan##n(a); }
DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)
__attribute__((target("avx2"))) static void fast(float *a) { for (int i = 0; i < 64; i++) a[i] -= 1; }
static void slow(float *a) { for (int i = 0; i < 64; i++) a[i] += 2; }
void (*kernel(void))(float *) {
  unsigned a, b = 0, c, d;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  return b >> 5 & 1 ? fast : slow;
}
"""


@pytest.mark.parametrize(("target", "answer"), [("avx2", "unknown"), ("sse2", "dispatched")])
def test_a_library_of_which_a_part_was_compiled_for_more_is_not_taken_for_one_that_asks(
    target: str, answer: str
) -> None:
    """As a wheel with FFTW in it: its own code asks the CPU, and the rest was compiled with wider options."""
    library = compile_c(PARTLY_WIDE.replace("TARGET", target), "-O3", "-shared", "-fPIC", "-s")
    (use,) = (use for use in analyse(library).uses if use.feature == "avx")
    assert use.answer == answer, use.reason


ASKS_A_LIBRARY = """
extern int ASK(void);
static float of[64];
__attribute__((target("avx"), noinline)) static void fast(void) { for (int i = 0; i < 64; i++) of[i] = of[i] * 3 + 1; }
int main(void) { if (ASK() >= 2) fast(); return 0; }
"""


@pytest.mark.parametrize(
    ("ask", "answer"),
    [("mylib_cpu_level", "dispatched"), ("engineHasAVX", "dispatched"), ("mylib_users", "required")],
)
def test_functions_of_other_libraries_tell_of_the_cpu_by_their_names(ask: str, answer: str) -> None:
    library = compile_c(f"int {ask}(void) {{ return 0; }}", "-shared", "-fPIC")
    program = compile_c(ASKS_A_LIBRARY.replace("ASK", ask), "-O3", "-s", str(library))
    (use,) = (use for use in analyse(program).uses if use.feature == "avx")
    assert use.answer == answer, use.reason


SORTING = """
#pragma GCC target("TARGET")
#define HELPER static __attribute__((noinline)) void
HELPER step(float *a, int n) { for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }
HELPER halve(float *a) { for (int i = 0; i < 64; i++) a[i] *= .5f; }
HELPER each(float *a, void (*call)(float *)) { for (int i = 0; i < 9; i++) { step(a, i); call(a); } }
void sort_SUFFIX(float *a) { each(a, halve); }
void partition_SUFFIX(float *a) { step(a, 3); }
"""


@pytest.mark.parametrize(("target", "suffix"), [("avx2", "avx2"), ("avx512f", "avx512"), ("avx512f", "skx")])
def test_a_library_whose_exports_are_versions_by_their_names_leaves_the_test_to_its_callers(
    target: str, suffix: str
) -> None:
    """As the JDK's libsimdsort, which the JVM opens where the CPU has what it needs."""
    source = SORTING.replace("TARGET", target).replace("SUFFIX", suffix)
    assert set(answers(compile_c(source, "-O3", "-shared", "-fPIC")).values()) == {"unknown"}


IN_VERSIONS = """
#pragma GCC push_options
#pragma GCC target("avx512f")
void sort8_FIRST(float *a) { for (int i = 0; i < 64; i++) a[i] = a[i] * 3 + 1; }
#pragma GCC pop_options
#pragma GCC target("avx2")
void sort4_SECOND(float *a) { for (int i = 0; i < 64; i++) a[i] = a[i] * 3 + 1; }
"""


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ("avx512", "avx2", "dispatched"),
        ("ha_z0", "ha_l9", "dispatched"),
        ("avx512", "avx512", "unknown"),
        ("avx512", "other_avx2", "unknown"),
    ],
)
def test_exports_that_are_versions_for_several_kinds_of_cpus_are_for_who_knows_which(
    first: str, second: str, answer: str
) -> None:
    """As the JDK's libjsvml, of which the JVM binds the functions by the names for its CPU."""
    source = IN_VERSIONS.replace("FIRST", first).replace("SECOND", second)
    assert answers(compile_c(source, "-O3", "-shared", "-fPIC"))["avx512f"] == answer


LANDED = """
__asm__(".text\\n .globl mul_NAME\\n .type mul_NAME, @function\\n .p2align 4\\n mul_NAME: endbr64\\n .cfi_startproc\\n"
        " sub $8, %rsp\\n .cfi_adjust_cfa_offset 8\\n vmulps %zmm0, %zmm0, %zmm0\\n add $8, %rsp\\n"
        " .cfi_adjust_cfa_offset -8\\n ret\\n .cfi_endproc\\n .size mul_NAME, . - mul_NAME");
"""


@pytest.mark.parametrize(("name", "answer"), [("floats", "required"), ("avx512", "unknown")])
def test_a_function_that_lands_before_its_unwind_entry_begins_is_one(name: str, answer: str) -> None:
    library = compile_c(LANDED.replace("NAME", name), "-shared", "-fPIC", "-nostartfiles")
    (use,) = (use for use in analyse(library).uses if use.feature == "avx512f")
    assert (use.answer, use.function) == (answer, f"mul_{name}")


@pytest.mark.parametrize(("target", "suffix", "feature"), [("avx2", "floats", "avx"), ("avx512f", "avx2", "avx512f")])
def test_exports_that_are_not_named_for_what_they_use_need_it(target: str, suffix: str, feature: str) -> None:
    source = SORTING.replace("TARGET", target).replace("SUFFIX", suffix)
    assert answers(compile_c(source, "-O3", "-shared", "-fPIC"))[feature] == "required"


def test_one_export_without_such_a_name_needs_what_it_leads_to() -> None:
    source = SORTING.replace("TARGET", "avx2").replace("SUFFIX", "avx2") + "void all(float *a) { step(a, 1); }"
    assert answers(compile_c(source, "-O3", "-shared", "-fPIC"))["avx"] == "required"


NAMED = """
#include <cpuid.h>
#include <immintrin.h>
#define SUM(name) __attribute__((target("avx512f"))) float name(const float *a) { \\
    return _mm512_reduce_add_ps(_mm512_mul_ps(_mm512_loadu_ps(a), _mm512_loadu_ps(a))); }
SUM(dot_NAME) SUM(norm_NAME)
__attribute__((target("avx"))) static float fast(const float *a) { return _mm256_cvtss_f32(_mm256_loadu_ps(a)); }
float any(const float *a) {
  unsigned b, c, d, e;
  return __get_cpuid(1, &b, &c, &d, &e) && d & bit_AVX ? fast(a) : *a;
}
"""


@pytest.mark.parametrize(("name", "answer"), [("avx", "unknown"), ("avx512", "dispatched")])
def test_a_name_excuses_no_more_than_what_it_tells(name: str, answer: str) -> None:
    """numpy-minmax 0.6 was compiled for AVX-512, and what it exports for a CPU with AVX as well."""
    library = compile_c(NAMED.replace("NAME", name), "-O2", "-shared", "-fPIC")
    (use,) = (use for use in analyse(library).uses if use.feature == "avx512f")
    assert use.answer == answer, use.reason


HIDDEN_PART = """
#include <cpuid.h>
#pragma GCC push_options
#pragma GCC target("TARGET")
#define PLAN(n) static __attribute__((noinline)) void plan##n(float *a) \\
    {{ for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }}
{plans}
#pragma GCC pop_options
#define DO(n) static __attribute__((noinline)) void do##n(float *a) \\
    {{ for (int i = 0; i < 64; i++) a[i] /= n + 1; plan##n(a); }}
{uses}
void (*commands[])(float *) = {{ {table} }};
__attribute__((target("avx2"))) static void fast(float *a) {{ for (int i = 0; i < 64; i++) a[i] -= 1; }}
static void slow(float *a) {{ for (int i = 0; i < 64; i++) a[i] += 2; }}
void (*kernel(void))(float *) {{
  unsigned a, b = 0, c, d;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  return b >> 5 & 1 ? fast : slow;
}}
"""


@pytest.mark.parametrize(("count", "target", "answer"), [(80, "avx2", "unknown"), (80, "sse2", "dispatched")])
def test_a_part_that_is_compiled_for_more_shows_without_any_export_that_leads_there(
    count: int, target: str, answer: str
) -> None:
    """As ggml within xllamacpp: the plain code around it is called by pointers that are handed to Python."""
    numbers = range(count)
    source = HIDDEN_PART.format(
        plans="".join(f"PLAN({n})" for n in numbers),
        uses="".join(f"DO({n})" for n in numbers),
        table=", ".join(f"do{n}" for n in numbers),
    )
    library = compile_c(source.replace("TARGET", target), "-O3", "-shared", "-fPIC", "-s")
    (use,) = (use for use in analyse(library).uses if use.feature == "avx")
    assert use.answer == answer, use.reason


KERNELS = """
#include <cpuid.h>
#pragma GCC push_options
#pragma GCC target("avx2")
#define PLAN(n) static __attribute__((noinline)) void plan##n(float *a) \\
    {{ for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }}
{plans}
#define RUN(n) static void run##n(float *a, int many) {{ while (many--) plan##n(a); }}
{uses}
#pragma GCC pop_options
#define OLD(n) void old##n(float *a) {{ for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }}
{others}
void (*const all[])(float *, int) = {{ {table} }};
void slow(float *a, int n) {{ for (int i = 0; i < n; i++) a[i] += 2; }}
void (*kernel(int which))(float *, int) {{
  unsigned a, b = 0, c, d;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  return b >> 5 & 1 ? all[which] : slow;
}}
"""


def test_a_set_of_kernels_that_only_pointers_lead_to_is_no_part_that_is_compiled_for_more() -> None:
    """As MLAS within ONNX Runtime: among kernels with AVX-512 stand plain functions that call these."""
    numbers = range(80)
    source = KERNELS.format(
        plans="".join(f"PLAN({n})" for n in numbers),
        uses="".join(f"RUN({n})" for n in numbers),
        others="".join(f"OLD({n})" for n in numbers),
        table=", ".join(f"run{n}" for n in numbers),
    )
    assert answers(compile_c(source, "-O3", "-shared", "-fPIC", "-s"))["avx"] == "dispatched"


MOSTLY_AVX2 = """
#include <cpuid.h>
#pragma GCC target("avx2")
#define PLAN(n) void plan##n(float *a) {{ for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }}
{plans}
__attribute__((target("avx512f,prefer-vector-width=512"), noinline)) static void fast(float *a)
    {{ for (int i = 0; i < 64; i++) a[i] = a[i] * 3 + 1; }}
extern int tier;
int asked(void) {{ unsigned a, b = 0, c, d; __get_cpuid_count(7, 0, &a, &b, &c, &d); return b >> 16 & 1; }}
void checksum(float *a) {{ if (tier > 2) fast(a); else plan1(a); }}
"""


@pytest.mark.parametrize(("count", "answer"), [(300, "dispatched"), (20, "unknown")])
def test_next_to_nothing_of_a_file_tells_not_that_it_was_compiled_for_that(count: int, answer: str) -> None:
    """As Polars, which is compiled for AVX2, and of its 66,000 functions with vectors 67 use AVX-512."""
    source = MOSTLY_AVX2.format(plans="".join(f"PLAN({n})" for n in range(count)))
    library = compile_c(source, "-O3", "-shared", "-fPIC", "-s", "-Wl,--unresolved-symbols=ignore-all")
    (use,) = (use for use in analyse(library).uses if use.feature == "avx512f")
    assert use.answer == answer, use.reason


NEWER_BESIDE = """
#include <cpuid.h>
#include <immintrin.h>
#define OLD(n) void old##n(float *a) { for (int i = 0; i < 64; i++) a[i] = a[i] * n + 1; }
OLD(1) OLD(2) OLD(3) OLD(4) OLD(5) OLD(6) OLD(7) OLD(8) OLD(9)
#define NEW(n) __attribute__((target("avx512vbmi"), noinline)) static void new##n(char *a) \\
    { _mm512_storeu_si512(a, _mm512_permutexvar_epi8(_mm512_loadu_si512(a), _mm512_set1_epi32(n))); }
NEW(1) NEW(2) NEW(3)
int asked(void) { unsigned a, b = 0, c, d; __get_cpuid_count(7, 0, &a, &b, &c, &d); return b >> 16 & 1; }
void encode(char *a, int level) { if (level == 3) { new1(a); new2(a); new3(a); } else old1((float *)a); }
"""


def test_an_open_question_is_none_without_what_the_same_code_uses_behind_tests() -> None:
    """As rav1e, which looks up its kernels by a level that lies in an object of its callers."""
    library = compile_c(NEWER_BESIDE, "-O2", "-shared", "-fPIC", "-s")
    found = {use.feature: use for use in analyse(library).uses}
    assert found["avx512f"].answer == "dispatched"
    assert (found["avx512vbmi"].answer, found["avx512vbmi"].given) == ("unknown", (("avx512bw",),))
    assert found["avx512vbmi"].reason.endswith("on a CPU with avx512bw.")


FOR_PLUGINS = """
#include <cpuid.h>
#include <immintrin.h>
__attribute__((noinline, target("rdrnd"))) int step(unsigned long long *p) { return _rdrand64_step(p); }
__attribute__((noinline)) int fill(unsigned long long *p) { return step(p) + step(p + 1); }
int seed(unsigned long long *p) { return fill(p) + fill(p + 2); }
int main(int n, char **v) {
  unsigned long long numbers[2];
  unsigned a, b, c = 0, d;
  __get_cpuid(1, &a, &b, &c, &d);
  return c >> 30 & 1 ? fill(numbers) : 0;
}
"""


@pytest.mark.parametrize(("flags", "answer"), [(("-rdynamic",), "dispatched"), (("-shared", "-fPIC"), "unknown")])
def test_what_a_program_exports_is_no_entry(flags: tuple[str, ...], answer: str) -> None:
    """As node, which exports all that is linked into it for its modules; others may call what a library exports."""
    (use,) = analyse(compile_c(FOR_PLUGINS, "-O2", "-s", *flags)).uses
    assert (use.feature, use.answer) == ("rdrand", answer)


WITHOUT_UNWINDING = """
#include <cpuid.h>
static volatile int at_load;
static void *volatile memory;
__attribute__((constructor)) static void start(void) {{ at_load = 1; }}
__attribute__((noinline, target("avx2"))) static void wide(int *a) {{
    for (int i = 0; i < 64; i += 8) *(int __attribute__((vector_size(32))) *)(a + i) += 3;
}}
{fillers}
int main(int n, char **v) {{
    static int numbers[64];
    unsigned a, b = 0, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    if (b >> 5 & 1) wide(numbers);
    {calls}
    return 0;
}}
"""


def test_functions_that_are_neither_unwound_nor_aligned_are_told_apart() -> None:
    """As in deno and rspack (Rust with panic=abort, for size): the AVX2 version seemed to belong to start code."""
    fillers = "".join(
        f"__attribute__((noinline)) int f{i}(int n) {{ return n * {i + 3} + at_load; }}\n" for i in range(900)
    )
    calls = "".join(f"at_load += f{i}(n);" for i in range(900))
    flags = ("-Os", "-falign-functions=1", "-fno-asynchronous-unwind-tables", "-fno-toplevel-reorder", "-s")
    found = analyse(compile_c(WITHOUT_UNWINDING.format(fillers=fillers, calls=calls), *flags))
    assert {use.answer for use in found.uses if use.feature in ("avx", "avx2")} == {"dispatched"}


@pytest.mark.parametrize(
    ("exported", "answer"), [("", "unknown"), ("int count(long n) { return counted(n); }", "required")]
)
@pytest.mark.parametrize("flags", [("-O2",), ("-O0", "-s")])
def test_what_nothing_leads_to_is_not_said_to_be_required(exported: str, answer: str, flags: tuple[str, ...]) -> None:
    """As in modules that link NumPy's library of mathematics, of which they call little."""
    source = f"""
        #define ALONE __attribute__((used, noinline, target("popcnt"))) static
        ALONE int counted(long n) {{ return __builtin_popcountl(n); }}
        int twice(int n) {{ return 2 * n; }} {exported}"""
    assert answers(compile_c(source, "-shared", "-fPIC", *flags, out="libcount.so"))["popcnt"] == answer
