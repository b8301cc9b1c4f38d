"""A directory to the part of an ImageProfile that the loader's model reads, without layers or other engines."""

import hashlib
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

from imgcheck.binaries.elf import MAGIC, Elf
from imgcheck.binaries.linkage.read import read_linkage
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.knowledge.types import Runtime
from imgcheck.loader.cache import read_cache
from imgcheck.loader.closure import Closure, Roots
from imgcheck.loader.conf import read_conf, read_musl_path, read_preload
from imgcheck.loader.injection import injection_for
from imgcheck.loader.model import Loader

_PYTHON_PATH = re.compile(r".*?/(?:site|dist)-packages(?=/)")


def closure_under(image: ImageProfile, host: HostProfile, runtime: Runtime, roots: Roots | None = None) -> Closure:
    """What `roots` reach in `image` as `runtime` starts it on `host`, with what that places in the image."""
    loader, injection = Loader(image, roots), injection_for(runtime, host, image)
    return loader.under(injection) if injection else loader.close()


def profile_of(root: Path, environment: tuple[str, ...] = (), command: tuple[str, ...] = ()) -> ImageProfile:
    """Every ELF file and every symlink of `root`."""
    records, objects, links = [], {}, {}
    for path, entry in _walk(root):
        if entry.is_symlink():
            links[path] = str(Path(entry.path).readlink())
        elif entry.is_file() and (facts := _facts(entry.path)):
            key = hashlib.sha256(path.encode()).hexdigest()
            executable = bool(entry.stat().st_mode & 0o111)
            records.append(FileRecord(path, key, 0, executable))
            objects[key] = facts
    return ImageProfile(
        schema_version="1.0",
        reference=f"dir:{root}",
        platform=Platform(),
        config=ImageConfig(environment=environment, command=command),
        layers=(LayerInfo(),),
        files=tuple(sorted(records, key=lambda record: record.path)),
        objects=objects,
        tree=_index(root, links, records),
    )


def _walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    pending = [(str(root), "")]
    while pending:
        directory, name = pending.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{name}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, path))
                else:
                    yield path, entry


def _facts(path: str) -> CodeFacts | None:
    with Path(path).open("rb") as file:
        if file.read(4) != MAGIC:
            return None
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    return CodeFacts(len(data), linkage=read_linkage(Elf(memoryview(data))))


def _index(root: Path, links: dict[str, str], records: list[FileRecord]) -> TreeIndex:
    def text(path: str) -> bytes:
        file = root / path.lstrip("/")
        return file.read_bytes() if file.is_file() else b""

    names = [f"/etc/{p.relative_to(root / 'etc')}" for p in root.glob("etc/ld.so.conf*/*") if p.is_file()]
    conf = {name: text(name) for name in (*names, "/etc/ld.so.conf")}
    musl = {f"/etc/{p.name}": read_musl_path(p.read_bytes()) for p in root.glob("etc/ld-musl-*.path")}
    return TreeIndex(
        symlinks=links,
        ld_so_conf=read_conf(conf),
        ld_so_cache=read_cache(text("/etc/ld.so.cache")),
        ld_so_preload=read_preload(text("/etc/ld.so.preload")),
        musl_paths=musl,
        python_paths=tuple(sorted({m[0] for r in records if (m := _PYTHON_PATH.match(r.path))})),
    )
