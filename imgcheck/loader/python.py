"""Which extension modules a Python can import, by its version and by where it looks for them."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from imgcheck.loader.expansion import Shell

_PYTHON = re.compile(r"(?:python|pypy)(\d+(?:\.\d+)?)?[a-z]*(?:\.exe)?")
_CODE_OR_MODULE = re.compile(r"-[a-zA-Z]*?([cm])(.*)", re.DOTALL)
_ISOLATED = "EI"
"""Options with which it takes no notice of PYTHON... variables."""
_VALUED = ("-W", "-X", "-Q", "--check-hash-based-pycs")
_VERSION_IN_PATH = r"/(?:python|pypy)(\d+\.\d+)/"
_VERSION_IN_NAME = r"\.cpython-(\d)(\d+)"
_PLATFORM_IN_NAME = re.compile(r"\.cpython-\w+-[^.]*-linux-(gnu|musl)")
_FAMILIES = {"gnu": "glibc", "musl": "musl"}


def python_version(name: str) -> str | None:
    """The version in the file name of a Python ("3.11", "3" or ""); None where it is none."""
    match = _PYTHON.fullmatch(name)
    return None if match is None else match[1] or ""


def pythons(paths: Iterable[str]) -> dict[str, str]:
    """Those of `paths` that are a Python's, with its version as python_version has it."""
    named = ((path, python_version(posixpath.basename(path))) for path in paths)
    return {path: version for path, version in named if version is not None}


def invoked(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """What a Python with `arguments` runs: "c" or "m" and what follows this option, or "" and the script's words."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-") and len(arguments[index]) > 1:
        named = None if arguments[index].startswith(_VALUED) else _CODE_OR_MODULE.fullmatch(arguments[index])
        if named:
            return named[1], (named[2], *arguments[index + 1 :]) if named[2] else arguments[index + 1 :]
        index += 2 if arguments[index] in _VALUED else 1
    return "", arguments[index:]


def python_path(shell: Shell, arguments: tuple[str, ...]) -> Iterator[str]:
    """The directories of PYTHONPATH, as it may be, for a Python with `arguments`: some make it take no notice."""
    options = takewhile(lambda word: word[:1] == "-" and word[:2] != "--" and len(word) > 1, arguments)
    if any(set(_ISOLATED) & set(re.split("[cm]", word)[0]) for word in options):
        return
    for value in shell.variables.get("PYTHONPATH", ()):
        yield from (posixpath.join(shell.directories[0], place) for place in value.split(":") if place)


def importable(path: str, directory: str) -> bool:
    """Whether the extension module at `path` has a name in `directory`, which ends with a slash: a.b.c for a/b/c.so."""
    if directory == "/":
        # Whoever runs in the root does not import usr.lib.something.
        return path.count("/") == 1
    if not path.startswith(directory):
        return False
    *packages, name = path.removeprefix(directory).split("/")
    return all(part.isidentifier() for part in (*packages, name.partition(".")[0]))


def version_of_module(path: str) -> str:
    """The version of Python that the module at `path` is for, by its name or its directory; "" where it may be any."""
    named = re.search(_VERSION_IN_NAME, posixpath.basename(path))
    return f"{named[1]}.{named[2]}" if named else version_of_directory(path)


def version_of_directory(path: str) -> str:
    """The version of the one Python that looks for modules in the directory of `path`; "" where others may, too."""
    found = re.search(_VERSION_IN_PATH, path)
    return found[1] if found else ""


def family_of_module(path: str) -> str:
    """The C library, as glibc.family_of has it, of the Pythons that the module at `path` is for; "" if of any."""
    found = _PLATFORM_IN_NAME.search(posixpath.basename(path))
    return _FAMILIES[found[1]] if found else ""


def python_fits(version: str, path: str, family: str = "") -> bool:
    """Whether a Python of `version` ("3.11", "3" or unknown "") can load the module at `path`.

    `family`: the C library that it is built for, where that is known, as one takes no module by a name for another.
    """
    other = family_of_module(path)
    if other and family and other != family:
        return False
    found = version_of_module(path)
    if not found or not version:
        return True
    return found == version if "." in version else found.partition(".")[0] == version
