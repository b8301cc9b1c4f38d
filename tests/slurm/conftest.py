"""What the Slurm tests share: an installation for every user, images with profiles, described nodes."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from imgcheck.documents import encode
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from tests.installation import installed_tree
from tests.tools import CHECKOUT, cache_directory, need, run

SCRIPTS = CHECKOUT / "integrations" / "slurm"


@dataclass(frozen=True)
class Site:
    """A directory that every user can read, with what a site would have on its shared file system."""

    directory: Path
    image: Path
    """A SIF whose program needs AVX-512, with its profile beside it."""
    unprofiled: Path
    """The same without a profile."""

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
    need("mksquashfs")
    imgcheck = installed_tree() / "bin/imgcheck"
    image, unprofiled = directory / "avx512.sif", directory / "unprofiled.sif"
    run(imgcheck, "convert", f"oci:{CHECKOUT}/demo/skylake512", "--to", "sif", image)
    run(imgcheck, "profile", image, "--no-store", "-o", f"{image}.imgcheck.json")
    shutil.copy(image, unprofiled)
    yield Site(directory, image, unprofiled)
    shutil.rmtree(directory, ignore_errors=True)
