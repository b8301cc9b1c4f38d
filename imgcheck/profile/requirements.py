"""What the records of Python packages say: which top-level modules they have, require, and offer as plug-ins.

A record is a directory `NAME-VERSION.dist-info` (PyPA's "Recording installed projects") or `.egg-info` (setuptools):
METADATA or PKG-INFO with `Name:` and `Requires-Dist:`, top_level.txt with the modules where the installer wrote it,
entry_points.txt with groups of `NAME = MODULE:OBJECT`.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

RECORDS = tuple(
    f"*.{kind}/{name}"
    for kind, names in (
        ("dist-info", ("METADATA", "top_level.txt", "entry_points.txt")),
        ("egg-info", ("PKG-INFO", "top_level.txt", "entry_points.txt")),
    )
    for name in names
)
"""The files of records that are read, as fnmatch patterns on absolute paths."""

_METADATA = ("METADATA", "PKG-INFO")
_HEAD = 1 << 16
"""Bytes of METADATA: behind its headers stands the README."""
_NAME = re.compile(rb"^Name:[ \t]*([\w.-]+)", re.MULTILINE)
_REQUIRED = re.compile(rb"^Requires-Dist:[ \t]*([\w.-]+)([^\n]*)", re.MULTILINE)
_MODULE = re.compile(rb"^[A-Za-z_]\w*", re.MULTILINE)
_GROUP = re.compile(rb"^\[([^\]\n]*)\]([^\[]*)", re.MULTILINE)
_OFFERED = re.compile(rb"=[ \t]*([A-Za-z_]\w*)")
_SCRIPTS = (b"console_scripts", b"gui_scripts")


def requires(texts: Mapping[str, bytes], there: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Top-level modules of recorded packages to those of the packages that these require, extras left out.

    `there` are names of modules that the image has. Many records leave out what their package's modules are
    called: what such packages require stands by "" where no module has their name.
    """
    known = {name.lower(): name for name in there}
    modules: dict[str, set[str]] = defaultdict(set)
    required: dict[str, set[str]] = {}
    for directory, head in _records(texts):
        name = _NAME.search(head)
        if name:
            package = _normalised(name[1])
            listed = _MODULE.findall(texts.get(f"{directory}/top_level.txt", b""))
            modules[package] |= {each.decode() for each in listed} or {known.get(package.replace("-", "_"), "")}
            wanted = (match[1] for match in _REQUIRED.finditer(head) if b"extra" not in match[2])
            required.setdefault(package, set()).update(map(_normalised, wanted))
    found: dict[str, set[str]] = defaultdict(set)
    for package, wanted_packages in required.items():
        for module in modules[package]:
            found[module].update(other for each in wanted_packages for other in modules.get(each, ()))
    return {module: tuple(sorted(others - {module, ""})) for module, others in found.items()}


def plugins(texts: Mapping[str, bytes]) -> tuple[str, ...]:
    """Top-level modules that packages offer under other groups than those of scripts."""
    found: set[str] = set()
    for path, text in texts.items():
        if path.endswith("-info/entry_points.txt"):
            groups = (match[2] for match in _GROUP.finditer(text) if match[1].strip() not in _SCRIPTS)
            found.update(name.decode() for group in groups for name in _OFFERED.findall(group))
    return tuple(sorted(found))


def _records(texts: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for path, text in texts.items():
        directory, name = posixpath.split(path)
        if name in _METADATA and directory.endswith("-info"):
            yield directory, text[:_HEAD].partition(b"\n\n")[0]


def _normalised(name: bytes) -> str:
    """As PyPA's "Names and normalization" has it."""
    return re.sub(r"[-_.]+", "-", name.decode("ascii", "replace")).lower()
