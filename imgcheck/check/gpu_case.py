"""What the GPU rules judge in one cell: the image's GPU needs, the host's GPUs and driver, and the libcuda opened."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from imgcheck.architectures import machine_of
from imgcheck.check.context import Context
from imgcheck.check.gpu_use import RuntimeUse, cuda_runtimes, lacks_nvidia
from imgcheck.documents.facts import LIBCUDA, CodeFacts, ForwardCompat, GpuCode
from imgcheck.documents.host import HostLibrary
from imgcheck.documents.image import Component, FileRecord
from imgcheck.documents.report import Evidence
from imgcheck.knowledge import cuda, gpus
from imgcheck.knowledge.changes import does
from imgcheck.versions import compare, is_driver, parse

_OVERRIDE, _GFX_VERSION = "HSA_OVERRIDE_GFX_VERSION", r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})"
_SHOWN = 8
"""Files that are evidence of a need for a GPU."""
_COMPAT_PLACE = r"/usr/local/cuda(?:-\d+(?:\.\d+)?)?/compat/"


class Kind(Struct, frozen=True):
    """GPUs of one name and compute capability on the host."""

    name: str
    capability: str
    """Empty where not known."""
    brand: str = ""
    target: str = ""
    """Of AMD GPUs."""
    first_driver: str = ""
    """Oldest driver that lists the product, where its capability is older."""

    @property
    def label(self) -> str:
        detail = self.capability or self.target
        name = self.name or "GPU"
        return f"{name} ({detail})" if detail else name


class Span(Struct, frozen=True):
    """A CUDA version of a driver; of one whose branch no table has, the oldest and the newest that it may be."""

    oldest: str = ""
    """Empty where not known."""
    newest: str = ""
    """Empty where nothing tells."""

    def reaches(self, version: str) -> bool | None:
        """Whether it is `version` or newer; None where that is open."""
        if self.oldest and compare(self.oldest, version) >= 0:
            return True
        return False if self.newest and compare(self.newest, version) < 0 else None

    def __str__(self) -> str:
        if self.oldest == self.newest:
            return self.oldest
        return f"{self.oldest} to {self.newest}" if self.newest else f"{self.oldest} or newer"


class Opened(Struct, frozen=True):
    """The libcuda.so.1 that the command would open."""

    path: str
    injected: bool
    driver: str
    """Version of the driver it belongs to; empty where not known."""
    cuda: Span
    """CUDA version that it reports."""
    stub: bool = False
    compat: bool = False
    note: ForwardCompat | None = None
    record: FileRecord | None = None
    functions: frozenset[str] | None = None
    """Its exports, where the host's file was read."""


class Case:
    """One cell as the GPU rules see it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.knowledge = context.knowledge
        self.judged: dict[Kind, list[Any]] = {}
        """What gpu_targets.judge said of each kind of GPU."""

    @cached_property
    def files(self) -> tuple[tuple[FileRecord, CodeFacts], ...]:
        objects = self.context.image.objects
        return tuple([(record, objects[record.object]) for record in self.context.image.files])

    @cached_property
    def code(self) -> tuple[tuple[FileRecord, GpuCode], ...]:
        """Files with code for NVIDIA GPUs."""
        return tuple((r, f.gpu) for r, f in self.files if f.gpu and f.gpu.modules)

    @cached_property
    def amd_code(self) -> tuple[tuple[FileRecord, GpuCode], ...]:
        return tuple((r, f.gpu) for r, f in self.files if f.gpu and f.gpu.amd)

    @cached_property
    def runtimes(self) -> tuple[RuntimeUse, ...]:
        return cuda_runtimes(self.context.image)

    @cached_property
    def linked(self) -> tuple[FileRecord, ...]:
        """Files that name libcuda.so.1 as needed: what starts or imports them does not without it."""
        named = (r for r, facts in self.files if facts.linkage and LIBCUDA in facts.linkage.needed)
        return tuple(record for record in named if not self.opened_later(record.path))

    def opened_later(self, path: str) -> bool:
        """Whether the file at `path` is a library that no program or module needs: what opens it goes on without it.

        PyTorch opens libcaffe2_nvrtc.so, which needs libcuda.so.1, when it first compiles a kernel.
        """
        begun = self.context.closure.users.get(path, path)
        record = self.context.records.get(begun)
        linkage = self.context.image.facts(record).linkage if record else None
        if linkage is None or begun not in self.context.closure.loaded:
            return False
        return not linkage.python_module and (linkage.type != "executable" or bool(linkage.soname))

    @cached_property
    def wants_nvidia(self) -> bool:
        return bool(self.context.nvidia_files)

    @cached_property
    def gpu_files(self) -> tuple[FileRecord, ...]:
        """Every file that needs a GPU of any vendor, once; what the command reaches first."""
        every = {record.path: record for record in (*self.context.nvidia_files, *(r for r, _ in self.amd_code))}
        return tuple(sorted(every.values(), key=lambda record: self.context.closure.rank(record.path)))

    def evidence_of_use(self, detail: str) -> tuple[Evidence, ...]:
        """Evidence at the first of these files, which decide."""
        return tuple(self.context.evidence(record, detail) for record in self.gpu_files[:_SHOWN])

    @cached_property
    def environment(self) -> Mapping[str, str]:
        settings = (setting.partition("=") for setting in self.context.image.config.environment)
        return {key: value for key, _, value in settings}

    @cached_property
    def components(self) -> Mapping[str, Component]:
        return {component.name: component for component in self.context.image.components}

    def framework(self, names: tuple[str, ...] = ("TensorFlow", "PyTorch")) -> str:
        """Which framework's wording the user sees: of the first of `names` in the image, in lower case; else ""."""
        return next((name.lower() for name in names if name in self.components), "")

    def wording(self, frameworks: bool = True) -> str:
        """The variant whose text the user sees: PyTorch's, or the error numbers of CUDA before 10.1."""
        if frameworks and "PyTorch" in self.components:
            return "pytorch"
        newest = max((use.version for use in self.runtimes), key=parse, default="")
        return "before-10-1" if newest and not does(self.knowledge, "cuda-renumbers-errors", newest) else ""

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """NVIDIA GPUs of the host, equal ones once; empty where there are none or they are not known."""
        found: dict[Kind, None] = {}
        for gpu in self.context.host.gpus.value or ():
            if gpu.vendor == "nvidia":
                product = gpus.by_name(self.knowledge, gpu.name) if gpu.name else None
                product = product or (gpus.by_pci_id(self.knowledge, gpu.pci_id) if gpu.pci_id else None)
                stated = gpu.compute_capability if parse(gpu.compute_capability) else ""
                capability = stated or (product.capability if product else "")
                first = product.first_driver if product else ""
                kind = Kind(gpu.name, capability, gpu.brand or _brand(gpu.name), first_driver=first)
                found[kind] = None
        return tuple(found)

    @cached_property
    def amd_kinds(self) -> tuple[Kind, ...]:
        """AMD's GPUs of the host, as they are to the image: HSA_OVERRIDE_GFX_VERSION makes them pass for others."""
        host = self.context.host.gpus.value or ()
        override = self.environment.get(_OVERRIDE)
        stated = re.fullmatch(_GFX_VERSION, override, re.ASCII) if override else None
        other = "gfx{}{:x}{:x}".format(*map(int, stated.groups())) if stated else ""
        return tuple(dict.fromkeys(Kind(g.name, "", target=other or g.target) for g in host if g.vendor == "amd"))

    @cached_property
    def lacks_nvidia(self) -> bool:
        """Whether the host is known to have no NVIDIA GPU, or no driver for one."""
        return lacks_nvidia(self.context.host)

    @cached_property
    def lacks_gpu(self) -> bool:
        """Whether the host is known to have no GPU of a vendor that the image has code for, or without code of any."""
        lacks_amd = not self.amd_kinds and not self.context.host.gpus.unknown
        if not self.wants_nvidia and not self.amd_code:
            return self.lacks_nvidia and lacks_amd
        return (self.lacks_nvidia or not self.wants_nvidia) and (lacks_amd or not self.amd_code)

    @cached_property
    def driver_cuda(self) -> Span:
        """CUDA version of the driver library that the process gets, else of the host's driver."""
        return self.opened.cuda if self.opened and not self.opened.stub else self.host_cuda

    @cached_property
    def kernel_driver(self) -> str:
        """Version of the host's kernel module; empty where absent, not known, or no version."""
        version = self.context.host.driver.kernel_module.value or ""
        return version if parse(version) else ""

    @cached_property
    def host_cuda(self) -> Span:
        """CUDA version of the host's own driver."""
        driver = self.context.host.driver
        version = driver.userland.value or driver.kernel_module.value
        return self._cuda(driver.cuda.value or "", version or "")

    def _cuda(self, reported: str, driver: str) -> Span:
        """The version that is `reported`, else that of the driver's branch."""
        if reported:
            return Span(reported, reported)
        oldest = cuda.oldest_cuda(self.knowledge, driver)
        return Span(oldest, cuda.newest_cuda(self.knowledge, driver) or "") if oldest else Span()

    @cached_property
    def opened(self) -> Opened | None:
        """The libcuda that the command would open; None where the loader finds none."""
        compat = self._activated_compat()
        if compat:
            return compat
        path = self.context.closure.opens.get(LIBCUDA) or self._injected_without_loader()
        if path is None:
            return None
        record = self.context.records.get(path)
        if path in self.context.closure.injected or record is None:
            return self._host_libcuda(path)
        return self._image_libcuda(record)

    def _injected_without_loader(self) -> str | None:
        """What the runtime injects, where the image has no C library and so no search that could find it or not."""
        closure = self.context.closure
        if closure.libcs:
            return None
        return next((path for path in sorted(closure.injected) if path.rpartition("/")[2] == LIBCUDA), None)

    def _host_libcuda(self, path: str) -> Opened:
        library = self._host_library(LIBCUDA)
        functions = frozenset(library.functions) if library and library.functions else None
        return Opened(path, True, self.host_driver, self.host_cuda, functions=functions)

    @cached_property
    def host_driver(self) -> str:
        """Version of the host's driver libraries, else of its kernel module; empty where not known."""
        library = self._host_library(LIBCUDA)
        named = library.version if library and is_driver(library.version) else ""
        return self.context.host.driver.userland.value or named or self.kernel_driver

    def _host_library(self, soname: str) -> HostLibrary | None:
        libraries = self.context.host.libraries.value or ()
        machine = machine_of(self.context.image.platform.architecture)
        return next(
            (lib for lib in libraries if lib.soname == soname and lib.machine == (machine or lib.machine)), None
        )

    def _image_libcuda(self, record: FileRecord) -> Opened:
        gpu = self.context.image.facts(record).gpu or GpuCode()
        version = driver_version(record.path) or gpu.driver_version
        return Opened(
            record.path,
            False,
            version,
            self._cuda(gpu.driver_cuda, version),
            stub=gpu.stub or "/stubs/" in record.path,
            compat=gpu.forward_compat is not None or "/compat/" in record.path,
            note=gpu.forward_compat,
            record=record,
        )

    @cached_property
    def compat_libraries(self) -> tuple[Opened, ...]:
        """The image's cuda-compat libcuda files, whether anything opens them or not."""
        found = (self._image_libcuda(r) for r, f in self.files if f.gpu and is_libcuda(r.path))
        return tuple(opened for opened in found if opened.compat)

    def _activated_compat(self) -> Opened | None:
        """The compat library that the runtime itself puts first, by the rule of NVIDIA's hook.

        NVIDIA Container Toolkit, cmd/nvidia-cdi-hook/cudacompat: one library in /usr/local/cuda/compat; by its note
        where it has one, else by the driver's major version.
        """
        libraries = [lib for lib in self.compat_libraries if re.match(_COMPAT_PLACE, lib.path)]
        if not self.context.runtime.applies_compat or len(libraries) != 1 or not self.kernel_driver:
            return None
        return libraries[0] if compat_serves(libraries[0], self.kernel_driver, self.host_cuda) else None


def compat_serves(library: Opened, kernel_driver: str, host_cuda: Span) -> bool:
    """Whether cuda-compat's `library` is newer than the host's driver and lists its branch, as far as it says."""
    branch = parse(kernel_driver)[:1]
    if library.note:
        newer = not host_cuda.oldest or compare(library.note.cuda, host_cuda.oldest) > 0
        return newer and branch[0] in library.note.drivers if branch else False
    return bool(branch) and parse(library.driver)[:1] > branch


def is_libcuda(path: str) -> bool:
    return path.rpartition("/")[2].startswith("libcuda.so")


def driver_version(path: str) -> str:
    """Driver version in the name of a driver library: "libcuda.so.390.30" gives "390.30"."""
    version = path.rpartition("/")[2].partition(".so.")[2]
    return version if is_driver(version) else ""


def _brand(name: str) -> str:
    """NVML's brand of a product where its name says it."""
    lower = name.lower()
    for word, brand in (("geforce", "geforce"), ("titan", "titan"), ("quadro rtx", "quadrortx"), ("quadro", "quadro"),
                        ("tesla", "tesla"), ("grid", "grid")):  # fmt: skip
        if word in lower:
            return brand
    return ""
