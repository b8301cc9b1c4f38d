"""Which code works out closures: those that a profile keeps are believed where the same code made them.

Imports nothing of imgcheck, so that a build can ask it (hatch_build.py).
"""

import os
from functools import cache

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FOLDERS = ("loader", "documents", "knowledge")
_MODULES = ("architectures.py", "globs.py", "versions.py")
_TABLES = tuple(f"analysis/{name}.toml" for name in ("launchers", "native_modules", "supervisors", "variables"))
RECORD = "digest"
"""The file beside this one in which a wheel brings the digest: a preflight has no time to read the code."""


@cache
def digest() -> str:
    """Digest of the loader's model and of the documents that it reads, as recorded or taken from the files."""
    try:
        with open(f"{_PACKAGE}/loader/{RECORD}", encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return of_files()


def of_files() -> str:
    """The digest taken from the files themselves, so that no change can go by the old name."""
    import hashlib

    total = hashlib.sha256()
    for path in sources():
        with open(path, "rb") as file:
            total.update(file.read() + b"\0")
    return total.hexdigest()[:16]


def sources() -> list[str]:
    """The modules that work out closures, those that they import, and the tables that they read."""
    folders = [f"{_PACKAGE}/{folder}" for folder in _FOLDERS]
    below = [f"{folder}/{name}" for folder in folders for name in os.listdir(folder) if name.endswith(".py")]
    installed = f"{_PACKAGE}/rules"
    rules = installed if os.path.isdir(installed) else f"{os.path.dirname(_PACKAGE)}/rules"
    return sorted([*below, *(f"{_PACKAGE}/{name}" for name in _MODULES)]) + [f"{rules}/{name}" for name in _TABLES]
