"""Every reader of bytes that an image brings, as a function of bytes: for tests that feed them anything at all.

Each returns where the bytes are an image, and raises ImgcheckError where they are none. Anything else is a defect.
"""

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from imgcheck.convert.gather import gather
from imgcheck.convert.model import Limits
from imgcheck.documents.image import LayerInfo
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content
from imgcheck.layers.stream import TarLayer
from imgcheck.progress import SILENT
from imgcheck.sources.layout import layout_image
from imgcheck.sources.open import open_image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.reference import Reference
from imgcheck.sources.squashfs import Squashfs
from tests.convert.members import Device, Dir, Reg, Sym, build

_MOST = 1 << 24
"""Bytes of one file that are read: a hole may be of any size, and what follows is zeros."""


def _drain(_layer: int, _ordinal: int, _entry: Entry, content: Content) -> None:
    buffer, left = memoryview(bytearray(1 << 16)), _MOST
    while left > 0 and (count := content.readinto(buffer)):
        left -= count


def _layer(data: bytes) -> TarLayer:
    return TarLayer(LayerInfo(size=len(data)), lambda: io.BytesIO(data))


def tar(data: bytes) -> None:
    """A layer, compressed or not, merged into a tree."""
    gather((_layer(data),), _drain, Limits(), SILENT)


def layers(data: bytes) -> None:
    """A layer above one that holds a bit of everything."""
    gather((_layer(_BELOW), _layer(data)), _drain, Limits(), SILENT)


def layout(data: bytes) -> None:
    """An OCI layout of which one document, told by the first byte, is the bytes that follow."""
    files = _Documents(data[:1], data[1:])
    image = layout_image(Reference("oci", "oci:x", path="x"), files, SourceOptions())
    gather(image.layers, _drain, Limits(), SILENT)


def squashfs(data: bytes) -> None:
    with _on_disk(data) as file:
        for entry, content in Squashfs(file, "x").entries(lambda amount: None):
            if content is not None:
                _drain(0, 0, entry, content)


def sif(data: bytes) -> None:
    with _on_disk(data) as file, open_image(f"sif:{file.name}") as image:
        gather(image.layers, _drain, Limits(), SILENT)


READERS: dict[str, Callable[[bytes], None]] = {
    "tar": tar,
    "layers": layers,
    "layout": layout,
    "squashfs": squashfs,
    "sif": sif,
}


def _on_disk(data: bytes) -> tempfile._TemporaryFileWrapper:
    """A file with these bytes, in memory where there is such a place."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    file = tempfile.NamedTemporaryFile(dir=memory, prefix="imgcheck-test-")  # noqa: SIM115
    file.write(data)
    file.flush()
    return file


class _Documents:
    """The files of a layout made from nothing, with one document replaced."""

    place = "layout"

    def __init__(self, which: bytes, data: bytes) -> None:
        self._blobs: dict[str, bytes] = {}
        config = data if which == b"c" else json.dumps(_CONFIG).encode()
        layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar", **self._add(_BELOW)}
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **self._add(config)},
            "layers": [layer],
        }
        described = self._add(data if which == b"m" else json.dumps(manifest).encode())
        index = {"schemaVersion": 2, "manifests": [{"mediaType": manifest["mediaType"], **described}]}
        nested = self._add(data if which == b"n" else json.dumps(index).encode())
        if which == b"n":
            kind = "application/vnd.oci.image.index.v1+json"
            index = {"schemaVersion": 2, "manifests": [{"mediaType": kind, **nested}]}
        self._index = data if which == b"i" else json.dumps(index).encode()

    def _add(self, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def open(self, path: str) -> io.BytesIO:
        if path == "index.json":
            return io.BytesIO(self._index)
        if path not in self._blobs:
            raise FileNotFoundError(path)
        return io.BytesIO(self._blobs[path])


_BELOW = build(
    {
        "d": Dir(),
        "d/file": Reg(b"x" * 600),
        "l": Sym("d"),
        "loop": Sym("loop"),
        "h": ("hardlink", "d/file"),
        "p": Device("fifo"),
        "n": Device("char"),
        "x" * 120: Reg(b"y", xattrs={"user.a": b"b"}),
    }
)
_CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "config": {"Env": ["A=1"], "Cmd": ["x"], "Labels": {"a": "b"}, "WorkingDir": "/w", "User": "1:2"},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(_BELOW).hexdigest()]},
    "history": [{"created_by": "x"}],
}


def seeds(directory: Path) -> dict[str, list[bytes]]:
    """Inputs that each reader takes; `directory` is for what tools must write."""
    from imgcheck.convert.run import convert
    from tests.images import ImageBuilder, compress
    from tests.tools import need, run

    (directory / "t/d/e").mkdir(parents=True)
    (directory / "t/d/file").write_bytes(b"x" * 9000)
    (directory / "t/d/e/other").hardlink_to(directory / "t/d/file")
    (directory / "t/link").symlink_to("d")
    os.setxattr(directory / "t/d/file", "user.a", b"b")
    methods = ("gzip", "lz4", "lzo", "xz", "zstd")
    ways = {"plain": ("-noI", "-noD", "-noF", "-noX")} | {name: ("-comp", name) for name in methods}
    for name, options in ways.items():
        quiet = ("-b", "4096", "-quiet", "-no-progress", "-nopad")
        run(need("mksquashfs"), directory / "t", directory / name, *quiet, *options)
    image = ImageBuilder(entrypoint=("/x",), environment=("A=1",)).layer(_BELOW)
    with open_image(f"oci:{image.write(directory / 'layout')}") as opened:
        convert(opened, "sif", directory / "app.sif")
    whiteouts = build({"d/.wh.file": Reg(), "l/.wh..wh..opq": Reg(), ".wh.p": Reg(), "l/new": Reg(b"z")})
    archives = [_BELOW, whiteouts, compress(_BELOW, "gzip"), compress(_BELOW, "zstd")]
    documents = _Documents(b"", b"")
    manifests = [data for data in documents._blobs.values() if data[:1] == b"{"]
    described = [which + data for which in (b"c", b"m", b"n", b"i") for data in (*manifests, documents._index)]
    return {
        "tar": archives,
        "layers": archives,
        "layout": described,
        "squashfs": [(directory / name).read_bytes() for name in ("plain", *methods)],
        "sif": [(directory / "app.sif").read_bytes()],
    }
