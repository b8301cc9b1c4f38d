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


@pytest.mark.parametrize(("test", "ends"), [("je 1f", "runs"), ("nop", "dies")])
def test_what_a_function_calls_in_itself_is_behind_the_tests_before_the_call(test: str, ends: str) -> None:
    """As in the AES code of Mbed TLS, whose assembler jumps over a part that it then calls."""
    inside = f" test $0x20, %edi\n {test}\n jmp 3f\n2: vpaddd %ymm0, %ymm1, %ymm2\n ret\n3: call 2b\n"
    leave = "1: mov $60, %eax\n xor %edi, %edi\n syscall\n ud2"
    ask = function("_start", ASKING.format(jump="call choose"), "protected")
    path = compile_c(".text\n" + ask + function("choose", inside + leave), *ALONE, language="assembler")
    assert observed(path, "qemu-x86_64", "SandyBridge") == ends
    assert predicted(analyse(path), MODELS["SandyBridge"]) == ends


def test_assembly_that_only_a_jump_leads_to_is_no_part_of_what_stands_before_it() -> None:
    """As in ISA-L: NASM writes no unwind data, and functions of C for each CPU end with jumps to its kernels."""
    kernels = (
        ".type base, @function\n.p2align 4\nbase: endbr64\n mov $60, %eax\n xor %edi, %edi\n syscall\n ret\n"
        ".p2align 4\n nopl 0(%rax)\n nopw 0(%rax, %rax, 1)\n.p2align 4\n"
        "fast: endbr64\n vpaddd %ymm0, %ymm1, %ymm2\n mov $60, %eax\n xor %edi, %edi\n syscall\n ret\n"
    )
    choose = " test $0x20, %edi\n je 1f\n call for_avx2\n1: call for_any\n ud2"
    parts = (
        function("_start", ASKING.format(jump="call choose"), "protected"),
        function("choose", choose),
        function("for_any", " sub $8, %rsp\n call base\n add $8, %rsp\n ret"),
        function("for_avx2", " nop\n .byte 0xe9; .long fast - . - 4"),
    )
    path = compile_c(".text\n" + "".join(parts) + kernels, *ALONE, language="assembler")
    assert observed(path, "qemu-x86_64", "SandyBridge") == "runs"
    assert answers(path)["avx2"] == "dispatched"


SPLIT = """
static volatile unsigned long kept __attribute__((used));
unsigned long detect(void);
__asm__(".text; .type detect, @function\\n"
        "detect: .cfi_startproc; push %rbx; mov $7, %eax; xor %ecx, %ecx; cpuid; shr $18, %ebx; and $1, %ebx\\n"
        "WAY_OUT\\n"
        ".cfi_endproc; .size detect, . - detect; .section .text.unlikely, \\"ax\\"; .type rare, @function\\n"
        "rare: .cfi_startproc; ud2; .Lrare: add $2, %rbx; .Lend: or $4, %rbx; mov %rbx, kept(%rip)\\n"
        "mov %rbx, %rax; pop %rbx; ret; .cfi_endproc; .size rare, . - rare; .text");
__attribute__((noinline)) static unsigned long seed(void) {
    unsigned long word;
    __asm__ volatile("rdseed %0" : "=r"(word));
    return word;
}
__attribute__((noinline)) static unsigned long once(void) {
    unsigned long told = kept;
    return told ? told : detect();
}
unsigned long draw(void) {
    return once() & 1 ? seed() : 7;
}
"""


@pytest.mark.parametrize(
    ("way_out", "answer"),
    [("test %rsi, %rsi; jne .Lrare; jmp .Lend", "dispatched"), ("mov $5, %eax; pop %rbx; ret", "unknown")],
    ids=["in what is rare", "by itself, with a number"],
)
def test_a_function_whose_end_lies_with_the_rare_code_tells_what_it_has_asked(way_out: str, answer: str) -> None:
    """As qDetectCpuFeatures of Qt 5, whose tests GCC parts from its end."""
    found = analyse(compile_c(SPLIT.replace("WAY_OUT", way_out), "-O2", "-shared", "-fPIC", "-s"))
    (use,) = (use for use in found.uses if use.feature == "rdseed")
    assert use.answer == answer, use.reason
