"""The record that compilers keep of the CPU, which __builtin_cpu_supports reads, as each release of them fills it.

Features for which its first word has no room (f16c, sha, movbe, levels such as x86-64-v3) are in a second part.
"""

from pathlib import Path

import pytest

from imgcheck.binaries.isa.names import analysis
from tests.debian import unpacked
from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import cache_directory, compile_c, run

OBJECTS = {
    "libgcc-11-dev": "cpuinfo.o", "libgcc-12-dev": "cpuinfo.o", "libgcc-13-dev": "cpuinfo.o",
    "libgcc-14-dev": "cpuinfo.o", "libclang-rt-19-dev": "x86.c.o",
}  # fmt: skip
"""Debian's package of each compiler's run-time library -> the object file there that asks the CPU."""

USES = {
    "f16c": ("f16c", "float v[4]; _mm_storeu_ps(v, _mm_cvtph_ps(_mm_set1_epi16(n))); return v[1];"),
    "sha": ("sha", "__m128i a = _mm_set1_epi32(n); return _mm_cvtsi128_si32(_mm_sha256msg1_epu32(a, a));"),
    "movbe": ("movbe", '__asm__ volatile("movbe %1, %0" : "=r"(n) : "m"(n)); return n;'),
    "avx2": ("avx2", "__m256i a = _mm256_set1_epi32(n); return _mm256_extract_epi32(_mm256_mullo_epi32(a, a), 1);"),
}
"""What a function is compiled for, and what it does."""

SOURCE = """
#include <immintrin.h>
#include <stdio.h>
__attribute__((target("{target}"), noinline)) static int fast(int n) {{ {body} }}
__attribute__((noinline)) static int slow(int n) {{ return n * 3; }}
int main(int n, char **v) {{
    __builtin_cpu_init();
    printf("%d\\n", __builtin_cpu_supports("{asked}") ? fast(n) : slow(n));
    return 0;
}}
"""


def _object(package: str) -> Path:
    directory = unpacked(cache_directory("compiler-runtimes") / package, package, ["bookworm", "trixie"])
    found = directory / OBJECTS[package]
    if not found.exists():
        wanted, foreign = ("libgcc.a", "libclang_rt.builtins-x86_64.a"), ("32", "x32")
        archives = (p for p in directory.rglob("*.a") if p.name in wanted and p.parent.name not in foreign)
        run("ar", "x", *archives, found.name, cwd=directory)
    return found


PAIRS = [
    ("f16c", "f16c"), ("sha", "sha"), ("movbe", "movbe"), ("avx2", "avx2"), ("avx", "avx2"),
    ("x86-64-v3", "avx2"), ("x86-64-v2", "avx2"),
]  # fmt: skip
"""What a program asks for and what it uses then, which not always fit. GCC 11 knows no levels."""


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-s"), ("-O3", "-s", "-static")])
@pytest.mark.parametrize(
    ("package", "asked", "used"),
    [(name, *pair) for name in OBJECTS for pair in PAIRS if name != "libgcc-11-dev" or "-v" not in pair[0]],
)
def test_what_is_asked_for_is_understood(package: str, asked: str, used: str, flags: tuple[str, ...]) -> None:
    target, body = USES[used]
    path = compile_c(SOURCE.format(asked=asked, target=target, body=body), *flags, str(_object(package)))
    found = analyse(path)
    told = [(use.feature, use.answer, use.given, use.reason) for use in found.uses]
    for model, features in MODELS.items():
        assert (model, predicted(found, features)) == (model, observed(path, "qemu-x86_64", model)), told


TABLE = {
    "sse4.2": "sse4_2", "avx512vbmi": "avx512vbmi", "gfni": "gfni", "f16c": "f16c", "movbe": "movbe",
    "rdrnd": "rdrand", "sha": "sha_ni", "avxvnni": "avx_vnni", "x86-64-v4": ["avx512vl", "lzcnt"],
}  # fmt: skip
"""What the compiler calls a feature, and what it is called here."""


@pytest.mark.parametrize("asked", TABLE)
def test_the_bits_are_those_that_the_compiler_tests(asked: str) -> None:
    source = f'int f(void) {{ return __builtin_cpu_supports("{asked}"); }}'
    lines = compile_c(source, "-O1", "-S", "-fno-pic", out="asked.s").read_text().split("\n")
    (variable,) = (line.split()[1].partition("(")[0] for line in lines if "__cpu" in line)
    (mask,) = (int(line.split()[1].strip("$,")) for line in lines if "andl" in line)
    name, _, at = variable.partition("+")
    bit = (mask & -mask).bit_length() - 1
    assert analysis()["x86"]["bits"][f"{name}.{at or 0}"][str(bit)] == TABLE[asked]
