"""Which directories for better CPUs a host opens."""

from imgcheck.documents.host import Cpu, HostProfile, known, unknown
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from imgcheck.loader.hwcaps import hwcaps_of

_KNOWLEDGE = Knowledge()


def _host(cpu: str, model: str) -> HostProfile:
    features = describe_host(_KNOWLEDGE, cpu=cpu).cpu.features
    return HostProfile("1.0", "node", cpu=Cpu(known("x86_64", "test"), known(model, "test"), features=features))


def test_levels_stand_best_first() -> None:
    assert hwcaps_of(_host("haswell", "a CPU"), _KNOWLEDGE) == ("x86-64-v3", "x86-64-v2")


def test_cpus_of_intel_alone_open_the_directories_of_old_loaders() -> None:
    intel = _host("skylake_avx512", "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz")
    assert hwcaps_of(intel, _KNOWLEDGE)[-2:] == ("haswell", "avx512_1")
    assert "haswell" not in hwcaps_of(_host("zen3", "AMD EPYC 7763 64-Core Processor"), _KNOWLEDGE)


def test_an_unknown_cpu_opens_none() -> None:
    assert hwcaps_of(HostProfile("1.0", "node", cpu=Cpu(features=unknown())), _KNOWLEDGE) == ()
