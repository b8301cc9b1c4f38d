"""Small OCI layouts written in plain Python, for tests that need an image of exactly this or that content."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_SUFFIX = {"gzip": "+gzip", "zstd": "+zstd", "none": ""}


@dataclass(frozen=True)
class File:
    content: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class Symlink:
    target: str


@dataclass(frozen=True)
class Hardlink:
    """Another name of a path of this or a lower layer."""

    target: str


@dataclass(frozen=True)
class Directory:
    mode: int = 0o755


@dataclass(frozen=True)
class Fifo:
    mode: int = 0o644


@dataclass(frozen=True)
class Whiteout:
    """Removes the path it is given for from the layers below."""


@dataclass(frozen=True)
class Opaque:
    """Hides what the layers below have in the directory it is given for."""


Member = File | Symlink | Hardlink | Directory | Fifo | Whiteout | Opaque | bytes | str | Path
"""Bytes and str are files with mode 0644; a Path is a copy of that file with its mode, links followed."""


def layer_tar(members: Mapping[str, Member]) -> bytes:
    """An uncompressed layer of `members` in the given order; equal members give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, member in members.items():
            info, content = _tar_member(path.strip("/"), member)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _tar_member(name: str, member: Member) -> tuple[tarfile.TarInfo, bytes]:
    if isinstance(member, str):
        member = File(member.encode())
    elif isinstance(member, bytes):
        member = File(member)
    elif isinstance(member, Path):
        member = File(member.read_bytes(), member.stat().st_mode & 0o7777)
    parent, _, base = name.rpartition("/")
    content = b""
    info = tarfile.TarInfo(name)
    match member:
        case File(content, mode, uid, gid):
            info.mode, info.uid, info.gid, info.size = mode, uid, gid, len(content)
        case Symlink(target):
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        case Hardlink(target):
            info.type, info.linkname = tarfile.LNKTYPE, target.strip("/")
        case Directory(mode):
            info.type, info.mode = tarfile.DIRTYPE, mode
        case Fifo(mode):
            info.type, info.mode = tarfile.FIFOTYPE, mode
        case Whiteout():
            info.name = f"{parent}/.wh.{base}" if parent else f".wh.{base}"
        case Opaque():
            info.name = f"{name}/.wh..wh..opq" if name else ".wh..wh..opq"
    return info, content


def compress(data: bytes, compression: str) -> bytes:
    """`data` as gzip, zstd or none would store it in a layer; reproducible."""
    if compression == "gzip":
        return gzip.compress(data, compresslevel=6, mtime=0)
    if compression == "zstd":
        import zstandard

        return zstandard.compress(data)
    return data


@dataclass(frozen=True)
class BuiltLayer:
    tar: bytes
    history: str
    compression: str
    media_type: str = ""


@dataclass
class ImageBuilder:
    """Collects layers and configuration of one image; `write_layout` puts one or several into an OCI layout."""

    architecture: str = "amd64"
    os: str = "linux"
    variant: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    working_directory: str = ""
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    layers: list[BuiltLayer] = field(default_factory=list)

    def layer(
        self,
        members: Mapping[str, Member] | bytes,
        history: str = "",
        compression: str = "gzip",
        media_type: str = "",
    ) -> "ImageBuilder":
        """Add a layer of `members`, or of a ready tar; `media_type` overrides the one that fits the compression."""
        tar = members if isinstance(members, bytes) else layer_tar(members)
        self.layers.append(BuiltLayer(tar, history or f"COPY layer{len(self.layers)} /", compression, media_type))
        return self

    def config(self) -> dict[str, Any]:
        """The image's configuration as its JSON document has it."""
        process = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "Env": list(self.environment),
            "WorkingDir": self.working_directory,
            "User": self.user,
            "Labels": self.labels,
        }
        platform = {"architecture": self.architecture, "os": self.os, "variant": self.variant}
        return {key: value for key, value in platform.items() if value} | {
            "config": {key: value for key, value in process.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer.tar) for layer in self.layers]},
            "history": [{"created_by": layer.history} for layer in self.layers],
        }

    def write(self, directory: Path, tag: str = "latest") -> Path:
        """Write an OCI layout that holds this image alone."""
        return write_layout(directory, self, tag=tag)

    def manifest(self, blobs: "Blobs") -> dict[str, Any]:
        """Store the blobs and return the descriptor of the manifest."""
        layers = []
        for layer in self.layers:
            media_type = layer.media_type or _LAYER + _SUFFIX[layer.compression]
            layers.append(blobs.add(compress(layer.tar, layer.compression), media_type))
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": blobs.add(_json(self.config()), _CONFIG),
            "layers": layers,
        }
        descriptor = blobs.add(_json(manifest), _MANIFEST)
        platform = {"architecture": self.architecture, "os": self.os, "variant": self.variant}
        return descriptor | {"platform": {key: value for key, value in platform.items() if value}}


@dataclass(frozen=True)
class Blobs:
    """The blob directory of an OCI layout."""

    directory: Path

    def add(self, data: bytes, media_type: str) -> dict[str, Any]:
        """Store `data` under its SHA-256 and return its descriptor."""
        digest = _digest(data)
        path = self.directory / digest.removeprefix("sha256:")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}


def write_layout(directory: Path, *images: ImageBuilder, tag: str = "latest", nested: bool = False) -> Path:
    """Write an OCI layout whose tag `tag` is the one image, or an index of several (or of one, when `nested`)."""
    blobs = Blobs(directory / "blobs" / "sha256")
    manifests = [image.manifest(blobs) for image in images]
    if nested or len(images) > 1:
        manifests = [blobs.add(_json(_index(manifests)), _INDEX)]
    for descriptor in manifests:
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (directory / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    (directory / "index.json").write_bytes(_json(_index(manifests)))
    return directory


def _index(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
