"""A HostProfile from what a person names: `--cpu haswell --gpu "Tesla M60" --driver 396.44`."""

import re
from collections.abc import Sequence

from imgcheck.architectures import MACHINES, spelt
from imgcheck.documents.host import SCHEMA_VERSION, Cpu, Driver, Fact, Gpu, HostProfile, absent, known, unknown
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge, cpus

_PACKAGED = r"([-+~_][\w.+~-]*)?"
"""What distributions add to a version."""
_VERSIONS = {
    "--kernel": re.compile(r"\d+(\.\d+)*([-+~_.][\w.+~-]*)?", re.ASCII),
    "--glibc": re.compile(r"\d+(\.\d+)+" + _PACKAGED, re.ASCII),
    "--driver": re.compile(r"\d{3}(\.\d+)*" + _PACKAGED, re.ASCII),
    "--cuda": re.compile(r"\d{1,2}(\.\d+)*" + _PACKAGED, re.ASCII),
}
_CUDA_VERSION = re.compile(r"\d{1,2}(\.\d+)*", re.ASCII)
"""Also what stands there in place of a driver's: all that know CUDA have three digits before the point."""
_NONE = "none"


def describe_host(
    knowledge: Knowledge,
    *,
    arch: str | None = None,
    cpu: str | None = None,
    gpus: Sequence[str] = (),
    driver: str | None = None,
    cuda: str | None = None,
    glibc: str | None = None,
    kernel: str | None = None,
    name: str = "",
) -> HostProfile:
    """A host with the facts given; what is not named is unknown, "none" is absent.

    `gpus` holds one name per GPU: a product ("Tesla M60", "K80"), a capability ("cc 8.0", "8.0") or "none".
    `cuda` is the CUDA version of the driver, derived from `driver` where it is not given.
    Raises UsageError for a name that nothing is called by, with near names, and for what does not fit together.
    """
    arch, cpu, driver, cuda, glibc, kernel = (value or "" for value in (arch, cpu, driver, cuda, glibc, kernel))
    return HostProfile(
        schema_version=SCHEMA_VERSION,
        name=name or _title(arch, cpu, gpus, driver, cuda, glibc, kernel),
        cpu=_cpu(knowledge, arch, cpu),
        kernel=_version(kernel, "--kernel"),
        glibc=_version(glibc, "--glibc", may_lack=True),
        driver=_driver(knowledge, driver, cuda),
        gpus=_gpus(knowledge, gpus),
        described=True,
    )


def _title(arch: str, cpu: str, gpus: Sequence[str], driver: str, cuda: str, glibc: str, kernel: str) -> str:
    versions = (("driver", driver), ("CUDA", cuda), ("glibc", glibc), ("kernel", kernel))
    counted = [f"{gpus.count(gpu)} x {gpu}" if gpus.count(gpu) > 1 else _gpu_title(gpu) for gpu in dict.fromkeys(gpus)]
    stated = [f"no {what}" if value.lower() == _NONE else f"{what} {value}" for what, value in versions if value]
    return ", ".join([part for part in (cpu or arch, *counted, *stated) if part]) or "unknown host"


def _gpu_title(gpu: str) -> str:
    return "no GPU" if gpu.strip().lower() == _NONE else gpu


def _cpu(knowledge: Knowledge, arch: str, cpu: str) -> Cpu:
    architecture = _architecture(arch) if arch else ""
    if not cpu:
        return Cpu(
            architecture=known(architecture, "--arch") if architecture else unknown("--arch and --cpu not given")
        )
    found = cpus.resolve(knowledge, cpu)
    if architecture and architecture != found.architecture:
        raise UsageError(f"--cpu {cpu} is a {found.architecture} CPU, but --arch says {architecture}")
    return Cpu(
        architecture=known(found.architecture, "--cpu"),
        model=known(cpu, "--cpu"),
        microarchitecture=known(found.microarchitecture, "--cpu"),
        features=known(tuple(sorted(found.features)), f"--cpu {cpu}: features of {found.microarchitecture}"),
    )


def _architecture(arch: str) -> str:
    machine = spelt(arch.strip().lower())
    if not machine:
        raise UsageError(f"--arch {arch}: no such architecture", hint=f"one of {', '.join(sorted(MACHINES))}")
    return machine


def _version(text: str, option: str, may_lack: bool = False) -> Fact[str]:
    if not text:
        return unknown(f"{option} not given")
    if may_lack and text.lower() == _NONE:
        return absent(option)
    if not _VERSIONS[option].fullmatch(text):
        raise UsageError(f"{option} {text}: not a version", hint=f'write it as in "{_EXAMPLES[option]}"')
    return known(text, option)


_EXAMPLES = {"--kernel": "3.10.0", "--glibc": "2.17", "--driver": "396.44", "--cuda": "9.2"}


def _driver(knowledge: Knowledge, driver: str, cuda: str) -> Driver:
    if _CUDA_VERSION.fullmatch(driver):
        raise UsageError(
            f"--driver {driver}: no driver has such a version",
            f"if it is the CUDA version, which nvidia-smi prints beside the driver's, say --cuda {driver}",
        )
    version = _version(driver, "--driver", may_lack=True)
    stated = _version(cuda, "--cuda", may_lack=True)
    if version.absent and stated.known:
        raise UsageError(f"--cuda {cuda} is the driver's CUDA version, but --driver says that there is none")
    if version.absent:
        return Driver(version, version, version)
    if version.known and stated.known:
        _refuse_newer_cuda(knowledge, driver, cuda)
    if version.known and not cuda:
        stated = _derived_cuda(knowledge, driver)
    return Driver(kernel_module=version, userland=version, cuda=stated)


def _refuse_newer_cuda(knowledge: Knowledge, driver: str, cuda: str) -> None:
    from imgcheck.knowledge.cuda import newest_cuda
    from imgcheck.versions import compare

    newest = newest_cuda(knowledge, driver)
    if newest and compare(cuda, newest) > 0:
        raise UsageError(
            f"--cuda {cuda}: driver {driver} is of CUDA {newest} at most",
            "leave --cuda away: the driver's own follows from its version; newer cuda-compat libraries lie in images",
        )


def _derived_cuda(knowledge: Knowledge, driver: str) -> Fact[str]:
    from imgcheck.knowledge.cuda import driver_cuda, undecided_cuda

    derived = driver_cuda(knowledge, driver)
    return known(derived, f"--driver {driver}") if derived else unknown(undecided_cuda(knowledge, driver))


def _gpus(knowledge: Knowledge, names: Sequence[str]) -> Fact[tuple[Gpu, ...]]:
    if not names:
        return unknown("--gpu not given")
    if any(name.strip().lower() == _NONE for name in names):
        if len(names) > 1:
            raise UsageError("--gpu none says that there is no GPU, and cannot stand beside another --gpu")
        return absent("--gpu none")
    return known(tuple(_gpu(knowledge, name) for name in names), "--gpu")


_CAPABILITY = re.compile(r"(?:cc|sm_?|compute_?|compute capability)?\s*(\d{1,2})\.(\d)", re.IGNORECASE | re.ASCII)
_SM = re.compile(r"(?:cc|sm_?|compute_?)\s*(\d{1,2})(\d)", re.IGNORECASE | re.ASCII)


_AMD = re.compile(r"\b(gfx\d\w*|amd|radeon|instinct|mi\d{2,3}\w?)\b", re.IGNORECASE)


def _gpu(knowledge: Knowledge, name: str) -> Gpu:
    capability = _CAPABILITY.fullmatch(name.strip()) or _SM.fullmatch(name.strip())
    if capability:
        return Gpu(name=f"GPU of compute capability {capability[1]}.{capability[2]}",
                   compute_capability=f"{capability[1]}.{capability[2]}")  # fmt: skip
    from imgcheck.knowledge.gpus import by_name

    if _AMD.search(name):
        raise UsageError(
            f"--gpu {name}: AMD's GPUs cannot be described by a name",
            "keep what a node with them offers: imgcheck probe -o HOST.json, there",
        )
    product = by_name(knowledge, name)
    if product is None:
        raise UsageError(f"--gpu {name}: no such GPU is known, or more than one", hint=_near_gpus(knowledge, name))
    return Gpu(name=product.id, compute_capability=product.capability)


def _near_gpus(knowledge: Knowledge, name: str) -> str:
    from imgcheck.knowledge.gpus import near_names

    near = [f"{product.id} ({product.capability})" for product in near_names(knowledge, name)]
    if not near:
        return 'name it as nvidia-smi does ("Tesla K80", "NVIDIA A100-SXM4-40GB"), or by its capability ("cc 8.0")'
    return f"did you mean {' or '.join(near)}? (in parentheses their compute capability, which will do as well)"
