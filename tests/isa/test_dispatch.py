"""Where programs keep what the CPU told: each shape right on every CPU, and with a test for too little as it dies.

QEMU's CPU models say what happens.
"""

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

_HERE = Path(__file__).parent / "dispatch"
_THREAD = "static __thread unsigned"
_FLAGS = {"if (flags & F_AVX2) return k2": "if (flags & F_SSSE3) return k2"}
SHAPES: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "a member of an object on the heap": (
        "heap_object",
        {},
        {"if (c->cpu & 2) return k2": "if (c->cpu & 4) return k2", "if (c->cpu & 2) c->fn = k2": "(void)0"},
    ),
    "a thread's variable": ("thread_local", {}, _FLAGS),
    "a variable that is -1 before": ("thread_local", {_THREAD: "static unsigned"}, _FLAGS),
    "results of a function that is told the leaf": (
        "query_function",
        {},
        {"int a = has_avx2(), p": "int a = has_avx(), p"},
    ),
    "a level that a loop looks up": ("lazy_level", {}, {}),
    "a structure that functions fill": ("filled_array", {}, {}),
    "a global structure that a function is pointed to": (
        "filled_by_pointer",
        {},
        {"if (f->avx2) sum =": "if (f->ssse3) sum ="},
    ),
    "an index of a table": ("table_by_lowest_bit", {}, {"sum_avx2, sum_ssse3, sum_c}": "sum_avx2, sum_avx2, sum_c}"}),
    "a bit whose number is a parameter": ("asked_by_number", {}, {}),
    "a function that is told what it is asked for": ("asked_by_kind", {}, {"may_use(AVX2)) r": "may_use(AVX)) r"}),
    "many flags in one word": ("many_flags", {}, {"flags & FMA ?": "flags & AVX ?"}),
    "a byte that is 255 before": ("byte_flag", {}, {"saved & (ebx >> 5) & (c": "saved & (c"}),
    "a byte that is -1 before": ("byte_state", {}, {"&a, &b, &c, &d) && (b & bit_AVX2)": "&a, &b, &c, &d)"}),
    "booleans side by side": ("packed_bools", {}, {"if (f.avx2)": "if (f.avx)"}),
    "a mask of shifted bits": ("shifted_bits", {}, {"if ((m & 10) == 10)": "if ((m & 2) == 2)"}),
    "a mask that is empty where a leaf is missing": ("leaf_missing", {}, {"if (f & AVX2)": "if (f & SSSE3)"}),
    "a static object of C++": ("static_object", {}, {}),
    "an object of one of two classes": (
        "virtual_classes",
        {},
        {'if (__builtin_cpu_supports("avx2"))': 'if (!__builtin_cpu_supports("avx2"))'},
    ),
    "an object of one of several types": (
        "variant",
        {},
        {'    if (__builtin_cpu_supports("avx2")) return Twice': '    if (__builtin_cpu_supports("avx")) return Twice'},
    ),
    "an object that a function makes once": (
        "made_once",
        {},
        {"if (Caps::get().avx2) return": "if (Caps::get().ssse3) return"},
    ),
    "an object on the caller's stack": ("object_on_stack", {}, {"level >= AVX2)": "level >= AVX)"}),
    "a level that goes by a name": ("named_level", {}, {'level, "haswell") == 0)': 'level, "sandybridge") == 0)'}),
    "an object with the number of a level": (
        "numbered_object",
        {},
        {"device.has(Level::Avx2) ": "device.has(Level::Avx) "},
    ),
    "an object that a function changes where it finds more": (
        "numbered_object",
        {
            "Level level;\n    Device();": "Level level = Level::Any;\n    void find();",
            "Device::Device() : level(Level::Any) {": "void Device::find() {",
            "static const Device device;": "Device device;\n    device.find();",
        },
        {"device.has(Level::Avx2) ": "device.has(Level::Avx) "},
    ),
    "an object of the caller, over calls": ("caller_object", {}, {"f->avx && (b & bit_AVX2)": "f->avx"}),
    "bits of a structure that is returned and copied": ("copied_structure", {}, {}),
    "a switch over a level": (
        "switch_by_level",
        {},
        {"case AVX: return sum_ssse3(p, n / 2) + sum_ssse3(p + n / 2, n / 2);": "case AVX: return sum_avx2(p, n);"},
    ),
    "a register over calls": ("over_calls", {}, {'supports("avx2")': 'supports("sse4.2")'}),
    "a level, step by step": ("step_by_step", {}, {"found >= 3": "found >= 2"}),
    "a level less what was borrowed": ("carried_level", {}, {'supports("avx2")': 'supports("sse4.2")'}),
    "a level and what was carried": (
        "carried_level",
        {"cmp $1, %1\\n\\tmov $2, %0\\n\\tsbb $0, %0": "bt $0, %1\\n\\tmov $1, %0\\n\\tadc $0, %0"},
        {'supports("avx2")': 'supports("sse4.2")'},
    ),
    "rows of one table": ("table_of_rows", {}, {"|| !(b >> 5 & 1)) return 1": ") return 1"}),
    "what an initialiser is told by a function that asks another one": (
        "chosen_at_load",
        {},
        {"return b >> 5 & 1": "return b >> 3 & 1"},
    ),
    "registers, over blocks out of order": (
        "in_registers",
        {},
        {"if (w->cpu & F_AVX2) w": "if (w->cpu & F_AVX) w"},
    ),
}
"""Shape -> file, what to replace in it, and what makes it wrong."""
STYLES = {
    "O0": ("-O0",),
    "O2, stripped": ("-O2", "-s"),
    "O2, for another pipeline": ("-O2", "-mtune=nehalem"),
    "O3": ("-O3",),
    "static": ("-O2", "-static", "-s"),
    "for size, not unwound": ("-Os", "-s", "-fno-asynchronous-unwind-tables"),
    "O0, not unwound": ("-O0", "-s", "-fno-asynchronous-unwind-tables"),
}


MISSED = {
    ("an object of one of several types", "O0"),
    ("an object of one of several types", "O0, not unwound"),
    ("registers, over blocks out of order", "O0"),
    ("an object that a function makes once", "O0"),
    ("registers, over blocks out of order", "O0, not unwound"),
    ("an object that a function makes once", "O0, not unwound"),
    ("an object of one of two classes", "O0"),
    ("an object of one of two classes", "O0, not unwound"),
    ("results of a function that is told the leaf", "O0, not unwound"),
    ("a byte that is 255 before", "for size, not unwound"),
    ("a byte that is -1 before", "O0"),
    ("an object with the number of a level", "O0"),
    ("an object with the number of a level", "O0, not unwound"),
    ("an object that a function changes where it finds more", "O0"),
    ("an object that a function changes where it finds more", "O0, not unwound"),
    ("a level that goes by a name", "static"),
}
"""Where a test for too little is taken for one for enough: see docs/cpu.md."""
DOUBTED = {
    ("a bit whose number is a parameter", "O0"),
    ("a static object of C++", "O0"),
    ("an object of one of several types", "O0"),
    ("an object of one of several types", "O0, not unwound"),
}
"""Where the test is not seen and the versions have names alone that tell them apart, or are reached by pointers."""
UNSEEN = {
    ("a bit whose number is a parameter", "O0, not unwound"),
    ("a static object of C++", "O0, not unwound"),
    ("a level that goes by a name", "static"),
}
"""Where not even names are left, or not that of the function that compares names."""


def cases(shapes: Iterable[str], unseen: set[tuple[str, str]], styles: Iterable[str] = tuple(STYLES)) -> list:
    """Each of `shapes` in each style, expected to fail where it is among `unseen`."""
    shapes, styles = list(shapes), list(styles)
    assert unseen <= set(product(SHAPES, styles)), "what is not seen has another name by now"
    return [
        pytest.param(shape, style, marks=pytest.mark.xfail(reason="not seen", strict=True))
        if (shape, style) in unseen
        else (shape, style)
        for shape in shapes
        for style in styles
    ]


FOLLOWED = cases(SHAPES, UNSEEN)
TOLD = cases([shape for shape, (_, _, errors) in SHAPES.items() if errors], MISSED)


def built(shape: str, wrong: bool, *flags: str, prefix: str = "") -> Path:
    """A program of a shape, by GCC; `prefix` is that of another machine's compilers."""
    name, changes, errors = SHAPES[shape]
    (path,) = _HERE.glob(f"{name}.c*")
    source = path.read_text().replace('#include "kernels.h"', (_HERE / "kernels.h").read_text())
    for old, new in (changes | errors if wrong else changes).items():
        assert old in source
        source = source.replace(old, new)
    compiler, language = ("g++", "c++") if path.suffix == ".cpp" else ("gcc", "c")
    return compile_c(source, *flags, compiler=prefix + compiler, language=language)


def as_it_ends(path: Path, emulator: str = "qemu-x86_64", besides: Iterable[str] = ()) -> None:
    """What is predicted happens on every model, which has some features besides."""
    found = analyse(path)
    said = {model: predicted(found, features.union(besides)) for model, features in MODELS.items()}
    assert said == {model: observed(path, emulator, model) for model in MODELS}


@pytest.mark.parametrize(("shape", "style"), FOLLOWED)
def test_flags_are_followed_to_where_they_are_tested(shape: str, style: str) -> None:
    path = built(shape, False, *STYLES[style])
    if (shape, style) in DOUBTED:
        assert predicted(analyse(path), MODELS["Nehalem"]) == "unknown"
    else:
        as_it_ends(path)


@pytest.mark.parametrize(("shape", "style"), TOLD)
def test_a_test_for_too_little_is_told(shape: str, style: str) -> None:
    as_it_ends(built(shape, True, *STYLES[style]))


SHARED_EXIT = """
#include <cpuid.h>
#include <stdio.h>
int flags;
float x[8];
void fast(void) {{ __asm__ volatile("vmovups %%ymm0, (%0); vpaddd %%ymm1, %%ymm1, %%ymm1; vzeroupper"
                                    : : "r"(x) : "memory"); }}
void slow(void) {{ x[0]++; }}
void pick(int how);
__asm__(".text; .globl pick; .type pick, @function; pick: .cfi_startproc;"
        "cmpl $0, flags(%rip); jne 1f; jmp 2f; 1: {{disp32}} jmp fast;"
        "2: cmpl $5, %edi; {back} call slow; ret; .cfi_endproc; .size pick, . - pick");
int main(void) {{
    unsigned a, b, c, d;
    __cpuid_count(7, 0, a, b, c, d);
    flags = b >> 5 & 1;
    pick(5);
    printf("%f\\n", x[0]);
    return 0;
}}
"""


@pytest.mark.parametrize("back", ["", "je 1b;"], ids=["behind the test alone", "from elsewhere, too"])
def test_a_jump_out_of_a_function_that_later_code_goes_back_to(back: str) -> None:
    path = compile_c(SHARED_EXIT.format(back=back), "-O2")
    ends = {model: observed(path, "qemu-x86_64", model) for model in MODELS}
    assert ("dies" in ends.values()) == bool(back)
    assert {model: predicted(analyse(path), features) for model, features in MODELS.items()} == ends
