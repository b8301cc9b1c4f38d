"""Debian for tests: roots, and packages of any suite, which leave the machine's own apt as it is."""

import os
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.tools import download, kept, missing, need, run

_MIRROR = re.compile(r"/debian(/\d{8}T\d{6}Z)?/?$")
"""Addresses of a mirror, or of the archive's state at a moment."""

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DIRECTORIES = ("lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "parts")


@cache
def mirror() -> str:
    """The Debian mirror that this machine is set up for."""
    listed = run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").stdout.split()
    return next((site for site in listed if _MIRROR.search(site)), "") or missing(
        "needs a Debian mirror: apt's sources name none whose address ends in /debian"
    )


def debootstrap(suite: str, root: Path, *options: str) -> None:
    """Make a minimal Debian of `suite` in the directory `root`; it may be there from an earlier attempt."""
    if os.getuid():
        missing("needs root: debootstrap makes a root file system with its owners")
    command = (need("debootstrap"), "--variant=minbase", *options, suite, root, mirror())
    # What a failed attempt leaves is no base for the next; a /proc that it left mounted is not to be emptied.
    download("sh", "-c", 'rm -rf --one-file-system "$0" && exec "$@"', root, *command)


def fetch_packages(work: Path, names: Sequence[str], suites: Sequence[str], section: str = "main") -> list[Path]:
    """The files of packages, in the empty directory `work`.

    The newest of `suites` that has a package is taken.
    """
    if not Path(_KEYRING).exists():
        missing(f"needs {', '.join(names)} of Debian, and this is no Debian to take them from")
    for directory in _DIRECTORIES:
        (work / directory).mkdir(parents=True)
    (work / "status").touch()
    lines = [f"deb [signed-by={_KEYRING}] {mirror()} {suite} {section}\n" for suite in suites]
    (work / "sources.list").write_text("".join(lines))
    settings = {
        "Dir::State": work, "Dir::State::status": work / "status", "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache", "Dir::Etc": work / "etc", "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": work / "parts", "APT::Sandbox::User": "root", "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",
    }  # fmt: skip
    options = [f"--option={name}={value}" for name, value in settings.items()]
    download("apt-get", "-qq", *options, "update", cwd=work)
    download("apt-get", "-qq", *options, "download", *names, cwd=work)
    return list(work.glob("*.deb"))


def unpacked(directory: Path, name: str, suites: Sequence[str], section: str = "main") -> Path:
    """The files of a package, as fetch_packages finds it, in `directory`, where they stay for the next time."""

    def make(made: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            (archive,) = fetch_packages(Path(work), [name], suites, section)
            run("dpkg-deb", "--extract", archive, made)

    return kept(directory, make)
