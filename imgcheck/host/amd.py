"""AMD GPUs of a host, as the kernel's compute driver lists them, without ROCm's tools.

A node of /sys/class/kfd/kfd/topology/nodes is a CPU or a GPU; its `properties` are lines of a name and a number
(include/uapi/linux/kfd_sysfs.h and drivers/gpu/drm/amd/amdkfd/kfd_topology.c of Linux).
"""

from imgcheck.documents.host import Fact, Gpu, absent, known, unknown
from imgcheck.host.files import Root

_NODES = "/sys/class/kfd/kfd/topology/nodes"
_SRAM_ECC = 0x00080000
"""HSA_CAP_SRAM_EDCSUPPORTED of `capability`."""
_WITH_SRAM_ECC = ("gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")
"""Targets that come with and without it (https://llvm.org/docs/AMDGPUUsage.html, "Processors")."""


def with_amd(root: Root, nvidia: Fact[tuple[Gpu, ...]]) -> Fact[tuple[Gpu, ...]]:
    """All GPUs of the host: those of NVIDIA, and those that the AMD driver lists.

    Whether NVIDIA's are all of them must be known, since the list stands for the whole node.
    """
    found = tuple(gpu for node in root.names(_NODES) or () if (gpu := _gpu(root, f"{_NODES}/{node}")))
    if not found:
        return absent(f"{nvidia.source}, nor of AMD in {_NODES}") if nvidia.absent else nvidia
    if nvidia.unknown:
        return unknown(f"{_NODES} has {len(found)} GPUs; {nvidia.source}")
    source = f"{nvidia.source}, {_NODES}" if nvidia.known else _NODES
    return known((*(nvidia.value or ()), *found), source)


def _gpu(root: Root, node: str) -> Gpu | None:
    lines = (line.split() for line in (root.text(f"{node}/properties") or "").splitlines())
    values = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdecimal() and len(line[1]) < 21}
    target = target_name(values.get("gfx_target_version", 0))
    if not target:
        return None
    if target in _WITH_SRAM_ECC:
        target += ":sramecc+" if values.get("capability", 0) & _SRAM_ECC else ":sramecc-"
    pci = f"{values.get('vendor_id', 0):04x}:{values.get('device_id', 0):04x}"
    return Gpu(name=(root.text(f"{node}/name") or "").strip() or "AMD GPU", vendor="amd", target=target, pci_id=pci)


def target_name(version: int) -> str:
    """Target of gfx_target_version: 90010 is "gfx90a", 110000 "gfx1100"; "" for 0, which CPUs have.

    The number is major * 10000 + minor * 100 + stepping; the name has minor and stepping in hexadecimal.
    """
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if major else ""
