"""The kinds of hosts that a policy requires, read or described, and equal hosts as one kind."""

import msgspec
import pytest

from imgcheck.documents import encode
from imgcheck.documents.host import Gpu, HostProfile, known
from imgcheck.errors import PolicyError
from imgcheck.host.kinds import fold, kinds
from imgcheck.knowledge import Knowledge
from imgcheck.policy.document import Policy, RequiredHost
from imgcheck.policy.hosts import required_hosts
from tests.policy.findings import host

KNOWLEDGE = Knowledge()


def required(directory, *entries: RequiredHost, runtimes: tuple[str, ...] = ()):
    return required_hosts(Policy(entries, runtimes), directory / "imgcheck.toml", KNOWLEDGE)


def test_a_described_host_has_what_was_named_and_the_rest_unknown(tmp_path):
    (one,) = required(tmp_path, RequiredHost(name="old", cpu="broadwell", driver="535", gpus=("A100", "H100")))
    assert one.host.name == "old"
    assert "avx2" in one.host.cpu.features.value
    assert [gpu.compute_capability for gpu in one.host.gpus.value] == ["8.0", "9.0"]
    assert one.host.glibc.unknown


def test_runtimes_of_a_host_go_before_those_of_the_policy(tmp_path):
    own, other = required(
        tmp_path,
        RequiredHost(name="a", cpu="haswell", runtimes=("apptainer-nv",)),
        RequiredHost(name="b", cpu="haswell"),
        runtimes=("docker",),
    )
    assert (own.runtimes, other.runtimes) == (("apptainer-nv",), ("docker",))


def test_files_are_read_beside_the_policy_and_equal_ones_are_one_kind(tmp_path):
    (tmp_path / "hosts").mkdir()
    for number in range(1, 4):
        node = msgspec.structs.replace(host(f"node{number}"), kernel=known("4.18" if number < 3 else "5.14", ""))
        (tmp_path / "hosts" / f"{number}.json").write_bytes(encode(node))
    found = [each.host for each in required(tmp_path, RequiredHost(profile="hosts/*.json"))]
    assert [(each.name, each.count) for each in found] == [("node[1-2]", 2), ("node3", 1)]
    found = [each.host for each in required(tmp_path, RequiredHost(name="gpu", profile="hosts/*.json"))]
    assert [each.name for each in found] == ["gpu: node[1-2]", "gpu: node3"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (RequiredHost(), "host 1: nothing says what it is"),
        (RequiredHost(name="gpu", cpu="no-such-cpu"), "host 1 (gpu): no CPU is known as 'no-such-cpu'"),
        (RequiredHost(gpus=("NoSuchGPU",)), "host 1: gpus NoSuchGPU"),
        (RequiredHost(profile="no/*.json"), "host 1: no file no/*.json"),
        (RequiredHost(profile="x.json", cpu="haswell"), "host 1: profile stands beside cpu"),
    ],
)
def test_a_host_that_cannot_be_is_named(entry, words, tmp_path):
    with pytest.raises(PolicyError) as error:
        required(tmp_path, entry)
    assert words in error.value.message
    assert error.value.hint


def test_two_hosts_of_one_name_are_refused(tmp_path):
    with pytest.raises(PolicyError, match="two hosts are called 'a'"):
        required(tmp_path, RequiredHost(name="a", cpu="haswell"), RequiredHost(name="a", cpu="nehalem"))


def test_names_sources_and_the_order_of_gpus_do_not_make_another_kind():
    gpus = (Gpu("A", compute_capability="8.0"), Gpu("B", compute_capability="9.0"))
    first = HostProfile("1.0", "n1", gpus=known(gpus, "NVML"))
    second = HostProfile("1.1", "n2", gpus=known(gpus[::-1], "/proc"), count=3)
    (kind,) = kinds([first, second])
    assert (kind.name, kind.count) == ("n[1-2]", 4)
    third = HostProfile("1.0", "n3", gpus=known(gpus[:1], "NVML"))
    assert len(kinds([first, second, third])) == 2


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["login"], "login"),
        (["n1"], "n1"),
        (["n3", "n1", "n2", "n7", "login"], "login,n[1-3,7]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["n1.a", "n2.a"], "n[1-2].a"),
        (["n1", "n1"], "n1"),
    ],
)
def test_names_fold_as_schedulers_write_them(names, folded):
    assert fold(names) == folded
