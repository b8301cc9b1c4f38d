"""Roots of several thousand files: umoci's unpacker agrees, real runtimes start them, and a SIF comes out the same."""

import hashlib
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from imgcheck.convert.run import convert
from imgcheck.sources.open import open_image
from tests.convert.members import Reg, Sym, build
from tests.convert.started import as_ordinary_user
from tests.debian import debootstrap, fetch_packages
from tests.images import Directory, File, ImageBuilder, Symlink
from tests.peers import Peer, as_unprivileged
from tests.tools import cache_directory, need, pypi_directory, run


def _kept(name: str, make: Callable[[Path], None]) -> bytes:
    """A tar archive that is made once."""
    path = cache_directory("convert") / name
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as work:
            make(Path(work))
            Path(work, "made.tar").rename(path)
    return path.read_bytes()


def _tar(root: Path, into: Path) -> None:
    run("tar", "--numeric-owner", "--xattrs", "-C", root, "-cf", into, ".")


def _debian(suite: str) -> bytes:
    def make(work: Path) -> None:
        debootstrap(suite, work / "root")
        shutil.rmtree(work / "root/var/cache/apt/archives", ignore_errors=True)
        _tar(work / "root", work / "made.tar")

    return _kept(f"{suite}.tar", make)


def _numpy() -> bytes:
    return _kept("numpy.tar", lambda work: _tar(pypi_directory("numpy==2.2.6"), work / "made.tar"))


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

    def make(work: Path) -> None:
        (package,) = fetch_packages(work / "apt", ["busybox-static"], ["bookworm"])
        run("dpkg-deb", "--extract", package, work / "files")
        shutil.copy(work / "files/usr/bin/busybox" if (work / "files/usr/bin/busybox").exists()
                    else work / "files/bin/busybox", work / "made.tar")  # fmt: skip

    return _kept("busybox", make)


_SCRIPT = 'echo "$VALUE|$0|$1|$(pwd)"'
_CONFIG = {
    "entrypoint": ("/bin/sh", "-c", _SCRIPT, "zero"),
    "command": ("it's $one",),
    "environment": ("PATH=/usr/bin:/bin", "VALUE=a 'b' $c"),
    "working_directory": "/work",
}
_SAID = "a 'b' $c|zero|it's $one|/work"


@pytest.fixture(params=["busybox", "bookworm"])
def image(request: pytest.FixtureRequest) -> ImageBuilder:
    """An image with a shell: a busybox alone, or a whole Debian."""
    builder = ImageBuilder(**_CONFIG)
    if request.param == "bookworm":
        return builder.layer(_debian("bookworm"), compression="none")
    files = {"bin": Directory(), "bin/busybox": File(request.getfixturevalue("busybox"), 0o755)}
    return builder.layer(files | {f"bin/{name}": Symlink("busybox") for name in ("sh", "ls", "cat", "env")})


def _ran(done: object) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
def test_images_with_a_shell_run_everywhere(image, converted_rootless, apptainer, udocker, public_tmp):
    def words(target: str, place: Path, **options: str) -> list[str]:
        return shlex.split(converted_rootless(image, target, place, **options).command)[1:]

    assert _ran(apptainer(*words("sandbox", public_tmp / "sandbox"))) == _SAID
    action, *rest = words("sif", public_tmp / "app.sif")
    assert _ran(apptainer(action, "--unsquash", *rest)) == _SAID
    if len(image.layers[0].tar) < 10 << 20:
        # Debian's proot 5.1 starts no program of glibc 2.33 or later with the option -k that udocker gives it.
        repository, start, container = words("udocker", udocker.home / "udocker", name="app")
        assert _ran(udocker("--quiet", repository, start, container)) == _SAID
    charliecloud = Peer((need("ch-run"),), {"USER": "nobody", "HOME": "/", "PATH": "/usr/bin:/bin"}, public_tmp)
    assert _ran(charliecloud(*words("charliecloud", public_tmp / "ch"))) == _SAID
    runc = (need("runc"), f"--root={public_tmp / 'state'}")
    peer = Peer(runc, {"PATH": "/usr/sbin:/usr/bin", "HOME": "/"}, public_tmp)
    assert _ran(peer(*words("oci-bundle", public_tmp / "bundle"))) == _SAID
