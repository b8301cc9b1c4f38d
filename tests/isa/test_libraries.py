"""Real libraries that choose at run time: what they hold is dispatched, what they were built for is required."""

from pathlib import Path

import numpy as np
import pytest

from tests.isa.programs import analyse, answers
from tests.tools import compile_c, missing

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
