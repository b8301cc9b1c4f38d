"""`imgcheck binary`: what single ELF, fatbin, archive or JAR files need, or with --tree what they load in an image."""

import argparse
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from imgcheck.cli import FOUND, OK, TROUBLE, options
from imgcheck.documents.facts import CodeFacts
from imgcheck.errors import SourceError, UsageError
from imgcheck.report.text import safe
from imgcheck.streams import put

if TYPE_CHECKING:
    from imgcheck.layers.entry import Entry
    from imgcheck.layers.model import Content
    from imgcheck.profile.packed import Take

_HEAD = 512
"""Bytes that tell an archive from everything else."""
_EXAMPLES = """
imgcheck binary ./solver
imgcheck binary -o json build/*.so
imgcheck binary app.jar
imgcheck binary app.pex
imgcheck binary --tree /usr/bin/python3 --root ./rootfs
imgcheck binary --tree /opt/app/solver --root oci:build:latest
"""


def run(arguments: Sequence[str]) -> int:
    parsed = _parser().parse_args(arguments)
    if parsed.tree:
        return _trees(parsed)
    if parsed.root:
        raise UsageError("--root goes with --tree", "imgcheck binary --tree /path/in/the/image --root DIR")
    return _needs(parsed)


def _parser() -> argparse.ArgumentParser:
    parser = options.parser(
        "binary",
        "Shows what single files need of CPU, GPU and loader; with --tree the libraries that a file of an image loads, "
        "and why these. Exit status 1: one of them, or a symbol version, is missing.",
        _EXAMPLES,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a file; with --tree its path in the image")
    options.add_output_option(parser, ("table", "json"))
    parser.add_argument("--tree", action="store_true", help="show what it loads in the image that --root names")
    parser.add_argument("--root", metavar="DIR|REF", default="", help="an unpacked tree, or an image as elsewhere")
    options.add_source_options(parser)
    options.add_cache_options(parser)
    options.add_rules_option(parser)
    options.add_quiet_option(parser)
    return parser


def _needs(parsed: argparse.Namespace) -> int:
    from imgcheck.report.binary import FORMATS

    outputs = options.outputs(parsed.output, tuple(FORMATS))
    facts: dict[str, CodeFacts] = {}
    status = OK
    for file in parsed.files:
        try:
            facts |= _facts(file)
        except SourceError as error:
            put(sys.stderr, f"imgcheck: {safe(error.message)}\n")
            status = TROUBLE
    for output in outputs if facts else ():
        options.emit(output, FORMATS[output.format](facts, output.file is None))
    return status


def _trees(parsed: argparse.Namespace) -> int:
    from imgcheck.cli.reference import profile_of
    from imgcheck.knowledge import Knowledge
    from imgcheck.loader.dependencies import dependencies
    from imgcheck.loader.tree import Tree
    from imgcheck.report.tree import FORMATS

    outputs = options.outputs(parsed.output, tuple(FORMATS))
    if not parsed.root:
        raise UsageError("--tree needs --root", "name the unpacked tree or the image that FILE is a path of")
    # A directory is meant where one lies there, even under a name that could be an image's.
    parsed.reference = f"dir:{parsed.root}" if _is_tree(Path(parsed.root)) else parsed.root
    image = profile_of(parsed, Knowledge(tuple(parsed.rules)))
    tree = Tree(image)
    trees = {}
    for file in parsed.files:
        path = tree.canonical("/" + file)
        if path not in tree.linkage:
            raise SourceError(f"{parsed.root} holds no ELF program or library at {file}")
        trees[path] = tuple(dependencies(image, path))
    for output in outputs:
        options.emit(output, FORMATS[output.format](trees, output.file is None))
    lacking = any(not item.path or item.missing_versions for found in trees.values() for item in found)
    return FOUND if lacking else OK


def _is_tree(path: Path) -> bool:
    return path.is_dir() and not any((path / name).exists() for name in ("oci-layout", "index.json"))


def _facts(path: str) -> dict[str, CodeFacts]:
    """Those of the file at `path` and of libraries that it unpacks; of a Java archive those of the libraries in it."""
    from imgcheck.binaries.analyse import analyse, require_engines
    from imgcheck.profile.zip_archives import is_application, is_archive

    require_engines()
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is empty"
        raise SourceError(f"{path}: {reason}") from None
    if is_archive(head, path) or is_application(head):
        return _inside(path, partial(_in_archive, path)) or _refuse(path, "no library in this archive")
    # Never closed by hand: an error of the analysis holds views of it, and closing would hide that error.
    facts = analyse(memoryview(data))
    if facts is None:
        _refuse(path, "neither ELF, fatbin, cubin, PTX nor an archive of them")
    if facts.error and facts.linkage is None and facts.gpu is None:
        _refuse(path, facts.error)
    return {path: facts} | _inside(path, partial(_in_program, data))


def _refuse(path: str, why: str) -> NoReturn:
    raise SourceError(f"{path}: {why}")


def _in_archive(path: str, take: "Take") -> Iterable[tuple[str, str]]:
    from imgcheck.layers.entry import Entry
    from imgcheck.profile.zip_archives import libraries

    with Path(path).open("rb") as file:
        yield from libraries(Entry(path, "file", size=os.fstat(file.fileno()).st_size), b"", file, take)


def _in_program(data: mmap.mmap, take: "Take") -> Iterable[tuple[str, str]]:
    from imgcheck.profile.frozen_programs import read_frozen

    frozen = read_frozen(len(data), lambda size, offset: data[offset : offset + size], take)
    return frozen.libraries if frozen else ()


def _inside(path: str, libraries: "Callable[[Take], Iterable[tuple[str, str]]]") -> dict[str, CodeFacts]:
    """Facts of the libraries in the file at `path`, which `libraries` finds and hands over."""
    from imgcheck.binaries.analyse import analyse
    from imgcheck.documents.image import IN_ARCHIVE
    from imgcheck.profile.packed import ArchiveError

    read: list[CodeFacts | None] = []

    def take(_entry: "Entry", head: bytes, content: "Content") -> str:
        read.append(analyse(memoryview(head + content.read())))
        return str(len(read) - 1)

    try:
        found = dict(libraries(take))
    except (ArchiveError, MemoryError) as error:
        _refuse(path, str(error))
    facts = ((f"{path}{IN_ARCHIVE}{name}", read[int(key)]) for name, key in found.items())
    return {name: each for name, each in facts if each is not None}
