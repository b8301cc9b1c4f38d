"""A file with more code that tests the CPU than is followed: what was not read is no proof that nothing is tested."""

from pathlib import Path

import pytest

from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

FUNCTIONS, PADDING = 1500, 300
"""Together some 500 KB, which is more than the engine follows in a file."""
USE = 'static __attribute__((noinline)) long f{n}(long x) {{ {test} __asm__("popcnt %1, %0" : "=r"(x) : "r"(x));'
BODY = USE + ' __asm__ volatile(".fill {padding}, 1, 0x90"); return x + {n}; }}'


def source(test: str) -> str:
    """A library whose functions all use POPCNT, by way of one that is exported."""
    functions = (BODY.format(n=n, test=test, padding=PADDING) for n in range(FUNCTIONS))
    calls = " ".join(f"x += f{n}(x);" for n in range(FUNCTIONS))
    return "\n".join(
        (
            "#include <cpuid.h>",
            "static int has; __attribute__((constructor)) static void init(void) {",
            "  unsigned a, b, c, d; if (__get_cpuid(1, &a, &b, &c, &d)) has = (c & bit_POPCNT) != 0; }",
            *functions,
            f'__attribute__((visibility("default"))) long run(long x) {{ {calls} return x; }}',
            "int main(void) { return run(3) == 1; }",
        )
    )


def library(test: str) -> Path:
    return compile_c(source(test), "-O1", "-shared", "-fPIC", "-fvisibility=hidden")


def test_tests_that_were_not_followed_are_no_requirement() -> None:
    """Go's run-time library tests runtime.x86HasPOPCNT in a thousand places."""
    (use,) = (use for use in analyse(library("if (has)")).uses if use.feature == "popcnt")
    assert use.answer != "required", use.reason


def test_the_same_without_any_test_is_required() -> None:
    (use,) = (use for use in analyse(library("")).uses if use.feature == "popcnt")
    assert use.answer == "required", use.reason


@pytest.mark.slow
@pytest.mark.parametrize("test", ["if (has)", ""])
def test_neither_is_foretold_wrongly(test: str) -> None:
    program = compile_c(source(test), "-O1")
    found = analyse(program)
    for model in ("Conroe", "Nehalem"):
        said, ended = predicted(found, MODELS[model]), observed(program, "qemu-x86_64", model)
        assert said in (ended, "unknown"), (model, said, ended)
