"""The compiled modules of an installed tree in one file: a shared file system is asked once, not for each of them.

install.sh has it written. Python looks at what it holds as at what lies in __pycache__: where a module was compiled by
another version, its source is taken.
"""

import marshal
import os
import sys

TYPE_CHECKING = False
"""Of type checkers alone True, as that of `typing`: for it, and for importlib.machinery, a kept answer has no time."""
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec, SourceFileLoader
else:
    ModuleSpec, SourceFileLoader = type(__spec__), type(__spec__.loader)

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_BUNDLE = f"{_PACKAGE}/modules.{sys.implementation.cache_tag}"
_LENGTH = 8
"""Bytes of the number with which the file begins: the length of the index behind it."""


class _Loader(SourceFileLoader):
    """Loads a module as from its source file, with the bundle's bytes for those of its compiled file."""

    def __init__(self, name: str, path: str, compiled: bytes) -> None:
        super().__init__(name, path)
        self._compiled = compiled

    def path_stats(self, path: str) -> dict[str, int]:
        """Nothing of the source file, with which a module that was compiled for good is not compared."""
        return {"mtime": 0, "size": 0}

    def get_data(self, path: str) -> bytes:
        """Content of the file at `path`."""
        return self._compiled if path.endswith(".pyc") else super().get_data(path)


class _Finder:
    """Finds the modules that a bundle holds, before Python searches for them."""

    def __init__(self, file: int) -> None:
        self._file = file
        length = int.from_bytes(os.pread(file, _LENGTH, 0), "little")
        self._index: dict[str, tuple[bool, int, int]] = marshal.loads(os.pread(file, length, _LENGTH))
        """Module to whether it is a package, and where its bytes begin behind the index and how many they are."""
        self._begin = _LENGTH + length

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """The module `name` as Python's import asks for it; None where the bundle lacks it."""
        if name not in self._index:
            return None
        is_package, begin, length = self._index[name]
        place = _PACKAGE + name.removeprefix(__package__).replace(".", "/")
        source = f"{place}/__init__.py" if is_package else f"{place}.py"
        loader = _Loader(name, source, os.pread(self._file, length, self._begin + begin))
        spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [place]
        return spec


def use() -> None:
    """Import this package's modules from its bundle from now on, where there is one for this Python."""
    try:
        file = os.open(_BUNDLE, os.O_RDONLY)
    except OSError:
        return
    sys.meta_path.insert(0, _Finder(file))


def make() -> None:
    """Write the bundle of this package, whose modules have been compiled."""
    from importlib.util import cache_from_source
    from pathlib import Path

    index: dict[str, tuple[bool, int, int]] = {}
    contents = bytearray()
    for source in sorted(Path(_PACKAGE).rglob("*.py")):
        parts = source.relative_to(_PACKAGE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join((__package__, *(parts[:-1] if is_package else parts)))
        compiled = Path(cache_from_source(str(source))).read_bytes()
        index[name] = (is_package, len(contents), len(compiled))
        contents += compiled
    told = marshal.dumps(index)
    Path(_BUNDLE).write_bytes(len(told).to_bytes(_LENGTH, "little") + told + contents)
