"""AMD GPUs from a captured /sys/class/kfd."""

from pathlib import Path

import pytest

from imgcheck.documents.host import Gpu, absent, known, unknown
from imgcheck.host.amd import target_name, with_amd
from imgcheck.host.files import Root

NONE = absent("no GPU of NVIDIA")
CPU = "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\nvendor_id 0\n"
MI210 = "simd_count 416\ncapability 746119808\ngfx_target_version 90010\nvendor_id 4098\ndevice_id 29711\n"
W6800 = "simd_count 240\ncapability 671588992\ngfx_target_version 100300\nvendor_id 4098\ndevice_id 29603\n"


def machine(path: Path, *nodes: str) -> Root:
    for number, properties in enumerate(nodes):
        node = path / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "properties").write_text(properties)
        (node / "name").write_text("aldebaran\n")
    return Root(path)


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90008, "gfx908"), (100300, "gfx1030"), (110002, "gfx1102"),
     (120001, "gfx1201"), (0, "")],
)  # fmt: skip
def test_targets_by_their_number(version: int, name: str) -> None:
    assert target_name(version) == name


def test_gpus_among_the_nodes_and_their_ecc(tmp_path: Path) -> None:
    found = with_amd(machine(tmp_path, CPU, MI210, W6800), NONE).value
    assert [(gpu.vendor, gpu.target, gpu.pci_id) for gpu in found] == [
        ("amd", "gfx90a:sramecc+", "1002:740f"),
        ("amd", "gfx1030", "1002:73a3"),
    ]
    assert found[0].name == "aldebaran"


def test_gpus_of_both_vendors_are_all_listed(tmp_path: Path) -> None:
    nvidia = known((Gpu("Tesla K80"),), "NVML")
    assert [gpu.vendor for gpu in with_amd(machine(tmp_path, MI210), nvidia).value] == ["nvidia", "amd"]


def test_without_compute_driver_nothing_changes(tmp_path: Path) -> None:
    nvidia = known((Gpu("Tesla K80"),), "NVML")
    assert with_amd(Root(tmp_path), nvidia) == nvidia
    assert with_amd(Root(tmp_path), NONE).absent
    assert with_amd(Root(tmp_path), unknown("no /sys")).unknown


def test_gpus_of_one_vendor_are_not_all_where_the_other_is_unknown(tmp_path: Path) -> None:
    assert with_amd(machine(tmp_path, MI210), unknown("no /sys/bus")).unknown


@pytest.mark.parametrize(
    "text", ["gfx_target_version", "gfx_target_version x", "\0", "gfx_target_version " + "9" * 5000]
)
def test_damaged_properties_are_no_gpu(tmp_path: Path, text: str) -> None:
    assert with_amd(machine(tmp_path, text), NONE).absent
