"""Lists of host names, as schedulers write them."""

import time

import pytest

from imgcheck.host.kinds import fold, unfold

LISTS = {
    "node1": ["node1"],
    "node[01-03]": ["node01", "node02", "node03"],
    "a,b[1-2,9],c[08-10]-ib": ["a", "b1", "b2", "b9", "c08-ib", "c09-ib", "c10-ib"],
    "rack[1-2]n[1-2]": ["rack1n1", "rack1n2", "rack2n1", "rack2n2"],
    "n[8-10]": ["n8", "n9", "n10"],
}


@pytest.mark.parametrize(("names", "hosts"), LISTS.items())
def test_a_list_is_expanded(names, hosts):
    assert unfold(names) == hosts


@pytest.mark.parametrize("names", ["login,node[1-3]", "n[08-10]", "c[1-2]-ib,d7"])
def test_it_is_what_folding_made_of_the_names(names):
    assert fold(unfold(names)) == names


@pytest.mark.parametrize("name", ["n[1-]", "n[a-b]", "n[1", "2 x A100 (80 GB)"])
def test_another_form_stands_for_itself(name):
    assert unfold(name) == [name]


@pytest.mark.parametrize(
    "names",
    [
        "n[1-20000000]",
        "n[1-99999999999]",
        "rack[1-9999]n[1-9999]",
        "rack[2-1]n[1-9999999999]",
        ",".join(["n[1-99999]"] * 2),
        f"n[{'9' * 5000}]",
    ],
)
def test_a_list_of_more_names_than_any_cluster_has_is_not_unfolded(names: str) -> None:
    began = time.monotonic()
    assert unfold(names) is None
    assert time.monotonic() - began < 1


def test_the_largest_lists_are_unfolded() -> None:
    names = unfold("rack[001-100]n[0001-1000]")
    assert names is not None
    assert (len(names), names[0], names[-1]) == (100_000, "rack001n0001", "rack100n1000")


def test_a_name_of_thousands_of_digits_is_a_name() -> None:
    name = "n" + "9" * 5000
    assert unfold(fold([name])) == [name]
