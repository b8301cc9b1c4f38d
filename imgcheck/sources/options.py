"""How an image is to be fetched: what the command line and the environment say about it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SourceOptions:
    """Options of every source; each source reads those that concern it."""

    platform: str | None = None
    """OS/ARCH[/VARIANT] or ARCH as the user asked; None takes this machine's, else linux/amd64."""
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
    timeout: float = 30.0
    """Seconds without an answer or a byte after which a connection counts as dead."""
    attempts: int = 5
    """How often a request is tried that ends in 429, 5xx or a broken connection."""
    backoff: float = 1.0
    """Seconds before the second attempt where the server names none; doubled each time."""
    spool_limit: int = 64 << 30
    """Most bytes that an archive from a pipe, or a compressed one, may take in the temporary directory."""
