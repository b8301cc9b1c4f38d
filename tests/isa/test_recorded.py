"""Options that GCC records in a file: what they say of it, and where nothing may be concluded."""

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.x86.recorded import Recorded, recorded
from tests.isa.programs import analyse
from tests.tools import compile_c

_CIPHER = """
#include <wmmintrin.h>
TARGET __m128i turn(__m128i a, __m128i b) { return _mm_aesenc_si128(a, b); }
"""
_LIBRARY = ("-O2", "-shared", "-fPIC", "-nostdlib")


def told(*flags: str, source: str = "int f(int a) { return a; }") -> Recorded | None:
    return recorded(Elf(compile_c(source, *_LIBRARY, *flags).read_bytes()))


@pytest.mark.parametrize("how", ["-g", "-frecord-gcc-switches"])
def test_march_is_read_where_gcc_records_it(how: str) -> None:
    found = told(how, "-march=haswell")
    assert found and {"avx2", "bmi2", "fma", "sse4_2"} <= found.everywhere and "avx512f" not in found.somewhere
    older = told(how, "-march=x86-64")
    assert older and not {"sse3", "avx"} & older.somewhere


def test_options_for_single_extensions_count_with_what_they_bring() -> None:
    found = told("-g", "-march=x86-64", "-mavx2")
    assert found and {"avx2", "avx", "sse4_2"} <= found.everywhere
    assert "fma" not in found.somewhere, "CPUs with AVX2 have it, but the option does not allow it"
    without = told("-g", "-march=haswell", "-mno-avx")
    assert without and "sse4_2" in without.everywhere and not {"avx", "avx2", "fma"} & without.somewhere


@pytest.mark.parametrize("flags", [(), ("-g", "-gno-record-gcc-switches"), ("-g", "-gz=zlib")])
def test_no_record_or_one_that_is_not_read_tells_nothing(flags: tuple[str, ...]) -> None:
    names = "".join(f"int a_name_long_enough_to_be_worth_packing_{n};" for n in range(200))
    assert told("-march=haswell", *flags, source=names) is None


def test_another_compilers_trace_beside_it_tells_that_not_all_is_known() -> None:
    other = '__asm__(".section .debug_str,\\"MS\\",@progbits,1; .asciz \\"clang version 14.0.6\\"; .text");'
    assert told("-g", "-march=haswell", source=other + "int f(int a) { return a; }") is None


def test_code_compiled_for_an_extension_needs_it_though_few_functions_use_it() -> None:
    """Without the record a library of one such function may be one that its caller loads with care."""
    (use,) = (u for u in analyse(_cipher("-g", "-maes")).uses if u.feature == "aes")
    assert use.answer == "required" and "recorded" in use.reason


@pytest.mark.parametrize(
    "flags", [("-maes",), ("-g", '-DTARGET=__attribute__((target("aes")))')], ids=["no record", "one function alone"]
)
def test_a_function_made_for_more_than_the_rest_stays_open(flags: tuple[str, ...]) -> None:
    (use,) = (u for u in analyse(_cipher(*flags)).uses if u.feature == "aes")
    assert use.answer == "unknown"


def _cipher(*flags: str):
    target = () if any("TARGET" in flag for flag in flags) else ("-DTARGET=",)
    return compile_c(_CIPHER, *_LIBRARY, *target, *flags)
