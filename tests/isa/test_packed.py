"""How much a file computes with vectors (Isa.vector_functions), which compilers use for other work in any code."""

import pytest

from tests.isa.programs import analyse
from tests.tools import compile_c

COPIES = """
struct big { double a[16]; };
void copy(struct big *to, const struct big *from) { *to = *from; }
void clear(struct big *one) { *one = (struct big){0}; }
double scalar(double a, double b) { return a * b + a; }
"""
COMPUTES = """
void scale(float *restrict a, const float *restrict b, int n) { for (int i = 0; i < n; i++) a[i] *= b[i]; }
void weigh(short *restrict a, const short *restrict b, int n) { for (int i = 0; i < n; i++) a[i] *= b[i]; }
"""


@pytest.mark.parametrize(("source", "count"), [(COPIES, 0), (COPIES + COMPUTES, 2)])
@pytest.mark.parametrize("level", ["x86-64", "haswell", "skylake-avx512"])
def test_functions_that_compute_are_counted_and_those_that_copy_are_not(source: str, count: int, level: str) -> None:
    path = compile_c(source, "-O3", f"-march={level}", "-shared", "-nostdlib", out="lib.so")
    assert analyse(path).vector_functions == count
