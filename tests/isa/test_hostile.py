"""Files made to mislead or to break the engines: none raises, none takes more than its size explains."""

import gc
import random
import struct
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.binaries.analyse import analyse
from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.facts import facts
from imgcheck.binaries.isa.x86.variables import Variables
from imgcheck.errors import ElfError
from tests.isa.elves import BASE, around, elf_around, function, with_headers
from tests.isa.programs import SOURCES
from tests.tools import compile_c

AVX = bytes.fromhex("c5f458c2")  # vaddps ymm0,ymm1,ymm2
RETURN = b"\xc3"
SHT_STRTAB = 3


def features(data: bytes) -> set[str]:
    found = analyse_isa(Elf(data))
    return {use.feature for use in found.uses} if found else set()


@settings(max_examples=150, deadline=None)
@given(code=st.binary(min_size=1, max_size=4000), machine=st.sampled_from([62, 3, 183, 21]), sections=st.booleans())
def test_any_bytes_as_code_are_judged(code: bytes, machine: int, sections: bool) -> None:
    found = analyse_isa(Elf(around(code, machine=machine, sections=sections)))
    assert found is None or found.code_bytes == len(code)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_programs_are_judged_or_refused(data: st.DataObject) -> None:
    whole = bytearray(compile_c(SOURCES["table"], "-O2", "-march=haswell").read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        whole[data.draw(st.integers(16, len(whole) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(64, len(whole)))
    with suppress(ElfError):
        analyse_isa(Elf(bytes(whole[:cut])))


def test_code_without_sections_is_read_from_its_segment() -> None:
    assert features(around(AVX + RETURN, sections=False)) == {"avx"}


def test_data_that_looks_like_a_vector_instruction_is_none() -> None:
    load = b"\x48\xb8" + AVX + AVX  # movabs rax, imm64
    assert features(around(load + RETURN)) == set()


def test_prefix_at_the_very_end_of_the_code() -> None:
    for tail in (b"\xc5", b"\xc4", b"\x62", b"\x0f", b"\x66\x0f\x38", b"\xe8", b"\x0f\x80", b"\xd5"):
        assert features(around(RETURN + tail)) == set()


def test_stripped_section_headers_change_no_answer() -> None:
    whole = bytearray(compile_c(SOURCES["mixed"], "-O2", "-march=haswell", "-s").read_bytes())
    before = {(u.feature, u.answer) for u in analyse_isa(Elf(bytes(whole))).uses}
    struct.pack_into("<Q", whole, 40, 0)
    struct.pack_into("<HHH", whole, 58, 0, 0, 0)
    assert {(u.feature, u.answer) for u in analyse_isa(Elf(bytes(whole))).uses} == before


@pytest.mark.parametrize(
    "flags", [("-static-pie",), ("-fuse-ld=gold",), ("-fno-asynchronous-unwind-tables",), ("-no-pie",)]
)
def test_layouts_of_other_linkers_and_modes(flags: tuple[str, ...]) -> None:
    found = analyse_isa(Elf(compile_c(SOURCES["loops"], "-O2", "-march=haswell", *flags).read_bytes()))
    assert "required" in {use.answer for use in found.uses if use.feature == "avx"}


def test_unknown_vector_instruction_is_stepped_over_and_said(tmp_path: Path) -> None:
    # EVEX map 5 with an opcode that no manual defines yet, three times in a clean function, then AVX.
    unknown = bytes.fromhex("62f57c48eec1")
    code = ".globl _start\n_start:\n.cfi_startproc\n" + f".byte {','.join(map(hex, unknown))}\n" * 3
    code += "vaddps %ymm0,%ymm1,%ymm2\n ret\n.cfi_endproc\n.type _start,@function\n.size _start,.-_start\n"
    program = compile_c(code, "-nostdlib", "-static", "-Wl,--eh-frame-hdr", language="assembler")
    found = {use.feature: use.answer for use in analyse_isa(Elf(program.read_bytes())).uses}
    assert found == {"avx": "required", "avx10": "unknown"}


NEWER_THAN_THE_DECODER = """
#include <cpuid.h>
static unsigned has;
__attribute__((constructor)) static void ask(void) { unsigned a, b, c; __cpuid_count(7, 1, a, b, c, has); }
__attribute__((noinline)) static void smallest(void) {
    __asm__ volatile(".byte 0x62,0xf5,0x7c,0x48,0xee,0xc1\\n.byte 0x62,0xf5,0x7c,0x48,0xee,0xc1");
}
int main(void) { if (TEST) smallest(); return 0; }
"""
AVX10, AVX_VNNI_INT8 = "has >> 19 & 1", "has >> 4 & 1"


@pytest.mark.parametrize("test, answer", [(AVX10, "dispatched"), (AVX_VNNI_INT8, "unknown"), ("1", "unknown")])
def test_what_no_decoder_knows_is_open_unless_a_test_for_it_stands_before(test: str, answer: str) -> None:
    program = compile_c(NEWER_THAN_THE_DECODER.replace("TEST", test), "-O2")
    found = {use.feature: use.answer for use in analyse_isa(Elf(program.read_bytes())).uses}
    assert found == {"avx10": answer}


@pytest.mark.parametrize("machine", [62, 183])
def test_time_grows_with_the_size_alone(machine: int) -> None:
    noise = random.Random(1).randbytes(1 << 21)
    times = []
    for size in (1 << 19, 1 << 21):
        elf = elf_around(noise[:size], machine=machine)
        began = time.process_time()
        analyse_isa(elf)
        times.append(time.process_time() - began)
    assert times[1] < 12 * times[0] + 0.5


def test_very_many_sections_of_code_cost_each_a_time() -> None:
    query = b"\x0f\xa2\xc5\xf8\x77\xc3".ljust(16, b"\xcc")
    count, filling = 3000, b"\x90" * (7 << 20)  # larger code is read whole
    headers = [(".text", 1, 6, 0x1000 + 64 * i, 16 * i, 16, 0) for i in range(count)]
    headers.append((".big", 1, 6, 1 << 28, 16 * count, len(filling), 0))
    library = with_headers(query * count + filling, headers)
    began = time.process_time()
    assert "avx" in features(library)
    assert time.process_time() - began < 12


def test_very_many_headers_of_symbols_have_their_names_read_once() -> None:
    names, code = b"PyIni\0" * (1 << 18), AVX + RETURN
    headers = [(".strtab", 3, 0, 0, 0, len(names), 0), (".text", 1, 6, 0x1000, len(names), len(code), 0)]
    library = with_headers(names + code, headers + [(".dynsym", 11, 0, 0, 0, 0, 1)] * 4000)
    began = time.process_time()
    assert features(library) == {"avx"}
    assert time.process_time() - began < 4


def test_code_of_nothing_but_queries_ends() -> None:
    code = b"\x0f\xa2\x85\xc0\x74\x00" * 20_000 + AVX + RETURN
    began = time.process_time()
    assert analyse_isa(Elf(around(code, entry=BASE))) is not None
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"\xff\xe0", id="jumps of which each may lead anywhere"),
        pytest.param(b"\xa8\x01\x74\x02\xeb\xf8", id="loops in each other"),
        pytest.param(b"\x0f\xa2\x85\xc9\x0f\x84\xff\xff\x00\x00", id="tests that leave"),
        pytest.param(b"\xa8\x01\x75\x00\x0f\xa2\xa8\x01\x75\x01\x90", id="tests that meet again"),
        pytest.param(b"\xe8\x00\x00\x00\x00\x89\xf9\x75\xf7", id="calls in loops"),
    ],
)
def test_a_function_is_followed_in_a_time_that_its_length_bounds(piece: bytes) -> None:
    def seconds(size: int) -> float:
        data = around(b"\x0f\xa2" + piece * (size // len(piece)) + AVX + RETURN, entry=BASE)
        took = []
        # Going through the objects of all tests before takes longer than the work, now and then.
        gc.collect()
        gc.disable()
        for _ in range(3):
            began = time.process_time()
            analyse_isa(Elf(data))
            took.append(time.process_time() - began)
        gc.enable()
        return min(took)

    assert seconds(60_000) < 20 * max(seconds(7_500), 0.02)


def test_a_function_of_bytes_that_are_no_instructions_is_read_in_linear_time() -> None:
    def seconds(size: int) -> float:
        start = time.process_time()
        facts((b"\x62" + bytes(4) + b"\x06") * (size // 6), 0x1000, 64)
        return time.process_time() - start

    seconds(1 << 12)
    assert seconds(1 << 16) < 24 * max(seconds(1 << 13), 0.002)


@pytest.mark.parametrize("opcode", [b"\xe8", b"\xe9", b"\xeb", b"\x74", b"\x0f\x84"])
def test_a_branch_cut_short_by_the_end_of_a_function_is_told_from_whole_ones(opcode: bytes) -> None:
    cut, whole = b"\x90" + opcode, opcode + bytes(1 if opcode in (b"\xeb", b"\x74") else 4)
    for _ in range(2):  # whichever is met first
        assert facts(cut, 0x1000, 64).facts[1].invalid
        code = facts(whole, 0x1000, 64)
        assert not code.facts[0].invalid
        assert code.targets == {0x1000: 0x1000 + len(whole)}


@pytest.mark.parametrize("offset", [1 << 40, 1 << 63, (1 << 64) - 1])
def test_names_of_symbols_outside_of_the_file_cost_no_answer(offset: int) -> None:
    whole = bytearray(compile_c(SOURCES["table"], "-O2", "-march=haswell").read_bytes())
    headers, (size, count) = int.from_bytes(whole[40:48], "little"), struct.unpack_from("<HH", whole, 58)
    for header in range(headers, headers + size * count, size):
        if whole[header + 4] == SHT_STRTAB:
            struct.pack_into("<Q", whole, header + 24, offset)
    assert features(bytes(whole)) >= {"avx2", "fma"}


@pytest.mark.parametrize("march", ["x86-64", "haswell"])
def test_segments_that_begin_behind_any_file(march: str) -> None:
    program = bytearray(compile_c(SOURCES["table"], "-O2", f"-march={march}").read_bytes())
    headers, size, count = (int.from_bytes(program[at : at + 2], "little") for at in (32, 54, 56))
    for header in range(headers, headers + size * count, size):
        program[header + 15] = 0x80  # the highest byte of p_offset
    analyse_isa(Elf(bytes(program)))


def test_the_same_bytes_in_a_thousand_segments_are_read_for_addresses_once() -> None:
    program = around(b"\x0f\xa2" + AVX + RETURN + bytes(8 << 20))
    header = struct.pack("<IIQQQQQQ", 1, 4, 0, 1 << 32, 1 << 32, len(program), len(program), 0x1000)
    many = bytearray(program + header * 1_000)
    struct.pack_into("<Q", many, 32, len(program))
    struct.pack_into("<H", many, 56, 1_000)
    began = time.process_time()
    assert len(Layout(Elf(bytes(many))).pointers.slot) < len(program)
    assert time.process_time() - began < 5


CHAIN = """
.globl _start
_start: .cfi_startproc
 b 1f
.cfi_endproc
1:
.rept {count}
 b . + 8
 nop
.endr
.inst 0x4e829420
 ret
"""


def test_code_without_unwind_entries_is_followed_in_linear_time_to_its_end() -> None:
    def seconds(count: int) -> float:
        flags = "-nostdlib", "-static", "-s", "-Wl,--eh-frame-hdr"
        source = CHAIN.format(count=count)
        data = compile_c(source, *flags, compiler="aarch64-linux-gnu-gcc", language="assembler").read_bytes()
        began = time.process_time()
        assert features(data) == {"asimddp"}
        return time.process_time() - began

    assert seconds(160_000) < 24 * max(seconds(20_000), 0.02)


def seconds_for(data: bytes) -> float:
    began = time.process_time()
    analyse_isa(Elf(data))
    return time.process_time() - began


def test_functions_that_call_each_other_thousands_of_times() -> None:
    """Whoever asks whether a parameter is wanted far down looks at each function once, not at each call."""
    many = ".rept 3000\n .byte 0x0f, 0x84\n .long {} - . - 4\n.endr\n ret"
    source = ".text\n" + "".join(
        function(name, body, visibility)
        for name, body, visibility in (
            ("f0", " mov $7, %eax\n cpuid\n mov %ebx, %edi\n .byte 0xe9; .long f1 - . - 4", "protected"),
            ("f1", many.format("f2"), "hidden"),
            ("f2", many.format("f3"), "hidden"),
            ("f3", " vaddps %ymm0, %ymm1, %ymm2\n ret", "hidden"),
        )
    )
    path = compile_c(source, "-nostdlib", "-shared", "-s", language="assembler", out="lib.so")
    assert seconds_for(path.read_bytes()) < 5


def test_code_that_is_no_code_behind_encodings_that_no_decoder_knows() -> None:
    unknown = ".rept 4\n .byte 0x62, 0xf5, 0x7c, 0x48, 0xee, 0xc1\n.endr\n.rept 600000\n .byte 6\n.endr\n ret"
    source = ".text\n" + function("f", unknown, "protected")
    path = compile_c(source, "-nostdlib", "-shared", "-s", language="assembler", out="lib.so")
    assert seconds_for(path.read_bytes()) < 5


def test_many_places_that_offer_many_methods() -> None:
    offers = " lea table(%rip), %rax\n" * 900 + " ret"
    source = (
        ".text\n"
        + function("PyInit_x", " mov $1, %eax\n cpuid\n" + offers, "protected")
        + function("method", " vaddps %ymm0, %ymm1, %ymm2\n ret")
        + '.section .rodata\nname: .string "a"\n.data\n.p2align 3\ntable:\n'
        + ".quad name, method, 1, 0\n" * 30_000
        + ".quad 0, 0, 0, 0\n"
    )
    path = compile_c(source, "-nostdlib", "-shared", "-s", language="assembler", out="lib.so")
    tracemalloc.start()
    found = analyse_isa(Elf(path.read_bytes()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [use.feature for use in found.uses] == ["avx"]
    assert peak < 200 << 20


def test_more_program_headers_than_linux_reads_are_said_and_cost_nothing() -> None:
    program = around(b"\x0f\xa2" + AVX + RETURN)
    header = struct.pack("<IIQQQQQQ", 1, 6, 0, 1 << 32, 1 << 32, len(program), len(program), 0x1000)
    many = bytearray(program + header * 60_000)
    struct.pack_into("<Q", many, 32, len(program))
    struct.pack_into("<H", many, 56, 60_000)
    began = time.process_time()
    assert "more than Linux reads" in analyse(memoryview(bytes(many))).error
    assert time.process_time() - began < 2


def test_what_is_stored_outside_of_the_file_is_no_variable() -> None:
    """A number taken for an address: numpy has no room for one of 64 bits, which arcticdb's code once led to."""
    elf = Elf(compile_c("static int kept; int main(void) { return kept++; }", "-O0").read_bytes())
    variables = Variables(Layout(elf), frozenset())
    inside = next(first for first, end in variables.writable if end - first >= 4)
    variables.assign(0, {0xFFFFFFFF91155B86: None, inside: None})
    assert variables.written == [inside]
