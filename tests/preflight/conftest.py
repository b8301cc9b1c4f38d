"""Profiles, hosts and a private cache for preflights."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.documents import encode
from imgcheck.documents.facts import CodeFacts, Isa, IsaUse, Linkage
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from imgcheck.loader.kept import with_loads

_JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID", "SLURM_LOCALID")


@dataclass(frozen=True)
class Place:
    """A directory with images, hosts and the cache of one user."""

    directory: Path
    cache: Path

    def preflight(self, *arguments: object) -> int:
        return main(["preflight", f"--cache={self.cache}", "--no-store", *map(str, arguments)])

    def answers(self) -> list[Path]:
        return list((self.cache / "answers").glob("*"))

    def image(self, name: str = "app.sif", path: str = "/usr/bin/app", answer: str = "required") -> Path:
        """An image that is no real one, with a profile beside it: `path` uses AVX-512, /usr/bin/true does not."""
        image = self.directory / name
        image.write_bytes(b"\0" * 42)
        self.profile(f"{name}.imgcheck.json", path, answer)
        return image

    def profile(self, name: str, path: str = "/usr/bin/app", answer: str = "required") -> Path:
        use = IsaUse("avx512f", answer, "reached at start", 1, 0x1000, "_start", "", "vaddps zmm0,zmm0,zmm0")
        linkage = Linkage(64, "x86_64", type="executable", flags=("static",))
        objects = {"a": CodeFacts(1, linkage, Isa((use,), "x86-64")), "b": CodeFacts(1, linkage, Isa((), "x86-64"))}
        files = (FileRecord(path, "a", 0, True), FileRecord("/usr/bin/true", "b", 0, True))
        config = ImageConfig(command=(path,))
        tree = TreeIndex(undefined={})
        profile = ImageProfile("1.0", "test", Platform(), config, (LayerInfo(),), files, objects, tree)
        file = self.directory / name
        file.write_bytes(encode(with_loads(profile)))
        return file

    def host(self, cpu: str = "haswell", **more: object) -> Path:
        named = {"gpus": ("none",), "driver": "none", "glibc": "2.36", "kernel": "4.18"} | more
        file = self.directory / f"{cpu}.json"
        file.write_bytes(encode(describe_host(Knowledge(), cpu=cpu, **named)))
        return file


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in _JOBS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    os.chmod(tmp_path, 0o755)  # noqa: PTH101
    return Place(tmp_path, tmp_path / "cache")
