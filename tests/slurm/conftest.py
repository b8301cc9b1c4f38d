"""What the Slurm tests share: an installation for every user, images with profiles, described nodes."""

import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from imgcheck.documents import encode
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from tests.installation import installed_tree
from tests.tools import CHECKOUT, cache_directory, run

SCRIPTS = CHECKOUT / "integrations" / "slurm"


@dataclass(frozen=True)
class Site:
    """A directory that every user can read, with what a site would have on its shared file system."""

    directory: Path
    image: Path
    """A SIF whose profile, beside it, says that its program needs AVX-512."""

    def imgcheck(self, cpu: str) -> Path:
        """An `imgcheck` that takes each node for one with this CPU."""
        host = self.directory / f"{cpu}.json"
        described = describe_host(Knowledge(), cpu=cpu, gpus=("none",), driver="none", glibc="2.36", kernel="4.18")
        host.write_bytes(encode(described))
        return self.script(f"imgcheck-{cpu}", f'exec {installed_tree()}/bin/imgcheck "$@" --host {host}')

    def script(self, name: str, *lines: str) -> Path:
        path = self.directory / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)
        return path


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="slurm-", dir=cache_directory("tmp")))
    directory.chmod(0o755)
    image = directory / "avx512.sif"
    image.write_bytes(b"\0" * 32 + b"SIF_MAGIC\0")
    profile = directory / "avx512.sif.imgcheck.json"
    run(installed_tree() / "bin/imgcheck", "profile", f"oci:{CHECKOUT}/demo/skylake512", "--no-store", "-o", profile)
    profile.chmod(profile.stat().st_mode | stat.S_IROTH)
    yield Site(directory, image)
    shutil.rmtree(directory, ignore_errors=True)
