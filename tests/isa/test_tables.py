"""Jump tables: where they lead, and what a version behind one counts for."""

import time

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.facts import facts
from imgcheck.binaries.isa.x86.tables import tables
from tests.isa.programs import answers
from tests.tools import compile_c

SWITCHES = """
int one(int), two(int);
int pick(int a, int b) {{
  switch (a) {{ {first} }}
  switch (b) {{ {second} }}
  return 0;
}}
"""
# The versions stand in tables of pointers, of which the chooser returns one, as OpenBLAS has it.
CHOOSES = """
#define KERNEL __attribute__((noinline)) void
__attribute__((target("fma4"))) KERNEL special(float *a, float *b) {{
  for (int i = 0; i < 8; i++) a[i] = __builtin_fmaf(a[i], b[i], a[i]);
}}
KERNEL plain(float *a, float *b) {{ for (int i = 0; i < 8; i++) a[i] += b[i]; }}
KERNEL other(float *a, float *b) {{ for (int i = 0; i < 8; i++) a[i] -= b[i]; }}
struct table {{ int n; void (*f)(float *, float *); }};
struct table special_table = {{1, special}}, plain_table = {{2, plain}}, other_table = {{3, other}}, *table;
static void cpuid(int leaf, int *a, int *b, int *c, int *d) {{
  __asm__ volatile("cpuid" : "=a"(*a), "=b"(*b), "=c"(*c), "=d"(*d) : "0"(leaf), "2"(0));
}}
__attribute__((noinline)) int has_avx(void) {{
  int a, b, c, d;
  cpuid(1, &a, &b, &c, &d);
  if (!(c >> 28 & c >> 27 & 1)) return 0;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (a & 6) == 6;
}}
static struct table *pick(void) {{
  int a, b, c, d;
  cpuid(1, &a, &b, &c, &d);
  int family = a >> 20 & 255, model = a >> 4 & 15;
  {choice}
  return &plain_table;
}}
__attribute__((constructor)) void begin(void) {{ table = pick(); }}
"""
BY_MODEL = """
  switch (family) {
    case 0: case 2: return &other_table;
    case 1: return &plain_table;
    case 5: if (model == 7) return &other_table; break;
    case 6: switch (model) {
      case 1: if (has_avx()) return &special_table; break;
      case 2: if (has_avx()) return &special_table; return &other_table;
      case 4: return &other_table;
      case 5: break;
      case 8: if (has_avx()) return &special_table; return &other_table;
    } break;
    case 8: if (has_avx()) return &other_table; break;
  }
"""
BY_FEATURE = "if (has_avx()) return &special_table;"


ALONE = "-nostdlib", "-fno-pic", "-no-pie"


@pytest.mark.parametrize("flags", [("-nostdlib", "-fPIC", "-shared"), ALONE, ("-m32", *ALONE)])
def test_tables_lead_to_the_cases_of_their_own_switch(flags: tuple[str, ...]) -> None:
    first = " ".join(f"case {n}: return one({n * n});" for n in range(8))
    second = " ".join(f"case {n}: return two({n * n + 1});" for n in range(6))
    source = SWITCHES.format(first=first, second=second)
    if "-shared" not in flags:
        source += "int one(int a) { return a; } int two(int a) { return a; } void _start(void) { pick(1, 2); }"
    path = compile_c(source, "-O1", "-fno-inline", *flags, out="lib.so")
    elf = Elf(path.read_bytes())
    layout = Layout(elf)
    start = next(at for at in layout.code_symbols.value.tolist() if layout.name(at) == "pick")
    code = facts(layout.bytes_at(start, start + 512), start, 32 if "-m32" in flags else 64)
    assert sorted(map(len, tables(elf, code).values())) == [6, 8]


@pytest.mark.parametrize(("choice", "answer"), [(BY_MODEL, "dispatched"), (BY_FEATURE, "unknown")])
@pytest.mark.parametrize("level", ["-O1", "-O2"])
def test_a_version_for_some_models_of_a_cpu_is_chosen_for_them(choice: str, answer: str, level: str) -> None:
    path = compile_c(CHOOSES.format(choice=choice), level, "-shared", "-fPIC", out="lib.so")
    assert answers(path)["fma4"] == answer


# GCC moves what it takes for unlikely, as what ends in abort(), to a function of its own: the table leads there, too.
COLD = """
#include <stdlib.h>
__attribute__((noinline, target("fma"))) void special(float *a, float *b) {{
  for (int i = 0; i < 8; i++) a[i] = __builtin_fmaf(a[i], b[i], a[i]);
}}
__attribute__((noinline)) int has_fma(void) {{
  int a = 1, b, c = 0, d;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return c >> 12 & 1;
}}
__attribute__((noinline)) void one(float *a, int n) {{ a[n] += 1; }}
float A[8], B[8];
__attribute__((noinline)) int work(int mode, float *a, float *b) {{
  switch (mode) {{
    case 0: if (!has_fma()) return 0; break;
    case 1: one(a, 4); return 3;
    {cold}
    case 3: one(a, 1); break;
    case 4: one(a, 2); one(a, 3); break;
    case 5: one(b, 2); one(a, 5); break;
    case 6: one(b, 1); return 7;
    default: {otherwise};
  }}
  special(a, b);
  return 2;
}}
__attribute__((constructor)) void begin(void) {{ work(getenv("MODE") ? atoi(getenv("MODE")) : 0, A, B); }}
"""


@pytest.mark.parametrize(("cold", "otherwise"), [("case 2: abort();", "return 1"), ("", "abort()")])
@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_cases_behind_one_in_the_cold_part_are_not_lost(cold: str, otherwise: str, level: str) -> None:
    path = compile_c(COLD.format(cold=cold, otherwise=otherwise), level, "-shared", "-fPIC", out="lib.so")
    assert answers(path)["fma"] == "required"


@pytest.mark.parametrize(("jumps", "entries"), [(2000, 1500), (60, 900), (6000, 3)])
def test_tables_of_hostile_code_take_no_time(jumps: int, entries: int) -> None:
    code = "".join(f".L{n}: jmp *T(,%rax,8)\n" for n in range(jumps))
    table = "".join(f".quad .L{n % jumps}\n" for n in range(entries))
    source = f""".globl _start
_start: .cfi_startproc
  mov $1, %eax
  cpuid
  test $0x10000000, %ecx
  je .Lend
{code}
.Lend: ret
  vfmadd231ps %ymm0, %ymm1, %ymm2
  ret
  .cfi_endproc
.size _start, . - _start
.section .rodata
T: {table} .quad 0
"""
    path = compile_c(source, "-nostdlib", "-no-pie", language="assembler", out="program")
    began = time.process_time()
    answers(path)
    assert time.process_time() - began < 10
