r"""ImageProfile: what an image needs, with the layer that brought each need.

Every string is valid Unicode: bytes of names that are no UTF-8 are written as `\xNN`, in paths and in what ELF files
name alike, so that both still match.
"""

from typing import Literal

from imgcheck.documents.facts import CodeFacts, Document

SCHEMA_VERSION = "1.0"

Reach = Literal["entry", "import", "path", "unreached"]


class Platform(Document, frozen=True):
    os: str = "linux"
    architecture: str = "amd64"
    """GOARCH name, as OCI uses it: amd64, arm64, ppc64le, 386."""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class ImageConfig(Document, frozen=True):
    """The part of an OCI image config that decides what runs."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """KEY=VALUE as in the config, in order."""
    working_directory: str = ""
    user: str = ""
    labels: dict[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        """The environment by name; of a name that stands twice the last, as runtimes take it."""
        return dict(line.partition("=")[::2] for line in self.environment)


class LayerInfo(Document, frozen=True):
    """One layer; `files` of the profile refer to it by its index."""

    diff_id: str = ""
    digest: str = ""
    """Digest of the blob as stored or sent; empty where there is none (dir:, docker-archive:)."""
    size: int = 0
    """Bytes of the blob."""
    history: str = ""
    """`created_by` of the config's history entry that made it."""


class FileRecord(Document, frozen=True):
    """A file of the merged tree whose bytes were analysed."""

    path: str
    """Canonical absolute path in the merged tree."""
    object: str
    """SHA-256 of its bytes, the key into `objects`."""
    layer: int
    executable: bool = False


class Script(Document, frozen=True):
    """An executable text file: what its first line runs, and what it execs where that is plain."""

    path: str
    interpreter: tuple[str, ...]
    """Words of the `#!` line."""
    execs: tuple[str, ...] = ()
    """Commands that a shell wrapper plainly hands over to (`exec prog "$@"`)."""


class CacheEntry(Document, frozen=True):
    """One line of the image's /etc/ld.so.cache."""

    soname: str
    path: str
    flags: int = 0
    hwcap: int = 0


class TreeIndex(Document, frozen=True):
    """What the loader's model needs of the tree besides the ELF files."""

    symlinks: dict[str, str] = {}
    """Absolute link path to its target as stored; only links through which a recorded file is reached."""
    ld_so_conf: tuple[str, ...] = ()
    """Directories of /etc/ld.so.conf and its includes, in order."""
    ld_so_cache: tuple[CacheEntry, ...] = ()
    ld_so_preload: tuple[str, ...] = ()
    musl_paths: dict[str, tuple[str, ...]] = {}
    """Directories of each /etc/ld-musl-ARCH.path, by that path; they replace musl's own."""
    scripts: tuple[Script, ...] = ()
    python_paths: tuple[str, ...] = ()
    """site-packages and dist-packages directories."""
    directories: tuple[str, ...] = ()
    """Directories whose presence a runtime asks for (/usr/lib64, WORKDIR, ...)."""
    files: tuple[str, ...] = ()
    """Non-ELF files whose presence decides something (/etc/passwd, /etc/group, ...)."""


class Component(Document, frozen=True):
    """A framework or library named in the summary: TensorFlow 1.12.0, CUDA 9.0, NCCL 2.3, Debian 12."""

    name: str
    version: str = ""
    path: str = ""
    minimum_capability: str = ""
    """Lowest compute capability that the framework accepts, "7.0"."""
    built_for: tuple[str, ...] = ()
    """Compute capabilities it was built for."""
    detail: str = ""

    @property
    def label(self) -> str:
        """As a summary names it: `TensorFlow 1.12.0 for 7.0`."""
        built = f" for {', '.join(self.built_for)}" if self.built_for else ""
        return f"{self.name} {self.version}".strip() + built


class Statement(Document, frozen=True):
    """One need of any host, derived from evidence alone: "GPU driver", "384.81 or newer", and why."""

    what: str
    needed: str
    because: tuple[str, ...] = ()


class ImageProfile(Document, frozen=True, tag_field="kind", tag="image"):
    """What an image needs. `objects` are facts by content, `files` say where they lie."""

    schema_version: str
    reference: str
    platform: Platform
    config: ImageConfig
    layers: tuple[LayerInfo, ...]
    files: tuple[FileRecord, ...]
    objects: dict[str, CodeFacts]
    tree: TreeIndex
    manifest_digest: str = ""
    config_digest: str = ""
    components: tuple[Component, ...] = ()
    unreadable: dict[str, str] = {}
    """Paths that could not be read, with the cause."""
    minimum: tuple[Statement, ...] = ()
    """What it needs of a driver and of GPUs, by the rules of the imgcheck that wrote the document."""
    engines: dict[str, str] = {}
    """Versions of the engines that made the facts: isa, gpu, linkage."""

    def facts(self, record: FileRecord) -> CodeFacts:
        return self.objects[record.object]
