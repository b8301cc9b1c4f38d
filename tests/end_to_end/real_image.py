"""The real input: a Debian root with the files of a TensorFlow GPU wheel of 2018, as OCI images of about 1 GB.

Built by the tools people build with (debootstrap, pip, umoci) and kept in the tests' cache.
"""

import shutil
import tarfile
import zipfile
from pathlib import Path

from tests.debian import debootstrap
from tests.images import Symlink, layer_tar
from tests.tools import cache_directory, compile_c, kept, need, pypi_wheel, run

SITE = "usr/local/lib/python3.6/dist-packages"
WHEEL_OPTIONS = ("--python-version", "3.6", "--implementation", "cp", "--abi", "cp36m", "--platform",
                  "manylinux1_x86_64")  # fmt: skip
_CUDA_LIBRARIES = ("libcublas", "libcufft", "libcurand", "libcusolver", "libcudart")
_CUDNN = "libcudnn.so.7.1.4"
_STAND_INS = "stand-ins"


def tensorflow_layout(version: str, with_cuda_libraries: bool = False) -> str:
    """A reference `oci:DIR:TAG` to the image of tensorflow-gpu `version`.

    It lacks the CUDA libraries that the wheel links against; `with_cuda_libraries` adds stand-ins for them.
    """
    place = cache_directory("real") / f"tensorflow-gpu-{version}"
    directory = kept(place, lambda layout: _build(layout, version))
    return f"oci:{directory}:{_STAND_INS if with_cuda_libraries else 'latest'}"


def _build(layout: Path, version: str) -> None:
    work = layout.parent
    image = f"{layout}:latest"
    umoci = need("umoci")
    run(umoci, "init", "--layout", layout)
    run(umoci, "new", "--image", image)
    _add(image, debian_root(), "debootstrap --variant=minbase --include=libgomp1 bookworm")
    _add(image, _wheel_tar(work, version), f"RUN pip install tensorflow-gpu=={version}")
    run(umoci, "config", "--image", image, "--config.cmd", "/bin/bash",
        "--config.env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "--config.env", "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/local/cuda/lib64",
        "--config.env", "NVIDIA_VISIBLE_DEVICES=all",
        "--config.env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "--config.label", "com.nvidia.volumes.needed=nvidia_driver",
        "--no-history")  # fmt: skip
    run(umoci, "tag", "--image", image, _STAND_INS)
    libraries = work / "stand-ins.tar"
    libraries.write_bytes(layer_tar(_stand_ins()))
    _add(f"{layout}:{_STAND_INS}", libraries, "RUN apt-get install -y cuda-libraries-9-0 libcudnn7")


def _add(image: str, layer: Path, created_by: str) -> None:
    run(need("umoci"), "raw", "add-layer", "--image", image, "--history.created_by", created_by, layer)


def debian_root() -> Path:
    """A minimal Debian 12 as a tar; debootstrap needs root for it."""

    def make(archive: Path) -> None:
        root = archive.parent / "root"
        debootstrap("bookworm", root, "--include=libgomp1")
        shutil.rmtree(root / "var/cache/apt")
        run("tar", "--create", "--numeric-owner", "--sort=name", "--one-file-system", "--exclude=./dev/*",
            "--file", archive, "--directory", root, ".")  # fmt: skip

    return kept(cache_directory("real") / "debian-12.tar", make)


def _wheel_tar(work: Path, version: str) -> Path:
    """The files of the wheel where pip puts them."""
    target = work / "wheel.tar"
    wheel = pypi_wheel(f"tensorflow-gpu=={version}", *WHEEL_OPTIONS)
    with zipfile.ZipFile(wheel) as archive, tarfile.open(target, "w") as tar:
        for member in archive.infolist():
            info = tarfile.TarInfo(f"{SITE}/{_installed(member.filename)}")
            info.size, info.mode = member.file_size, 0o644
            with archive.open(member) as content:
                tar.addfile(info, content)
    return target


def _installed(name: str) -> str:
    """Where pip puts a wheel's file, below site-packages."""
    head, _, rest = name.partition(".data/purelib/")
    return rest if rest and "/" not in head else name


def _stand_ins() -> dict[str, Path | Symlink]:
    """Libraries with the names and symbol versions of CUDA 9.0's and of cuDNN 7.1, without their code."""
    directory, cudnn = "usr/local/cuda/lib64", "libcudnn.so.7"
    built = {f"{directory}/{name}.so.9.0": _stand_in(f"{name}.so.9.0") for name in _CUDA_LIBRARIES}
    return built | {f"{directory}/{cudnn}": Symlink(_CUDNN), f"{directory}/{_CUDNN}": _stand_in(cudnn)}


def _stand_in(soname: str) -> Path:
    directory = cache_directory("real", "stand-ins")
    versions = directory / f"{soname}.map"
    versions.write_text(f"{soname} {{ global: *; }};\n")
    runtime = "int cudaRuntimeGetVersion(int *version) { *version = 9000; return 0; }\n"
    source = runtime if soname.startswith("libcudart") else f"int {soname.split('.')[0]}_stand_in;\n"
    options = ("-O2", "-shared", "-fPIC", f"-Wl,-soname,{soname}", f"-Wl,--version-script={versions}")
    return compile_c(source, *options, out=soname)
