"""What a driver did on a GPU: how the cases of bench/gpu_oracle ended on an H200 under driver 580.159.04."""

import json
from pathlib import Path

import pytest

from bench import gpu_oracle
from bench.gpu_oracle.__main__ import Judged, judged
from bench.gpu_oracle.cases import make

pytestmark = pytest.mark.slow

RECORD = Path(gpu_oracle.__file__).parent
ORDER_DECIDES = {"fatbin-same-target-new-first", "fatbin-same-target-new-last"}
"""Two PTX for one target, of which the driver takes the last; which that is stands in no document."""
UNREAD = {"concatenated-sass-75-80-90", "concatenated-sass-75-80", "cubin-cut-in-half", "cubin-header-alone"}
"""What this driver does not read, and perhaps a newer one does; and what is not whole."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    root = tmp_path_factory.mktemp("oracle") / "cases"
    make(root)
    return list(judged(root, RECORD / "h200.host.json", json.loads((RECORD / "h200.ends.json").read_text())))


def test_every_case_is_judged_as_it_ended(found: list[Judged]) -> None:
    assert len(found) == 260
    assert sum(each.ended == "fails" for each in found) > 100
    undecided = dict.fromkeys(ORDER_DECIDES | UNREAD, "undecided")
    assert {each.case: each.kind for each in found if each.kind != "right"} == undecided


def test_programs_failed_with_the_error_that_is_foreseen(found: list[Judged]) -> None:
    failed = [each for each in found if each.ended == "fails" and each.case.startswith("nvcc-")]
    numbers = {each.case: each.text.partition(" ")[0] for each in failed}
    assert set(numbers.values()) == {"209", "222", "500"}
    assert not [each.case for each in failed if f", {numbers[each.case]})" not in each.error]


def test_driver_libraries_of_other_branches_failed_with_the_error_that_is_foreseen(found: list[Judged]) -> None:
    libraries = [each for each in found if each.case.startswith("libcuda-")]
    assert len(libraries) == 9
    for each in libraries:
        number = each.text.removeprefix("cuInit(0): ").partition(" ")[0]
        assert number in each.error
