"""AArch64 and ppc64le: predictions against QEMU's CPU models, with programs of Debian's cross compilers."""

import random
import struct
import tomllib
from pathlib import Path

import pytest

from imgcheck.knowledge.store import rules_directory
from tests.isa.programs import analyse, answers, observed, predicted
from tests.tools import compile_c, need, run

SOURCE = r"""
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
_Atomic int counter;
int8_t a[64], b[64];
float x[64];
__attribute__((noinline)) int dot(void) { int s = 0; for (int i = 0; i < 64; i++) s += a[i] * b[i]; return s; }
__attribute__((noinline)) void scale(void) { for (int i = 0; i < 64; i++) x[i] = x[i] * 2 + 1; }
int main(int n, char **v) {
    for (int i = 0; i < 64; i++) { a[i] = i; b[i] = n; x[i] = i; }
    atomic_fetch_add(&counter, n);
    scale();
    printf("%d %d %f\n", dot(), counter, x[5]);
    return 0;
}
"""
ARM = "aarch64-linux-gnu-gcc"
POWER = "powerpc64le-linux-gnu-gcc"
ARM_MODELS = {"cortex-a57": {"crc32", "aes", "pmull", "sha1", "sha2"},
              "cortex-a76": {"crc32", "aes", "pmull", "sha1", "sha2", "atomics", "asimdrdm", "asimddp", "fphp",
                             "asimdhp", "lrcpc"}}  # fmt: skip
NOT_UNWOUND = "-static", "-s", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"
POWER_MODELS = {"power8": set(), "power9": {"arch_3_00"}, "power10": {"arch_3_00", "arch_3_1"}}


@pytest.mark.parametrize("march", ["armv8-a", "armv8-a+lse", "armv8.2-a+dotprod", "armv8.2-a+sve", "armv8.5-a+sve2"])
def test_aarch64_verdict_matches_what_the_cpu_does(march: str) -> None:
    program = compile_c(SOURCE, "-O3", f"-march={march}", "-static", compiler=ARM)
    found = analyse(program)
    for model, features in ARM_MODELS.items():
        assert (model, predicted(found, features)) == (model, observed(program, "qemu-aarch64", model))


@pytest.mark.parametrize("cpu", ["power8", "power9", "power10"])
def test_ppc64le_verdict_matches_what_the_cpu_does(cpu: str) -> None:
    program = compile_c(SOURCE, "-O3", f"-mcpu={cpu}", "-static", compiler=POWER)
    found = analyse(program)
    for model, features in POWER_MODELS.items():
        assert (model, predicted(found, features)) == (model, observed(program, "qemu-ppc64le", model))


def test_outlined_atomics_are_dispatched() -> None:
    outlined = compile_c(SOURCE, "-O2", "-march=armv8-a", "-moutline-atomics", compiler=ARM)
    assert answers(outlined) == {"atomics": "dispatched"}
    direct = compile_c(SOURCE, "-O2", "-march=armv8-a+lse", compiler=ARM)
    assert answers(direct) == {"atomics": "required"}


def test_pointer_authentication_hints_are_no_need() -> None:
    protected = compile_c(
        SOURCE, "-O2", "-march=armv8-a", "-mbranch-protection=standard", "-mno-outline-atomics", compiler=ARM
    )
    assert answers(protected) == {}


def test_prefixed_instruction_is_shown_with_its_function() -> None:
    code = ".globl f\n.type f,@function\nf: paddi 3,3,1000000\n blr\n.size f,.-f\n"
    library = compile_c(code, "-shared", "-mpower10", "-nostdlib", out="libp.so", compiler=POWER, language="assembler")
    (use,) = analyse(library).uses
    assert (use.feature, use.answer, use.function) == ("arch_3_1", "required", "f")


KEPT_BY_ONE_TESTED_BY_ANOTHER = r"""
#include <stdio.h>
#include <sys/auxv.h>
static unsigned long has;
__attribute__((constructor)) static void ask(void) { has = getauxval(AT_HWCAP2); }
__attribute__((noinline)) static long later(long x) { __asm__ volatile("maddld %0,%0,%0,%0" : "+r"(x)); return x; }
__attribute__((noinline)) static long work(long x) { return TEST ? later(x) : x; }
int main(int n, char **v) { printf("%ld\n", work(n)); return 0; }
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O2", "-s")], ids=" ".join)
@pytest.mark.parametrize("test", ["has & 0x00800000", "1"], ids=["tested", "not tested"])
def test_a_variable_of_the_hwcaps_is_known_on_ppc64le(flags: tuple[str, ...], test: str) -> None:
    program = compile_c(KEPT_BY_ONE_TESTED_BY_ANOTHER.replace("TEST", test), "-mcpu=power8", *flags, compiler=POWER)
    found = analyse(program)
    for model, features in POWER_MODELS.items():
        assert (model, predicted(found, features)) == (model, observed(program, "qemu-ppc64le", model))


BEHIND_AN_EXPORT = r"""
#include <sys/auxv.h>
__asm__(".globl ends\n.type ends, %function\nends: bti c\nmov w0, #0\nret\n.size ends, . - ends\n"
        "LANDING\n.inst 0xd53b2400\nret\n"); // mrs x0, rndr
int asks(void) { return !getauxval(AT_HWCAP); }
"""


@pytest.mark.parametrize("landing, answers", [("bti c", set()), ("nop", {("rng", "unknown")})])
def test_what_calls_by_pointer_land_on_begins_a_function(landing: str, answers: set) -> None:
    library = compile_c(BEHIND_AN_EXPORT.replace("LANDING", landing), "-O2", "-shared", "-fPIC", "-s", compiler=ARM)
    assert {(use.feature, use.answer) for use in analyse(library).uses} == answers


BY_VECTOR_ABI = r"""
__attribute__((noinline)) static void work(float *x) {
    __asm__ volatile(".arch armv8-a+sve\nptrue p0.s\nld1w {z0.s}, p0/z, [%0]" : : "r"(x) : "memory");
}
void NAME(float *x) { work(x); }
MORE
"""


@pytest.mark.parametrize(
    "name, more, answer",
    [
        ("_ZGVsMxv_work", "", "dispatched"),
        ("_ZGVnN4v_work", "", "required"),
        ("_ZGVsMxv_work", "void any(float *x) { work(x); }", "required"),
    ],
)
def test_vector_functions_for_sve_are_called_by_code_that_needs_it_anyway(name: str, more: str, answer: str) -> None:
    code = BY_VECTOR_ABI.replace("NAME", name).replace("MORE", more)
    library = compile_c(code, "-O2", "-shared", "-fPIC", compiler=ARM)
    assert [(use.feature, use.answer) for use in analyse(library).uses] == [("sve", answer)]


@pytest.mark.parametrize(("suffix", "answer"), [("sve", "unknown"), ("floats", "required")])
def test_a_library_whose_exports_are_versions_by_their_names_leaves_the_test_to_its_callers(
    suffix: str, answer: str
) -> None:
    code = f"""
    static __attribute__((noinline)) void step(float *a, int n) {{ for (int i = 0; i < n; i++) a[i] = a[i] * n + 1; }}
    void sort_{suffix}(float *a) {{ step(a, 640); }}
    void partition_{suffix}(float *a) {{ step(a, 320); }}
    """
    library = compile_c(code, "-O3", "-march=armv8.2-a+sve", "-shared", "-fPIC", compiler=ARM)
    assert answers(library)["sve"] == answer


@pytest.mark.parametrize("name, answer", [("dot_i8_neon", "unknown"), ("dot_i8", "required")])
def test_what_has_the_name_of_a_version_may_be_chosen_by_who_calls_it(name: str, answer: str) -> None:
    code = f'void {name}(void) {{ __asm__ volatile(".arch armv8.2-a+dotprod\\nudot v0.4s, v1.16b, v2.16b"); }}'
    library = compile_c(code, "-O2", "-shared", "-fPIC", compiler=ARM)
    assert [(use.feature, use.answer) for use in analyse(library).uses] == [("asimddp", answer)]


PC_RELATIVE = r"""
#include <stdio.h>
#include <sys/auxv.h>
static unsigned long caps;
__attribute__((noinline)) static long fast(long x) { __asm__ volatile("maddld %0,%0,%0,%0" : "+r"(x)); return x + 1; }
__attribute__((noinline)) static long slow(long x) { return x * 3 + 1; }
__attribute__((noinline)) static long work(long x) { return caps & BIT ? fast(x) : slow(x); }
int main(int n, char **v) { caps = getauxval(AT_HWCAP2); printf("%ld\n", work(n)); return 0; }
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-s"), ("-O2", "-static"), ("-Os", *NOT_UNWOUND)], ids=" ".join)
def test_a_variable_at_a_distance_from_the_instruction_is_known_on_ppc64le(flags: tuple[str, ...]) -> None:
    for bit, answer in (("0x00800000", "dispatched"), ("0x80000000", "required")):
        program = compile_c(PC_RELATIVE.replace("BIT", bit), "-mcpu=power10", *flags, compiler=POWER)
        assert (bit, answers(program)["arch_3_00"]) == (bit, answer)


def test_main_of_a_stripped_static_program_is_known_on_ppc64le() -> None:
    program = compile_c(SOURCE, "-O3", "-mcpu=power9", "-static", "-s", compiler=POWER)
    assert answers(program)["arch_3_00"] == "required"


def test_a_table_among_the_code_is_no_instruction_on_ppc64le() -> None:
    table = ".globl f\n.type f,@function\nf: blr\n.long f-.-0x1000, 0xffff9008, 0xffff0c48\n blr\n.size f,.-f\n"
    assert answers(compile_c(table, "-shared", "-nostdlib", out="lib.so", compiler=POWER, language="assembler")) == {}


def test_no_pattern_is_an_instruction_of_the_cpus_before_it(tmp_path: Path) -> None:
    rules = tomllib.loads((rules_directory() / "analysis" / "isa-words.toml").read_text())["ppc64le"]
    before = {"arch_3_00": ("power8",), "arch_3_1": ("power8", "power9")}
    patterns = [p for p in rules["patterns"] if p["value"] >> 26 != 1]  # prefixes, which are no words by themselves
    for cpu in ("power8", "power9"):
        words = [word for p in patterns if cpu in before[p["feature"]] for word in _samples(p["mask"], p["value"])]
        assert set(_decoded(words, cpu, tmp_path)) == {".long"}
    for pattern in patterns:
        assert set(_decoded(_samples(pattern["mask"], pattern["value"]), "power10", tmp_path)) != {".long"}
    assert _decoded([0x100000C7], "power8", tmp_path) == ["vcmpequd"]


def _samples(mask: int, value: int, count: int = 40) -> list[int]:
    chance = random.Random(mask ^ value)
    return [value | (chance.getrandbits(32) & ~mask) for _ in range(count)]


def _decoded(words: list[int], cpu: str, directory: Path) -> list[str]:
    file = directory / "words"
    file.write_bytes(struct.pack(f"<{len(words)}I", *words))
    objdump = need("powerpc64le-linux-gnu-objdump")
    lines = run(objdump, "-D", "-b", "binary", "-m", "powerpc", "-EL", "-M", cpu, file).stdout.splitlines()
    return [columns[2].split()[0] for line in lines if len(columns := line.split("\t")) > 2]


NAMED_VERSION = r"""
#include <sys/auxv.h>
__attribute__((noinline, target("arch=armv8.2-a+sve"))) static void helper(char *p, int n)
{ for (int i = 0; i < n; i++) __asm__ volatile("cntb x0\n ptrue p0.b\n ld1b z0.b, p0/z, [%0]" : : "r"(p + i) : "x0"); }
void copy_sve(char *p, int n) { helper(p, n); helper(p + n, n); }
void copy_plain(char *p, int n) { for (int i = 0; i < n; i++) p[i] = 0; }
void (*copy)(char *, int);
void choose(void) { copy = getauxval(16) & 1 << 22 ? copy_sve : copy_plain; }
"""


def test_what_a_version_by_name_calls_belongs_to_it() -> None:
    flags = "-O1", "-shared", "-fPIC"
    assert answers(compile_c(NAMED_VERSION, *flags, out="lib.so", compiler=ARM))["sve"] == "dispatched"
    other = NAMED_VERSION.replace("copy_sve", "copy_all")
    assert answers(compile_c(other, *flags, out="lib.so", compiler=ARM))["sve"] != "dispatched"


def test_a_version_by_name_that_a_start_reaches_past_no_test_is_unknown() -> None:
    start = "int main(void) { char p[4096]; choose(); COPY(p, 64); return 0; }\n"
    flags = "-O1", "-fno-inline"
    tested = compile_c(NAMED_VERSION + start.replace("COPY", "copy"), *flags, compiler=ARM)
    assert answers(tested)["sve"] == "dispatched"
    direct = compile_c(NAMED_VERSION + start.replace("COPY", "copy_sve"), *flags, compiler=ARM)
    assert answers(direct)["sve"] == "unknown"


READS_AUXV = r"""
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
static unsigned has;
__attribute__((noinline)) static unsigned long hwcaps(void) {
    unsigned long pair[2], found = 0;
    int fd = open("PATH", O_RDONLY);
    while (read(fd, pair, 16) == 16) if (pair[0] == 16) found = pair[1];
    close(fd);
    return found;
}
void init(void) { has = hwcaps() >> 20 & 1 ? 3 : 1; }
__attribute__((noinline)) static void dot(void) { __asm__ volatile(".inst 0x4e829420\n.inst 0x4e829420" ::: "v0"); }
void work(void) { if (has & 2) dot(); }
"""


def test_who_reads_the_auxiliary_vector_from_its_file_asks() -> None:
    flags = "-O2", "-shared", "-fPIC", "-s"
    source = READS_AUXV.replace("PATH", "/proc/self/auxv")
    assert answers(compile_c(source, *flags, out="lib.so", compiler=ARM))["asimddp"] == "dispatched"
    other = READS_AUXV.replace("PATH", "/proc/self/stat")
    assert answers(compile_c(other, *flags, out="lib.so", compiler=ARM))["asimddp"] == "required"


ASKS_OTHERWISE = """
#include <string.h>
#include <sys/auxv.h>
int elf_aux_info(int type, void *to, int bytes);
static int version(void) { unsigned found; __asm__ volatile("mfpvr %0" : "=r"(found)); return found >> 16; }
__attribute__((always_inline)) static inline unsigned long filled(int type) {
    unsigned long found = 0;
    elf_aux_info(type, &found, 8);
    return found;
}
__attribute__((noinline)) static long fast(long x) { __asm__ volatile("maddld %0,%0,%0,%0" : "+r"(x)); return x + 1; }
long work(long x) { return TEST ? fast(x) : x * 3; }
"""


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
@pytest.mark.parametrize(
    ("test", "answer"),
    [
        ("version() == 0x4e", "dispatched"),
        ('strcmp((char *)getauxval(AT_PLATFORM), "power9") == 0', "dispatched"),
        ('strncmp((char *)getauxval(AT_BASE_PLATFORM), "power1", 6) == 0', "dispatched"),
        ("(filled(AT_HWCAP2) & 1ul << 23) != 0", "dispatched"),
        ("(filled(AT_HWCAP2) & 1ul << 31) != 0", "unknown"),
        ("getauxval(AT_PAGESZ) == 65536", "unknown"),
        ('strcmp((char *)getauxval(AT_EXECFN), "power9") == 0', "unknown"),
    ],
)
def test_programs_ask_in_other_ways_too(test: str, answer: str, optimisation: str) -> None:
    """The version of the processor, its name, and BSD's function that fills a variable; a library's exports may go to
    what is used.
    """
    flags = "-fPIC", "-shared", "-s"
    library = compile_c(ASKS_OTHERWISE.replace("TEST", test), optimisation, *flags, out="lib.so", compiler=POWER)
    assert answers(library) == {"arch_3_00": answer}


FAR = r"""
#include <stdio.h>
#include <sys/auxv.h>
__attribute__((noinline, section(".far"))) long fast(long x) {
    __asm__ volatile(".inst 0x4e829420" ::: "v0");
    return x;
}
int main(int n, char **v) { printf("%ld\n", fast(n) + (getauxval(AT_HWCAP) & 1)); return 0; }
"""
LOADED = """
.globl _start, fast
.type _start,@function
_start: mrs x1, midr_el1
 bl 1f
 b .
.size _start,.-_start
1: ldr x16, .+8
 br x16
 .quad fast
.section .other,"ax"
.type fast,@function
fast: .inst 0x4e829420
 ret
.size fast,.-fast
"""


@pytest.mark.parametrize(("code", "language"), [(FAR, "c"), (LOADED, "assembler")])
def test_code_is_reached_through_what_linkers_put_where_a_branch_does_not_reach(code: str, language: str) -> None:
    """The program asks the CPU, so that what nothing reaches would count as dispatched."""
    flags = ("-no-pie", "-Wl,--section-start=.far=0x20000000") if language == "c" else ("-static", "-nostdlib")
    assert answers(compile_c(code, *flags, compiler=ARM, language=language))["asimddp"] == "required"


HANDED_ON = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
__attribute__((noinline)) static long fast(long x) { __asm__ volatile("maddld %0,%0,%0,%0" : "+r"(x)); return x + 1; }
static unsigned kinds;
__attribute__((constructor)) static void count(void) { kinds = __builtin_popcountl(getauxval(AT_HWCAP2) & 0x80800000); }
__attribute__((noinline)) static int level(void) { return kinds; }
__attribute__((noinline)) static int has(void) { return level() >= 2; }
__attribute__((noinline)) static int usable(void) { return has() && !getenv("SLOW"); }
int main(int n, char **v) { printf("%ld\\n", TEST ? fast(n) : n * 3l); return usable(); }
"""


@pytest.mark.parametrize("optimisation", ["-O1", "-O2"])
@pytest.mark.parametrize(("test", "answer"), [("usable()", "unknown"), ("n", "required")])
def test_what_is_not_understood_may_be_a_test_wherever_it_is_handed_on_to(
    test: str, answer: str, optimisation: str
) -> None:
    program = compile_c(HANDED_ON.replace("TEST", test), optimisation, compiler=POWER)
    assert answers(program) == {"arch_3_00": answer}


POOL = """
.globl f
.type f,@function
f: cbz x0, 1f
 ret
{entry}.long 0x04000000, 0x00000000, 0x04a00001, 0x04a00002, 0x28a1c4d2, 0x04a00003
1: mov x0, 1
 ret
.size f,.-f
"""


def test_a_pool_of_literals_is_no_code_on_aarch64() -> None:
    flags = "-shared", "-nostdlib"
    pool = compile_c(POOL.format(entry=""), *flags, out="lib.so", compiler=ARM, language="assembler")
    assert answers(pool) == {}
    entered = POOL.format(entry="2: cbnz x1, 2b\n .inst 0x04a00001, 0x04a00002\n")
    assert answers(compile_c(entered, *flags, out="lib.so", compiler=ARM, language="assembler")) == {"sve": "required"}


SWITCHED = """
.globl f, g
.type f,@function
f: adrp x1, table
 ldrsw x2, [x1, x0]
 adr x1, 1f
 add x1, x1, x2
 br x1
1: mov x0, 1
 ret
 .inst 0x4e829420
 ret
{filling}
.size f,.-f
.type g,@function
g: ret
.size g,.-g
.section .rodata
table: .word 0, 8
"""


@pytest.mark.parametrize(
    ("filling", "expected"),
    [("", {"asimddp": "required"}), (".zero 12", {"asimddp": "required"}), (".long 5, 6, 7", {})],
    ids=["nothing", "zeros", "numbers"],
)
def test_code_that_a_table_of_jumps_leads_to_is_no_data_for_zeros_that_fill_up(filling: str, expected: dict) -> None:
    flags = "-shared", "-nostdlib", "-s"
    library = compile_c(SWITCHED.format(filling=filling), *flags, out="lib.so", compiler=ARM, language="assembler")
    assert answers(library) == expected


def test_scalar_code_of_half_precision_is_told() -> None:
    source = "_Float16 f(_Float16 a, _Float16 b) { return (a * b + a) * b + a; }\n"
    flags = "-O2", "-shared", "-fPIC", "-march=armv8.2-a+fp16"
    assert answers(compile_c(source, *flags, out="lib.so", compiler=ARM)) == {"fphp": "required"}


@pytest.mark.parametrize("optimisation", ["-O0", "-Os", "-O3"])
def test_code_without_unwind_entries_is_seen_beside_a_c_library_that_has_some(optimisation: str) -> None:
    arm = compile_c(SOURCE, optimisation, "-march=armv8.2-a+lse", *NOT_UNWOUND, compiler=ARM)
    assert answers(arm)["atomics"] == "required"
    power = compile_c(SOURCE, optimisation, "-mcpu=power9", *NOT_UNWOUND, compiler=POWER)
    for model, features in POWER_MODELS.items():
        assert (model, predicted(analyse(power), features)) == (model, observed(power, "qemu-ppc64le", model))


HELD_BY_A_POINTER = r"""
#include <stdio.h>
#include <sys/auxv.h>
struct functions { int (*plain)(int), (*work)(int); };
__attribute__((noinline)) static int plain(int x) { return x * 3; }
__attribute__((noinline)) static int also(int x) { return x + 7; }
__attribute__((noinline)) static int dot(int x) { __asm__ volatile(".inst 0x4e829420" ::: "v0"); return x; }
__attribute__((noinline)) static void choose(struct functions *f) { if (getauxval(16) & BIT) f->work = dot; }
__attribute__((noinline)) static void fill(struct functions *f) { f->plain = plain; f->work = also; choose(f); }
int main(int n, char **v) { struct functions f; fill(&f); printf("%d\n", f.plain(n) + f.work(n)); return 0; }
"""


@pytest.mark.parametrize(("bit", "answer"), [("1 << 20", "dispatched"), ("1 << 1", "required")])
@pytest.mark.parametrize("static", ["-static", "-dynamic"])
def test_a_version_without_unwind_entries_is_a_function_of_its_own(static: str, bit: str, answer: str) -> None:
    flags = "-Os", *NOT_UNWOUND[1:], static
    program = compile_c(HELD_BY_A_POINTER.replace("BIT", bit), *flags, compiler=ARM)
    assert answers(program)["asimddp"] == answer


TABLE_IN_TEXT = """
.globl main
main: adr x1, table
 ldr w0, [x1, w0, uxtw 2]
 and w0, w0, 1
 ret
table: .inst {words}
 ret
"""


def test_a_table_that_code_without_unwind_entries_reads_is_no_code() -> None:
    words = "0x4e829420, 0x00000000, 0x4e829420"
    source = TABLE_IN_TEXT.format(words=words)
    assert "asimddp" not in answers(compile_c(source, "-static", "-s", compiler=ARM, language="assembler"))
    called = source.replace(" ldr", " bl 1f\n ldr").replace("ret\ntable", "ret\n1: .inst 0x4e829420\n ret\ntable")
    assert answers(compile_c(called, "-static", "-s", compiler=ARM, language="assembler"))["asimddp"] == "required"


MAPPED = """
.globl f
.type f, @function
f: b 1f
 {kind} 0x04a00001, 0x04a00002, 0x04a00003
1: ret
.size f, .-f
"""


@pytest.mark.parametrize(("kind", "expected"), [(".long", {}), (".inst", {"sve": "required"})])
def test_what_mapping_symbols_mark_as_data_is_no_code(kind: str, expected: dict[str, str]) -> None:
    """The assembler marks what .long makes with $d, and what .inst makes with $x."""
    flags = "-shared", "-nostdlib"
    library = compile_c(MAPPED.format(kind=kind), *flags, out="lib.so", compiler=ARM, language="assembler")
    assert answers(library) == expected


COPIED = r"""
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
struct info { long kind; int wanted, other; long rest[3]; };
static struct info info;
__attribute__((noinline)) static long fast(long x) { __asm__ volatile(".inst 0x4e829420" ::: "v0"); return x + 1; }
__attribute__((noinline)) static long slow(long x) { return x * 3 + 1; }
#ifdef HANDED_BACK
__attribute__((noinline)) static struct info find(long n) {
    struct info i = {n, (getauxval(AT_HWCAP) & BIT) != 0, 3, {n, 1, 2}};
    return i;
}
__attribute__((constructor)) static void init(void) { info = find(5); }
#else
__attribute__((noinline)) static void find(struct info *i, long n) {
    memset(i, 0, sizeof *i);
    i->kind = n;
    i->wanted = (getauxval(AT_HWCAP) & BIT) != 0;
    i->other = 3;
}
__attribute__((constructor)) static void init(void) { struct info i; find(&i, 5); info = i; }
#endif
int main(int n, char **v) { printf("%ld %ld\n", info.wanted ? fast(n) : slow(n), info.rest[1]); return 0; }
"""


@pytest.mark.parametrize("optimisation", ["-O0", "-O1", "-O2", "-Os"])
@pytest.mark.parametrize("way", ["-DFILLED", "-DHANDED_BACK"])
def test_a_structure_that_is_copied_as_a_whole_keeps_its_flags(way: str, optimisation: str) -> None:
    for bit in ("1ul << 20", "1ul << 1"):
        program = compile_c(COPIED.replace("BIT", f"({bit})"), optimisation, way, compiler=ARM)
        found = analyse(program)
        for model, features in ARM_MODELS.items():
            assert (bit, predicted(found, features)) == (bit, observed(program, "qemu-aarch64", model))


_SWITCHED = """
.globl _start
_start: mov x0, 16
 bl getauxval
 bl "{name}"
 b .
.type getauxval,@function
getauxval: ret
.size getauxval,.-getauxval
.globl "{name}"
.type "{name}",@function
"{name}": msr dit, #1
 ret
.size "{name}",.-"{name}"
"""


@pytest.mark.parametrize(
    ("name", "answer"),
    [("internal/runtime/sys.EnableDIT.abi0", "dispatched"), ("internal/runtime/sys.EnableIt.abi0", "required")],
)
def test_what_go_does_only_where_its_user_asks_for_it_is_required_of_nobody(name: str, answer: str) -> None:
    code = _SWITCHED.format(name=name)
    program = compile_c(code, "-static", "-nostdlib", "-march=armv8.4-a", compiler=ARM, language="assembler")
    assert answers(program) == {"dit": answer}
