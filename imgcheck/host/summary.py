"""A host in one line, for the head of a report."""

from collections import Counter

from imgcheck.documents.host import Fact, HostProfile


def summarise(host: HostProfile) -> str:
    """CPU, GPUs, driver, kernel and glibc: "haswell, 4 x Tesla K80 (3.7), driver 384.81, kernel 3.10.0, glibc 2.17"."""
    parts = (_cpu(host), _gpus(host), _driver(host), _versioned("kernel", host.kernel), _versioned("glibc", host.glibc))
    return ", ".join(part for part in parts if part) or "nothing known"


def _cpu(host: HostProfile) -> str:
    name = host.cpu.microarchitecture.value or host.cpu.architecture.value or ""
    return f"CPU {name}" if name else "CPU unknown"


def _gpus(host: HostProfile) -> str:
    if host.gpus.absent:
        return "no GPU"
    if not host.gpus.known:
        return "GPU unknown"
    counted = Counter((gpu.name, gpu.compute_capability or gpu.target, gpu.mig) for gpu in host.gpus.value or ())
    return ", ".join(_gpu(*key, count) for key, count in counted.items())


def _gpu(name: str, capability: str, mig: bool, count: int) -> str:
    times = f"{count} x " if count > 1 else ""
    # A GPU that was named by its capability alone carries it in its name.
    shown = f" ({capability})" if capability and capability not in name else ""
    return f"{times}{name}{shown}{' MIG' if mig else ''}"


def _driver(host: HostProfile) -> str:
    kernel, userland = host.driver.kernel_module, host.driver.userland
    if kernel.absent and userland.absent:
        return "no driver"
    if kernel.known and userland.known and kernel.value != userland.value:
        return f"driver {kernel.value} with libraries of {userland.value}"
    version = kernel.value or userland.value
    if not version:
        return f"driver of CUDA {host.driver.cuda.value}" if host.driver.cuda.known else "driver unknown"
    cuda = f" (CUDA {host.driver.cuda.value})" if host.driver.cuda.known else ""
    return f"driver {version}{cuda}"


def _versioned(what: str, fact: Fact[str]) -> str:
    if fact.known:
        return f"{what} {fact.value}"
    return f"no {what}" if fact.absent else ""
