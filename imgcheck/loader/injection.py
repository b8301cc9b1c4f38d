"""The host's libraries that a runtime places in the container, and where the loader then finds them."""

from dataclasses import dataclass

from imgcheck.documents.host import HostLibrary, HostProfile
from imgcheck.documents.image import ImageProfile
from imgcheck.knowledge.types import Runtime


@dataclass(frozen=True)
class Injection:
    """Host libraries in a directory of the container."""

    directory: str
    libraries: tuple[HostLibrary, ...]
    order: str
    """One of Runtime.order."""
    ldconfig: bool = False
    """The image's ld.so.cache is rebuilt with them."""
    assumed: bool = False
    """The host's files are not known: `libraries` are the sonames that its driver is known to have."""


def injection_for(
    runtime: Runtime, host: HostProfile, image: ImageProfile, driver_sonames: tuple[str, ...] = ()
) -> Injection | None:
    """What `runtime` injects on `host`; None where it injects nothing, or the host has no driver to inject.

    Where the host's libraries are not known but its driver is, stand-ins named `driver_sonames` without symbol
    versions are assumed (`Injection.assumed`).
    """
    raise NotImplementedError
