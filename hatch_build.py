"""Compiles the loops in C, and puts into the wheel what a preflight has no time to work out, made anew by each build.

The latter is the parsed form of the rules (imgcheck/knowledge/store.py reads it) and the digest of the loader's model
(imgcheck/loader/code.py).
"""

import binascii
import json
import os
import platform
import runpy
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "imgcheck/binaries/kernels"
_MACHINES = {"ppc64le": "powerpc64le"}
"""Names of machines that zig calls otherwise."""
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-s", "-fvisibility=hidden",
          "-ffreestanding", "-nostdlib")  # fmt: skip
"""The loops call nothing, not even the C library, so that what is built here runs on every Linux of this machine."""


class WorkedOut(BuildHookInterface):
    """Hatchling's hook for wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, for an editable installation beside the sources, whose rules and Python code may change."""
        root = Path(self.root)
        library: Path = runpy.run_path(str(root / KERNELS / "__init__.py"))["LIBRARY"]
        if version == "editable":
            compile_kernels(root, library)
            return
        self._made = tempfile.TemporaryDirectory(prefix="imgcheck-build-")
        made = Path(self._made.name)
        model = runpy.run_path(str(root / "imgcheck/loader/code.py"))
        texts = {
            "imgcheck/rules/parsed.json": parsed(root / "rules"),
            f"imgcheck/loader/{model['RECORD']}": model["of_files"](),
        }
        for place, text in texts.items():
            (made / Path(place).name).write_text(text, encoding="utf-8")
        compile_kernels(root, made / library.name)
        for place in (*texts, f"{KERNELS}/{library.name}"):
            build_data["force_include"][str(made / Path(place).name)] = place
        machine = platform.machine()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Drop them once they are in the wheel."""
        if version != "editable":
            self._made.cleanup()


def parsed(rules: Path) -> str:
    """JSON of each TOML file below `rules`: its path there to the CRC-32 of its bytes and its table."""
    tables = {}
    for path in sorted(rules.rglob("*.toml")):
        data = path.read_bytes()
        tables[path.relative_to(rules).as_posix()] = [binascii.crc32(data), tomllib.loads(data.decode("utf-8"))]
    return json.dumps(tables, ensure_ascii=False, separators=(",", ":"))


def compile_kernels(root: Path, target: Path) -> None:
    """Make the library of the C files by the compiler that PyPI has (zig's clang); RuntimeError where that fails.

    A machine is named so that the code is for all of its kind, not for the one that compiles.
    """
    machine = platform.machine()
    sources = sorted(map(str, (root / KERNELS).glob("*.c")))
    with tempfile.TemporaryDirectory(prefix="imgcheck-zig-") as cache:
        done = subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", "-target", f"{_MACHINES.get(machine, machine)}-linux-musl",
             *_FLAGS, *sources, "-o", str(target)],
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
            capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the loops in C could not be compiled: {done.stderr.strip()}")
