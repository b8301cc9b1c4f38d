"""HostProfile: what a machine offers. Each fact is known, absent or unknown, with its source."""

from typing import Generic, Literal, TypeVar

from imgcheck.documents.facts import Document, Verneed

SCHEMA_VERSION = "1.0"

T = TypeVar("T")


class Fact(Document, Generic[T], frozen=True):
    """A host fact: known with a value, known to be absent, or unknown."""

    state: Literal["known", "absent", "unknown"] = "unknown"
    value: T | None = None
    source: str = ""
    """Where it was read ("/proc/driver/nvidia/version", "--gpu"), or why it is unknown."""

    @property
    def known(self) -> bool:
        return self.state == "known"

    @property
    def absent(self) -> bool:
        return self.state == "absent"

    @property
    def unknown(self) -> bool:
        return self.state == "unknown"


def known(value: T, source: str) -> Fact[T]:
    return Fact("known", value, source)


def absent(source: str) -> Fact:
    return Fact("absent", None, source)


def unknown(source: str = "") -> Fact:
    return Fact("unknown", None, source)


class Cpu(Document, frozen=True):
    architecture: Fact[str] = Fact()
    """As Linkage.machine: x86_64, aarch64, ppc64le."""
    model: Fact[str] = Fact()
    """Name of the product: "Intel(R) Xeon(R) CPU E7-4830 v3 @ 2.10GHz"."""
    microarchitecture: Fact[str] = Fact()
    """archspec's name: haswell, skylake_avx512, power8le."""
    features: Fact[tuple[str, ...]] = Fact()
    """Ids of rules/cpus/features, sorted. A feature not listed is absent."""


class Gpu(Document, frozen=True):
    name: str = ""
    vendor: Literal["nvidia", "amd"] = "nvidia"
    compute_capability: str = ""
    """"3.7"; empty where unknown."""
    target: str = ""
    """AMD: "gfx90a:sramecc+:xnack-"."""
    pci_id: str = ""
    """"10de:102d"."""
    brand: str = ""
    """NVML brand in lower case: tesla, geforce, quadrortx; empty where unknown."""
    mig: bool = False
    """The instance is a MIG slice of the product named."""


class HostLibrary(Document, frozen=True):
    """A library of the host that a runtime may inject: driver, GL dispatch, MPI, fabric."""

    path: str
    soname: str
    machine: str = "x86_64"
    version: str = ""
    """Suffix of the real file's name: "396.44", "40.30.4"."""
    needed: tuple[str, ...] = ()
    verneed: tuple[Verneed, ...] = ()
    verdef: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    """For libcuda: the cu* functions that it exports."""
    markers: tuple[str, ...] = ()


class Driver(Document, frozen=True):
    """The NVIDIA driver: its kernel module, its user-land libraries and its CUDA version."""

    kernel_module: Fact[str] = Fact()
    userland: Fact[str] = Fact()
    cuda: Fact[str] = Fact()
    """CUDA version of cuDriverGetVersion: "9.2"."""


class InstalledRuntime(Document, frozen=True):
    id: str
    """A name of rules/runtimes: docker, apptainer-nv."""
    version: str = ""
    path: str = ""


class HostProfile(Document, frozen=True, tag_field="kind", tag="host"):
    """What a machine offers."""

    schema_version: str
    name: str
    """Host name, or the description it was made from."""
    cpu: Cpu = Cpu()
    kernel: Fact[str] = Fact()
    glibc: Fact[str] = Fact()
    driver: Driver = Driver()
    gpus: Fact[tuple[Gpu, ...]] = Fact()
    """All GPUs of the node, one entry each."""
    libraries: Fact[tuple[HostLibrary, ...]] = Fact()
    runtimes: Fact[tuple[InstalledRuntime, ...]] = Fact()
    distribution: Fact[str] = Fact()
    """PRETTY_NAME of os-release."""
    count: int = 1
    """Number of equal machines this profile stands for."""
    described: bool = False
    """Made from options, not probed: its name says all that is known."""
    vsyscall: Fact[bool] = Fact()
    """Whether the kernel maps the vsyscall page, which x86-64 programs of before 2011 call into."""
    fabrics: Fact[tuple[str, ...]] = Fact()
    """Kernel drivers of the node's fast networks, sorted: mlx5_core, hfi1, efa, cxi_core."""

    def version_of(self, runtime: str, programs: tuple[str, ...] = ()) -> str:
        """The installed version of the container runtime with that id; empty where it is not known.

        That of the last of `programs` is as good: whoever probed the host may not have known a site's own runtimes.
        """
        installed = self.runtimes.value or ()
        named = [each.version for each in installed if each.id == runtime]
        same = [each.version for each in installed if each.path.rpartition("/")[2] in programs[-1:]]
        return next(filter(None, (*named, *same)), "")
