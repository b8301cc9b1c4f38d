"""Whole roots on which the model is held against the root's own loader: distributions, and trees made on purpose."""

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imgcheck.host.probe import probe_host
from imgcheck.knowledge import Knowledge
from imgcheck.loader.hwcaps import hwcaps_of
from tests.debian import debootstrap
from tests.loader.builder import Root
from tests.tools import alone, cache_directory, pip

SUITES = {
    "bullseye": ["python3-numpy"],
    "bookworm": ["ffmpeg", "git", "musl", "openmpi-bin", "python3-scipy", "r-base-core"],
    "trixie": ["python3-numpy"],
    "sid": ["python3-numpy"],
}
"""Debian suites with packages that bring many libraries."""

_WHEELS = ("numpy==2.4.6", "scipy==1.17.1", "torch==2.13.0")
_MODULES = "usr/local/lib/python3.11/dist-packages"
_KNOWLEDGE = Knowledge()
_MUSL = "/lib/ld-musl-x86_64.so.1"


@dataclass(frozen=True)
class Tree:
    """A root, and what of it counts."""

    path: Path
    below: str = "/"
    """Only files below this directory are compared."""
    levels: tuple[str, ...] = ()
    """Directories for this machine's CPU, where the root has some."""


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """The root `name`, made once; an interrupted attempt is begun anew."""
    place = cache_directory("roots") / name
    with alone(place):
        if not (place / "complete").is_file():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            make(place / "root")
            (place / "complete").touch()
    return place / "root"


def debian(suite: str) -> Tree:
    """A minimal Debian of `suite` with some packages."""

    def make(root: Path) -> None:
        packages = ",".join(SUITES[suite])
        debootstrap(suite, root, f"--include={packages}")

    return Tree(_kept(suite, make))


def supervisors() -> Tree:
    """A minimal Debian with programs that start others, and what these are often started by."""

    def make(root: Path) -> None:
        debootstrap("bookworm", root, "--include=daemontools,execline,runit,s6,supervisor")
        options = ("--no-cache-dir", "--no-deps", "--no-compile")
        pip("install", *options, "--target", root / "usr/lib/python3/dist-packages", "honcho==2.0.0")
        for directory in ("etc/service", "etc/sv"):
            shutil.rmtree(root / directory, ignore_errors=True)
            (root / directory).unlink(missing_ok=True)

    return Tree(_kept("supervisors", make))


def python_wheels() -> Tree:
    """Debian's Python with the manylinux wheels of NumPy, SciPy and PyTorch, which carry libraries of their own."""

    def make(root: Path) -> None:
        subprocess.run(["cp", "-al", str(debian("bookworm").path), str(root)], check=True)
        options = ("--no-cache-dir", "--no-deps", "--no-compile", "--python-version", "3.11", "--only-binary", ":all:")
        pip("install", *options, "--target", root / _MODULES, *_WHEELS)

    return Tree(_kept("python", make), below=f"/{_MODULES}/")


def musl() -> Tree:
    """Debian's musl as the only C library, with programs and libraries in its own and other directories."""

    def make(path: Path) -> None:
        root = Root(path)
        shutil.rmtree(root.at("/lib64"))
        shutil.rmtree(root.at("/lib"))
        libc = debian("bookworm").path / "lib/x86_64-linux-musl/libc.so"
        root.at("/lib").mkdir()
        shutil.copy2(libc, root.at(_MUSL))
        _statically_env(root)
        root.write("/etc/ld-musl-x86_64.path", "/lib\n/usr/local/lib:/usr/lib\n/opt/listed")
        flags = ["-nostdlib", "-Wl,-e,main", f"-Wl,--dynamic-linker={_MUSL}"]
        _Maze(root, 1, ["/lib", "/usr/lib", "/usr/local/lib", "/opt/listed", "/opt/a", "/opt/b/c"], flags).build(60, 60)

    return Tree(_kept("musl", make))


def hwcaps_and_rpaths() -> Tree:
    """Variants by CPU level, odd RPATHs, equal names in many directories, linked directories, a cache."""

    def make(path: Path) -> None:
        root = Root(path)
        plain = ["/usr/lib", "/opt/a/lib", "/opt/a/lib64", "/opt/b/c/lib", "/srv/x86_64", "/opt/cached"]
        variants = [f"/opt/{where}/{sub}" for where in ("a/lib", "cached") for sub in
                    ("glibc-hwcaps/x86-64-v2", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v4", "tls/x86_64",
                     "tls", "haswell", "x86_64")]  # fmt: skip
        root.link("/opt/link", "/opt/b/c")
        root.link("/lib/own", "../opt/a/lib64")
        maze = _Maze(root, 2, plain + variants, [])
        maze.build(90, 90)
        root.write("/etc/ld.so.conf", "/opt/cached\ninclude /etc/ld.so.conf.d/*.conf\n")
        root.write("/etc/ld.so.conf.d/b.conf", "# comment\n/opt/link/lib\n")
        root.ldconfig()

    return Tree(_kept("odd", make), levels=hwcaps_of(probe_host(knowledge=_KNOWLEDGE), _KNOWLEDGE))


def _statically_env(root: Root) -> None:
    """An `env` that needs no library, by which the loader is started in the chroot."""
    code = "#include <unistd.h>\nint main(int c,char**v){return execve(v[2],v+2,(char*[]){0});}"
    root.at("/usr/bin/env").unlink()
    root.program("/usr/bin/env", flags=["-static"], code=code)


class _Maze:
    """Libraries and programs that need each other at random: always the same ones for a seed."""

    def __init__(self, root: Root, seed: int, directories: list[str], program_flags: list[str]) -> None:
        self._root, self._random = root, random.Random(seed)
        self._directories, self._program_flags = directories, program_flags
        self._made: list[str] = []

    def build(self, libraries: int, programs: int) -> None:
        for index in range(libraries):
            self._library(index)
        for index in range(programs):
            flags = [*self._program_flags, *self._paths()]
            self._root.program(f"/usr/bin/p{index}", self._needs(4), flags)

    def _library(self, index: int) -> None:
        # Every name is used some three times, in different directories.
        name = f"liblab{index // 3}.so.{index // 3 % 2}"
        path = f"{self._random.choice(self._directories)}/{name}"
        if path in self._made:
            return
        versions = self._random.choice([(), (), ("V_1",), ("V_1", "V_2")])
        self._root.library(path, self._needs(3), self._paths(), versions=versions)
        self._made.append(path)

    def _needs(self, most: int) -> list[str]:
        return self._random.sample(self._made, min(len(self._made), self._random.randint(0, most)))

    def _paths(self) -> list[str]:
        kinds = [
            *self._directories[:6], "$ORIGIN", "$ORIGIN/../lib", "${ORIGIN}/../$LIB", "/srv/$PLATFORM", "/opt/link/lib",
            "/lib/own", "/nowhere", "/opt/a//lib/", "/opt/b/./c/../c/lib", "$ORIGINAL", "/opt/$UNKNOWN",
        ]  # fmt: skip
        count = self._random.randint(0, 3)
        if not count:
            return []
        tag = self._random.choice(["--enable-new-dtags", "--disable-new-dtags"])
        more = ["-Wl,-z,nodefaultlib"] if self._random.random() < 0.1 else []
        return [f"-Wl,{tag},-rpath,{':'.join(self._random.sample(kinds, count))}", *more]


ROOTS: dict[str, Callable[[], Tree]] = {
    **{suite: lambda suite=suite: debian(suite) for suite in SUITES},
    "Python wheels": python_wheels,
    "musl": musl,
    "hwcaps and RPATHs": hwcaps_and_rpaths,
}
"""Name to what makes the root, or finds it made."""
