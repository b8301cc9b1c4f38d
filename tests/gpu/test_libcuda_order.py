"""Which libcuda a process opens: the prediction against a real ldconfig and ld.so in a chroot, and a real udocker.

Driver libraries are stand-ins that say whose they are; the C library, its loader and ldconfig are Debian's own.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from imgcheck.documents.host import Driver, HostLibrary, HostProfile, InstalledRuntime, known
from imgcheck.documents.image import ImageProfile
from imgcheck.loader.closure import Closure
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image
from tests.gpu_files import KNOWLEDGE
from tests.loader.builder import Root
from tests.loader.walk import closure_under
from tests.peers import UNPRIVILEGED, Peer
from tests.tools import compile_c, need

pytestmark = pytest.mark.slow

MULTIARCH = "/usr/lib/x86_64-linux-gnu"
HOST_DRIVER = "396.44"
_ASK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  const char **whose = driver ? dlsym(driver, "whose") : 0;
  puts(whose ? *whose : "none");
  return 0;
}
"""


def stand_in(whose: str) -> Path:
    """A libcuda that holds the words `whose`."""
    flags = ("-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libcuda.so.1")
    return compile_c(f'const char *whose = "{whose}";', *flags, out="libcuda.so")


@dataclass(frozen=True)
class Layout:
    """An image's own driver libraries, and what tells its loader of them."""

    files: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    conf: tuple[tuple[str, str], ...] = ()
    """File of ld.so.conf.d and its only line."""
    environment: str = ""
    """LD_LIBRARY_PATH."""
    cached: bool = True
    """Its ld.so.cache was made."""


def versioned(directory: str, version: str) -> dict[str, tuple]:
    """A library as drivers install it: the file of a version, and the link of the soname."""
    return {
        "files": (f"{directory}/libcuda.so.{version}",),
        "links": ((f"{directory}/libcuda.so.1", f"libcuda.so.{version}"),),
    }


COMPAT, COMPAT_CONF = "/usr/local/cuda/compat", (("000_cuda.conf", "/usr/local/cuda/compat"),)
STUBS = "/usr/local/cuda/lib64/stubs"
LAYOUTS = {
    "no driver library": Layout(),
    "older driver in the same directory": Layout(**versioned(MULTIARCH, "390.30")),
    "newer driver in the same directory": Layout(**versioned(MULTIARCH, "410.48")),
    "longer version in the same directory": Layout(**versioned(MULTIARCH, "396.44.02")),
    "nine is less than ten": Layout(**versioned(MULTIARCH, "396.5")),
    "the very same version": Layout(**versioned(MULTIARCH, HOST_DRIVER)),
    "a plain file named as the soname": Layout(files=(f"{MULTIARCH}/libcuda.so.1",)),
    "a driver without its link": Layout(files=(f"{MULTIARCH}/libcuda.so.410.48",)),
    "another default directory": Layout(**versioned("/usr/lib", "390.30")),
    "the first default directory": Layout(**versioned("/lib/x86_64-linux-gnu", "390.30")),
    "compat in ld.so.conf.d": Layout(**versioned(COMPAT, "470.57.02"), conf=COMPAT_CONF),
    "compat in ld.so.conf.d without a cache": Layout(**versioned(COMPAT, "470.57.02"), conf=COMPAT_CONF, cached=False),
    "older compat in ld.so.conf.d": Layout(**versioned(COMPAT, "384.81"), conf=COMPAT_CONF),
    "compat that nothing names": Layout(**versioned(COMPAT, "470.57.02")),
    "compat in LD_LIBRARY_PATH": Layout(**versioned(COMPAT, "470.57.02"), environment=COMPAT),
    "two directories in ld.so.conf.d": Layout(
        files=("/opt/a/libcuda.so.410.48", "/opt/b/libcuda.so.415.18"),
        conf=(("b.conf", "/opt/a"), ("a.conf", "/opt/b")),
    ),
    "stubs in LD_LIBRARY_PATH": Layout(files=(f"{STUBS}/libcuda.so",), environment=STUBS),
    "stubs in ld.so.conf.d": Layout(files=(f"{STUBS}/libcuda.so",), conf=(("stubs.conf", STUBS),)),
    "stub under its soname in LD_LIBRARY_PATH": Layout(
        files=(f"{STUBS}/libcuda.so",), links=((f"{STUBS}/libcuda.so.1", "libcuda.so"),), environment=STUBS
    ),
    "the directory itself in LD_LIBRARY_PATH": Layout(**versioned(MULTIARCH, "410.48"), environment=MULTIARCH),
    "a driver volume in LD_LIBRARY_PATH": Layout(
        **versioned("/usr/local/nvidia/lib64", "390.30"), environment="/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    ),
}  # fmt: skip
ALL = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def build(path: Path, layout: Layout) -> tuple[Root, ImageProfile]:
    """The image as a directory with a program that opens libcuda.so.1, and its profile."""
    root = Root(path)
    root.at("/bin").mkdir()
    shutil.copy2(compile_c(_ASK, out="app"), root.at("/bin/app"))
    root.at(MULTIARCH).mkdir(parents=True)
    root.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    # As Debian has it: its own directories stand in a file of ld.so.conf.d too.
    root.write("/etc/ld.so.conf.d/x86_64-linux-gnu.conf", f"/lib/x86_64-linux-gnu\n{MULTIARCH}\n")
    for name, line in layout.conf:
        root.write(f"/etc/ld.so.conf.d/{name}", f"{line}\n")
    if layout.cached and not layout.files:
        root.ldconfig()
    for file in layout.files:
        place(root, file, f"image {file}")
    for link, target in layout.links:
        root.link(link, target)
    if layout.cached and layout.files:
        root.ldconfig()
    with open_image(f"dir:{path}") as image:
        profile = build_profile(image, SILENT)
    if layout.environment:
        config = replace(profile.config, environment=(f"LD_LIBRARY_PATH={layout.environment}",))
        profile = replace(profile, config=config)
    return root, profile


def place(root: Root, path: str, whose: str) -> None:
    root.at(path).parent.mkdir(parents=True, exist_ok=True)
    root.at(path).write_bytes(stand_in(whose).read_bytes())


def host(runtime: str, version: str = "1.17.8") -> HostProfile:
    library = HostLibrary(f"{MULTIARCH}/libcuda.so.1", "libcuda.so.1", version=HOST_DRIVER)
    return HostProfile(
        "1.0",
        "host",
        driver=Driver(known(HOST_DRIVER, "test"), known(HOST_DRIVER, "test")),
        libraries=known((library,), "test"),
        runtimes=known((InstalledRuntime(runtime, version),), "test"),
    )


def predicted(profile: ImageProfile, machine: HostProfile | None, runtime: str) -> str:
    closure: Closure = closure_under(profile, machine, KNOWLEDGE.runtimes[runtime])
    path = closure.opens.get("libcuda.so.1")
    if path is None:
        return "none"
    return "host" if path in closure.injected else f"image {path}"


def opened(root: Root, layout: Layout) -> str:
    """What the program says in a chroot."""
    variables = [f"LD_LIBRARY_PATH={layout.environment}"] if layout.environment else []
    command = [need("chroot"), str(root.path), "/usr/bin/env", "-i", *variables, "/bin/app"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def inject(root: Root, first: bool) -> None:
    """NVIDIA's toolkit: the host's file under its full name in the distribution's directory, then ldconfig.

    In CDI mode (`first`) a file of ld.so.conf.d that goes before all others names the directory.
    """
    place(root, f"{MULTIARCH}/libcuda.so.{HOST_DRIVER}", "host")
    if first:
        root.write("/etc/ld.so.conf.d/00-nvcr-1.conf", f"{MULTIARCH}\n")
    root.ldconfig()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_the_toolkit_and_its_ldconfig(tmp_path: Path, layout: Layout) -> None:
    root, profile = build(tmp_path / "root", layout)
    assert predicted(profile, None, "docker") == opened(root, layout)
    inject(root, first=False)
    assert predicted(profile, host("nvidia", "1.17.8"), "nvidia") == opened(root, layout)
    inject(root, first=True)
    assert predicted(profile, host("nvidia", "1.18.0"), "nvidia") == opened(root, layout)
    assert predicted(profile, host("podman-nvidia", "5.0"), "podman-nvidia") == opened(root, layout)


UDOCKER_LAYOUTS = (
    "no driver library", "older driver in the same directory", "newer driver in the same directory",
    "a plain file named as the soname", "the first default directory", "compat in ld.so.conf.d",
    "compat in ld.so.conf.d without a cache", "compat in LD_LIBRARY_PATH", "stubs in ld.so.conf.d",
)  # fmt: skip


def container(udocker: Peer, layout: Layout) -> tuple[Root, ImageProfile]:
    """A container named `app` in udocker's repository."""
    repository = udocker.home / "udocker"
    for name in ("bin", "containers", "doc", "layers", "lib", "repos"):
        (repository / name).mkdir(parents=True)
    place = repository / "containers" / "11111111-1111-1111-1111-111111111111"
    root, profile = build(place / "ROOT", layout)
    root.write("/etc/passwd", "root:x:0:0:root:/root:/bin/app\n")
    root.write("/etc/group", "root:x:0:\n")
    root.at("/root").mkdir()
    environment = [f"LD_LIBRARY_PATH={layout.environment}"] if layout.environment else []
    config = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/app"], "Env": environment}}
    (place / "container.json").write_text(json.dumps(config))
    (place / "imagerepo.name").write_text("app:latest")
    (repository / "containers" / "app").symlink_to(place.name)
    shutil.chown(repository, UNPRIVILEGED, UNPRIVILEGED)
    for path in repository.rglob("*"):
        os.chown(path, UNPRIVILEGED, UNPRIVILEGED, follow_symlinks=False)
    return root, profile


def driver_directory(udocker: Peer) -> str:
    """A host's driver libraries, which udocker finds by LD_LIBRARY_PATH."""
    directory = udocker.home / "driver"
    directory.mkdir()
    shutil.copy2(stand_in("host"), directory / f"libcuda.so.{HOST_DRIVER}")
    (directory / "libcuda.so.1").symlink_to(f"libcuda.so.{HOST_DRIVER}")
    (directory / "libcuda.so").symlink_to("libcuda.so.1")
    return str(directory)


@pytest.mark.parametrize("name", UDOCKER_LAYOUTS)
def test_udocker_after_setup_nvidia(udocker: Peer, name: str) -> None:
    """Udocker lays the files; the tree's own loader is then asked in a chroot.

    Debian's proot fails the loader's stat calls of glibc 2.36 under the kernel version that udocker makes it claim.
    """
    layout = LAYOUTS[name]
    root, profile = container(udocker, layout)
    assert predicted(profile, None, "udocker") == opened(root, layout)
    done = udocker("setup", "--nvidia", "--force", "app", LD_LIBRARY_PATH=driver_directory(udocker))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root.path.parent / "nvidia").exists()
    assert predicted(profile, host("udocker-nvidia"), "udocker-nvidia") == opened(root, layout)


def test_udocker_refuses_an_image_that_has_a_file_of_the_same_name(udocker: Peer) -> None:
    container(udocker, LAYOUTS["older driver in the same directory"])
    done = udocker("setup", "--nvidia", "app", LD_LIBRARY_PATH=driver_directory(udocker))
    assert "nvidia installation already exists, use --force to overwrite" in done.stdout + done.stderr
