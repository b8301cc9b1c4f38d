"""Whether an image wants a GPU of NVIDIA, and by which CUDA runtimes; and whether a host lacks one."""

from collections.abc import Iterator, Set

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
    """CUDA runtimes in the image's code, and those of it that files are linked against."""
    objects, held = image.objects, held_runtimes(image)
    return tuple(
        RuntimeUse(record, version, how)
        for record in image.files
        for version, how in runtimes_of(record.path, objects[record.object], held)
    )


def held_runtimes(image: ImageProfile) -> frozenset[str]:
    """File names of the CUDA runtimes in the image, those of links among them.

    What is linked against another one does not start (LIB001), so that nobody asks the driver for it: bitsandbytes has
    a library for each CUDA there is, and loads the one for the CUDA of PyTorch.
    """
    paths = (*(record.path for record in image.files), *image.tree.symlinks)
    return frozenset(name for path in paths if (name := path.rpartition("/")[2]).startswith(_RUNTIME))


def runtimes_of(path: str, facts: CodeFacts, held: Set[str]) -> Iterator[tuple[str, str]]:
    """Version of each CUDA runtime that the file at `path` uses, of those `held` in the image, and how."""
    if facts.gpu and facts.gpu.cudart:
        yield facts.gpu.cudart, "the runtime itself" if "libcudart.so" in path else "linked into it"
    for name in facts.linkage.needed if facts.linkage else ():
        if name in held and (version := _release(name)):
            yield version, f"linked against {name}"


def _release(soname: str) -> str:
    """The release that a CUDA runtime is named after: "10.2" of libcudart.so.10.2, "12.0" of libcudart.so.12."""
    numbers = soname.removeprefix(_RUNTIME).split(".")
    return ".".join((*numbers, "0")[:2]) if all(number.isdecimal() for number in numbers) else ""


def needs_driver(facts: CodeFacts) -> bool:
    """Whether a file asks for the driver's library by its name, or for functions of it."""
    linkage = facts.linkage
    return linkage is not None and (LIBCUDA in linkage.needed or bool(linkage.driver_functions))


def wants_nvidia(facts: CodeFacts) -> bool:
    """Whether a file has code for GPUs of NVIDIA, uses a CUDA runtime, or calls their driver."""
    needed = facts.linkage.needed if facts.linkage else ()
    linked = any(name.startswith(_RUNTIME) and _release(name) for name in needed)
    return bool(facts.gpu and (facts.gpu.modules or facts.gpu.cudart)) or needs_driver(facts) or linked


def lacks_nvidia(host: HostProfile) -> bool:
    """Whether the host is known to have no GPU of NVIDIA, or no driver for one."""
    if any(gpu.vendor == "nvidia" for gpu in host.gpus.value or ()):
        return False
    return not host.gpus.unknown or host.driver.kernel_module.absent
