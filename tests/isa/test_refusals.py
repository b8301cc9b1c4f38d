"""Programs that end by themselves on a CPU: what their words say, and when these are only quoted.

The words of GraalVM's images are those of a real one (npm's google-closure-compiler-linux 20261015, whose list is
`[CX8, CMOV, FXSR, MMX, SSE, SSE2]`), and lists that people reported.
"""

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.documents.facts import Refusal
from tests.tools import compile_c

SAYS = "The current machine does not support all of the following CPU features that are required by the image: "
BASE = "CX8, CMOV, FXSR, MMX, SSE, SSE2"
V3 = f"{BASE}, SSE3, SSSE3, SSE4_1, SSE4_2, POPCNT, LZCNT, AVX, AVX2, BMI1, BMI2, FMA"
OF_V3 = ("sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "lzcnt", "avx", "avx2", "bmi1", "bmi2", "fma")


def refusal(text: str, section: str = ".svm_heap") -> Refusal | None:
    code = f"""
        __attribute__((section("{section}"), used)) char text[] = "{text}";
        int main(void) {{ return 0; }}
    """
    found = analyse_isa(Elf(compile_c(code, "-O1").read_bytes()))
    assert found
    return found.refusal


@pytest.mark.parametrize(
    ("listed", "level", "features"),
    [
        (V3, "x86-64-v3", OF_V3),
        (f"{V3}, AES, CLMUL, SHA, HT, FSRM", "x86-64-v3", (*OF_V3, "aes", "pclmulqdq", "sha_ni")),
        (f"{BASE}, SSE3, SSSE3", "x86-64-v2", ("sse3", "ssse3")),
        (f"{V3}, AVX512F, AVX512_VNNI", "x86-64-v4", (*OF_V3, "avx512f", "avx512_vnni")),
    ],
)
def test_an_image_of_graalvm_names_what_it_asks_for(listed: str, level: str, features: tuple[str, ...]) -> None:
    behind = ".\\nPlease rebuild the executable with an appropriate setting of the -march option.\\n"
    assert refusal(f"{SAYS}[{listed}]{behind}") == Refusal(level, f"{SAYS}[{listed}]", features)


@pytest.mark.parametrize("text", [f"{SAYS}[{BASE}].", f"{SAYS}[]", f"{SAYS}[", SAYS, "The current machine does"])
def test_one_that_asks_for_nothing_refuses_nothing(text: str) -> None:
    assert refusal(text) is None


def test_words_that_another_file_quotes_are_none_of_its_own() -> None:
    assert refusal(f"{SAYS}[{V3}]", section=".data") is None
