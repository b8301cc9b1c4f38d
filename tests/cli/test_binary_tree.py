"""`imgcheck binary --tree`: what a file of an image loads, and why these files."""

import json
import shutil
from pathlib import Path

import pytest

from imgcheck.cli import main
from tests.loader.builder import Root
from tests.tools import compile_c, need

_SHARED = ("-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libdeep.so")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    need("gcc")
    return Root(tmp_path / "root")


def test_the_tree_shows_each_library_with_the_reason_for_its_choice(root: Root, capsys: pytest.CaptureFixture) -> None:
    root.library("/opt/deep/libinner.so")
    root.library("/opt/a/libouter.so", ["/opt/deep/libinner.so"], ["-Wl,-rpath,/opt/deep"])
    root.program("/bin/app", ["/opt/a/libouter.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/a"])
    assert main(["binary", "--tree", "/bin/app", "--root", str(root.path), "--no-store", "-q"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:3] == [
        "/bin/app",
        "  libouter.so => /opt/a/libouter.so  [RUNPATH]",
        "    libinner.so => /opt/deep/libinner.so  [RUNPATH]",
    ]


def test_a_missing_library_names_the_directories_and_is_exit_1(root: Root, capsys: pytest.CaptureFixture) -> None:
    root.library("/opt/a/libgone.so")
    root.program("/bin/app", ["/opt/a/libgone.so"])
    arguments = ["binary", "--tree", "/bin/app", "--root", str(root.path), "--no-store", "-q"]
    assert main(arguments) == 1
    shown = capsys.readouterr().out
    assert "libgone.so => not found" in shown
    assert "sought in /etc/ld.so.cache, /lib/x86_64-linux-gnu" in shown
    assert main([*arguments, "-o", "json"]) == 1
    (first, *_) = json.loads(capsys.readouterr().out)["files"]["/bin/app"]
    assert first["name"] == "libgone.so"
    assert "path" not in first


def test_a_missing_version_stands_below_the_library_that_lacks_it(root: Root, capsys: pytest.CaptureFixture) -> None:
    root.library("/opt/new/libv.so", versions=["V_1", "V_2"])
    code = "void f_libv_so(void); int main(void){f_libv_so(); return 0;}"
    root.program("/bin/app", ["/opt/new/libv.so"], ["-Wl,-rpath,/opt/old"], code)
    root.library("/opt/old/libv.so", versions=["V_1"])
    assert main(["binary", "--tree", "/bin/app", "--root", str(root.path), "--no-store", "-q"]) == 1
    assert "version `V_2' not found" in capsys.readouterr().out


def test_a_link_is_followed_inside_the_image(root: Root, capsys: pytest.CaptureFixture) -> None:
    root.program("/opt/app/bin/app")
    root.link("/bin/app", "/opt/app/bin/app")
    assert main(["binary", "--tree", "bin/app", "--root", str(root.path), "--no-store", "-q"]) == 0
    assert capsys.readouterr().out.startswith("/opt/app/bin/app\n")


def test_files_for_another_machine_resolve_without_that_machine(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    compiler = "aarch64-linux-gnu-gcc"
    library = compile_c("void f(void){}", *_SHARED, out="libdeep.so", compiler=compiler)
    flags = ("-Wl,--no-as-needed", f"-L{library.parent}", "-ldeep", "-Wl,-rpath,$ORIGIN/../lib")
    program = compile_c("int main(void){return 0;}", *flags, out="app", compiler=compiler)
    for file, place in ((program, "opt/app/bin/app"), (library, "opt/app/lib/libdeep.so")):
        target = tmp_path / "root" / place
        target.parent.mkdir(parents=True)
        shutil.copy2(file, target)
    assert main(["binary", "--tree", "/opt/app/bin/app", "--root", str(tmp_path / "root"), "--no-store", "-q"]) == 1
    shown = capsys.readouterr().out
    assert "libdeep.so => /opt/app/bin/../lib/libdeep.so (/opt/app/lib/libdeep.so)  [RUNPATH]" in shown
    assert "libc.so.6 => not found" in shown


def test_a_file_that_is_no_program_is_exit_2(root: Root, capsys: pytest.CaptureFixture) -> None:
    root.write("/bin/script", "#!/bin/sh\n")
    assert main(["binary", "--tree", "/bin/script", "--root", str(root.path), "--no-store", "-q"]) == 2
    assert "holds no ELF program or library at /bin/script" in capsys.readouterr().err


def test_tree_and_root_go_together(capsys: pytest.CaptureFixture) -> None:
    assert main(["binary", "--tree", "/bin/app"]) == 2
    assert "--tree needs --root" in capsys.readouterr().err
    assert main(["binary", "--root", "x", "/bin/app"]) == 2
    assert "--root goes with --tree" in capsys.readouterr().err
