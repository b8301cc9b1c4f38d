"""The compiled modules of an installed tree in one file: a shared file system is asked once, not for each of them.

install.sh has it written. Nothing is compared with a source file, as for compiled files that are never checked; what
another version of Python wrote is left alone.

The file: Python's magic number (4 bytes), the length of the index (8 bytes, little-endian), the index, and the code of
each module; index and code as `marshal` has them.
"""

import _frozen_importlib_external
import _imp
import marshal
import os
import sys

TYPE_CHECKING = False
"""Of type checkers alone True, as that of `typing`: for it, and for importlib.machinery, a kept answer has no time."""
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import CodeType
else:
    ModuleSpec, SourceFileLoader = type(__spec__), type(__spec__.loader)

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_BUNDLE = f"{_PACKAGE}/modules.{sys.implementation.cache_tag}"
_MAGIC = _frozen_importlib_external.MAGIC_NUMBER
_LENGTH = 8
_BEGIN = len(_MAGIC) + _LENGTH


class _Loader(SourceFileLoader):
    """Loads a module as from its source file, with the bundle's code for that of its compiled file."""

    def __init__(self, name: str, path: str, compiled: bytes) -> None:
        super().__init__(name, path)
        self._compiled = compiled

    def get_code(self, fullname: str) -> "CodeType":
        """The code of the module, which says in tracebacks where its source lies now."""
        code = marshal.loads(self._compiled)
        _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
        return code


class _Finder:
    """Finds the modules that a bundle holds, before Python searches for them."""

    def __init__(self, file: int, length: int) -> None:
        self._file = file
        self._index: dict[str, tuple[bool, int, int]] = marshal.loads(os.pread(file, length, _BEGIN))
        """Module to whether it is a package, and where its code begins behind the index and how many bytes it has."""
        self._code = _BEGIN + length

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """The module `name` as Python's import asks for it; None where the bundle lacks it."""
        if name not in self._index:
            return None
        is_package, begin, length = self._index[name]
        place = _PACKAGE + name.removeprefix(__package__).replace(".", "/")
        source = f"{place}/__init__.py" if is_package else f"{place}.py"
        loader = _Loader(name, source, os.pread(self._file, length, self._code + begin))
        spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
        spec.has_location = True
        spec.cached = _BUNDLE  # or Python works out a name in __pycache__, twice
        if is_package:
            spec.submodule_search_locations = [place]
        return spec


def use() -> None:
    """Import this package's modules from its bundle from now on, where there is one for this Python."""
    try:
        file = os.open(_BUNDLE, os.O_RDONLY)
    except OSError:
        return
    head = os.pread(file, _BEGIN, 0)
    if head.startswith(_MAGIC):
        sys.meta_path.insert(0, _Finder(file, int.from_bytes(head[len(_MAGIC) :], "little")))


def make() -> None:
    """Write the bundle of this package."""
    from pathlib import Path

    index: dict[str, tuple[bool, int, int]] = {}
    contents = bytearray()
    for source in sorted(Path(_PACKAGE).rglob("*.py")):
        parts = source.relative_to(_PACKAGE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join((__package__, *(parts[:-1] if is_package else parts)))
        code = marshal.dumps(compile(source.read_bytes(), source.name, "exec", dont_inherit=True))
        index[name] = (is_package, len(contents), len(code))
        contents += code
    told = marshal.dumps(index)
    Path(_BUNDLE).write_bytes(_MAGIC + len(told).to_bytes(_LENGTH, "little") + told + contents)
