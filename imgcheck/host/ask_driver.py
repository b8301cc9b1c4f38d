"""Asks libcuda and NVML of this machine in a process of its own, which a sick GPU may hang without hanging us."""

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from imgcheck.documents.host import Gpu
from imgcheck.host.files import Root

_TIME_LIMIT = 10.0


@dataclass(frozen=True)
class Answer:
    """What the driver said; empty where it could not be asked."""

    cuda: int = 0
    """cuDriverGetVersion: 9020 for 9.2."""
    driver: str = ""
    """"535.104.05"; empty where NVML does not answer."""
    gpus: tuple[Gpu, ...] = ()
    """Those that NVML lets this process use: where it answers, an empty list is an answer, too."""


def ask(root: Root, libcuda: str) -> Answer:
    """The driver's own account of itself, empty for a captured host, without libcuda, or when it does not answer."""
    if not root.live or not libcuda:
        return Answer()
    command = [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; import {__name__} as m; m.main()"]
    try:
        child = subprocess.Popen([*command, libcuda], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        output, _ = child.communicate(timeout=_TIME_LIMIT)
    except subprocess.TimeoutExpired:
        # Not waited for: a process that hangs inside the kernel module does not die of SIGKILL either.
        child.kill()
        if child.stdout:
            child.stdout.close()
        root.late.append(libcuda)
        return Answer()
    except OSError:
        return Answer()
    return _answer(output)


def _answer(output: bytes) -> Answer:
    try:
        said = json.loads(output)
        return Answer(int(said["cuda"]), str(said["driver"]), tuple(Gpu(**gpu) for gpu in said["gpus"]))
    except (ValueError, KeyError, TypeError):
        return Answer()


def main() -> None:
    """The child: prints one JSON object."""
    said: dict[str, Any] = {"cuda": _cuda_version(sys.argv[1]), "driver": "", "gpus": []}
    # NVML has many ways to fail, and each means that it does not answer.
    with contextlib.suppress(Exception):
        said |= _nvml()
    print(json.dumps(said))


def _cuda_version(libcuda: str) -> int:
    """What cuDriverGetVersion says; it needs neither a GPU nor cuInit. 0 where it fails, as in a stub library."""
    import ctypes

    version = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(libcuda).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return 0 if failed else version.value


def _nvml() -> dict[str, Any]:
    import pynvml

    pynvml.nvmlInit()
    try:
        count = pynvml.nvmlDeviceGetCount()
        return {
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "gpus": [gpu for index in range(count) for gpu in _usable(pynvml, index)],
        }
    finally:
        pynvml.nvmlShutdown()


def _usable(pynvml: Any, index: int) -> list[dict[str, Any]]:
    """The entries of one GPU, none where this process may not use it or it is lost.

    NVML counts the GPUs of the node, also those that the job's control group denies it (nvml.h,
    nvmlDeviceGetCount_v2). Raises NVMLError where NVML cannot tell of GPUs.
    """
    try:
        return _device(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index))
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        raise
    except pynvml.NVMLError:
        return []


def _device(pynvml: Any, handle: Any) -> list[dict[str, Any]]:
    """One entry, or one per MIG instance where the GPU is partitioned: without any CUDA cannot use it."""
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    number = pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId
    gpu = {
        "name": pynvml.nvmlDeviceGetName(handle),
        "compute_capability": f"{major}.{minor}",
        # pciDeviceId holds the device in its upper half and the vendor in its lower one.
        "pci_id": f"{number & 0xFFFF:04x}:{number >> 16:04x}",
        "brand": _brand(pynvml, handle),
        "mig": _partitioned(pynvml, handle),
    }
    return [gpu] * (_instances(pynvml, handle) if gpu["mig"] else 1)


def _brand(pynvml: Any, handle: Any) -> str:
    try:
        number = pynvml.nvmlDeviceGetBrand(handle)
    except pynvml.NVMLError:
        return ""
    prefix = "NVML_BRAND_"
    names = {value: name for name, value in vars(pynvml).items() if name.startswith(prefix)}
    brand = names.get(number, "").removeprefix(prefix).replace("_", "").lower()
    return "" if brand in ("unknown", "count") else brand


def _partitioned(pynvml: Any, handle: Any) -> bool:
    try:
        return pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except pynvml.NVMLError:
        return False


def _instances(pynvml: Any, handle: Any) -> int:
    count = 0
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError:
            continue
        count += 1
    return count
