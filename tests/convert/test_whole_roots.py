"""Roots of several thousand files: umoci's unpacker agrees, real runtimes start them, and a SIF comes out the same."""

import hashlib
import shlex
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from imgcheck.convert.run import ConvertOptions, convert
from imgcheck.sources.open import open_image
from tests.convert.members import Reg, Sym, build
from tests.convert.started import as_ordinary_user
from tests.debian import debootstrap, unpacked
from tests.end_to_end.real_image import SITE, WHEEL_OPTIONS, tensorflow_layout
from tests.images import Directory, File, ImageBuilder, Member, Symlink
from tests.peers import Peer, as_unprivileged
from tests.tools import cache_directory, compile_c, kept, need, pypi_directory, pypi_wheel, run


def _tar(root: Path, into: Path) -> None:
    run("tar", "--numeric-owner", "--xattrs", "-C", root, "-cf", into, ".")


def _debian(suite: str) -> bytes:
    def make(archive: Path) -> None:
        root = archive.parent / "root"
        debootstrap(suite, root)
        shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
        _tar(root, archive)

    return kept(cache_directory("convert") / f"{suite}.tar", make).read_bytes()


def _numpy() -> bytes:
    place = cache_directory("convert") / "numpy.tar"
    return kept(place, lambda archive: _tar(pypi_directory("numpy==2.2.6"), archive)).read_bytes()


ROOTS = {"bookworm": lambda: _debian("bookworm"), "trixie": lambda: _debian("trixie"), "wheel": _numpy}
_CHANGES = {
    "usr/share/.wh.doc": Reg(),
    "numpy/.wh.tests": Reg(),
    "etc/.wh..wh..opq": Reg(),
    "etc/hostname": Reg(b"box\n"),
    "bin/new-tool": Reg(b"#!/bin/sh\n", 0o4755),
    "usr/lib/os-release": Sym("/etc/os-release"),
}


def _listed(root: Path) -> dict[str, tuple]:
    """Kind, permissions, time and content of everything, with the first name of each file."""
    found: dict[str, tuple] = {}
    inodes: dict[int, str] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        name = str(path.relative_to(root))
        kind = stat.S_IFMT(status.st_mode)
        content = ""
        if stat.S_ISLNK(kind):
            content = str(path.readlink())
        elif stat.S_ISREG(kind):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        first = name if stat.S_ISDIR(kind) else inodes.setdefault(status.st_ino, name)
        time = int(status.st_mtime) if stat.S_ISREG(kind) else None
        found[name] = (kind, stat.S_IMODE(status.st_mode), time, content, first)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ROOTS)
def test_umoci_unpacks_the_same_root(name, public_tmp):
    image = ImageBuilder().layer(ROOTS[name](), compression="none").layer(build(_CHANGES))
    layout = image.write(public_tmp / "layout", tag="test")
    run("chmod", "-R", "a+rX", layout)
    bundle = public_tmp / "bundle"
    run(*as_unprivileged(need("umoci"), "unpack", "--rootless", "--image", f"{layout}:test", bundle))

    def work() -> None:
        with open_image(f"oci:{layout}:test") as opened:
            convert(opened, "rootfs", public_tmp / "tree")

    as_ordinary_user(work)
    ours, theirs = _listed(public_tmp / "tree"), _listed(bundle / "rootfs")
    assert len(ours) > 1000
    assert ours == theirs


def _layers() -> ImageBuilder:
    image = ImageBuilder(entrypoint=("/bin/x",), environment=("A=1",), labels={"b": "2", "a": "1"})
    image.layer({"d": Directory(), **{f"d/{number}": b"%d" % number * number for number in range(200)}})
    return image.layer({"bin/x": File(b"x", 0o755), "l": Symlink("d")})


@pytest.mark.parametrize("target", ["sif", "enroot"])
def test_the_same_image_gives_the_same_bytes(target, tmp_path, monkeypatch):
    made = []
    for number, compression in enumerate(("gzip", "zstd")):
        image = _layers()
        for index, layer in enumerate(image.layers):
            image.layers[index] = type(layer)(layer.tar, layer.history, compression)
        layout = image.write(tmp_path / f"layout{number}", tag="test")
        monkeypatch.setenv("TZ", f"UTC-{number}")
        with open_image(f"oci:{layout}:test") as opened:
            convert(opened, target, tmp_path / f"made{number}")
        made.append((tmp_path / f"made{number}").read_bytes())
    assert made[0] == made[1]


@pytest.fixture(scope="module")
def busybox() -> bytes:
    """Debian's static busybox."""
    (program,) = unpacked(cache_directory("packages") / "busybox", "busybox-static", ["bookworm"]).glob(
        "**/bin/busybox"
    )
    return program.read_bytes()


_SAY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char place[4096];
    return argc == 3 && printf("%s|%s|%s|%s\n", getenv("VALUE"), argv[1], argv[2], getcwd(place, sizeof place)) < 0;
}
"""
_CONFIG = {
    "command": ("it's $one",),
    "environment": ("PATH=/usr/bin:/bin", "VALUE=a 'b' *c"),
    "working_directory": "/work",
}
_SAID = "a 'b' *c|zero|it's $one|/work"
_SHELL = ("/bin/sh", "-c", 'echo "$VALUE|$0|$1|$(pwd)"', "zero")


def _with_busybox(busybox: bytes) -> dict[str, Member]:
    links = {f"bin/{name}": Symlink("busybox") for name in ("sh", "ls", "cat", "env")}
    return {"bin": Directory(), "bin/busybox": File(busybox, 0o755), **links}


def _busybox_image(busybox: bytes) -> ImageBuilder:
    return ImageBuilder(entrypoint=_SHELL, **_CONFIG).layer(_with_busybox(busybox))


def _debian_image(_busybox: bytes) -> ImageBuilder:
    return ImageBuilder(entrypoint=_SHELL, **_CONFIG).layer(_debian("bookworm"), compression="none")


def _alpine_image(busybox: bytes) -> ImageBuilder:
    """A root of Alpine's form: musl as the only C library, busybox as the shell."""
    image = ImageBuilder(entrypoint=("/bin/sh", "-c", 'exec say "$0" "$1"', "zero"), **_CONFIG)
    loader = File(Path("/lib/ld-musl-x86_64.so.1").read_bytes(), 0o755)
    return image.layer(
        _with_busybox(busybox)
        | {
            "etc/alpine-release": "3.19.1\n",
            "etc/os-release": 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.19.1\n',
            "etc/passwd": "root:x:0:0:root:/root:/bin/ash\n",
            "lib/ld-musl-x86_64.so.1": loader,
            "lib/libc.musl-x86_64.so.1": Symlink("ld-musl-x86_64.so.1"),
            "usr/bin/say": compile_c(_SAY, compiler="musl-gcc", out="say"),
        }
    )


def _distroless_image(_busybox: bytes) -> ImageBuilder:
    """A program and the C library, no shell, and a user by number."""
    library = Path(run(need("gcc"), "-print-file-name=libc.so.6").stdout.strip())
    image = ImageBuilder(entrypoint=("/usr/bin/say", "zero"), user="65532:65532", **_CONFIG)
    return image.layer(
        {
            "etc/passwd": "root:x:0:0::/root:/sbin/nologin\nnonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n",
            "home/nonroot": Directory(0o700),
            "lib64/ld-linux-x86-64.so.2": Path("/lib64/ld-linux-x86-64.so.2"),
            "lib/x86_64-linux-gnu/libc.so.6": library,
            "usr/bin/say": compile_c(_SAY, out="say"),
        }
    )


_IMAGES = {
    "busybox": (_busybox_image, "P1"),
    "alpine": (_alpine_image, "P1"),
    # Debian's proot 5.1 starts no program of glibc 2.33 or later with the option -k that udocker gives it.
    "distroless": (_distroless_image, "S1"),
    "debian": (_debian_image, "S1"),
}


def _lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def _charliecloud(home: Path) -> Peer:
    return Peer((need("ch-run"),), {"USER": "nobody", "HOME": "/", "PATH": "/usr/bin:/bin"}, home)


@pytest.mark.slow
@pytest.mark.parametrize("name", _IMAGES)
def test_every_kind_of_image_runs_everywhere(
    name, busybox, converted_rootless, apptainer, apptainer_program, udocker, public_tmp
):
    build, mode = _IMAGES[name]
    image = build(busybox)

    def words(target: str, place: Path, **options: str) -> list[str]:
        return shlex.split(converted_rootless(image, target, place, **options).command)[1:]

    assert _SAID in _lines(apptainer(*words("sandbox", public_tmp / "sandbox")))
    action, *rest = words("sif", public_tmp / "app.sif")
    assert _SAID in _lines(apptainer(action, "--unsquash", *rest))
    repository, start, container = words("udocker", udocker.home / "udocker", name="app")
    modes = {"UDOCKER_DEFAULT_EXECUTION_MODE": mode, "UDOCKER_USE_SINGULARITY_EXECUTABLE": str(apptainer_program)}
    assert _SAID in _lines(udocker("--quiet", repository, start, container, **modes))
    assert _SAID in _lines(_charliecloud(public_tmp)(*words("charliecloud", public_tmp / "ch")))
    runc = (need("runc"), f"--root={public_tmp / 'state'}")
    peer = Peer(runc, {"PATH": "/usr/sbin:/usr/bin", "HOME": "/"}, public_tmp)
    assert _SAID in _lines(peer(*words("oci-bundle", public_tmp / "bundle")))


_LIBRARY = f"/{SITE}/tensorflow/libtensorflow_framework.so"
_ASK = ("/bin/sh", "-c", f"sha256sum < {_LIBRARY}; pwd; echo $LD_LIBRARY_PATH")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sandbox", "sif", "udocker", "charliecloud"])
def test_the_tensorflow_image_runs(target, apptainer, apptainer_program, udocker, public_tmp):
    reference, place = tensorflow_layout("1.5.0"), public_tmp / "made"
    run("chmod", "-R", "a+rX", reference.split(":")[1])  # umoci keeps the index to itself

    def work() -> str:
        with open_image(reference) as opened:
            return convert(opened, target, place, ConvertOptions(name="app" if target == "udocker" else "")).command

    action, *rest = shlex.split(as_ordinary_user(work))[1:]
    if target in ("sandbox", "sif"):
        done = apptainer("exec", *(("--unsquash",) if target == "sif" else ()), *rest, *_ASK)
    elif target == "udocker":
        modes = {"UDOCKER_DEFAULT_EXECUTION_MODE": "S1", "UDOCKER_USE_SINGULARITY_EXECUTABLE": str(apptainer_program)}
        done = udocker("--quiet", action, *rest, *_ASK, **modes)
    else:
        words = (action, *rest)
        done = _charliecloud(public_tmp)(*words[: words.index("--") + 1], *_ASK)
    content, directory, libraries = _lines(done)
    with zipfile.ZipFile(pypi_wheel("tensorflow-gpu==1.5.0", *WHEEL_OPTIONS)) as wheel:
        (member,) = [name for name in wheel.namelist() if name.endswith("/libtensorflow_framework.so")]
        assert content.split()[0] == hashlib.sha256(wheel.read(member)).hexdigest()
    assert directory == "/"
    assert libraries.startswith("/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/local/cuda/lib64")
