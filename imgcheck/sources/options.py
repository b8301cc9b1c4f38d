"""How an image is to be fetched: what the command line and the environment say about it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from imgcheck.sources.registries import ShortNames


class KeptBlob(Protocol):
    """A blob on its way into the cache."""

    file: BinaryIO
    """Where its bytes are to be written, from the start."""

    def update(self, data: bytes) -> None:
        """Tell of the next bytes, for their digest."""

    def finish(self, fault: BaseException | None) -> None:
        """Put it into the cache where its digest is right; drop it where `fault` kept it from being written."""


class Cache(Protocol):
    """What sources may keep on this machine's disk."""

    def has_blob(self, digest: str) -> bool:
        """Whether `blob` would probably find it."""

    def blob(self, digest: str) -> BinaryIO | None:
        """A kept blob whose digest was compared now, from its start; None where it is not kept."""

    def keep(self, digest: str, size: int) -> KeptBlob | None:
        """A place for a blob of `size` bytes (-1: unknown); None where it is not to be kept."""

    def spill(self) -> BinaryIO | None:
        """A new file without a name; None where there is no disk for one."""

    def scratch(self) -> Path | None:
        """The directory for such files; None where it cannot be used."""


def _read_all(diff_id: str) -> bool:
    return False


@dataclass(frozen=True)
class SourceOptions:
    """Options of every source; each source reads those that concern it."""

    platform: str | None = None
    """OS/ARCH[/VARIANT] or ARCH as the user asked; None takes this machine's, else linux/amd64."""
    platform_only: bool = False
    """An index that names platforms, and not this one, is refused, as engines do; else the nearest is taken."""
    plain_http: bool = False
    """Speak HTTP without TLS to the registry."""
    insecure: bool = False
    """Accept any TLS certificate."""
    username: str = ""
    password: str = field(default="", repr=False)
    authfile: str = ""
    """Credentials file asked for by name; "" searches the places of Podman and Docker."""
    ca_file: str = ""
    """PEM file of further certificate authorities."""
    short_names: "ShortNames | None" = None
    """Where names without a registry lead; None as imgcheck ships it."""
    timeout: float = 30.0
    """Seconds without an answer or a byte after which a connection counts as dead."""
    attempts: int = 5
    """How often a request is tried that ends in 429, 5xx or a broken connection."""
    backoff: float = 1.0
    """Seconds before the second attempt where the server names none; doubled each time."""
    spool_limit: int = 64 << 30
    """Most bytes that an archive from a pipe, or a compressed one, may take in the temporary directory."""
    cache: Cache | None = None
    """Where blobs are kept and spilt; None keeps everything in memory."""
    unread: Callable[[str], bool] = _read_all
    """Says by its diff_id whether a layer will not be read, so that it is not fetched ahead."""
    ahead_in_memory: int = 64 << 20
    """Most bytes of layers that may be in memory before they are asked for."""
    ahead_on_disk: int = 1 << 30
    """Most bytes of them that may be spilt to the cache besides."""
