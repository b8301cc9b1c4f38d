"""rules/tables of CUDA and GPUs: they hold together, and the look-ups give what is known of real products."""

import subprocess
import sys
from itertools import pairwise

import pytest

from imgcheck.knowledge import Knowledge, cuda, gpus
from imgcheck.versions import compare, parse
from tests.gpu_files import KNOWLEDGE


@pytest.mark.parametrize(
    ("driver", "version"),
    [("375.51", "8.0"), ("384.81", "9.0"), ("396.44", "9.2"), ("535.104.05", "12.2"), ("550.163.01", "12.4")],
)
def test_cuda_version_of_drivers(driver: str, version: str) -> None:
    assert cuda.driver_cuda(KNOWLEDGE, driver) == version


def test_of_a_branch_that_no_table_has_the_next_ones_tell_the_bounds() -> None:
    assert cuda.driver_cuda(KNOWLEDGE, "540.4.0") is None
    assert (cuda.oldest_cuda(KNOWLEDGE, "540.4.0"), cuda.newest_cuda(KNOWLEDGE, "540.4.0")) == ("12.2", "12.3")
    assert cuda.newest_cuda(KNOWLEDGE, "999.1") is None


@pytest.mark.parametrize("nonsense", ["", "abc", "1.0", "9" * 300])
def test_nonsense_is_no_driver(nonsense: str) -> None:
    assert cuda.driver_cuda(KNOWLEDGE, nonsense) is None
    assert cuda.oldest_cuda(KNOWLEDGE, nonsense) is None


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("Tesla M60", "5.2"), ("K80", "3.7"), ("NVIDIA A100-SXM4-40GB", "8.0"), ("NVIDIA H100 80GB HBM3", "9.0"),
        ("GeForce GTX 980 Ti", "5.2"), ("Tesla V100-SXM2-16GB", "7.0"), ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("Quadro RTX 6000", "7.5"), ("GeForce GTX TITAN X", "5.2"), ("TITAN X (Pascal)", "6.1"),
        ("NVIDIA GeForce RTX 2080 SUPER", "7.5"), ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"), ("Tesla K20Xm", "3.5"),
        ("Tesla P100-PCIE-16GB", "6.0"), ("NVIDIA GH200 480GB", "9.0"), ("NVIDIA B200", "10.0"), ("GB10", "12.1"),
    ],
)  # fmt: skip
def test_products_by_name(name: str, capability: str) -> None:
    product = gpus.by_name(KNOWLEDGE, name)
    assert product is not None
    assert product.capability == capability


@pytest.mark.parametrize("name", ["", "RTX 6000", "Radeon VII", "NVIDIA", "Tesla"])
def test_names_that_mean_nothing_or_two_things(name: str) -> None:
    assert gpus.by_name(KNOWLEDGE, name) is None


def test_products_by_pci_id() -> None:
    assert gpus.by_pci_id(KNOWLEDGE, "10DE:102D") == gpus.by_pci_id(KNOWLEDGE, "0x10de:0x102d")
    assert gpus.by_pci_id(KNOWLEDGE, "10de:102d").capability == "3.7"
    assert gpus.by_pci_id(KNOWLEDGE, "8086:1234") is None


def test_every_capability_named_is_described() -> None:
    known = gpus.capabilities(KNOWLEDGE)
    assert {product.capability for product in gpus.products(KNOWLEDGE)} <= set(known)
    assert {c for family in cuda.families(KNOWLEDGE).values() for c in family} <= set(known)


def test_newer_releases_ask_for_newer_drivers() -> None:
    found = list(cuda.releases(KNOWLEDGE).values())
    assert len(found) > 1
    for older, newer in pairwise(found):
        assert parse(older.id) < parse(newer.id)
        assert compare(older.min_driver, newer.min_driver) <= 0


def test_newer_branches_and_ptx_versions_ask_for_newer_cuda() -> None:
    versions = list(cuda.branches(KNOWLEDGE).values())
    assert versions == sorted(versions, key=parse)
    assert cuda.newest_ptx(KNOWLEDGE, "12.4") == "8.4"
    assert cuda.ptx_cuda(KNOWLEDGE, "99.9") is None


def test_shipped_driver_and_branch_agree() -> None:
    releases = [release for release in cuda.releases(KNOWLEDGE).values() if release.shipped_driver]
    assert releases
    for release in releases:
        if parse(release.id) >= (5, 0):
            assert cuda.driver_cuda(KNOWLEDGE, release.shipped_driver) == release.id


def test_every_entry_names_its_source() -> None:
    tables = (gpus.products(KNOWLEDGE), gpus.capabilities(KNOWLEDGE).values(), cuda.releases(KNOWLEDGE).values(),
              cuda.vendor_libraries(KNOWLEDGE))  # fmt: skip
    assert all(tables)
    for entry in (entry for table in tables for entry in table):
        assert entry.sources, entry.id
        assert all(source.strip() for source in entry.sources)


def test_a_site_adds_a_gpu(tmp_path) -> None:
    folder = tmp_path / "tables" / "gpus"
    folder.mkdir(parents=True)
    (folder / "site.toml").write_text('[[product]]\nid = "Tesla Z9"\ncapability = "9.0"\nsources = ["us"]\n')
    site = Knowledge((tmp_path,))
    assert gpus.by_name(site, "Tesla Z9 80GB").capability == "9.0"
    assert gpus.by_name(KNOWLEDGE, "Tesla Z9") is None


def test_the_tables_of_devices_are_not_read_at_start() -> None:
    script = (
        "import imgcheck.check.gpu, sys; from imgcheck.knowledge import Knowledge, gpus\n"
        "k = Knowledge(); gpus.by_name(k, 'Tesla M60'); assert gpus._pci.cache_info().currsize == 0\n"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
