"""What people type for an image, taken apart. Looks at the file system only to tell a path from a name."""

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from imgcheck.digests import is_digest
from imgcheck.errors import SourceError
from imgcheck.sif_format import BARE_SQUASHFS, MAGIC, MAGIC_AT, bare_squashfs_at
from imgcheck.sources.splitting import split_path

Kind = Literal[
    "registry",
    "oci",
    "oci-archive",
    "docker-archive",
    "docker-daemon",
    "containers-storage",
    "dir",
    "sif",
    "archive",
    "profile",
]
"""`archive` is a tar whose members tell which archive it is; `profile` an ImageProfile document; `sif` also a bare
squashfs image."""

_SCHEMES: tuple[Kind, ...] = (
    "oci-archive",
    "docker-archive",
    "docker-daemon",
    "containers-storage",
    "oci",
    "dir",
    "sif",
)
_NAMED: tuple[Kind, ...] = ("docker-daemon", "containers-storage")

# The grammar of the Distribution project's `reference` package, which docker, podman and others share.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://")
_PULL = "apptainer pull FILE.sif {text}, then name that file"
_ELSEWHERE = {"library": _PULL, "shub": _PULL, "oras": _PULL}
"""Schemes of image stores that are others' to speak with, and the way out."""
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{{1,5}}))?")
_LONGEST_NAME = 255

FILE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".sif", ".json", ".sqsh", ".img", ".simg")
_ROOT_SIGNS = ("bin", "usr", "etc", "lib", "lib64", "opt", ".singularity.d", "ch")


@dataclass(frozen=True)
class Reference:
    """An image by its place: `path` for what lies in files, `registry` and `repository` for what has a name."""

    kind: Kind
    text: str
    """As the user wrote it."""
    path: str = ""
    """File or directory; "-" is standard input."""
    registry: str = ""
    """HOST[:PORT] as written; "" for a short name, whose registry is configuration."""
    repository: str = ""
    tag: str = ""
    """Tag of a name; of an archive or layout, the image's name in it. "" where none is given."""
    digest: str = ""

    @property
    def name(self) -> str:
        """The name without transport: [registry/]repository[:tag][@digest]."""
        full = f"{self.registry}/{self.repository}" if self.registry else self.repository
        return full + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def is_tag(text: str) -> bool:
    return bool(_TAG.fullmatch(text))


def is_registry_host(text: str) -> bool:
    """Whether `text` is HOST[:PORT]: a name, an IPv4 address, or an IPv6 address in brackets."""
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65535:
        return False
    return found["ipv6"] is None or _is_ipv6(found["ipv6"])


def _is_ipv6(text: str) -> bool:
    import ipaddress  # for addresses alone, and most references hold none

    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def parse(text: str) -> Reference:
    """The reference that `text` writes. Raises SourceError where it is no name and no image lies at that path."""
    if not text or text != text.strip() or "\0" in text:
        raise SourceError(f"{text!r} is not an image reference", hint="give NAME[:TAG], oci:DIR, or a path")
    if text == "-":
        return Reference("archive", text, path="-")
    if text.startswith("docker://"):
        return parse_name(text.removeprefix("docker://"), text)
    for kind in _SCHEMES:
        if text.startswith(kind + ":"):
            return _schemed(kind, text.removeprefix(kind + ":"), text)
    if _means_path(text):
        return recognise(text)
    if url := _URL.match(text):
        hint = _ELSEWHERE.get(url[1], "write HOST/NAME[:TAG] for an image in a registry, or name a file that lies here")
        raise SourceError(f"{text}: imgcheck fetches nothing by {url[1]}://", hint=hint.replace("{text}", text))
    return parse_name(text, text)


def local_hint(text: str) -> str:
    """What on this machine may have been meant by `text`, which a registry was asked for; "" where it names that."""
    if text.startswith("docker://"):
        return ""
    if Path(text).exists():
        return f"a name leads to a registry; for what lies here write ./{text}"
    if text.startswith("docker:"):
        return f"an image in a registry is written docker://{text.removeprefix('docker:')}, or without docker:"
    return _layout_hint(text) or "no file or directory of that name is here either"


def _layout_hint(text: str) -> str:
    path, name, _ = split_path(text)
    is_layout = bool(name) and (Path(path) / "oci-layout").is_file()
    return f"did you mean oci:{text}? {path} is an OCI layout" if is_layout else ""


def parse_name(name: str, text: str, kind: Kind = "registry") -> Reference:
    """[HOST[:PORT]/]REPOSITORY[:TAG][@DIGEST], `text` being what the user wrote for it."""
    rest, at, digest = name.partition("@")
    if at and not is_digest(digest):
        raise SourceError(
            f"{text}: {digest!r} is not a digest", hint="a digest is sha256: followed by 64 lower-case hex digits"
        )
    rest, tag = _split_tag(rest)
    registry, repository = _split_registry(rest)
    if tag is not None and not is_tag(tag):
        raise SourceError(f"{text}: {tag!r} is not a tag", hint="tags are letters, digits, '_', '.' and '-'")
    _check_repository(repository, text)
    if registry and not is_registry_host(registry):
        hint = local_hint(text) if text.startswith("docker:") else ""
        raise SourceError(f"{text}: {registry!r} is not a registry host", hint=hint)
    return Reference(kind, text, registry=registry, repository=repository, tag=tag or "", digest=digest)


def recognise(text: str) -> Reference:
    """The reference for the file or directory at path `text`, told by its content."""
    path = Path(text)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return Reference(_directory_kind(path), text, path=text)
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise SourceError(f"{text}: neither a file nor a directory")
        return Reference(_file_kind(path) if stat.S_ISREG(mode) else "archive", text, path=text)
    except OSError as error:
        raise SourceError(f"{text}: {error.strerror or error}", _layout_hint(text)) from None


def _schemed(kind: Kind, rest: str, text: str) -> Reference:
    if not rest:
        raise SourceError(f"{text}: nothing after {kind}:", hint=f"give {kind}:PATH")
    if kind in _NAMED:
        return parse_name(rest, text, kind)
    if kind in ("dir", "sif"):
        return Reference(kind, text, path=rest)
    path, inside, digest = split_path(rest)
    if digest and not is_digest(digest):
        raise SourceError(f"{text}: {digest!r} is not a digest")
    return Reference(kind, text, path=path, tag=inside, digest=digest)


def _means_path(text: str) -> bool:
    if text.startswith(("/", "./", "../")) or text in (".", ".."):
        return True
    if ("/" in text or "." in text) and len(text) < 4096 and Path(text).exists():
        return True
    if "/" not in text and text.lower().endswith(FILE_ENDINGS):
        raise SourceError(f"{text}: no such file")
    return False


def _split_tag(name: str) -> tuple[str, str | None]:
    head, colon, tail = name.rpartition(":")
    if colon and "/" not in tail:
        return head, tail
    return name, None


def _split_registry(name: str) -> tuple[str, str]:
    """A first component with a dot or colon, or `localhost`, is a host; without it the name is short."""
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return first, rest
    return "", name


def _check_repository(repository: str, text: str) -> None:
    if len(repository) > _LONGEST_NAME:
        raise SourceError(f"{text[:80]}...: a repository name has at most {_LONGEST_NAME} characters")
    if _REPOSITORY.fullmatch(repository):
        return
    if _REPOSITORY.fullmatch(repository.lower()):
        raise SourceError(f"{text}: repository names are lower case", hint=f"try {text.lower()}")
    raise SourceError(
        f"{text}: not an image reference, and no file or directory of that name",
        hint="give NAME[:TAG][@DIGEST], oci:DIR, docker-archive:FILE, dir:ROOT or an existing path",
    )


def _directory_kind(path: Path) -> Kind:
    if (path / "oci-layout").is_file() or ((path / "index.json").is_file() and (path / "blobs").is_dir()):
        return "oci"
    if (path / "ROOT").is_dir() or any((path / sign).exists() for sign in _ROOT_SIGNS):
        return "dir"
    raise SourceError(
        f"{path}: neither an OCI layout nor an unpacked root",
        hint="for a root without the usual directories write dir:PATH",
    )


def _file_kind(path: Path) -> Kind:
    with path.open("rb") as file:
        head = file.read(512)
    if head[MAGIC_AT:].startswith(MAGIC) or head[bare_squashfs_at(head) :].startswith(BARE_SQUASHFS):
        return "sif"
    if head.startswith(b"\x7fELF"):
        raise SourceError(f"{path}: a single binary, not an image", hint=f"try imgcheck binary {path}")
    if head.lstrip().startswith(b"{"):
        return "profile"
    return "archive"
