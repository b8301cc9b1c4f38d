"""Which paths are variants for some CPUs, by the field's conventions and no others."""

from pathlib import Path

import pytest

from imgcheck.errors import KnowledgeError
from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.variants import is_variant, variants_among

KNOWLEDGE = Knowledge()


VARIANTS = [
    "/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libz.so.1",
    "/lib64/haswell/libm.so.6",
    "/opt/mkl/libmkl_avx512.so.2",
    "/opt/mkl/libmkl_def.so.2",
    "/usr/lib/ollama/libggml-cpu-haswell.so",
    "/x/embree4/libembree_avx2.so",
    "/usr/lib/python3/dist-packages/Crypto/Hash/_SHA256_shani.abi3.so",
    "/usr/lib/python3/dist-packages/Crypto/Hash/_SHA512_armv8.abi3.so",
]  # fmt: skip
ORDINARY = [
    "/usr/lib/libfoo.so.2",
    "/usr/lib/libdef.so",
    "/usr/lib/foo-v2/lib_v3.so",
    "/opt/avx/bin/server",
    "/usr/bin/fma",
    "/usr/lib/python3.11/lib-dynload/_sha512.cpython-311-x86_64-linux-gnu.so",
    "/usr/lib/slurm/generic.so",
]  # fmt: skip


@pytest.mark.parametrize("path", VARIANTS)
def test_variant_paths(path: str) -> None:
    assert is_variant(KNOWLEDGE, path)


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_paths(path: str) -> None:
    assert not is_variant(KNOWLEDGE, path)


def test_many_paths_are_told_apart_as_each_by_itself() -> None:
    assert variants_among(KNOWLEDGE, [*ORDINARY, *VARIANTS, *ORDINARY]) == VARIANTS


def test_a_site_does_not_override_what_belongs_to_the_engines(tmp_path: Path) -> None:
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis/variants.toml").write_text('tokens = ["foo"]\n')
    with pytest.raises(KnowledgeError, match=r"analysis/variants\.toml: nothing is read from there"):
        Knowledge((tmp_path,))
