"""The images that are measured, built once by the tools people build with and kept in the tests' cache."""

import io
import random
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.end_to_end.real_image import tensorflow_layout
from tests.tools import cache_directory, need, pypi_wheel, run

_SITE = "usr/local/lib/python3.11/dist-packages"
_PYTHON = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
_PLATFORMS = ("--platform", "manylinux_2_27_x86_64", "--platform", "manylinux_2_28_x86_64",
              "--platform", "manylinux2014_x86_64")  # fmt: skip


def tensorflow_gpu() -> str:
    """Debian with the files of tensorflow-gpu 1.12.0: about 1 GB, of which one ELF file has 837 MB."""
    return tensorflow_layout("1.12.0")


def tensorflow_cpu() -> str:
    """The files of tensorflow-cpu 2.21.0."""
    return _layout("tensorflow-cpu-2.21.0", lambda work: [_wheel(work, "tensorflow_cpu==2.21.0")])


def many_layers() -> str:
    """40 layers of 1,000 small files."""
    return _layout("40-layers", lambda work: [_files(work, number, 1_000) for number in range(40)])


def many_files() -> str:
    """One layer of 300,000 small files."""
    return _layout("300000-files", lambda work: [_files(work, 0, 300_000)])


IMAGES = {
    "tensorflow-gpu 1.12.0": tensorflow_gpu,
    "tensorflow-cpu 2.21.0": tensorflow_cpu,
    "40 layers": many_layers,
    "300,000 files": many_files,
}


def _layout(name: str, layers) -> str:
    directory = cache_directory("bench") / name
    if not directory.exists():
        with tempfile.TemporaryDirectory(dir=cache_directory("bench")) as work:
            layout = Path(work, "layout")
            run(need("umoci"), "init", "--layout", layout)
            run(need("umoci"), "new", "--image", f"{layout}:latest")
            for layer in layers(Path(work)):
                run(need("umoci"), "raw", "add-layer", "--image", f"{layout}:latest", layer)
            layout.rename(directory)
    return f"oci:{directory}:latest"


def _wheel(work: Path, requirement: str) -> Path:
    target = work / "wheel.tar"
    wheel = pypi_wheel(requirement, *_PYTHON, *_PLATFORMS)
    with zipfile.ZipFile(wheel) as archive, tarfile.open(target, "w") as tar:
        for member in archive.infolist():
            info = tarfile.TarInfo(f"{_SITE}/{member.filename}")
            info.size = member.file_size
            with archive.open(member) as content:
                tar.addfile(info, content)
    return target


def _files(work: Path, number: int, count: int) -> Path:
    """A tar of `count` files of up to 2 KB that shrink by half, a hundred to a directory."""
    target = work / f"{number}.tar"
    chosen = random.Random(number)
    text = chosen.randbytes(200_000).hex().encode()
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for index in range(count):
            info = tarfile.TarInfo(f"usr/share/{number}/{index // 100}/file-{index}.txt")
            info.size = chosen.randrange(2_000)
            start = chosen.randrange(len(text) - info.size)
            tar.addfile(info, io.BytesIO(text[start : start + info.size]))
    return target
