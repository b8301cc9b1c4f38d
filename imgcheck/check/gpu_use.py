"""Whether an image wants a GPU of NVIDIA, and by which CUDA runtimes; and whether a host lacks one."""

from collections.abc import Iterator

from msgspec import Struct

from imgcheck.documents.facts import LIBCUDA, CodeFacts
from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import FileRecord, ImageProfile

_RUNTIME = "libcudart.so."


class RuntimeUse(Struct, frozen=True):
    """A CUDA runtime that a file holds or is linked against."""

    record: FileRecord
    version: str
    how: str


def cuda_runtimes(image: ImageProfile) -> tuple[RuntimeUse, ...]:
    """CUDA runtimes in the image's code, and those that files are linked against."""
    objects = image.objects
    return tuple(
        RuntimeUse(record, version, how)
        for record in image.files
        for version, how in runtimes_of(record.path, objects[record.object])
    )


def runtimes_of(path: str, facts: CodeFacts) -> Iterator[tuple[str, str]]:
    """Version of each CUDA runtime that the file at `path` uses, and how."""
    if facts.gpu and facts.gpu.cudart:
        yield facts.gpu.cudart, "the runtime itself" if "libcudart.so" in path else "linked into it"
    for name in facts.linkage.needed if facts.linkage else ():
        if name.startswith(_RUNTIME) and (version := _release(name)):
            yield version, f"linked against {name}"


def _release(soname: str) -> str:
    """The release that a CUDA runtime is named after: "10.2" of libcudart.so.10.2, "12.0" of libcudart.so.12."""
    numbers = soname.removeprefix(_RUNTIME).split(".")
    return ".".join((*numbers, "0")[:2]) if all(number.isdecimal() for number in numbers) else ""


def needs_driver(facts: CodeFacts) -> bool:
    """Whether a file asks for the driver's library by its name, or for functions of it."""
    linkage = facts.linkage
    return linkage is not None and (LIBCUDA in linkage.needed or bool(linkage.driver_functions))


def wants_nvidia(image: ImageProfile) -> bool:
    """Whether the image has code for GPUs of NVIDIA, a CUDA runtime, or calls of their driver."""
    return any(_wants_nvidia(facts) for facts in image.objects.values())


def _wants_nvidia(facts: CodeFacts) -> bool:
    return bool(facts.gpu and facts.gpu.modules) or needs_driver(facts) or any(runtimes_of("", facts))


def lacks_nvidia(host: HostProfile) -> bool:
    """Whether the host is known to have no GPU of NVIDIA, or no driver for one."""
    if any(gpu.vendor == "nvidia" for gpu in host.gpus.value or ()):
        return False
    return not host.gpus.unknown or host.driver.kernel_module.absent
