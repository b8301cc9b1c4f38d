"""Merged tree -> TreeIndex: what the loader's model and the runtimes ask of an image besides its ELF files."""

import posixpath
import re
from collections.abc import Iterable

import msgspec

from imgcheck.documents.codec import as_text
from imgcheck.documents.image import ImageConfig, Script, TreeIndex
from imgcheck.layers.tree import MergedTree, Node
from imgcheck.loader.cache import read_cache
from imgcheck.loader.conf import read_conf, read_musl_path, read_preload
from imgcheck.profile.scan import Unloadable

DIRECTORIES = (
    "/.singularity.d", "/.singularity.d/libs", "/bin", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/opt",
    "/proc", "/root", "/run", "/sys", "/tmp", "/usr/bin", "/usr/lib", "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/powerpc64le-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda",
    "/usr/local/nvidia", "/usr/local/nvidia/lib", "/usr/local/nvidia/lib64", "/var/tmp",
)  # fmt: skip
"""Directories that runtimes bind to, copy into or ask for before they start anything."""
FILES = (
    "/.singularity.d/env/99-base.sh", "/.singularity.d/runscript", "/bin/bash", "/bin/sh", "/etc/group", "/etc/hosts",
    "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/resolv.conf", "/usr/bin/env",
    # Of a driver; committed from a container that had one they are empty files.
    "/etc/OpenCL/vendors/nvidia.icd", "/etc/vulkan/icd.d/nvidia_icd.json", "/usr/bin/nvidia-bug-report.sh",
    "/usr/bin/nvidia-cuda-mps-control", "/usr/bin/nvidia-cuda-mps-server", "/usr/bin/nvidia-debugdump",
    "/usr/bin/nvidia-installer", "/usr/bin/nvidia-persistenced", "/usr/bin/nvidia-settings", "/usr/bin/nvidia-smi",
    "/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-xconfig", "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib64/libnvidia-ml.so.1",
)  # fmt: skip
_PYTHON = ("site-packages", "dist-packages")
_MODULES = r"(?:^|/)(?:(?:site|dist)-packages|python\d[\d.]*)/"
_WORDS = 16
"""Words of the command that are looked up."""


def absolute(path: str) -> str:
    """A path of the tree as a profile writes it."""
    return as_text("/" + path)


def index_tree(
    tree: MergedTree,
    nodes: Iterable[tuple[str, Node]],
    recorded: Iterable[str],
    texts: dict[str, bytes],
    config: ImageConfig,
) -> TreeIndex:
    """The index of `tree`, of which `nodes` are directories, links and whatever has a payload.

    `recorded` are the tree's paths of files with code, `texts` the kept ones by path.
    """
    scripts: list[Script] = []
    reached = list(recorded)
    links: list[tuple[str, Node]] = []
    python: list[str] = []
    unloadable: dict[str, str] = {}
    for path, node in nodes:
        if isinstance(node.payload, Script):
            if _may_start(path, node.payload):
                reached.append(path)
                scripts.append(msgspec.structs.replace(node.payload, path=absolute(path)))
        elif isinstance(node.payload, Unloadable):
            reached.append(path)
            unloadable[absolute(path)] = node.payload.complaint
        elif node.kind == "symlink":
            links.append((path, node))
        elif node.children is not None and path.rpartition("/")[2] in _PYTHON:
            python.append(absolute(path))
    places = (*DIRECTORIES, *_working_directory(config))
    return TreeIndex(
        symlinks=_symlinks(tree, links, _with_parents(reached), {*places, *FILES}),
        ld_so_conf=read_conf(texts),
        ld_so_cache=read_cache(texts.get("/etc/ld.so.cache", b"")),
        ld_so_preload=read_preload(texts.get("/etc/ld.so.preload", b"")),
        musl_paths={path: read_musl_path(data) for path, data in texts.items() if path.startswith("/etc/ld-musl-")},
        scripts=tuple(scripts),
        python_paths=tuple(python),
        directories=tuple(path for path in places if _is_directory(tree, path)),
        files=(*(path for path in FILES if _is_file(tree, path)), *_command_files(tree, config)),
        unloadable=unloadable,
    )


def _may_start(path: str, script: Script) -> bool:
    """Whether a command may name the script at `path`: modules of Python begin with `#!` as well."""
    return script.executable or not re.search(_MODULES, path)


def _command_files(tree: MergedTree, config: ImageConfig) -> list[str]:
    """Files that a word of the command names by their path, and that may be executed."""
    words = (*config.entrypoint, *config.command)[:_WORDS]
    paths = [posixpath.join("/", config.working_directory, word) for word in words if "/" in word]
    found = {absolute(node_path) for path in paths if (node_path := _executable(tree, path))}
    return sorted(found.difference(FILES))


def _executable(tree: MergedTree, path: str) -> str:
    node = tree.lookup(path)
    return tree.resolve(path.lstrip("/")) if node is not None and node.kind == "file" and node.mode & 0o111 else ""


def _working_directory(config: ImageConfig) -> tuple[str, ...]:
    if not config.working_directory:
        return ()
    path = posixpath.normpath("/" + config.working_directory.lstrip("/"))
    return (path,) if path not in DIRECTORIES and path != "/" else ()


def _with_parents(paths: Iterable[str]) -> set[str]:
    """`paths` and every directory above them."""
    found: set[str] = set()
    for path in paths:
        while path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found


def _symlinks(tree: MergedTree, links: Iterable[tuple[str, Node]], goals: set[str], places: set[str]) -> dict[str, str]:
    """Links that lead to one of `goals`, and those that stand at one of `places`, dangling or not."""
    found: dict[str, str] = {}
    for path, node in links:
        name = absolute(path)
        if name in places or tree.resolve(path) in goals:
            found[name] = as_text(node.link)
    return found


def _is_directory(tree: MergedTree, path: str) -> bool:
    node = tree.lookup(path)
    return node is not None and node.kind == "directory"


def _is_file(tree: MergedTree, path: str) -> bool:
    node = tree.lookup(path)
    return node is not None and node.kind == "file"
