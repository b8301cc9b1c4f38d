"""Images in the storage that Podman, Buildah and CRI-O share (containers/storage, drivers overlay and vfs).

The storage keeps a layer's files unpacked, and beside them what else its tar archive was made of (LAYER.tar-split.gz,
one JSON object a line: `type` 2 is a `payload` of raw bytes, `type` 1 the content of the file `name`). Both together
give back the archive byte for byte, so that it is read and verified by its diff_id like any other.
"""

import base64
import errno
import gzip
import io
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from imgcheck.documents.image import LayerInfo, Platform
from imgcheck.errors import LayerError, SourceError
from imgcheck.layers.stream import TarLayer
from imgcheck.layers.tar import clean
from imgcheck.progress import Progress
from imgcheck.sources.blobs import (
    CONFIG_LIMIT,
    MANIFEST_FIELDS,
    MANIFEST_LIMIT,
    decode_json,
    parse_descriptor,
    parse_document,
    read_limited,
    verify,
)
from imgcheck.sources.config import ParsedConfig, parse_config
from imgcheck.sources.layout import DirectoryFiles
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.platforms import distance, wanted_platform
from imgcheck.sources.reference import Reference
from imgcheck.sources.registries import ShortNames, canonical_name, short_names

_DRIVERS = {"overlay": "overlay/{}/diff", "vfs": "vfs/dir/{}"}
"""Where each driver keeps the files of a layer, by the layer's id."""
_LIST_LIMIT = 256 << 20
_PIECE = 1 << 20
_RAW, _FILE = 2, 1
_LOCAL = "localhost/"
"""What buildah puts before the names of images it builds."""


@dataclass(frozen=True)
class Store:
    """One graph root as seen through one driver."""

    root: Path
    driver: str

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """The entries of images.json or layers.json; none where there is no such file."""
        place = self.root / f"{self.driver}-{kind}" / f"{kind}.json"
        try:
            data = read_limited(place.open("rb"), _LIST_LIMIT, str(place))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _refused(place, error) from None
        entries = decode_json(data, str(place))
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def data(self, image: str, key: str, limit: int) -> bytes:
        """The document `key` that is kept with an image."""
        name = key if key.isalnum() else "=" + base64.b64encode(key.encode()).decode()
        place = self.root / f"{self.driver}-images" / image / name
        try:
            return read_limited(place.open("rb"), limit, str(place))
        except OSError as error:
            raise _refused(place, error) from None


@contextmanager
def open_storage(reference: Reference, options: SourceOptions, progress: Progress) -> Iterator[Image]:
    """The image of a `containers-storage:` reference, by name or by the beginning of its id."""
    stores = _stores(os.environ)
    store, entry = _find(reference, stores, options.short_names or short_names())
    what = f"{store.root}: image {entry['id'][:12]}"
    data = store.data(entry["id"], "manifest", MANIFEST_LIMIT)
    manifest = parse_document(data, f"{what}: manifest", MANIFEST_FIELDS)
    described = parse_descriptor(manifest.get("config"), f"{what}: manifest")
    raw = verify(store.data(entry["id"], described.digest, CONFIG_LIMIT), described, f"{what}: config")
    parsed = parse_config(raw, f"{what}: config")
    found = parsed.platform or Platform()
    yield Image(
        reference=reference.text,
        platform=found,
        config=parsed.config,
        layers=_layers(_beside(store, stores), entry, parsed, what),
        config_digest=described.digest,
        raw_config=raw,
        platform_matches=distance(wanted_platform(options.platform), found) is not None,
    )


def _stores(environment: Mapping[str, str]) -> list[Store]:
    roots = [Path(root) for root in _roots(environment)]
    return [Store(root, driver) for root in roots for driver in _DRIVERS if (root / f"{driver}-images").is_dir()]


def _roots(environment: Mapping[str, str]) -> list[str]:
    """The graph root and the additional image stores that containers-storage.conf(5) leads to."""
    home = environment.get("HOME", "")
    if os.geteuid():
        root = f"{environment.get('XDG_DATA_HOME') or home + '/.local/share'}/containers/storage"
    else:
        root = "/var/lib/containers/storage"
    storage = _configuration(environment, home)
    key = "rootless_storage_path" if os.geteuid() and storage.get("rootless_storage_path") else "graphroot"
    configured = storage.get(key)
    if isinstance(configured, str) and configured:
        # Not a variable that shells export: containers/storage puts the number there (types/options.go).
        root = os.path.expandvars(configured.replace("$UID", str(os.geteuid())))
    options = storage.get("options")
    more = options.get("additionalimagestores") if isinstance(options, dict) else None
    return [root, *_strings(more)]


def _strings(value: Any) -> list[str]:
    """The strings of a list that another program wrote."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _configuration(environment: Mapping[str, str], home: str) -> dict[str, Any]:
    named = environment.get("CONTAINERS_STORAGE_CONF")
    own = f"{environment.get('XDG_CONFIG_HOME') or home + '/.config'}/containers/storage.conf"
    system = ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"]
    for path in [named] if named else [own, *system]:
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("storage")
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise SourceError(f"{path}: cannot be read: {error}") from None
        return found if isinstance(found, dict) else {}
    return {}


def _find(reference: Reference, stores: list[Store], known: ShortNames) -> tuple[Store, dict[str, Any]]:
    if not stores:
        raise SourceError(
            f"{reference.text}: no storage of Podman or Buildah at {_roots(os.environ)[0]}",
            hint="CONTAINERS_STORAGE_CONF names its configuration where it is elsewhere",
        )
    for store in stores:
        for entry in store.listed("images"):
            if isinstance(entry.get("id"), str) and entry["id"].isalnum() and _matches(reference, entry, known):
                return store, entry
    raise SourceError(
        f"{reference.text}: no such image in {', '.join(str(store.root) for store in stores)}",
        hint="podman images or buildah images lists those there are",
    )


def _matches(reference: Reference, entry: dict[str, Any], known: ShortNames) -> bool:
    names = set(_strings(entry.get("names")))
    if reference.digest:
        return entry.get("digest") == reference.digest
    tagged = reference.name if reference.tag else f"{reference.name}:latest"
    if names & {tagged, _LOCAL + tagged, canonical_name(tagged, known)}:
        return True
    return len(reference.name) >= 12 and entry["id"].startswith(reference.name)


def _beside(store: Store, stores: list[Store]) -> list[Store]:
    """The stores that may hold layers of an image in `store`: each holds only those that the others lack."""
    return [each for each in stores if each.driver == store.driver]


def _layers(stores: list[Store], entry: dict[str, Any], parsed: ParsedConfig, what: str) -> tuple[TarLayer, ...]:
    known: dict[str, tuple[Store, dict[str, Any]]] = {}
    for store in stores:
        for layer in store.listed("layers"):
            if isinstance(layer.get("id"), str):
                known.setdefault(layer["id"], (store, layer))
    chain: list[tuple[Store, dict[str, Any]]] = []
    at = entry.get("layer")
    while isinstance(at, str) and at in known and len(chain) <= len(known):
        chain.insert(0, known[at])
        at = known[at][1].get("parent")
    # An empty layer is not always kept, but then nothing that can be verified is left of it.
    if len(chain) != len(parsed.diff_ids):
        raise SourceError(f"{what} has {len(parsed.diff_ids)} layers, of which the storage holds {len(chain)}")
    history = parsed.history or ("",) * len(chain)
    return tuple(
        TarLayer(LayerInfo(diff_id=diff_id, size=_size(layer), history=line), partial(_open, store, layer["id"]))
        for (store, layer), diff_id, line in zip(chain, parsed.diff_ids, history, strict=True)
    )


def _size(layer: dict[str, Any]) -> int:
    size = layer.get("diff-size")
    return size if isinstance(size, int) and size > 0 else 0


def _open(store: Store, layer: str) -> BinaryIO:
    if not layer.isalnum():
        raise SourceError(f"{store.root}: {layer[:80]!r} is no layer's id")
    place = store.root / f"{store.driver}-layers" / f"{layer}.tar-split.gz"
    try:
        parts = place.open("rb")
    except FileNotFoundError:
        raise SourceError(
            f"{place}: missing, so that the layer cannot be put together",
            hint="podman save --format oci-archive IMAGE | imgcheck image -",
        ) from None
    except OSError as error:
        raise _refused(place, error) from None
    files = DirectoryFiles(str(store.root / _DRIVERS[store.driver].format(layer)))
    return cast(BinaryIO, _Joined(parts, files, str(place)))


class _Part(msgspec.Struct, frozen=True):
    """A line of a tar-split file."""

    type: int
    payload: bytes | None = None
    """Raw bytes, base64 in JSON; for files a checksum that diff_id makes needless."""
    name: str = ""
    name_raw: bytes = b""
    """The name where it is no UTF-8."""
    size: int = 0


class _Joined(io.RawIOBase):
    """A layer's archive, put together while it is read."""

    def __init__(self, parts: BinaryIO, files: DirectoryFiles, what: str) -> None:
        self._parts = parts
        self._files = files
        self._what = what
        self._pieces = self._all()
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return self.readall()
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = memoryview(piece)
        data, self._left = self._left[:size], self._left[size:]
        return bytes(data)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._parts.close()
        super().close()

    def _all(self) -> Iterator[bytes]:
        decode = msgspec.json.Decoder(_Part).decode
        try:
            for line in gzip.GzipFile(fileobj=self._parts):
                part = decode(line)
                if part.type == _RAW and part.payload:
                    yield part.payload
                elif part.type == _FILE and part.size > 0:
                    yield from self._file(part)
        except (msgspec.MsgspecError, EOFError, gzip.BadGzipFile) as error:
            raise LayerError(f"{self._what}: damaged ({error})") from None

    def _file(self, part: _Part) -> Iterator[bytes]:
        path = clean(os.fsdecode(part.name_raw) if part.name_raw else part.name)
        left = part.size
        try:
            with self._files.open(path) as file:
                while left and (piece := file.read(min(left, _PIECE))):
                    left -= len(piece)
                    yield piece
        except OSError as error:
            raise _refused(Path(self._files.place, path), error) from None
        if left:
            raise LayerError(f"{self._files.place}/{path}: {left} bytes are missing: the storage was changed")


def _refused(place: Path, error: OSError) -> SourceError:
    hint = "buildah unshare imgcheck ... (or podman unshare) may read it" if error.errno == errno.EACCES else ""
    return SourceError(f"{place}: {error.strerror or error}", hint=hint)
