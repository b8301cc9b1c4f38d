"""Copies the interpreter that runs this into a tree, for nodes without one: own_python.py DIRECTORY PACKAGES

DIRECTORY gets bin/python3, the standard library and every shared library that these and the modules below PACKAGES
need, but for those of the C library: that stays the node's. So it runs where the C library is no older than here.
$PATCHELF (default: patchelf) tells the copy where its libraries are, seen from itself.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests",
    "tkinter", "turtledemo",
)  # fmt: skip
_C_LIBRARY = re.compile(r"(ld-linux|linux-vdso|lib(c|m|pthread|dl|rt|util|resolv|anl|nsl|BrokenLocale)\.so)")
_NEEDED = re.compile(r"^\s*(\S+) => (\S+) \(0x", re.MULTILINE)


def main() -> None:
    tree, packages = map(Path, sys.argv[1:])
    program = tree / "bin" / "python3"
    library = tree / sys.platlibdir / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    program.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(getattr(sys, "_base_executable", sys.executable)), program)
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=_LEFT_OUT)
    (tree / "lib").mkdir(exist_ok=True)
    for name, path in _shared([program, *library.rglob("*.so"), *packages.rglob("*.so*")]).items():
        if not path.is_relative_to(packages.resolve()):
            shutil.copy(path, tree / "lib" / name)
    # DT_RPATH, not DT_RUNPATH: the extension modules' own needs are to be found there as well.
    patchelf = os.environ.get("PATCHELF", "patchelf")
    subprocess.run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", program], check=True)


def _shared(files: Iterable[Path]) -> dict[str, Path]:
    """The shared libraries that `files` need, by the names under which they are asked for."""
    found: dict[str, Path] = {}
    for file in files:
        told = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
        found |= {name: Path(path).resolve() for name, path in _NEEDED.findall(told) if not _C_LIBRARY.match(name)}
    return found


if __name__ == "__main__":
    try:
        main()
    except (OSError, shutil.Error, subprocess.CalledProcessError) as error:
        sys.exit(f"own_python.py: {error}")
