"""An image repacked with its layers as they are: an OCI layout, or an archive that `docker load` reads."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from imgcheck import oci
from imgcheck.convert.disk import create_file, open_file, write_file
from imgcheck.convert.gather import Bounds, refuse_unreadable
from imgcheck.convert.model import ConvertOptions
from imgcheck.convert.policy import lost
from imgcheck.convert.stage import Stage
from imgcheck.convert.tarout import TarWriter
from imgcheck.documents.codec import as_bytes
from imgcheck.documents.image import LayerInfo
from imgcheck.errors import SourceError, UsageError
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Layer
from imgcheck.layers.stream import TarLayer
from imgcheck.layers.tree import Node
from imgcheck.progress import Progress
from imgcheck.sources.model import Image
from imgcheck.sources.reference import FILE_ENDINGS, Reference, is_tag, parse, parse_name

Written = tuple[int, list[str]]
"""Bytes, and what was lost, one sentence each."""
Write = Callable[[Image, Stage, str, ConvertOptions, Progress], Written]
"""Writes the image as a new file or directory of the stage."""

_COPY = 1 << 20
_SUFFIXES = ((b"\x1f\x8b", "+gzip"), (b"\x28\xb5\x2f\xfd", "+zstd"))
_FIT = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
"""Parts of a file's name that the name of a repository may have."""
_LONGEST = 200
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
"""What no tag holds."""
_LONGEST_TAG = 128


@dataclass(frozen=True)
class _Blob:
    """A verified blob in the stage."""

    name: str
    digest: str
    diff_id: str
    size: int
    media_type: str
    lost_xattrs: int = 0


def write_layout(image: Image, stage: Stage, name: str, options: ConvertOptions, progress: Progress) -> Written:
    """An OCI layout (image-spec image-layout.md) with one image."""
    for directory in (name, f"{name}/blobs", f"{name}/blobs/sha256"):
        os.mkdir(directory, 0o755, dir_fd=stage.fd)
    blobs = _copy_layers(image, stage, options, progress)
    for blob in blobs:
        os.rename(blob.name, _place(name, blob.digest), src_dir_fd=stage.fd, dst_dir_fd=stage.fd)
    config = _put(stage, name, _config(image, blobs), oci.CONFIG)
    layers = [{"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size} for blob in blobs]
    manifest = _put(
        stage,
        name,
        _json({"schemaVersion": 2, "mediaType": oci.MANIFEST, "config": config, "layers": layers}),
        oci.MANIFEST,
    )
    manifest["annotations"] = {oci.REF_NAME: image_name(options.name, image.reference)}
    manifest["platform"] = _platform(image)
    write_file(
        stage.fd, f"{name}/index.json", _json({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": [manifest]})
    )
    write_file(stage.fd, f"{name}/oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    return sum(blob.size for blob in blobs), _lost(blobs)


def write_docker_archive(image: Image, stage: Stage, name: str, options: ConvertOptions, progress: Progress) -> Written:
    """A tar with manifest.json, the config and the layers, as `docker save` of every version reads it back."""
    blobs = _copy_layers(image, stage, options, progress)
    config = _config(image, blobs)
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    names = [f"{blob.digest.removeprefix('sha256:')}.tar" for blob in blobs]
    tags = [tagged_name(options.name, image.reference)]
    manifest = _json([{"Config": config_name, "RepoTags": tags, "Layers": names}])
    with create_file(stage.fd, name) as file:
        tar = TarWriter(file.write)
        for path, data in ((config_name, config), ("manifest.json", manifest)):
            tar.member(as_bytes(path), _file_node(), len(data))
            tar.data(data)
        for path, blob in dict(zip(names, blobs, strict=True)).items():
            tar.member(as_bytes(path), _file_node(), blob.size)
            with open_file(stage.fd, blob.name) as content:
                tar.content(content, blob.size)
            os.unlink(blob.name, dir_fd=stage.fd)
        tar.end()
        return file.tell(), _lost(blobs)


def _lost(blobs: list[_Blob]) -> list[str]:
    return lost(0, sum(blob.lost_xattrs for blob in blobs), such_as="labels of SELinux and the like")


def image_name(name: str, reference: str) -> str:
    """The name stored with the image: the one asked for, else the reference's tag, else "latest"."""
    return name or parse(reference).tag or "latest"


def tagged_name(name: str, reference: str) -> str:
    """NAME:TAG under which an archive is loaded. UsageError where `name`, which is asked for, is none."""
    if name:
        return asked_name(name)
    found = parse(reference)
    inside = found.tag or "latest"
    if is_tag(inside):
        return f"{_repository(found)}:{inside}"
    # Of a layout, the name of an image in it: a whole name, or any text (image-spec annotations.md).
    return _whole(inside) or f"{_repository(found)}:{_UNFIT.sub('-', inside).lstrip('-.')[:_LONGEST_TAG] or 'latest'}"


def asked_name(name: str) -> str:
    """`name` with a tag; UsageError where no archive is loaded under it."""
    found = _whole(name)
    if not found:
        raise UsageError(f"--name {name}: not NAME[:TAG] as docker load takes it", "for example team/app:1.2")
    return found


def _whole(name: str) -> str:
    """`name` with its tag, or with the one that engines take where it has none; "" where it is no name of an image."""
    try:
        found = parse_name(name, name)
    except SourceError:
        return ""
    return "" if found.digest else replace(found, tag=found.tag or "latest").name


def _repository(reference: Reference) -> str:
    """The reference's own, or for what lies in files one made of the file's name."""
    if not reference.path:
        return replace(reference, tag="", digest="").name
    named = Path(reference.path).name.lower()
    ending = next((ending for ending in FILE_ENDINGS if named.endswith(ending)), "")
    return "-".join(_FIT.findall(named.removesuffix(ending)))[:_LONGEST].rstrip("._-") or "image"


def _copy_layers(image: Image, stage: Stage, options: ConvertOptions, progress: Progress) -> list[_Blob]:
    bounds = Bounds(options.limits)
    return [
        _copy_blob(layer, stage, f"layer{index}", bounds, progress)
        if isinstance(layer, TarLayer)
        else _pack(layer, stage, f"layer{index}", bounds, progress)
        for index, layer in enumerate(image.layers)
    ]


def _copy_blob(layer: TarLayer, stage: Stage, name: str, bounds: Bounds, progress: Progress) -> _Blob:
    """Copy first, then verify the copy: what is published is what was verified."""
    blob_hash = hashlib.sha256()
    with layer.open() as blob, create_file(stage.fd, name) as copy:
        while data := blob.read(_COPY):
            blob_hash.update(data)
            copy.write(data)
        size = copy.tell()
    bounds.verify(TarLayer(layer.info, lambda: open_file(stage.fd, name)), progress)
    with open_file(stage.fd, name) as blob:
        media_type = _media_type(blob.read(4))
    return _Blob(name, f"sha256:{blob_hash.hexdigest()}", layer.info.diff_id, size, media_type)


def _pack(layer: Layer, stage: Stage, name: str, bounds: Bounds, progress: Progress) -> _Blob:
    """A layer that is no archive (a directory's) as an uncompressed tar: members in the source's order, owners kept."""
    digest = hashlib.sha256()
    with create_file(stage.fd, name) as file:

        def write(data: Any) -> None:
            digest.update(data)
            file.write(data)

        tar = TarWriter(write, as_stored=True)
        for entry, content in layer.entries(progress):
            _pack_member(tar, entry, content)
        refuse_unreadable(layer)
        tar.end()
        size = file.tell()
    found = f"sha256:{digest.hexdigest()}"
    info = LayerInfo(digest=found, diff_id=found, size=size)
    bounds.verify(TarLayer(info, lambda: open_file(stage.fd, name)), progress)
    return _Blob(name, found, found, size, oci.LAYER, tar.lost_xattrs)


def _pack_member(tar: TarWriter, entry: Entry, content: Any) -> None:
    path = as_bytes(entry.path)
    node = Node(entry, 0)
    if entry.kind == "hardlink":
        tar.hardlink(path, as_bytes(entry.link), node)
    elif content is not None:
        tar.member(path, node, entry.size)
        tar.content(content, entry.size)
    elif path:
        tar.member(path, node)


def _config(image: Image, blobs: list[_Blob]) -> bytes:
    """The image's own config where its layers are its own, else one that says the same of what was packed."""
    if image.raw_config and all(isinstance(layer, TarLayer) for layer in image.layers):
        return image.raw_config
    config = image.config
    process = {
        "Env": list(config.environment),
        "Entrypoint": list(config.entrypoint),
        "Cmd": list(config.command),
        "WorkingDir": config.working_directory,
        "User": config.user,
        "Labels": config.labels,
    }
    diff_ids = [blob.diff_id or blob.digest for blob in blobs]
    return _json(
        _platform(image)
        | {
            "config": {key: value for key, value in process.items() if value},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
    )


def _platform(image: Image) -> dict[str, str]:
    platform = image.platform
    found = {"architecture": platform.architecture, "os": platform.os, "variant": platform.variant}
    return {key: value for key, value in found.items() if value}


def _media_type(magic: bytes) -> str:
    return oci.LAYER + next((suffix for start, suffix in _SUFFIXES if magic.startswith(start)), "")


def _place(layout: str, digest: str) -> str:
    return f"{layout}/blobs/sha256/{digest.removeprefix('sha256:')}"


def _put(stage: Stage, layout: str, data: bytes, media_type: str) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    write_file(stage.fd, _place(layout, digest), data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _file_node() -> Node:
    return Node(Entry("", "file", 0o644), 0)
