"""Fatbins and GPU cells made byte by byte, for tests that need no compiler."""

import struct
from collections.abc import Sequence

from imgcheck.check.context import Context
from imgcheck.documents.facts import CodeFacts, GpuCode, GpuModule, Linkage
from imgcheck.documents.host import Driver, Gpu, HostProfile, absent, known
from imgcheck.documents.image import Component, FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Runtime
from imgcheck.loader.closure import Closure

KNOWLEDGE = Knowledge()
PLAIN = Runtime("docker", "Docker with bare devices", (), gpu=True)
INJECTING = Runtime("nvidia", "NVIDIA's toolkit", (), gpu=True, injects_driver=True, enforces_require="always")
HOST_LIBCUDA = "/usr/lib64/libcuda.so.1"


def entry(kind: int, target: int, payload: bytes = b"\1" * 16, version: tuple[int, int] = (6, 0), flags: int = 0x11,
          header: int = 64, unpacked: int = 9999) -> bytes:  # fmt: skip
    """One fatbin entry with a header of `header` bytes."""
    payload += bytes(-len(payload) % 8)
    head = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, header, len(payload), 0, 0, version[1], version[0], target, 0, 0,
                       flags, 0, unpacked)  # fmt: skip
    return head + bytes(header - 64) + payload


def container(*entries: bytes) -> bytes:
    payload = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(payload)) + payload


def module(sass: Sequence[str] = (), ptx: Sequence[str] = (), count: int = 1) -> GpuModule:
    return GpuModule(count, tuple(sass), tuple(ptx))


def gpu_file(*modules: GpuModule, needed: Sequence[str] = (), functions: Sequence[str] = (), flags: Sequence[str] = (),
             **gpu: object) -> CodeFacts:  # fmt: skip
    linkage = Linkage(64, "x86_64", needed=tuple(needed), driver_functions=tuple(functions), flags=tuple(flags))
    return CodeFacts(1000, linkage, gpu=GpuCode(modules=modules, **gpu))


def libcuda(cuda: str, **gpu: object) -> CodeFacts:
    return CodeFacts(1000, Linkage(64, "x86_64", soname="libcuda.so.1"), gpu=GpuCode(driver_cuda=cuda, **gpu))


def image(
    files: dict[str, CodeFacts], environment: Sequence[str] = (), components: Sequence[Component] = ()
) -> ImageProfile:
    records = tuple(FileRecord(path, f"sha256:{number}", 0) for number, path in enumerate(files))
    objects = {record.object: files[record.path] for record in records}
    config = ImageConfig(environment=tuple(environment))
    return ImageProfile("1.0", "test", Platform(), config, (LayerInfo(history="RUN make"),), records, objects,
                        TreeIndex(), components=tuple(components))  # fmt: skip


def host(*gpus: Gpu, driver: str = "", userland: str = "") -> HostProfile:
    """A host with these GPUs (none: absent) and a driver; what is not given is unknown."""
    facts = Driver(known(driver, "test"), known(userland or driver, "test")) if driver else Driver()
    return HostProfile("1.0", "host", driver=facts, gpus=known(gpus, "test") if gpus else absent("test"))


K80 = Gpu("Tesla K80", compute_capability="3.7")
V100 = Gpu("Tesla V100", compute_capability="7.0", brand="tesla")
A100 = Gpu("NVIDIA A100", compute_capability="8.0", brand="tesla")
GEFORCE = Gpu("NVIDIA GeForce RTX 3090", compute_capability="8.6", brand="geforce")


def cell(profile: ImageProfile, machine: HostProfile, runtime: Runtime = INJECTING, opens: str | None = "",
         reach: str = "entry", require_gpu: bool = False) -> Context:  # fmt: skip
    """A cell in which all files are reached, and `opens` is the libcuda found: "" for the host's, None for none."""
    path = HOST_LIBCUDA if opens == "" else opens
    closure = Closure(
        reaches=dict.fromkeys((record.path for record in profile.files), reach),
        opens={"libcuda.so.1": path} if path else {},
        injected=frozenset([HOST_LIBCUDA] if runtime.injects_driver else ()),
        libcs=frozenset(["/usr/lib/libc.so.6"]),
    )
    return Context(profile, machine, runtime, KNOWLEDGE, closure, require_gpu)
