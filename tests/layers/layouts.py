"""Writes small OCI layouts from hand-made layers, for readers and for peers alike."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **attributes: object) -> Member:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data)
    info.mtime = 1_500_000_000
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, data


def file(name: str, data: str | bytes = "", **attributes: object) -> Member:
    return member(name, data.encode() if isinstance(data, str) else data, **attributes)


def directory(name: str, **attributes: object) -> Member:
    return member(name, kind=tarfile.DIRTYPE, **attributes)


def symlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.SYMTYPE, linkname=target, mode=0o777)


def hardlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.LNKTYPE, linkname=target)


def archive(members: Iterable[Member], format: int = tarfile.PAX_FORMAT) -> bytes:
    """The members in the order given, names exactly as given."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write_layout(path: Path, layers: Iterable[bytes], tag: str = "t", config: dict | None = None) -> Path:
    """An OCI layout at `path` with uncompressed `layers`, gzipped as they are stored."""
    (path / "blobs/sha256").mkdir(parents=True)

    def blob(data: bytes, media: str) -> dict:
        digest = digest_of(data)
        (path / "blobs/sha256" / digest[7:]).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": digest, "size": len(data)}

    layers = list(layers)
    image = {
        "architecture": "amd64",
        "os": "linux",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(image).encode(), "config.v1+json"),
        "layers": [blob(gzip.compress(layer, 1, mtime=0), "layer.v1.tar+gzip") for layer in layers],
    }
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return path
