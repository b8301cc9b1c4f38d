"""What the kernel and the C library tell of the CPU on x86: words of the auxiliary vector, and <sys/platform/x86.h>."""

from pathlib import Path

import pytest

from tests.isa.programs import MODELS, analyse, answers, observed, predicted
from tests.tools import compile_c

KERNELS = """
#include <stdio.h>
#include <sys/auxv.h>
__attribute__((noinline)) unsigned long wide(void) {
    unsigned long r;
    __asm__ volatile("vpaddd %%ymm1, %%ymm1, %%ymm1; vzeroupper; mov %%fs:0, %0" : "=r"(r) : : "xmm1");
    return r;
}
__attribute__((noinline)) unsigned long base(void) {
    unsigned long r;
    __asm__ volatile("rdfsbase %0" : "=r"(r));
    return r;
}
__attribute__((noinline)) unsigned long slow(void) {
    unsigned long r;
    __asm__ volatile("mov %%fs:0, %0" : "=r"(r));
    return r;
}
"""
BY_KERNEL = "int main(void) {{ return (getauxval({word}) & {mask} ? {fast}() : slow()) == 0; }}\n"
BUILDS = [("-O0",), ("-O2",), ("-Os", "-s"), ("-O2", "-fno-pie", "-no-pie")]


def as_it_ends(path: Path) -> None:
    found = analyse(path)
    said = {model: predicted(found, features) for model, features in MODELS.items()}
    assert said == {model: observed(path, "qemu-x86_64", model) for model in MODELS}


@pytest.mark.parametrize("flags", [*BUILDS, ("-O2", "-static", "-s")], ids=" ".join)
def test_the_kernel_tells_of_fsgsbase(flags: tuple[str, ...]) -> None:
    as_it_ends(compile_c(KERNELS + BY_KERNEL.format(word="AT_HWCAP2", mask="2", fast="base"), *flags))


@pytest.mark.parametrize("flags", BUILDS, ids=" ".join)
def test_fsgsbase_is_not_enough_for_avx2(flags: tuple[str, ...]) -> None:
    found = analyse(compile_c(KERNELS + BY_KERNEL.format(word="AT_HWCAP2", mask="2", fast="wide"), *flags))
    assert predicted(found, MODELS["SandyBridge"]) == "runs"
    assert predicted(found, MODELS["SandyBridge"] | {"fsgsbase"}) == "dies"


def test_what_the_c_library_makes_of_the_other_word_is_open() -> None:
    path = compile_c(KERNELS + BY_KERNEL.format(word="AT_HWCAP", mask="(1 << 26)", fast="wide"), "-O2")
    as_it_ends(path)


def test_other_words_of_the_vector_are_no_query() -> None:
    path = compile_c(KERNELS + BY_KERNEL.format(word="AT_PAGESZ", mask="4096", fast="wide"), "-O2")
    assert not analyse(path).asks_cpu
    as_it_ends(path)


BY_LIBRARY = """
#include <sys/platform/x86.h>
int main(void) { return (CPU_FEATURE_ACTIVE(AVX2) ? wide() : slow()) == 0; }
"""


@pytest.mark.parametrize("flags", [*BUILDS, ("-O0", "-static", "-s"), ("-O2", "-static", "-s")], ids=" ".join)
def test_the_c_library_tells_by_a_pointer_to_its_own_record(flags: tuple[str, ...]) -> None:
    as_it_ends(compile_c(KERNELS + BY_LIBRARY, *flags))


STEP = "__attribute__((noinline)) unsigned long step{k}(int n) {{ return n > {k} ? step{onward}(n) + n : 0; }}\n"
STEPS = "".join(STEP.format(k=k, onward=k + 1) for k in reversed(range(8)))
LAST, MAIN = "unsigned long step8(int n) { return n ? wide() : 0; }\n", "int main(int n) { return step0(n) == 9; }\n"


def test_what_is_doubted_far_from_the_start_makes_nothing_else_inevitable() -> None:
    """A static program has the C library's own XSAVE, which any CPU with AVX has; nothing else leads to that."""
    path = compile_c(KERNELS + LAST + STEPS + MAIN, "-O1", "-fno-optimize-sibling-calls", "-static", "-s")
    found = answers(path)
    assert found["avx"] == "unknown"
    assert observed(path, "qemu-x86_64", "Nehalem") == "runs"
    assert predicted(analyse(path), MODELS["Nehalem"]) == "unknown"
