"""LZCNT and TZCNT, which CPUs without them run as BSR and BSF: what is said of them."""

from pathlib import Path

import pytest

from tests.isa.programs import answers
from tests.tools import compile_c

COUNT = "int count(unsigned x) { return %s(x); }\n"
MAIN = "int count(unsigned); int main(int c, char **v) { return count(c + 4); }\n"
CHOICE = """
__attribute__((target("lzcnt"), noinline)) static int fast(unsigned x) { return __builtin_clz(x); }
__attribute__((noinline)) static int slow(unsigned x) { return x ? 31 - __builtin_clz(x) : 0; }
int count(unsigned x) { return __builtin_cpu_supports("lzcnt") ? fast(x) : slow(x); }
"""


def program(source: str, *flags: str) -> Path:
    return compile_c(source + MAIN, "-O2", *flags)


def test_lzcnt_that_nothing_asks_for_is_required() -> None:
    assert answers(program(COUNT % "__builtin_clz", "-mlzcnt")) == {"lzcnt": "required"}


def test_lzcnt_behind_a_test_is_dispatched() -> None:
    assert answers(program(CHOICE)) == {"lzcnt": "dispatched"}


@pytest.mark.parametrize("flags", [(), ("-mbmi",)])
def test_tzcnt_is_what_compilers_write_for_any_cpu(flags: tuple[str, ...]) -> None:
    assert not answers(program(COUNT % "__builtin_ctz", *flags))
