"""Installs Apptainer for the tests: Debian 12 has none, and the one of Debian sid wants a newer C library.

The packages of sid are unpacked into a directory of their own, their libraries with them, and patchelf points the
programs at those. The system stays as it is.
"""

import tempfile
from pathlib import Path

from tests.debian import fetch_packages
from tests.tools import alone, cache_directory, need, run

_PACKAGES = ("apptainer", "libc6", "libseccomp2", "libsqlite3-0", "squashfuse", "libsquashfuse0", "libfuse3-4",
             "zlib1g", "liblzma5", "liblzo2-2", "liblz4-1", "libzstd1")  # fmt: skip
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_PROGRAMS = ("usr/bin/apptainer", f"{_LIBRARIES}/apptainer/bin/starter", "usr/bin/squashfuse_ll")
_LINKS = {
    # The command looks for its files from the directory above it, the starter from the one above its own.
    "usr/etc": "../etc",
    "usr/lib/etc": "../../etc",
    "usr/var": "lib/var",
    "usr/bin/squashfuse": "squashfuse_ll",
    "usr/bin/run-singularity": "run-singularity.apptainer",
}


def install_apptainer() -> Path:
    """The `apptainer` program: the system's where it has one, else one kept in the tests' cache."""
    system = Path("/usr/bin/apptainer")
    if system.exists():
        return system
    prefix = cache_directory() / "apptainer"
    program, complete = prefix / "usr/bin/apptainer", prefix / ".complete"
    with alone(prefix):
        if not complete.exists():
            # It names its files by absolute paths, so it is made where it stays.
            with tempfile.TemporaryDirectory() as work:
                for package in fetch_packages(Path(work), _PACKAGES, ["sid"]):
                    run("dpkg-deb", "--extract", package, prefix)
            _relocate(prefix)
            complete.touch()
    return program


def _relocate(prefix: Path) -> None:
    patchelf = need("patchelf")
    libraries = prefix / _LIBRARIES
    for program in _PROGRAMS:
        loader = libraries / "ld-linux-x86-64.so.2"
        run(patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, prefix / program)
    (prefix / "usr/lib/var/lib/apptainer/mnt/session").mkdir(parents=True, exist_ok=True)
    for link, target in _LINKS.items():
        path = prefix / link
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    run("chmod", "--recursive", "go+rX", prefix)
