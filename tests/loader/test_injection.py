"""What Apptainer's --nv brings into a container, by the model and by Apptainer itself, with stand-ins for a driver."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.documents import HostProfile, decode
from imgcheck.knowledge import Knowledge
from imgcheck.loader.closure import Closure
from imgcheck.loader.roots import find_roots
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image
from tests.loader.builder import Root
from tests.loader.walk import closure_under
from tests.peers import Peer, as_unprivileged
from tests.tools import CHECKOUT, cache_directory, compile_c, need

pytestmark = pytest.mark.slow

_OPENER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
int main(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    struct link_map *map;
    if (!handle) { puts(dlerror()); return 1; }
    dlinfo(handle, RTLD_DI_LINKMAP, &map);
    puts(map->l_name);
    return 0;
}
"""


class _Host:
    """A machine whose driver's libraries are stand-ins: its own loader cache, in a mount namespace of its own."""

    def __init__(self, directory: Path, peer: Peer) -> None:
        self.drivers = Root(directory / "driver")
        self._directory, self._peer = directory, peer
        tool = directory / "bin" / "nvidia-smi"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)

    def driver(self, glibc: str) -> None:
        """A libcuda that needs a function of the C library: dlopen of GLIBC_2.34, or one of a made-up newer version."""
        path, soname = self.drivers.at("/lib/libcuda.so.550.54.14"), "-Wl,-soname,libcuda.so.1"
        path.parent.mkdir(exist_ok=True)
        if glibc == "2.34":
            made = compile_c("#include <dlfcn.h>\nvoid *cuInit(void){return dlopen(0,1);}", "-shared", "-fPIC", soname)
        else:
            version = f"GLIBC_{glibc}"
            script = cache_directory("compiled") / f"{version}.map"
            script.write_text(f"{version} {{ global: newer; }};\n")
            libc = compile_c(f'__asm__(".symver own,newer@@{version}");void own(void){{}}', "-shared", "-fPIC",
                             "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={script}")  # fmt: skip
            code = "void newer(void); void cuInit(void){newer();}"
            made = compile_c(code, "-shared", "-fPIC", "-nostdlib", soname, str(libc))
        shutil.copy2(made, path)
        self.drivers.link("/lib/libcuda.so.1", path.name)

    def __call__(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command where the loader's cache names the driver."""
        cache, conf = self._directory / "ld.so.cache", self._directory / "ld.so.conf"
        conf.write_text(f"{self.drivers.at('/lib')}\n/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n")
        subprocess.run(["/sbin/ldconfig", "-C", str(cache), "-f", str(conf), "-X"], check=True, capture_output=True)
        cache.chmod(0o644)
        bind = 'mount --bind "$0" /etc/ld.so.cache && exec "$@"'
        return subprocess.run(
            [need("unshare"), "-m", "sh", "-c", bind, str(cache), *map(str, command)],
            capture_output=True, text=True, timeout=120, env=environment or None, cwd=self._directory,
        )  # fmt: skip

    def apptainer(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        path = f"{self._directory / 'bin'}:{self._peer.environment['PATH']}"
        environment = {**self._peer.environment, "PATH": path}
        return self(*as_unprivileged(*self._peer.command, *arguments), **environment)

    def probe(self) -> Path:
        target = self._directory / "host.json"
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        done = self(sys.executable, "-m", "imgcheck", "probe", "-o", target, **environment)
        assert done.returncode == 0, done.stderr
        return target


@pytest.fixture
def host(public_tmp: Path, apptainer: Peer) -> _Host:
    return _Host(public_tmp, apptainer)


def _sandbox(root: Root, directory: Path, library_path: str = "") -> Path:
    """`root` as a tree that Apptainer runs, made by imgcheck itself."""
    target = directory / "sandbox"
    assert main(["convert", f"dir:{root.path}", "--to", "sandbox", str(target), "-q"]) == 0
    if library_path:
        script = target / ".singularity.d/env/10-docker2singularity.sh"
        script.write_text(f"{script.read_text() if script.is_file() else ''}export LD_LIBRARY_PATH={library_path}\n")
    return target


def _report(tree: Path, host: Path, program: str, capsys: pytest.CaptureFixture) -> dict:
    capsys.readouterr()
    main(["image", f"dir:{tree}", "--host-probe", str(host), "--runtime", "apptainer-nv", "-o", "json", "--no-store",
          "-q", "--", program])  # fmt: skip
    return json.loads(capsys.readouterr().out)


def _closure(tree: Path, host: _Host, program: str) -> Closure:
    """What `program` reaches under Apptainer's --nv, by the model."""
    profile = decode(host.probe().read_bytes(), HostProfile, "host.json")
    with open_image(f"dir:{tree}") as source:
        image = build_profile(source, SILENT)
    return closure_under(image, profile, Knowledge().runtimes["apptainer-nv"], find_roots(image, (program,)))


@pytest.mark.parametrize(("glibc", "fits"), [("2.99", False), ("2.34", True)])
def test_a_driver_built_for_a_newer_glibc_fails_with_the_predicted_words(
    glibc: str, fits: bool, host: _Host, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    host.driver(glibc)
    root = Root(tmp_path / "image")
    root.library("/link/libcuda.so.1")
    root.program("/bin/app", ["/link/libcuda.so.1"])
    shutil.rmtree(root.at("/link"))
    tree = _sandbox(root, host._directory)
    report = _report(tree, host.probe(), "/bin/app", capsys)
    found = [finding for finding in report["findings"] if finding["rule"] == "LIB003"]
    run = host.apptainer("exec", "--nv", tree, "/bin/app")
    if fits:
        assert found == []
        assert run.returncode == 0, run.stderr
    else:
        assert [finding["severity"] for finding in found] == ["fail"]
        assert found[0]["predicted_error"] in run.stderr.splitlines(), run.stderr
        assert run.returncode != 0


@pytest.mark.parametrize("place", ["", "/opt/cuda", "/lib/x86_64-linux-gnu"])
def test_the_libcuda_that_a_program_opens_is_the_predicted_one(place: str, host: _Host, tmp_path: Path) -> None:
    host.drivers.library("/lib/libcuda.so.550.54.14", soname="libcuda.so.1")
    host.drivers.link("/lib/libcuda.so.1", "libcuda.so.550.54.14")
    root = Root(tmp_path / "image")
    root.program("/bin/app", code=_OPENER)
    if place:
        root.library(f"{place}/libcuda.so.1")
    library_path = place if place.startswith("/opt") else ""
    tree = _sandbox(root, host._directory, library_path)
    closure = _closure(tree, host, "/bin/app")
    run = host.apptainer("exec", "--nv", tree, "/bin/app")
    assert run.stdout.strip() == closure.opens["libcuda.so.1"], run.stderr
    assert closure.opens["libcuda.so.1"].startswith("/opt/" if library_path else "/.singularity.d/libs/")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("export LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH", True),
        ("export LD_LIBRARY_PATH=/opt/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", True),
        ("export LD_LIBRARY_PATH=/opt/lib", False),
        ("unset LD_LIBRARY_PATH", False),
        ("export OTHER=/opt/lib", True),
    ],
)
def test_a_script_may_lose_what_the_runtime_adds(line: str, found: bool, host: _Host, tmp_path: Path) -> None:
    host.drivers.library("/lib/libcuda.so.550.54.14", soname="libcuda.so.1")
    host.drivers.link("/lib/libcuda.so.1", "libcuda.so.550.54.14")
    root = Root(tmp_path / "image")
    root.program("/bin/app", code=_OPENER)
    shutil.copy2(Path("/bin/sh").resolve(), root.at("/bin/sh"))
    root.write("/bin/start", f"#!/bin/sh\n{line}\nexec /bin/app\n")
    root.at("/bin/start").chmod(0o755)
    tree = _sandbox(root, host._directory)
    closure = _closure(tree, host, "/bin/start")
    run = host.apptainer("exec", "--nv", tree, "/bin/start")
    assert (run.returncode == 0) == found, run.stdout + run.stderr
    assert closure.opens.get("libcuda.so.1", "") == (run.stdout.strip() if found else "")
