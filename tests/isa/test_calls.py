"""Calls and jumps between functions, in whatever form they are written, hand over what the CPU told."""

import pytest

from tests.isa.elves import function
from tests.isa.programs import MODELS, analyse, answers, observed, predicted
from tests.tools import compile_c

ALONE = "-nostdlib", "-static", "-s", "-Wl,--eh-frame-hdr"


ASKING = """
 xor %ecx, %ecx
 mov $7, %eax
 cpuid
 mov %ebx, %edi
 nop
 {jump}
 ud2
"""
TESTING = """
 nop
 test $0x20, %edi
 {test}
 call use
1: mov $60, %eax
 xor %edi, %edi
 syscall
 ud2
"""
JUMPS = {
    "short": "jmp choose",
    "near": ".byte 0xe9; .long choose - . - 4",
    "with a prefix": ".byte 0xf2, 0xe9; .long choose - . - 4",
    "conditional": "cmp %esp, %esp; .byte 0x0f, 0x84; .long choose - . - 4",
    "call": "call choose",
}


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize(("test", "ends"), [("je 1f", "runs"), ("nop", "dies")])
def test_a_parameter_arrives_over_any_jump(jump: str, test: str, ends: str) -> None:
    parts = (
        function("_start", ASKING.format(jump=JUMPS[jump]), "protected"),
        function("choose", TESTING.format(test=test)),
        function("use", " vpaddd %ymm0, %ymm1, %ymm2\n ret"),
    )
    path = compile_c(".text\n" + "".join(parts), *ALONE, language="assembler")
    assert observed(path, "qemu-x86_64", "SandyBridge") == ends
    assert predicted(analyse(path), MODELS["SandyBridge"]) == ends


CHAIN = 7
"""Functions, each of which jumps to the next one."""


def chain(last: str) -> str:
    far = ".byte 0xe9; .long f{} - . - 4"
    parts = [function(f"f{i}", far.format(i + 1)) for i in range(CHAIN)]
    return "".join([*parts, function(f"f{CHAIN}", last)])


@pytest.mark.parametrize(
    ("last", "answer"),
    [(" ud2", "dispatched"), (" .byte 0xe9; .long f2 - . - 4", "dispatched"), (" ret", "required")],
)
@pytest.mark.parametrize("first", ["f0", "f5"])
def test_whether_a_call_returns_is_told_over_jumps_however_it_was_asked(last: str, answer: str, first: str) -> None:
    """Behind a call that never returns stands code that a test leads to; whoever else was asked about before."""
    ask = f"""
 xor %ecx, %ecx
 mov $7, %eax
 cpuid
 test $0x20, %ebx
 jne 2f
 call {first}
 call f3
2: call use
 mov $60, %eax
 xor %edi, %edi
 syscall
"""
    use = function("use", " vpaddd %ymm0, %ymm1, %ymm2\n ret")
    source = ".text\n" + function("_start", ask, "protected") + chain(last) + use
    assert answers(compile_c(source, *ALONE, language="assembler"))["avx2"] == answer


def test_features_that_imply_each_other_are_judged() -> None:
    """AVX-512VL comes with BW and DQ: where functions use two of these, neither is the lower level."""
    users = "".join(function(f"u{i}", " vpaddb %ymm1, %ymm2, %ymm16\n ret") for i in range(10))
    callers = "".join(
        function(f"c{i}", f" sub $8, %rsp\n call u{i}\n add $8, %rsp\n ret", "protected") for i in range(10)
    )
    asks = function("asks", " push %rbx\n mov $1, %eax\n cpuid\n pop %rbx\n ret", "protected")
    path = compile_c(".text\n" + users + callers + asks, "-nostdlib", "-shared", language="assembler", out="lib.so")
    assert {answers(path)[feature] for feature in ("avx512vl", "avx512bw")} == {"required"}
