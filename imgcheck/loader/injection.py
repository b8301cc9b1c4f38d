"""The host's libraries that a runtime places in the container, and where the loader then finds them."""

from msgspec import Struct

from imgcheck import versions
from imgcheck.architectures import machine_of
from imgcheck.documents.host import HostLibrary, HostProfile
from imgcheck.documents.image import ImageProfile
from imgcheck.globs import fits
from imgcheck.knowledge.types import Runtime
from imgcheck.loader.abi import abi_of, class_of


class Injection(Struct, frozen=True):
    """Host libraries in a directory of the container."""

    directory: str
    libraries: tuple[HostLibrary, ...]
    order: str
    """One of Runtime.order."""
    ldconfig: bool = False
    """The image's ld.so.cache is rebuilt with them."""
    assumed: bool = False
    """The host's files are not known: `libraries` are the sonames that its driver is known to have."""


def injection_for(runtime: Runtime, host: HostProfile, image: ImageProfile) -> Injection | None:
    """What `runtime` injects on `host`; None where it injects nothing, or the host has nothing to inject.

    Where the host's library files are not known but its driver is, stand-ins under the runtime's sonames are assumed,
    without symbol versions (`Injection.assumed`).
    """
    machine = machine_of(image.platform.architecture)
    if not runtime.injects_driver or not _asked_for(runtime, image) or host.driver.userland.absent:
        return None
    if runtime.injects_on and not {machine, image.platform.architecture} & set(runtime.injects_on):
        return None
    libraries = tuple(
        library
        for library in host.libraries.value or ()
        if library.machine == machine and any(_matches(library, pattern) for pattern in runtime.libraries)
    )
    assumed = host.libraries.unknown and (host.driver.userland.known or host.driver.cuda.known)
    if assumed:
        libraries = tuple(_stand_in(pattern, machine) for pattern in runtime.libraries if pattern.endswith(".so*"))
    if not libraries:
        return None
    directory = runtime.directory.replace("{libdir}", library_directory(image, machine))
    return Injection(directory, libraries, _order(runtime, host), runtime.ldconfig, assumed)


def _order(runtime: Runtime, host: HostProfile) -> str:
    """The order of the version that is installed, where the host tells and that version changed it."""
    installed = host.version_of(runtime.id, runtime.programs)
    changed = (c.order for c in runtime.changes if c.order and installed and versions.at_least(installed, c.since))
    return next(changed, runtime.order)


def _asked_for(runtime: Runtime, image: ImageProfile) -> bool:
    """Whether what makes the runtime inject is in the image, or can be given by its user."""
    variables = image.config.variables
    unset = [name for name in runtime.requires_environment if variables.get(name, "") in ("", "void", "none")]
    unlabelled = [name for name in runtime.requires_labels if name not in image.config.labels]
    return not unlabelled and (not unset or bool(runtime.environment_option))


def _matches(library: HostLibrary, pattern: str) -> bool:
    return any(fits(name, pattern) for name in (library.soname, library.path.rpartition("/")[2]))


def _stand_in(pattern: str, machine: str) -> HostLibrary:
    soname = pattern.removesuffix("*") + ".1"
    return HostLibrary(path=f"/{soname}", soname=soname, machine=machine)


def library_directory(image: ImageProfile, machine: str) -> str:
    """The distribution's directory of 64-bit libraries: Debian's multiarch one where the image has it."""
    abi = abi_of(machine, class_of(machine))
    multiarch = f"/usr/lib/{abi.triplet}"
    places = (multiarch + "/", f"/lib/{abi.triplet}/")
    present = multiarch in image.tree.directories or any(record.path.startswith(places) for record in image.files)
    return multiarch if abi.triplet and present else "/usr/lib64"
