"""Packages of Debian's non-free section, unpacked for tests and never shipped: NVIDIA's libcuda and cuobjdump 11.8."""

from pathlib import Path

from tests.debian import unpacked
from tests.tools import cache_directory

_SUITES = ("bullseye", "bookworm", "trixie", "sid")


def package(name: str, suite: str = "") -> Path:
    """The files of a package, unpacked; of the newest suite that has it where none is named."""
    directory = cache_directory("debian-non-free", "packages") / (f"{name}-{suite}" if suite else name)
    return unpacked(directory, name, [suite] if suite else _SUITES, "non-free")


def cuobjdump() -> Path:
    """Cuobjdump 11.8: the last that reads code for Kepler, which today's refuses."""
    return package("nvidia-cuda-toolkit", "bookworm") / "usr" / "bin" / "cuobjdump"


LIBCUDA = {
    "340": ("libnvidia-legacy-340xx-cuda1", "sid"),
    "390": ("libnvidia-legacy-390xx-cuda1", "sid"),
    "418": ("libnvidia-tesla-418-cuda1", "sid"),
    "450": ("libnvidia-tesla-450-cuda1", "sid"),
    "460": ("libnvidia-tesla-460-cuda1", "sid"),
    "470": ("libcuda1", "bullseye"),
    "525": ("libnvidia-tesla-cuda1", "sid"),
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
