"""Predictions against executions: every build runs on QEMU's CPU models, and has to do what the verdict says."""

from itertools import product
from pathlib import Path

import pytest

from tests.isa.programs import MODELS, SOURCES, analyse, observed, predicted
from tests.tools import compile_c

MARCHES = ["x86-64", "nehalem", "sandybridge", "haswell", "skylake-avx512"]
STYLES = {"stripped": ("-O2", "-s"), "plain": ("-O0",), "static": ("-O2", "-static", "-s")}
UNSEEN = "refuse", "static"
"""A static program does not show by whose functions it ends."""
BUILDS = [(name, march, style) for name, march, style in product(SOURCES, MARCHES, STYLES)
          if (style == "stripped" or march in ("x86-64", "haswell")) and (name, style) != UNSEEN]  # fmt: skip


@pytest.mark.parametrize(("name", "march", "style"), BUILDS)
def test_verdict_matches_what_the_cpu_does(name: str, march: str, style: str) -> None:
    program = compile_c(SOURCES[name], f"-march={march}", *STYLES[style])
    found = analyse(program)
    for model, features in MODELS.items():
        said, done = predicted(found, features), observed(program, "qemu-x86_64", model)
        assert (model, said) == (model, done), [(u.feature, u.answer, u.function, u.reason) for u in found.uses]


def test_dispatched_features_are_named_with_their_instruction() -> None:
    found = analyse(compile_c(SOURCES["supports"], "-O3"))
    use = next(use for use in found.uses if use.feature == "avx512f")
    assert use.answer == "dispatched"
    assert use.function == "f5"
    assert "zmm" in use.text
    assert bytes.fromhex(use.code)[0] == 0x62


def test_required_feature_shows_the_calls_that_lead_there() -> None:
    found = analyse(compile_c(SOURCES["loops"], "-O3", "-march=haswell"))
    use = next(use for use in found.uses if use.feature == "fma")
    assert use.call_path == ("main", "f")
    assert use.text.startswith("vfmadd")


def test_stripping_changes_names_only() -> None:
    plain, stripped = (analyse(compile_c(SOURCES["mixed"], "-O2", "-march=haswell", *s)) for s in ((), ("-s",)))
    assert [(u.feature, u.answer, u.address) for u in plain.uses] == [
        (u.feature, u.answer, u.address) for u in stripped.uses
    ]
    assert all(u.function.startswith("sub_") for u in stripped.uses)


def test_avx512_on_small_vectors_needs_vl() -> None:
    source = "typedef int v __attribute__((vector_size(32))); v f(v a, v b, v c) { return (a & b) | (~a & c); }"
    found = analyse(compile_c(source, "-O2", "-march=skylake-avx512", "-shared", "-fPIC", out="libv.so"))
    assert {"avx512f", "avx512vl"} <= {use.feature for use in found.uses if use.answer == "required"}


def test_thirty_two_bit_programs_are_judged_too() -> None:
    code = ".globl _start\n_start: vpaddd %ymm0, %ymm1, %ymm2\n addps %xmm0, %xmm1\n mov $1, %eax\n int $0x80\n"
    program = compile_c(code, "-m32", "-nostdlib", "-static", language="assembler")
    found = {use.feature: use.answer for use in analyse(program).uses}
    assert found == {"avx2": "required", "sse": "required"}


FORMS = sorted(Path(__file__).parent.joinpath("forms").iterdir())


@pytest.mark.parametrize("march", ["x86-64", "haswell", "skylake-avx512"])
@pytest.mark.parametrize("source", FORMS, ids=[path.stem for path in FORMS])
def test_stripped_programs_that_keep_what_they_asked(source: Path, march: str) -> None:
    """In a level worked out at the first call, flags of a struct, a pointer; one of them asks for the wrong feature."""
    program = compile_c(source.read_text(), "-O2", "-s", f"-march={march}")
    found = analyse(program)
    for model, features in MODELS.items():
        said, done = predicted(found, features), observed(program, "qemu-x86_64", model)
        assert (model, said) == (model, done), [(u.feature, u.answer, u.given, u.reason) for u in found.uses]


def test_static_programs_run_on_a_cpu_with_avx512f_alone() -> None:
    # glibc tests for AVX512F alone before _dl_runtime_profile_avx512, which uses AVX512VL under LD_AUDIT.
    program = compile_c('#include <stdio.h>\nint main(void) { return puts("x") < 0; }', "-O2", "-static")
    answers = {use.feature: use.answer for use in analyse(program).uses}
    assert answers["avx512vl"] == "dispatched"
