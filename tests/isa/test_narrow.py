"""32-bit x86: parameters on a stack that moves, and code that has to learn where it lies.

QEMU's CPU models say what happens.
"""

from pathlib import Path

import numpy as np
import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.facts import facts
from imgcheck.binaries.isa.x86.graph import Graph
from tests.isa import test_dispatch
from tests.isa.programs import analyse
from tests.isa.test_dispatch import SHAPES, built, cases
from tests.tools import compile_c

_BASELINE = {"mmx", "sse", "sse2"}
"""What all of those models have, and not all of 32-bit x86."""
_SHAPES = [shape for shape, (name, _, _) in SHAPES.items() if name != "lazy_level"]
"""The one left out counts bits of 64-bit words by an instruction that only 64-bit code has."""
_CARRIED = ("less what was borrowed", "and what was carried")
STYLES = {
    "O2, stripped": ("-O2", "-s"),
    "O2, at one address": ("-O2", "-s", "-no-pie", "-fno-pie"),
    "O0": ("-O0",),
}
_NUMBERED = "an object with the number of a level", "an object that a function changes where it finds more"
UNSEEN = {
    ("a static object of C++", "O0"),
    ("an object of one of several types", "O0"),
    *(("a bit whose number is a parameter", style) for style in STYLES),
    *((shape, "O2, at one address") for shape in _NUMBERED),
}
"""The bits of the second are those of a word of 64 bits, which takes two registers here."""
MISSED = {
    *(("an object of one of several types", style) for style in STYLES),
    ("an object of one of two classes", "O2, stripped"),
    ("an object of one of two classes", "O0"),
    ("a byte that is -1 before", "O0"),
    *((shape, style) for shape in _NUMBERED for style in STYLES),
    *(("an object of the caller, over calls", f"O2, {where}") for where in ("stripped", "at one address")),
    ("a switch over a level", "O2, at one address"),
    ("registers, over blocks out of order", "O0"),
    *(("an index of a table", style) for style in STYLES),
    *((f"a level {how}", f"O2, {where}") for how in _CARRIED for where in ("stripped", "at one address")),
}
"""Where a test for too little is taken for one for enough. The index is one of 64 bits, too."""


def as_it_ends(path: Path) -> None:
    test_dispatch.as_it_ends(path, "qemu-i386", _BASELINE)


@pytest.mark.parametrize(("shape", "style"), cases(_SHAPES, UNSEEN, STYLES))
def test_flags_are_followed_to_where_they_are_tested(shape: str, style: str) -> None:
    as_it_ends(built(shape, False, *STYLES[style], prefix="i686-linux-gnu-"))


@pytest.mark.parametrize(("shape", "style"), cases([s for s in _SHAPES if SHAPES[s][2]], MISSED, STYLES))
def test_a_test_for_too_little_is_told(shape: str, style: str) -> None:
    as_it_ends(built(shape, True, *STYLES[style], prefix="i686-linux-gnu-"))


ASSEMBLER = """
        .text
        .globl _start
_start: call learn
        push $1
        call update
        mov $1, %eax
        xor %ebx, %ebx
        int $0x80
learn:  push %ebx
        call 1f
1:      pop %esi
        mov $1, %eax
        cpuid
        xor %edi, %edi
        and $0x18000000, %ecx
        cmp $0x18000000, %ecx
        jne 2f
        xor %ecx, %ecx
        xgetbv
        and $6, %eax
        cmp $6, %eax
        jne 2f
        mov $7, %eax
        xor %ecx, %ecx
        cpuid
        mov %ebx, %edi
        and $0x20, %edi
2:      mov %edi, flags - 1b(%esi)
        pop %ebx
        ret
        .p2align 4
update: push %ebp
        push %ebx
        call 1f
1:      pop %ebp
        lea table - 1b(%ebp), %ebp
        lea flags - table(%ebp), %edx
        mov (%edx), %eax
        test ${mask}, %eax
        jne fast
        add (%ebp), %eax
        pop %ebx
        pop %ebp
        ret
        .p2align 6
table:  {table}
        .p2align 6
fast:   vmovdqu (%ebp), %ymm0
        vpaddd %ymm0, %ymm0, %ymm0
        pop %ebx
        pop %ebp
        ret
        .bss
        .p2align 2
flags:  .skip 4
"""
"""As OpenSSL's modules for x86 are written: tables stand among the code, and variables are named by their distance."""
FMA4 = ".byte " + ", ".join(map(str, bytes.fromhex("c4e3695cd920") * 8))
"""A table that is code for FMA4, which no CPU model here has, to who reads it as such."""


@pytest.mark.parametrize("mask", [0x20, 0x28], ids=["the right test", "one for more than that"])
def test_assembler_that_names_all_by_its_distance(mask: int) -> None:
    source = ASSEMBLER.format(mask=mask, table=FMA4)
    path = compile_c(source, "-m32", "-nostdlib", "-static", "-s", language="assembler")
    assert "fma4" not in {use.feature for use in analyse(path).uses}
    as_it_ends(path)


def test_a_call_over_a_lazy_table_leads_to_the_function_that_it_names() -> None:
    """What its slot holds in the file leads back to the table, and is not added to the symbol's address."""
    source = "int f(int a) { return a + 1; } int g(int a) { return f(a) * f(a + 1); }"
    flags = ("-m32", "-O2", "-fPIC", "-fno-ipa-icf", "-fno-inline", "-shared", "-nostdlib", "-Wl,-z,lazy")
    layout = Layout(Elf(compile_c(source, *flags, out="libfg.so").read_bytes()))
    graph = Graph(layout, 32)
    symbols = layout.dynamic_symbols
    names = layout.names(symbols, np.arange(len(symbols.value)))
    f, g = (graph.starting_at(symbols.value[[names.index(name)]])[0] for name in (b"f", b"g"))
    assert f in graph.calls.target[graph.calls.among(int(g))]


@pytest.mark.parametrize(("code", "lowers"), [
    ("83ec0c", 12), ("83c410", -16), ("83c480", 128), ("81c400ffffff", 256), ("81ec00010000", 256),
    ("8d642480", 128), ("50", 4), ("58", -4), ("89c8", 0),
])  # fmt: skip
def test_how_far_the_stack_pointer_moves_down(code: str, lowers: int) -> None:
    """By SUB, ADD, LEA, PUSH and POP, with distances below zero of a byte and of four."""
    (fact,) = facts(bytes.fromhex(code), 0x1000, 32).facts
    assert fact.lowers == lowers
