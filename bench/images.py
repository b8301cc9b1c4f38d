"""The images that are measured, built once by the tools people build with and kept in the tests' cache."""

import io
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.end_to_end.real_image import debian_root, tensorflow_layout
from tests.tools import cache_directory, kept, need, pypi_wheel, run

_SITE = "usr/local/lib/python3.11/dist-packages"
_PYTHON = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
TENSORFLOW, TORCH = "tensorflow_cpu==2.21.0", "torch==2.13.0"
_PLATFORMS = ("--platform", "manylinux_2_27_x86_64", "--platform", "manylinux_2_28_x86_64",
              "--platform", "manylinux2014_x86_64")  # fmt: skip


def tensorflow_gpu() -> str:
    """Debian with the files of tensorflow-gpu 1.12.0: about 1 GB, of which one ELF file has 837 MB."""
    return tensorflow_layout("1.12.0")


def tensorflow_cpu() -> str:
    """Debian with the files of tensorflow-cpu 2.21.0, whose largest ELF file has 788 MB."""
    return _layout("tensorflow-cpu-2.21.0-on-debian", lambda work: [debian_root(), _wheel(work, TENSORFLOW)])


def torch_cpu() -> str:
    """Debian with the files of torch 2.13.0, the CPU build where PyPI's index offers it."""
    return _layout("torch-2.13.0-on-debian", lambda work: [debian_root(), _wheel(work, TORCH)])


def many_layers() -> str:
    """40 layers of 1,000 small files."""
    return layers(40)


def many_files() -> str:
    """One layer of 300,000 small files."""
    return files(300_000)


IMAGES: dict[str, Callable[[], str]] = {
    "tensorflow-gpu 1.12.0": tensorflow_gpu,
    "tensorflow-cpu 2.21.0": tensorflow_cpu,
    "torch 2.13.0": torch_cpu,
    "40 layers": many_layers,
    "300,000 files": many_files,
}


def code(megabytes: int) -> str:
    """One layer with the smaller ELF files of both wheels, until they are `megabytes`; 0 takes all of them."""
    return _layout(f"code-{megabytes}", lambda work: [_elf_files(work, megabytes * 1_000_000)])


def files(count: int) -> str:
    """One layer of `count` small files."""
    return _layout(f"{count}-files", lambda work: [_files(work, 0, count)])


def layers(count: int) -> str:
    """`count` layers of 1,000 small files."""
    return _layout(f"{count}-layers", lambda work: [_files(work, number, 1_000) for number in range(count)])


def _layout(name: str, tars: Callable[[Path], Iterable[Path]]) -> str:
    def make(layout: Path) -> None:
        run(need("umoci"), "init", "--layout", layout)
        run(need("umoci"), "new", "--image", f"{layout}:latest")
        for tar in tars(layout.parent):
            run(need("umoci"), "raw", "add-layer", "--image", f"{layout}:latest", tar)

    return f"oci:{kept(cache_directory('bench') / name, make)}:latest"


def _wheel(work: Path, requirement: str) -> Path:
    """The files of a wheel where pip puts them."""
    target = work / "wheel.tar"
    with _members(requirement) as archive, tarfile.open(target, "w") as tar:
        for member in archive.infolist():
            if not member.is_dir():
                _add(tar, archive, member, f"{_SITE}/{member.filename}")
    return target


def _elf_files(work: Path, limit: int) -> Path:
    """The ELF files of both wheels, smallest first, while they are less than `limit` bytes together."""
    target, taken = work / "code.tar", 0
    with _members(TENSORFLOW) as first, _members(TORCH) as second, tarfile.open(target, "w") as tar:
        found = [(member.file_size, archive, member) for archive in (first, second) for member in archive.infolist()]
        for size, archive, member in sorted(found, key=lambda each: each[0]):
            if size < 4 or archive.open(member).read(4) != b"\x7fELF":
                continue
            taken += size
            if limit and taken > limit:
                break
            _add(tar, archive, member, f"{_SITE}/{member.filename}")
    return target


def _members(requirement: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(pypi_wheel(requirement, *_PYTHON, *_PLATFORMS))


def _add(tar: tarfile.TarFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = member.file_size, 0o755 if "/bin/" in name else 0o644
    with archive.open(member) as content:
        tar.addfile(info, content)


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
