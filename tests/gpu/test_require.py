"""NVIDIA_REQUIRE_*: the reference grammar, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.check.gpu_require import Facts, disabled, evaluate, evaluate_all, requirements
from imgcheck.knowledge import Knowledge

KNOWLEDGE = Knowledge()
HOST = Facts("12.2", "535.104.12", "8.0", "Tesla")


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        ("", True), ("cuda>=12.2", True), ("cuda>=12.2.0", True), ("cuda>=12.4", False), ("cuda>12.2", False),
        ("cuda<12.10", True), ("cuda=12.2", True), ("cuda!=12.2", False), ("cuda!12.2", False), ("CUDA>=12.0", True),
        ("driver<=535", False), ("driver<536", True), ("driver>=535,driver<536", True), ("arch>=7.0", True),
        ("brand=tesla", True), ("brand!=tesla", False), ("brand=GeForce", False),
        ("cuda>=12.8 brand=tesla,driver>=535,driver<536", True), ("cuda>=12.8 brand=geforce,driver>=535", False),
        ("cuda>=12.8,arch>=7.0", False), ("cuda>=12.2, arch>=9.0", None),
    ],
)  # fmt: skip
def test_predicates(predicate: str, holds: bool | None) -> None:
    if holds is None:  # the comma leaves an empty rule behind, which is malformed
        assert evaluate(predicate, HOST).malformed
    else:
        assert evaluate(predicate, HOST).holds is holds


@pytest.mark.parametrize("predicate", ["cuda >= 12.2", "cuda==12.2", "brand>=tesla", "foo=1", "cuda>=", "cuda>=12.x"])
def test_malformed_rules_that_are_reached(predicate: str) -> None:
    answer = evaluate(predicate, HOST)
    assert (answer.holds, answer.malformed) == (False, True)


def test_malformed_rules_that_are_not_reached() -> None:
    assert evaluate("cuda>=12.2 foo=1", HOST).holds is True
    assert evaluate("cuda>=12.8,foo=1", HOST).malformed is False
    assert evaluate("cuda>=12.8 foo=1", HOST).malformed is True


def test_the_first_group_is_the_one_named() -> None:
    assert evaluate("cuda>=12.8 brand=geforce,driver>=470", HOST).condition == "cuda>=12.8"


def test_unknown_facts_leave_it_open_unless_another_group_holds() -> None:
    unknown = Facts(cuda="12.2")
    assert evaluate("driver>=535", unknown).holds is None
    assert evaluate("driver>=535 cuda>=12.0", unknown).holds is True
    assert evaluate("driver>=535,cuda>=12.8", unknown).holds is False


@pytest.mark.parametrize(
    ("predicate", "newest", "holds"),
    [
        ("cuda>=12.2", "12.4", True), ("cuda>=12.4", "12.4", None), ("cuda>=12.5", "12.4", False),
        ("cuda=12.3", "12.4", None), ("cuda=12.1", "12.4", False), ("cuda<13", "12.4", True),
        ("cuda>=12.1", "", True), ("cuda>=99", "", None), ("cuda<99", "", None),
    ],
)  # fmt: skip
def test_of_a_cuda_version_between_two_what_holds_for_all_is_certain(
    predicate: str, newest: str, holds: bool | None
) -> None:
    assert evaluate(predicate, Facts("12.2", newest_cuda=newest)).holds is holds


def test_several_variables_must_all_hold_on_every_gpu() -> None:
    wanted = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "NVIDIA_REQUIRE_ARCH": "arch>=8.0"}
    assert evaluate_all(wanted, [HOST]) is None
    name, answer = evaluate_all(wanted, [HOST, Facts("12.2", "535.104.12", "7.0")]) or ("", None)
    assert (name, answer and answer.holds) == ("NVIDIA_REQUIRE_ARCH", False)


def test_jetpack_is_not_looked_at_and_legacy_images_ask_for_their_cuda() -> None:
    assert requirements({"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all", "PATH": "/bin"}) == {}
    assert requirements({"CUDA_VERSION": "9.0.176"}) == {"CUDA_VERSION": "cuda>=9.0"}
    assert requirements({"CUDA_VERSION": "12.4.1", "NVIDIA_REQUIRE_CUDA": ""})["CUDA_VERSION"] == "cuda>=12.4"
    both = {"CUDA_VERSION": "9.0.176", "NVIDIA_REQUIRE_CUDA": "cuda>=8.0"}
    assert requirements(both) == {"NVIDIA_REQUIRE_CUDA": "cuda>=8.0"}


@pytest.mark.parametrize(
    ("value", "runtime", "off"),
    [("true", "nvidia", True), ("1", "nvidia", True), ("yes", "nvidia", False), ("yes", "enroot", True),
     ("", "enroot", False), ("", "apptainer-nv", True), ("false", "podman-nvidia", False)],
)  # fmt: skip
def test_switching_it_off_differs_between_runtimes(value: str, runtime: str, off: bool) -> None:
    counts = KNOWLEDGE.family_of(KNOWLEDGE.runtimes[runtime]).disable_require
    assert disabled({"NVIDIA_DISABLE_REQUIRE": value}, counts) is off
    assert not disabled({}, counts)


@given(st.text(max_size=80))
def test_no_text_raises(predicate: str) -> None:
    assert evaluate(predicate, HOST).holds in (True, False)
