"""The loader's model over the profile of a real directory, as `imgcheck` makes it."""

from pathlib import Path

from imgcheck.loader.model import close
from tests.loader.builder import Root

_MUSL = "/lib/ld-musl-x86_64.so.1"
_FOR_MUSL = ["-nostdlib", "-Wl,-e,main", f"-Wl,--dynamic-linker={_MUSL}"]


def _musl_root(tmp_path: Path) -> Root:
    root = Root(tmp_path / "root")
    root.library(_MUSL, soname="")
    root.library("/opt/own/libown.so")
    root.program("/bin/app", ["/opt/own/libown.so"], _FOR_MUSL)
    return root


def test_the_path_file_of_musl_replaces_its_directories(tmp_path: Path) -> None:
    root = _musl_root(tmp_path)
    root.write("/etc/ld-musl-x86_64.path", "/usr/lib\n/opt/own\n")
    closure = close(root.profile())
    assert closure.chosen["/bin/app", "libown.so"] == "/opt/own/libown.so"
    assert not closure.problems


def test_without_a_path_file_musl_seeks_in_its_own_directories(tmp_path: Path) -> None:
    root = _musl_root(tmp_path)
    (problem,) = close(root.profile()).problems
    assert (problem.needed, problem.searched) == ("libown.so", ("/lib", "/usr/local/lib", "/usr/lib"))


def test_links_and_configuration_are_taken_into_the_profile(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.library("/opt/real-1.2/lib/libown.so.1")
    root.link("/opt/current", "real-1.2")
    root.program("/bin/app", ["/opt/current/lib/libown.so.1"])
    root.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    root.write("/etc/ld.so.conf.d/own.conf", "/opt/current/lib\n")
    root.ldconfig()
    closure = close(root.profile())
    assert closure.chosen["/bin/app", "libown.so.1"] == "/opt/real-1.2/lib/libown.so.1"
    assert not closure.problems
