"""Which directories for better CPUs a host opens."""

import pytest

from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.host import Cpu, HostProfile, known, unknown
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from imgcheck.loader.abi import abi_of
from imgcheck.loader.environment import environment_of
from imgcheck.loader.hwcaps import hwcaps_of
from imgcheck.loader.system import System
from imgcheck.loader.tree import Tree

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


@pytest.mark.parametrize(("glibc", "expected"), [("2.31", ()), ("2.33", ("glibc-hwcaps/x86-64-v3",))])
def test_loaders_before_2_33_know_no_directories_of_levels(glibc: str, expected: tuple[str, ...]) -> None:
    image = ImageProfile("1.0", "test", Platform(), ImageConfig(), (), (), {}, TreeIndex())
    system = System(Tree(image), "", abi_of("x86_64", 64), environment_of(image), None, ("x86-64-v3",))
    system.version = glibc
    assert tuple(name for name in system.subdirectories if "hwcaps" in name) == expected


@pytest.mark.parametrize(
    ("named", "musl"),
    [
        ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"),
        ("/lib/ld-musl-x86_64.so.1", "/usr/lib/x86_64-linux-musl/libc.so"),
    ],
)
def test_the_loader_is_musl_by_its_own_name_or_by_that_which_leads_to_it(named: str, musl: str) -> None:
    """So Alpine runs programs of glibc, and so Debian has it: musl takes libm.so.6 and others for itself."""
    files, objects = (FileRecord(musl, "k", 0, True),), {"k": CodeFacts(1, Linkage(64, "x86_64"))}
    tree = TreeIndex(symlinks={named: musl})
    image = ImageProfile("1.0", "test", Platform(), ImageConfig(), (LayerInfo(),), files, objects, tree)
    system = System(Tree(image), named, abi_of("x86_64", 64), environment_of(image), None, ())
    assert (system.kind, system.is_self("libm.so.6"), system.defaults[0]) == ("musl", True, "/lib")
