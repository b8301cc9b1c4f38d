"""Hosts described by options: what is not named is unknown, and wrong names are told with near ones."""

import pytest

from imgcheck.errors import UsageError
from imgcheck.host.describe import describe_host
from imgcheck.host.summary import summarise
from imgcheck.knowledge import Knowledge

KNOWLEDGE = Knowledge()


def test_whole_description() -> None:
    host = describe_host(
        KNOWLEDGE, cpu="haswell", gpus=["Tesla M60"], driver="396.44", glibc="2.17", kernel="3.10", arch=None
    )
    assert "avx2" in host.cpu.features.value
    assert host.gpus.value[0].compute_capability == "5.2"
    assert host.driver.kernel_module.value == host.driver.userland.value == "396.44"
    assert host.driver.cuda.value == "9.2"
    assert summarise(host) == "CPU haswell, Tesla M60 (5.2), driver 396.44 (CUDA 9.2), kernel 3.10, glibc 2.17"


def test_what_is_not_named_is_unknown() -> None:
    host = describe_host(KNOWLEDGE, cpu="x86-64-v3")
    facts = [host.kernel, host.glibc, host.gpus, host.libraries, host.runtimes, host.driver.cuda]
    assert all(fact.unknown for fact in facts)


def test_none_is_absent() -> None:
    host = describe_host(KNOWLEDGE, gpus=["none"], driver="none", glibc="none")
    assert host.gpus.absent
    assert host.driver.kernel_module.absent
    assert host.driver.cuda.absent
    assert host.glibc.absent


@pytest.mark.parametrize(
    ("driver", "told"), [("540.4.0", "12.2 at least and 12.3 at most"), ("999.1", "not known"), ("100.1", "no CUDA")]
)
def test_a_driver_of_a_branch_that_no_table_has_is_of_no_known_cuda(driver: str, told: str) -> None:
    host = describe_host(KNOWLEDGE, driver=driver)
    assert host.driver.cuda.unknown
    assert told in host.driver.cuda.source


def test_stated_cuda_beats_the_derived_one() -> None:
    assert describe_host(KNOWLEDGE, driver="396.44", cuda="9.1").driver.cuda.value == "9.1"


def test_cuda_alone_leaves_the_driver_unknown() -> None:
    driver = describe_host(KNOWLEDGE, cuda="12.2").driver
    assert driver.kernel_module.unknown
    assert driver.cuda.value == "12.2"


@pytest.mark.parametrize(("name", "capability"), [("K80", "3.7"), ("cc 8.0", "8.0"), ("8.0", "8.0"), ("sm_90", "9.0")])
def test_gpus_by_short_names_and_capabilities(name: str, capability: str) -> None:
    assert describe_host(KNOWLEDGE, gpus=[name]).gpus.value[0].compute_capability == capability


def test_each_gpu_is_an_entry() -> None:
    host = describe_host(KNOWLEDGE, gpus=["K80", "K80", "V100"])
    assert [gpu.compute_capability for gpu in host.gpus.value] == ["3.7", "3.7", "7.0"]
    assert "2 x " in summarise(host)


def test_cpu_of_another_architecture_contradicts_arch() -> None:
    with pytest.raises(UsageError, match="ppc64le CPU, but --arch says x86_64"):
        describe_host(KNOWLEDGE, arch="amd64", cpu="power8")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"cpu": "haswel"}, "haswel", "haswell"),
        ({"gpus": ["Tesla M6O"]}, "Tesla M6O", "Tesla M60"),
        ({"arch": "vax"}, "vax", "x86_64"),
        ({"glibc": "new"}, "--glibc new", "2.17"),
        ({"driver": "latest"}, "--driver latest", "396.44"),
        ({"gpus": ["none", "K80"]}, "none", ""),
        ({"driver": "none", "cuda": "9.0"}, "--cuda 9.0", ""),
        ({"gpus": ["4090"]}, "4090", "did you mean GeForce RTX 4090 (8.9)?"),
        ({"gpus": ["MI250X"]}, "AMD's GPUs", "imgcheck probe -o"),
        ({"gpus": ["gfx90a"]}, "AMD's GPUs", "imgcheck probe -o"),
        ({"driver": "12.2"}, "--driver 12.2: no driver has such a version", "say --cuda 12.2"),
        ({"driver": "9999"}, "--driver 9999: not a version", "396.44"),
        ({"driver": "535.x"}, "--driver 535.x: not a version", "396.44"),
        ({"glibc": "17"}, "--glibc 17: not a version", "2.17"),
        ({"driver": "390.46", "cuda": "12.2"}, "--cuda 12.2: driver 390.46 is of CUDA 9.1 at most", "leave --cuda"),
    ],
)
def test_wrong_names_are_told(options: dict, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        describe_host(KNOWLEDGE, **options)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_name_of_several_gpus_is_told_with_those_that_hold_its_words() -> None:
    with pytest.raises(UsageError) as raised:
        describe_host(KNOWLEDGE, gpus=["RTX 6000"])
    assert "RTX 6000 Ada (8.9)" in raised.value.hint
    assert "Quadro RTX 6000 (7.5)" in raised.value.hint


@pytest.mark.parametrize(
    ("driver", "cuda"), [("535.183.01-0ubuntu1", "12.2"), ("999.1", "99.0"), ("535", "11.8"), ("", "9.2")]
)
def test_versions_that_may_be_are_believed(driver: str, cuda: str) -> None:
    assert describe_host(KNOWLEDGE, driver=driver, cuda=cuda).driver.cuda.value == cuda
