"""What other compilers, languages and linkers make: each is judged as a CPU judges it, and nothing raises."""

import struct
import subprocess
import time
from pathlib import Path

import pytest

from imgcheck.binaries.analyse import analyse as analyse_file
from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from tests.isa.programs import MODELS, SOURCES, analyse, observed, predicted
from tests.tools import cache_directory, compile_c, need, run

GO = """package main

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"sort"
)

func main() {
	n := []int{3, 1, 2}
	sort.Ints(n)
	fmt.Println(sha256.Sum256([]byte("text")), bits.OnesCount(uint(n[2])), n)
}
"""
RUST = """
#[target_feature(enable = "avx2")]
unsafe fn wide(a: &mut [f32]) { for x in a.iter_mut() { *x = *x * 2.0 + 1.0; } }
fn plain(a: &mut [f32]) { for x in a.iter_mut() { *x = *x * 2.0 + 1.0; } }
fn main() {
    let mut a: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    if is_x86_feature_detected!("avx2") { unsafe { wide(&mut a) } } else { plain(&mut a) }
    let mut words: Vec<String> = a.iter().map(|x| format!("{x:.1}")).collect();
    words.sort();
    println!("{} {}", words[7], a.iter().sum::<f32>());
}
"""
LINKERS = {"ld.bfd": "bfd", "ld.gold": "gold", "ld.lld": "lld", "mold": "mold"}
SHAPES = {"pie": (), "no-pie": ("-no-pie",), "static": ("-static",), "static-pie": ("-static-pie",)}


def agrees(path: Path, models: dict[str, set[str]] = MODELS) -> None:
    found = analyse(path)
    for model, features in models.items():
        said, done = predicted(found, features), observed(path, "qemu-x86_64", model)
        assert (model, said) == (model, done), [(u.feature, u.answer, u.function, u.reason) for u in found.uses]


def built(name: str, source: str, *command: str, **environment: str) -> Path:
    """What a compiler other than gcc makes of `source`; kept."""
    place = cache_directory("compiled", name)
    target, text = place / "program", place / f"main.{name.split('-')[0]}"
    if not target.exists() or not text.exists() or text.read_text() != source:
        text.write_text(source)
        home = {"PATH": "/usr/bin:/bin", "HOME": str(place), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
        run(*(word.format(text=text, target=target) for word in command), cwd=place, env=home | environment)
    return target


_STRIPPED = ("-ldflags", "-s -w")


@pytest.mark.parametrize("strip", [(), _STRIPPED], ids=["with names", "stripped"])
@pytest.mark.parametrize("level", ["v1", "v2", "v3", "v4"])
def test_go_programs(level: str, strip: tuple[str, ...]) -> None:
    name = f"go-{level}{'-s' if strip else ''}"
    path = built(name, GO, need("go"), "build", *strip, "-o", "{target}", "{text}", GOAMD64=level)
    found = analyse(path)
    # Go's start code refuses a CPU below the level with words of its own, so such a program never meets SIGILL.
    for model in ("Conroe", "Nehalem", "Haswell"):
        done = subprocess.run([need("qemu-x86_64"), "-cpu", model, str(path)], capture_output=True, text=True)
        said = predicted(found, MODELS[model])
        expected = "dies" if done.returncode else "runs"
        assert said == expected, (model, [(u.feature, u.answer, u.function, u.reason) for u in found.uses])
        assert done.returncode == 0 or done.stderr.splitlines()[-1] == found.refusal.words


GO_LIBRARY = """
package main

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"regexp"
	"strings"
)

func main() {
	block, _ := aes.NewCipher(make([]byte, 16))
	gcm, _ := cipher.NewGCM(block)
	sealed := gcm.Seal(nil, make([]byte, 12), []byte("text"), nil)
	found := regexp.MustCompile("b+").FindAllString(strings.Repeat("abb", 30), -1)
	fmt.Printf("%x %d\\n", sealed, len(found))
}
"""
_PHENOM = {"phenom": {"sse3", "cx16", "popcnt", "sse4a", "lzcnt", "lahf_lm"}}
"""No SSSE3, unlike any of the other models."""


@pytest.mark.parametrize("strip", [(), _STRIPPED], ids=["with names", "stripped"])
def test_go_s_own_library(strip: tuple[str, ...]) -> None:
    """Its assembly is behind tests, by the length of a text or by the type of a cipher, and no baseline."""
    name = f"go-library{'-s' if strip else ''}"
    agrees(built(name, GO_LIBRARY, need("go"), "build", *strip, "-o", "{target}", "{text}"), MODELS | _PHENOM)


@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
@pytest.mark.parametrize("strip", ["none", "symbols"])
def test_rust_programs(cpu: str, strip: str) -> None:
    rustc = need("rustc")
    options = ("-O", "-C", f"target-cpu={cpu}", "-C", f"strip={strip}", "-o", "{target}", "{text}")
    home = str(Path.home())
    agrees(built(f"rs-{cpu}-{strip}", RUST, rustc, *options, HOME=home), {m: MODELS[m] for m in ("Nehalem", "Haswell")})


def test_a_rust_program_that_shares_its_standard_library() -> None:
    """That asks the CPU then, and the program asks it."""
    options = ("-O", "-C", "prefer-dynamic", "-C", "rpath", "-C", "strip=symbols", "-o", "{target}", "{text}")
    path = built("rs-shared", RUST, need("rustc"), *options, HOME=str(Path.home()))
    assert b"detect_and_initialize" in path.read_bytes()
    agrees(path, {m: MODELS[m] for m in ("Nehalem", "Haswell")})


# gold knows no static-pie.
LINKED = [(linker, shape) for linker in LINKERS for shape in SHAPES if (linker, shape) != ("ld.gold", "static-pie")]


@pytest.mark.parametrize(("linker", "shape"), LINKED)
@pytest.mark.parametrize(("name", "march"), [("loops", "haswell"), ("supports", "x86-64")])
def test_linkers_and_shapes(linker: str, shape: str, name: str, march: str) -> None:
    need(linker)
    flags = ("-O2", "-s", f"-march={march}", f"-fuse-ld={LINKERS[linker]}", *SHAPES[shape])
    agrees(compile_c(SOURCES[name], *flags), {m: MODELS[m] for m in ("Nehalem", "Haswell")})


def _shapes(*asking: str) -> list[tuple[str, str, str]]:
    """Every shape of a program compiled for Haswell, and of programs that ask."""
    pairs = [("loops", "haswell"), *((name, "x86-64") for name in asking)]
    return [(*pair, shape) for pair in pairs for shape in SHAPES]


@pytest.mark.parametrize(("name", "march", "shape"), _shapes("supports", "table"))
def test_section_headers_cut_off(name: str, march: str, shape: str) -> None:
    data = bytearray(compile_c(SOURCES[name], "-O2", "-s", f"-march={march}", *SHAPES[shape]).read_bytes())
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HHH", data, 58, 0, 0, 0)
    found = analyse_isa(Elf(bytes(data[:table])))
    expected = "dies" if march == "haswell" else "runs"
    assert predicted(found, MODELS["Nehalem"]) == expected, [(u.feature, u.answer, u.reason) for u in found.uses]


@pytest.mark.parametrize(("name", "march", "shape"), _shapes("supports", "cpuid"))
def test_no_unwind_data(tmp_path: Path, name: str, march: str, shape: str) -> None:
    whole = compile_c(SOURCES[name], "-O2", "-s", f"-march={march}", *SHAPES[shape])
    bare = tmp_path / "bare"
    run(need("objcopy"), "-R", ".eh_frame", "-R", ".eh_frame_hdr", whole, bare)
    found = analyse_isa(Elf(bare.read_bytes()))
    said = predicted(found, MODELS["Nehalem"])
    assert said == ("dies" if march == "haswell" else "runs"), [(u.feature, u.answer, u.reason) for u in found.uses]


@pytest.mark.parametrize(("name", "march"), [("loops", "haswell"), ("supports", "x86-64"), ("table", "x86-64")])
@pytest.mark.parametrize("base", ["0x7ffff000", "0x80000000", "0x7f0000000000"])
def test_where_a_library_lies_does_not_matter(base: str, name: str, march: str) -> None:
    def answers(where: str) -> list[tuple[str, str, str]]:
        library = compile_c(SOURCES[name], "-O2", "-fPIC", "-shared", f"-march={march}", f"-Wl,-Ttext-segment={where}")
        return [(use.feature, use.answer, use.reason) for use in analyse(library).uses]

    assert answers(base) == answers("0")
    assert answers(base)


def seconds(data: bytes) -> float:
    elf = Elf(data)
    began = time.process_time()
    analyse_isa(elf)
    return time.process_time() - began


def test_huge_symbol_tables_take_linear_time() -> None:
    taken = []
    for count in (250_000, 1_000_000):
        lines = "".join(f".globl f{i}\nf{i}:ret\n" for i in range(count))
        code = f"{lines}.globl _start\n_start: vaddps %ymm0, %ymm1, %ymm2\n ret\n"
        taken.append(seconds(compile_c(code, "-nostdlib", "-static", language="assembler").read_bytes()))
    assert taken[1] < 6 * taken[0] + 0.5
    assert taken[1] < 20


def test_a_query_is_seen_in_a_large_file() -> None:
    """As restic and other programs of Go: much ordinary vector code, and one function that asks."""
    ordinary = "\n".join(f".globl f{i}\nf{i}: addps %xmm0, %xmm1\n.skip 8190, 0x90\nret" for i in range(900))
    asks = """
    .globl kernel
    kernel: vaddps %ymm0, %ymm1, %ymm2
        vzeroupper
        ret
    .globl _start
    _start: movl $1, %eax
        xorl %ecx, %ecx
        cpuid
        btl $28, %ecx
        jnc 1f
        call kernel
    1:  movl $60, %eax
        xorl %edi, %edi
        syscall
    """
    path = compile_c(ordinary + asks, "-nostdlib", "-static", language="assembler")
    for model in ("Nehalem", "SandyBridge"):
        assert observed(path, "qemu-x86_64", model) == "runs"
    found = analyse(path)
    assert {use.answer for use in found.uses} == {"dispatched"}, [(u.feature, u.answer, u.reason) for u in found.uses]


KERNELS_BEHIND_START_CODE = """
#include <cpuid.h>
#include <stdio.h>
__asm__(".text; .p2align 6; never_called: vmovups (%rdi), %ymm0; vzeroupper; ret; .p2align 6;"
        "kernel: vmovups (%rdi), %ymm0; vaddps %ymm0, %ymm0, %ymm0; vmovups %ymm0, (%rdi);"
        "vzeroupper; ret; .p2align 6");
extern void kernel(float *);
void (*volatile chosen)(float *);
int main(void) {
  unsigned a, b = 0, c = 0, d;
  float x[8] = {1};
  __get_cpuid(1, &a, &b, &c, &d);
  if (c >> 28 & 1) { chosen = kernel; chosen(x); }
  printf("%f\\n", x[0]);
  return 0;
}
"""


@pytest.mark.parametrize("shape", SHAPES)
def test_assembler_labels_behind_start_code_do_not_run_with_it(shape: str) -> None:
    agrees(compile_c(KERNELS_BEHIND_START_CODE, "-O2", *SHAPES[shape]))


GO_ASKING = """package main

func sum(p *uint32, n int) uint32
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
func xgetbv() (eax, edx uint32)

var wide = detect()

func detect() bool {
	_, _, c, _ := cpuid(1, 0)
	if c&(1<<27) == 0 {
		return false
	}
	if eax, _ := xgetbv(); eax&6 != 6 {
		return false
	}
	LAST
}

func main() {
	v := make([]uint32, 64)
	for i := range v {
		v[i] = uint32(i)
	}
	if wide {
		println(sum(&v[0], len(v)))
	}
	println(len(v))
}
"""
GO_ASSEMBLY = """#include "textflag.h"
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL subleaf+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET
TEXT ·xgetbv(SB), NOSPLIT, $0-8
	MOVL $0, CX
	XGETBV
	MOVL AX, eax+0(FP)
	MOVL DX, edx+4(FP)
	RET
TEXT ·sum(SB), NOSPLIT, $0-20
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	VPXOR Y0, Y0, Y0
loop:
	VPADDD (SI), Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VMOVD X0, AX
	VZEROUPPER
	MOVL AX, ret+16(FP)
	RET
"""


def asking_go(name: str, last: str, *flags: str) -> Path:
    place = cache_directory("compiled", name)
    (place / "cpu_amd64.s").write_text(GO_ASSEMBLY)
    source = GO_ASKING.replace("LAST", last)
    return built(name, source, need("go"), "build", *flags, "-o", "{target}")


GO_FLAGS = {"": (), "-N": ("-gcflags", "-N -l"), "-s": _STRIPPED}


@pytest.mark.parametrize("flags", GO_FLAGS)
def test_what_go_functions_are_asked_on_the_stack(flags: str) -> None:
    agrees(asking_go(f"go-asks{flags}", "_, b, _, _ := cpuid(7, 0); return b&(1<<5) != 0", *GO_FLAGS[flags]))


@pytest.mark.parametrize("flags", ["", "-N"])
def test_a_go_program_that_asks_for_too_little_is_not_said_to_run(flags: str) -> None:
    path = asking_go(f"go-errs{flags}", "return c&(1<<19) != 0", *GO_FLAGS[flags])
    command = [need("qemu-x86_64"), "-cpu", "SandyBridge", str(path)]
    assert b"SIGILL" in subprocess.run(command, capture_output=True, timeout=60).stderr  # Go's runtime catches it
    assert predicted(analyse(path), MODELS["SandyBridge"]) != "runs"
    assert predicted(analyse(path), MODELS["Haswell"]) == "runs"


NOUGHTS = """
#include <cpuid.h>
#include <stdio.h>
__attribute__((noinline)) long hold(long n) {
    __asm__ volatile("push %%rbp; mov %%rsp, %%rbp; movq $0, -24(%%rbp); shlx %%rax, %%rax, %%rax; pop %%rbp"
                     : "+a"(n) : : "memory");
    return n;
}
int main(void) {
    unsigned a, b = 0, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    printf("%ld %d\\n", hold(3), b >> 5 & 1);
    return 0;
}
"""


def test_noughts_behind_a_byte_of_an_operand_are_no_call() -> None:
    """-24 as one byte is the opcode of CALL, which would lead to the next instruction."""
    path = compile_c(NOUGHTS, "-O0", "-s", "-fno-asynchronous-unwind-tables")
    assert b"\x48\xc7\x45\xe8\0\0\0\0" in path.read_bytes()
    agrees(path)


BEHIND_NOP = """
#include <stdio.h>
int slow(void);
int (*pick(void))(void);
__asm__(".text; .balign 16; pick: push %rbx; mov $7, %eax; xor %ecx, %ecx; cpuid; test $0x20, %ebx; pop %rbx;"
        "lea fast(%rip), %rax; jne 1f; lea slow(%rip), %rax; 1: ret;"
        ".balign 16; slow: xor %eax, %eax; ret; NOP; fast: vpaddd %ymm1, %ymm1, %ymm1; vzeroupper; xor %eax, %eax; ret;"
        ".balign 16");
int main(void) { printf("%d\\n", pick()() + slow()); return 0; }
"""


@pytest.mark.parametrize("nop", ["nop", "xchg %ax, %ax", "nopl (%rax)", ".byte 0x0f, 0x1f, 0x44, 0, 0"])
def test_functions_also_begin_behind_a_nop(nop: str) -> None:
    """As clang makes them for size: aligned to four or eight bytes."""
    agrees(compile_c(BEHIND_NOP.replace("NOP", nop), "-Os", "-s", "-fno-asynchronous-unwind-tables"))


TABLES_BETWEEN_FUNCTIONS = """
__asm__(".text\\n"
        ".rept 18000\\n .p2align 3\\n .quad 0\\n .quad 0x0e\\n .long 0x18, 0x06\\n"
        " lea -24(%rbp), %rax\\n cmp %r15, %rax\\n jmp *-16(%r13)\\n .endr\\n"
        ".rept TIMES\\n .p2align 3\\n .quad 0x00380f1800000015\\n"  // read as code: pshufb mm1, [rax-73h]
        " lea -24(%rbp), %rax\\n cmp %r15, %rax\\n jmp *-16(%r13)\\n .endr\\n"
        ".p2align 3\\n .quad TABLE\\n lea -24(%rbp), %rax\\n jmp *-16(%r13)\\n");
int main(void) { MAIN return 0; }
"""


CPUID = "0x9090a20f90909090"


@pytest.mark.parametrize(
    ("main", "table", "times", "features"),
    [
        ("", "0", 1, set()),
        ("", CPUID, 1, set()),
        ("", CPUID, 2, set()),
        ("", CPUID, 5, {"ssse3"}),
        ('__asm__ volatile("pshufb %xmm0, %xmm0; pshufb %xmm1, %xmm1");', CPUID, 1, {"ssse3"}),
        ('__asm__ volatile("cpuid" ::: "eax", "ebx", "ecx", "edx");', "0", 1, {"ssse3"}),
    ],
    ids=["tables alone", "one like a query", "two alike", "many together", "and real code", "a real query"],
)
def test_tables_between_functions_are_not_read_as_code(main: str, table: str, times: int, features: set[str]) -> None:
    """As GHC makes them: code without unwind entries, with a table before each function."""
    source = TABLES_BETWEEN_FUNCTIONS.replace("MAIN", main).replace("TABLE", table).replace("TIMES", str(times))
    found = analyse(compile_c(source, "-O2", "-s"))
    assert ("cpuid" in found.asks_cpu) == (table == CPUID or "cpuid" in main)
    assert {use.feature for use in found.uses} == features


def test_packed_code_is_said_not_to_be_seen() -> None:
    program = compile_c(SOURCES["loops"], "-O2", "-march=haswell").read_bytes()
    packed = analyse_file(memoryview(program + b"UPX!" + b"\0" * 32))
    assert packed.isa is None and packed.linkage is not None
    assert "packed by UPX" in packed.error
    quoting = analyse_file(memoryview(program + b"UPX!" + b"\0" * 64))
    assert quoting.isa is not None and not quoting.error
