"""What an image needs of any host: the same of the CPU as a check of it on a host without that finds missing."""

import pytest

from imgcheck.attach.nfd import spec_of
from imgcheck.check.cpu import demands
from imgcheck.check.needs import needs
from imgcheck.documents.facts import CodeFacts
from tests.check.contexts import KNOWLEDGE, code, context, use

LIBC = {"/lib/libc.so.6": code(soname="libc.so.6", verdef=["GLIBC_2.36"])}


def cpu_of(files: dict[str, CodeFacts]) -> str:
    return next(need.needed for need in needs(context(LIBC | files).image, KNOWLEDGE) if need.what == "CPU")


@pytest.mark.parametrize("files, needed", [
    ({"/app/libfoo.so": code(use("avx2"))}, "avx2"),
    ({"/app/libfoo.so": code(isa_level="x86-64-v3")}, "x86-64-v3"),
    ({"/app/libfoo.so": code(), "/app/libfoo_avx2.so": code(use("avx2"))}, "the architecture's baseline"),
    ({"/app/libfoo.so": code(use("avx")), "/app/libfoo_avx2.so": code(use("avx2"))}, "avx"),
    ({"/lib/glibc-hwcaps/x86-64-v3/libfoo.so": code(use("avx2"))}, "the architecture's baseline"),
])  # fmt: skip
def test_the_cpu_that_it_needs(files: dict[str, CodeFacts], needed: str) -> None:
    assert cpu_of(files) == needed


def test_what_may_run_is_undecided_and_what_does_not_is_left_out() -> None:
    found = context(LIBC | {"/app/a.so": code(use("avx2"))}, reaches={"/app/a.so": "path"})
    assert [(each.name, each.certain) for each in demands(found)] == [("avx2", False)]
    found = context(LIBC | {"/app/a.so": code(use("avx2"))}, reaches={"/app/a.so": "unreached"})
    assert not list(demands(found))


def test_node_feature_discovery_is_asked_for_the_same() -> None:
    def asked(files: dict[str, CodeFacts]) -> set[str]:
        (required,) = spec_of(context(LIBC | files).image, KNOWLEDGE).document["compatibilities"]
        (flags,) = (rule["matchFeatures"][0]["matchExpressions"] for rule in required["rules"])
        return set(flags)

    plain = asked({"/app/libfoo.so": code()})
    assert asked({"/lib/glibc-hwcaps/x86-64-v3/libfoo.so": code(use("avx2"))}) == plain
    assert {"AVX2", "BMI2"} <= asked({"/app/libfoo.so": code(isa_level="x86-64-v3")}) - plain
