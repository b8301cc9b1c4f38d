"""A file with more code that tests the CPU than is followed: what was not read is no proof that nothing is tested."""

from pathlib import Path

import pytest

from imgcheck.binaries.isa.x86.guards import Guards
from imgcheck.binaries.isa.x86.spread import Spread
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


CHOOSER = """
#include <cpuid.h>
static unsigned caps[3];
__attribute__((constructor)) static void init(void) {
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d); caps[0] = c;
    __cpuid_count(7, 0, a, b, c, d); caps[1] = b; caps[2] = c;
}
static void plain(float *a) { a[0] += 1; }
static void wide(float *a) { __asm__ volatile("vaddps (%0), %%ymm1, %%ymm1" : : "r"(a) : "xmm1"); }
static void widest(float *a) { __asm__ volatile("vaddps (%0), %%zmm1, %%zmm1" : : "r"(a) : "xmm1"); }
static __attribute__((noinline)) int has_widest(void) {
    __asm__ volatile(".fill 150, 1, 0x90");
    return caps[2] & 1 << 9 && !(~caps[1] & 0xc0030000) ? caps[2] >> 10 & 1 : 0;
}
__attribute__((visibility("default"))) void choose(void (**chosen)(float *)) {
    if (has_widest()) *chosen = widest;
    else if (!(~caps[0] & 0x18000000)) *chosen = wide;
    else *chosen = plain;
}
"""


@pytest.mark.parametrize("budget", range(300, 600, 10))
def test_who_chooses_before_all_is_known_is_looked_at_again(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As AWS-LC's gcm_init within Deno: what a function tells that it calls is known only when no bytes are left."""
    stale: list[int] = []

    def run(spread: Spread) -> Guards:
        guards = followed(spread)
        stale.extend(i for i, flow in guards.flows.items() if flow.chosen != spread.follow(i).chosen)
        return guards

    followed = Spread.run
    monkeypatch.setattr(Spread, "run", run)
    monkeypatch.setattr("imgcheck.binaries.isa.x86.spread._TOTAL_BYTES", budget)
    assert analyse(compile_c(CHOOSER, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-s")).asks_cpu
    assert not stale
