"""AArch64 and ppc64le: predictions against QEMU's CPU models, with programs of Debian's cross compilers."""

import pytest

from tests.isa.programs import analyse, answers, observed, predicted
from tests.tools import compile_c

SOURCE = r"""
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
_Atomic int counter;
int8_t a[64], b[64];
float x[64];
__attribute__((noinline)) int dot(void) { int s = 0; for (int i = 0; i < 64; i++) s += a[i] * b[i]; return s; }
__attribute__((noinline)) void scale(void) { for (int i = 0; i < 64; i++) x[i] = x[i] * 2 + 1; }
int main(int n, char **v) {
    for (int i = 0; i < 64; i++) { a[i] = i; b[i] = n; x[i] = i; }
    atomic_fetch_add(&counter, n);
    scale();
    printf("%d %d %f\n", dot(), counter, x[5]);
    return 0;
}
"""
ARM = "aarch64-linux-gnu-gcc"
POWER = "powerpc64le-linux-gnu-gcc"
ARM_MODELS = {"cortex-a57": {"crc32", "aes", "pmull", "sha1", "sha2"},
              "cortex-a76": {"crc32", "aes", "pmull", "sha1", "sha2", "atomics", "asimdrdm", "asimddp", "fphp",
                             "asimdhp", "lrcpc"}}  # fmt: skip
POWER_MODELS = {"power8": set(), "power9": {"arch_3_00"}, "power10": {"arch_3_00", "arch_3_1"}}


@pytest.mark.parametrize("march", ["armv8-a", "armv8-a+lse", "armv8.2-a+dotprod", "armv8.2-a+sve", "armv8.5-a+sve2"])
def test_aarch64_verdict_matches_what_the_cpu_does(march: str) -> None:
    program = compile_c(SOURCE, "-O3", f"-march={march}", "-static", compiler=ARM)
    found = analyse(program)
    for model, features in ARM_MODELS.items():
        assert (model, predicted(found, features)) == (model, observed(program, "qemu-aarch64", model))


@pytest.mark.parametrize("cpu", ["power8", "power9", "power10"])
def test_ppc64le_verdict_matches_what_the_cpu_does(cpu: str) -> None:
    program = compile_c(SOURCE, "-O3", f"-mcpu={cpu}", "-static", compiler=POWER)
    found = analyse(program)
    for model, features in POWER_MODELS.items():
        assert (model, predicted(found, features)) == (model, observed(program, "qemu-ppc64le", model))


def test_outlined_atomics_are_dispatched() -> None:
    outlined = compile_c(SOURCE, "-O2", "-march=armv8-a", "-moutline-atomics", compiler=ARM)
    assert answers(outlined) == {"atomics": "dispatched"}
    direct = compile_c(SOURCE, "-O2", "-march=armv8-a+lse", compiler=ARM)
    assert answers(direct) == {"atomics": "required"}


def test_pointer_authentication_hints_are_no_need() -> None:
    protected = compile_c(
        SOURCE, "-O2", "-march=armv8-a", "-mbranch-protection=standard", "-mno-outline-atomics", compiler=ARM
    )
    assert answers(protected) == {}


def test_prefixed_instruction_is_shown_with_its_function() -> None:
    code = ".globl f\n.type f,@function\nf: paddi 3,3,1000000\n blr\n.size f,.-f\n"
    library = compile_c(code, "-shared", "-mpower10", "-nostdlib", out="libp.so", compiler=POWER, language="assembler")
    (use,) = analyse(library).uses
    assert (use.feature, use.answer, use.function) == ("arch_3_1", "required", "f")
