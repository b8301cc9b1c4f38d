"""Packages of Debian's non-free section, unpacked for tests and never shipped: NVIDIA's libcuda and cuobjdump 11.8."""

import shutil
from functools import cache
from pathlib import Path

from tests.tools import cache_directory, debian_mirror, need, run

_SUITES = ("bullseye", "bookworm", "trixie", "sid")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_CONFIG = """Dir::State "{root}/state";
Dir::Cache "{root}/cache";
Dir::Etc::sourcelist "{root}/sources.list";
Dir::Etc::sourceparts "{root}/parts";
Dir::State::status "/var/lib/dpkg/status";
APT::Sandbox::User "root";
"""


@cache
def _config() -> Path:
    """Apt's configuration for a package list of its own: the machine's sources stay as they are."""
    root = cache_directory("debian-non-free")
    for part in ("state/lists/partial", "cache/archives/partial", "parts"):
        (root / part).mkdir(parents=True, exist_ok=True)
    lines = [f"deb [signed-by={_KEYRING}] {debian_mirror()} {suite} non-free" for suite in _SUITES]
    (root / "sources.list").write_text("\n".join(lines) + "\n")
    config = root / "apt.conf"
    config.write_text(_CONFIG.format(root=root))
    run(need("apt-get"), "update", env={"APT_CONFIG": str(config), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
    return config


def package(name: str, suite: str = "") -> Path:
    """The files of a package, unpacked; of the newest suite that has it where none is named."""
    directory = cache_directory("debian-non-free", "packages") / (f"{name}-{suite}" if suite else name)
    if not directory.exists():
        work = directory.with_name(f".{directory.name}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        environment = {"APT_CONFIG": str(_config()), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        wanted = f"{name}/{suite}" if suite else name
        run(need("apt-get"), "download", wanted, cwd=work, env=environment)
        (archive,) = work.glob("*.deb")
        run(need("dpkg-deb"), "-x", archive, work / "files")
        (work / "files").rename(directory)
        shutil.rmtree(work)
    return directory


def cuobjdump() -> Path:
    """Cuobjdump 11.8: the last that reads code for Kepler, which today's refuses."""
    return package("nvidia-cuda-toolkit", "bookworm") / "usr" / "bin" / "cuobjdump"


LIBCUDA = {
    "340": ("libnvidia-legacy-340xx-cuda1", "sid"),
    "390": ("libnvidia-legacy-390xx-cuda1", "sid"),
    "418": ("libnvidia-tesla-418-cuda1", "sid"),
    "470": ("libcuda1", "bullseye"),
    "535": ("libcuda1", "bookworm"),
    "550": ("libcuda1", "trixie"),
}
"""Driver branches whose libcuda Debian still has, and where."""


_LOADERS = {
    "390": ("libnvidia-legacy-390xx-fatbinaryloader", "sid"),
    "418": ("libnvidia-tesla-418-fatbinaryloader", "sid"),
}


def library_path(branch: str) -> str:
    """LD_LIBRARY_PATH for a branch's libcuda: the directories of what it needs besides the C library."""
    packages = [LIBCUDA[branch], *([_LOADERS[branch]] if branch in _LOADERS else [])]
    found = (path for each in packages for path in package(*each).glob("usr/lib/x86_64-linux-gnu/**/lib*.so.*"))
    return ":".join(dict.fromkeys(str(path.parent) for path in found))


def libcuda(branch: str) -> Path:
    """The real libcuda.so.VERSION of a driver branch."""
    return next(package(*LIBCUDA[branch]).glob("usr/lib/x86_64-linux-gnu/nvidia/*/libcuda.so.*.*"))
