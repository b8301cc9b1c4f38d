"""Programs for AArch64 and ppc64le that find out what the CPU has without asking it; see test_hints.py."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.isa.programs import analyse, observed, predicted
from tests.isa.test_hints import CATCHING, DYING, END, READING, SHAPES
from tests.isa.test_words import ARM, ARM_MODELS, POWER, POWER_MODELS
from tests.tools import compile_c


class Machine(NamedTuple):
    compiler: str
    emulator: str
    models: dict[str, set[str]]
    old: str
    new: str
    instruction: str
    word: str


MACHINES = {
    "aarch64": Machine(
        ARM, "qemu-aarch64", ARM_MODELS, "cortex-a57", "cortex-a76",
        '__asm__ volatile(".inst 0x4e829420" ::: "v0")', "asimddp",
    ),
    "ppc64le": Machine(
        POWER, "qemu-ppc64le", POWER_MODELS, "power8", "power9",
        '__asm__ volatile("maddld 9,9,9,9" ::: "r9")', "POWER9",
    ),
}  # fmt: skip
HEAD = """
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int x[64];
__attribute__((noinline)) static void fast(void) { TRY; x[3]++; }
__attribute__((noinline)) static void plain(void) { for (int i = 0; i < 8; i++) x[i] += x[i]; }
"""
STYLES = [("-O0",), ("-O2",), ("-O2", "-no-pie", "-fno-pie"), ("-Os", "-s"), ("-O2", "-static", "-s")]
SAID = {
    "said before it goes on": """
static unsigned caps;
__attribute__((noinline)) static void try_it(void (*f)(void), unsigned bit) {
    if (sigsetjmp(back, 1) == 0) { f(); caps |= bit; }
}
__attribute__((noinline)) static void probe(void) { TRY; }
__attribute__((constructor)) static void find(void) { catch(jump); try_it(probe, 1); signal(SIGILL, SIG_DFL); }
int main(void) { if (caps & 1) fast(); else plain(); END }
""",
}


def built(machine: Machine, source: str, *flags: str) -> Path:
    return compile_c(source.replace("TRY", machine.instruction).replace("END", END), *flags, compiler=machine.compiler)


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
@pytest.mark.parametrize("shape", SHAPES | SAID)
@pytest.mark.parametrize("machine", MACHINES)
def test_an_instruction_that_is_tried_is_not_said_to_be_required(
    machine: str, shape: str, flags: tuple[str, ...]
) -> None:
    of = MACHINES[machine]
    path = built(of, HEAD + CATCHING + (SHAPES | SAID)[shape], *flags)
    assert observed(path, of.emulator, of.old) == "runs"
    # Linked to the C library, which asks, versions that pointers lead to count as chosen by that.
    said = {"unknown", "runs"} if shape == "of a list" and "-static" in flags else {"unknown"}
    assert predicted(analyse(path), of.models[of.old]) in said
    assert predicted(analyse(path), of.models[of.new]) == "runs"


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
@pytest.mark.parametrize("shape", DYING)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_handler_for_sigill_alone_excuses_nothing(machine: str, shape: str, flags: tuple[str, ...]) -> None:
    of = MACHINES[machine]
    path = built(of, HEAD + CATCHING + DYING[shape], *flags)
    assert predicted(analyse(path), of.models[of.old]) == "dies"


WORDS = {
    "a word that is searched": 'int main(void) { read_all(); if (strstr(text, "WORD")) fast(); else plain(); END }',
    "words that are compared": """
int main(void) {
    read_all();
    for (char *w = strtok(text, " \\n"); w; w = strtok(0, " \\n")) if (!strcmp(w, "WORD")) { fast(); break; }
    END
}""",
    "a flag that a function finds": """
static int wide;
__attribute__((noinline)) static int has(const char *w) { return strstr(text, w) != 0; }
int main(void) { read_all(); wide = has("WORD"); if (wide) fast(); else plain(); END }
""",
}


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
@pytest.mark.parametrize("shape", WORDS)
@pytest.mark.parametrize("machine", MACHINES)
def test_what_stands_behind_a_word_is_not_said_to_be_required(machine: str, shape: str, flags: tuple[str, ...]) -> None:
    of = MACHINES[machine]
    found = analyse(built(of, HEAD + READING + WORDS[shape].replace("WORD", of.word), *flags))
    assert predicted(found, of.models[of.old]) == "unknown"
    assert predicted(found, of.models[of.new]) == "runs"


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
@pytest.mark.parametrize("machine", MACHINES)
def test_what_such_words_do_not_decide_is_required(machine: str, flags: tuple[str, ...]) -> None:
    of = MACHINES[machine]
    main = f'int main(void) {{ read_all(); if (strstr(text, "{of.word}")) puts("good"); fast(); END }}'
    path = built(of, HEAD + READING + main, *flags)
    assert observed(path, of.emulator, of.old) == "dies"
    assert predicted(analyse(path), of.models[of.old]) == "dies"
