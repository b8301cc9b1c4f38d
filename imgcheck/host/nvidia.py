"""NVIDIA's kernel module, user-land driver and GPUs of a host, without nvidia-smi."""

import re
from dataclasses import dataclass

from imgcheck.documents.facts import LIBCUDA
from imgcheck.documents.host import Driver, Fact, Gpu, absent, known, unknown
from imgcheck.host.ask_driver import Answer, ask
from imgcheck.host.files import Root
from imgcheck.host.libraries import Libraries, version_suffix
from imgcheck.knowledge import Knowledge, gpus
from imgcheck.knowledge.cuda import driver_cuda, undecided_cuda, version_of
from imgcheck.versions import is_driver

_VERSION_FILE = "/proc/driver/nvidia/version"
_MODULE_FILE = "/sys/module/nvidia/version"
_GPU_FOLDER = "/proc/driver/nvidia/gpus"
_PCI_FOLDER = "/sys/bus/pci/devices"
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
# GPUs that are no PCI devices of this system: Windows' paravirtual one, and those of Jetson boards.
_OTHER_ROADS = ("/dev/dxg", "/etc/nv_tegra_release", "/sys/module/nvgpu")
_KERNEL_MODULE = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Nvidia:
    driver: Driver
    gpus: Fact[tuple[Gpu, ...]]


def probe_nvidia(root: Root, knowledge: Knowledge, libraries: Libraries) -> Nvidia:
    """What the machine has of NVIDIA; a fact whose every source is absent is unknown and says which."""
    library = libraries.find(LIBCUDA)
    answer = ask(root, library)
    kernel = _kernel_module(root)
    found = _gpus(root, knowledge, answer, kernel)
    userland = _userland(root, libraries, library, answer)
    return Nvidia(Driver(kernel, userland, _cuda(knowledge, answer, userland)), found)


def _kernel_module(root: Root) -> Fact[str]:
    match = _KERNEL_MODULE.search(root.text(_VERSION_FILE) or "")
    if match:
        return known(match[1], _VERSION_FILE)
    version = (root.text(_MODULE_FILE) or "").strip()
    if version:
        return known(version, _MODULE_FILE)
    if any(root.exists(path) for path in _OTHER_ROADS):
        return unknown("the GPU of this machine is driven by another module than nvidia.ko")
    if root.names("/sys/module") and root.exists("/proc/driver"):
        return absent("nvidia is not among /sys/module")
    return unknown(f"neither {_VERSION_FILE} nor /sys/module can be read")


def _userland(root: Root, libraries: Libraries, library: str, answer: Answer) -> Fact[str]:
    if library:
        version = version_suffix(root.real(library))
        if is_driver(version):
            return known(version, library)
        if answer.driver:
            return known(answer.driver, "NVML")
        return unknown(f"{library} carries no version in its name")
    if any(root.exists(path) for path in _OTHER_ROADS):
        return unknown("libcuda.so.1 is not where the loader looks")
    if not libraries.readable:
        return unknown("the library directories cannot be read")
    return absent("no libcuda.so.1 in the loader's cache or directories")


def _cuda(knowledge: Knowledge, answer: Answer, userland: Fact[str]) -> Fact[str]:
    if answer.cuda:
        return known(version_of(answer.cuda), "cuDriverGetVersion")
    if not userland.known or userland.value is None:
        return userland if userland.absent else unknown("no driver tells its CUDA version")
    derived = driver_cuda(knowledge, userland.value)
    return known(derived, f"driver {userland.value}") if derived else unknown(undecided_cuda(knowledge, userland.value))


def _gpus(root: Root, knowledge: Knowledge, answer: Answer, kernel: Fact[str]) -> Fact[tuple[Gpu, ...]]:
    if answer.gpus:
        return known(answer.gpus, "NVML")
    if answer.driver:
        # What /proc and PCI list is the node's, and a job may be denied all of it.
        return absent("NVML shows no GPU that may be used here")
    listed = _from_proc(root, knowledge)
    if listed:
        return known(listed, _GPU_FOLDER)
    devices = root.names(_PCI_FOLDER)
    if devices is None:
        return unknown(f"{_GPU_FOLDER} and {_PCI_FOLDER} cannot be read")
    present = tuple(gpu for device in devices if (gpu := _from_pci(root, knowledge, device)))
    if present:
        return known(present, _PCI_FOLDER)
    if kernel.known or any(root.exists(path) for path in _OTHER_ROADS):
        return unknown(f"the driver is there, but {_PCI_FOLDER} shows no GPU of NVIDIA")
    return absent(f"no GPU of NVIDIA in {_PCI_FOLDER}")


def _from_proc(root: Root, knowledge: Knowledge) -> tuple[Gpu, ...]:
    found = []
    for slot in root.names(_GPU_FOLDER) or ():
        text = root.text(f"{_GPU_FOLDER}/{slot}/information") or ""
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        model = fields.get("Model", "").strip()
        bus = fields.get("Bus Location", "").strip() or slot
        pci_id = _pci_id(root, bus)
        found.append(_gpu(knowledge, model, pci_id))
    return tuple(found)


def _from_pci(root: Root, knowledge: Knowledge, device: str) -> Gpu | None:
    folder = f"{_PCI_FOLDER}/{device}"
    if (root.text(f"{folder}/vendor") or "").strip().lower() != _NVIDIA_VENDOR:
        return None
    if not (root.text(f"{folder}/class") or "").strip().lower().startswith(_DISPLAY_CLASSES):
        return None
    return _gpu(knowledge, "", _pci_id(root, device))


def _pci_id(root: Root, device: str) -> str:
    folder = f"{_PCI_FOLDER}/{device.lower()}"
    vendor, number = root.text(f"{folder}/vendor"), root.text(f"{folder}/device")
    if not vendor or not number:
        return ""
    return f"{vendor.strip()[2:]}:{number.strip()[2:]}".lower()


def _gpu(knowledge: Knowledge, model: str, pci_id: str) -> Gpu:
    product = gpus.by_pci_id(knowledge, pci_id) if pci_id else None
    product = product or (gpus.by_name(knowledge, model) if model else None)
    return Gpu(
        name=model or (product.id if product else f"NVIDIA device {pci_id}"),
        compute_capability=product.capability if product else "",
        pci_id=pci_id,
    )
