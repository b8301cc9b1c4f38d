"""Real libraries that choose at run time: what they hold is dispatched, what they were built for is required."""

from pathlib import Path

import numpy as np
import pytest

from tests.isa.programs import analyse, answers
from tests.tools import missing

DEBIAN = Path("/usr/lib/x86_64-linux-gnu")
WIDE = {"avx", "avx2", "avx512f", "avx512vl", "avx512bw", "fma", "bmi2"}


def wide(path: Path) -> set[str]:
    return {answer for feature, answer in answers(path).items() if feature in WIDE}


@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "libcrypto.so.3", "libgmp.so.10"])
def test_system_libraries_dispatch(name: str) -> None:
    path = DEBIAN / name
    if not path.exists():
        missing(f"needs {path}")
    assert wide(path) <= {"dispatched"}
    assert "required" not in answers(path).values()


def test_libc_says_how_it_asks() -> None:
    found = analyse(DEBIAN / "libc.so.6")
    assert "IFUNC" in found.asks_cpu
    assert "avx512f" in {use.feature for use in found.uses}


def test_numpy_dispatches_above_its_baseline() -> None:
    (module,) = Path(np.__file__).parent.glob("_core/_multiarray_umath.*.so")
    assert wide(module) == {"dispatched"}
    for blas in Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*"):
        assert wide(blas) == {"dispatched"}
