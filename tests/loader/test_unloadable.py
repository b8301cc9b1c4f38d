"""Files that bear a library's name and are none: where the real loader stops at one, so does the model."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from imgcheck.documents.host import known
from imgcheck.documents.image import ImageProfile
from imgcheck.knowledge.types import Runtime
from tests.loader.builder import Root
from tests.loader.test_library_rules import DRIVER, KNOWLEDGE, host, judged, libcuda, only, outcome
from tests.loader.walk import closure_under
from tests.tools import need

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32\nsize 12345\n"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A program that finds its library by the second directory of its RUNPATH."""
    need("gcc")
    root = Root(tmp_path / "root")
    root.library("/opt/second/libx.so.1")
    root.program("/usr/bin/app", ["/opt/second/libx.so.1"], ["-Wl,-rpath,/opt/first:/opt/second"])
    return root


def run(root: Root, program: str = "/usr/bin/app") -> subprocess.CompletedProcess[str]:
    return subprocess.run([need("chroot"), str(root.path), program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("content", ["", "no ELF", LFS], ids=["empty", "short", "text"])
@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
def test_a_file_that_is_no_library_stops_the_search(root: Root, content: str, linked: bool) -> None:
    root.write("/opt/first/libx.so.1.2" if linked else "/opt/first/libx.so.1", content)
    if linked:
        root.link("/opt/first/libx.so.1", "libx.so.1.2")
    finding = only(judged(root.profile(), host(), command=("/usr/bin/app",)), "LIB001")
    assert finding.severity == "fail"
    assert finding.predicted_error == run(root).stderr.strip()
    assert "/opt/first/libx.so.1" in finding.remedy
    assert "/opt/second/libx.so.1" in finding.remedy


def test_one_behind_the_library_that_is_found_stops_nothing(root: Root) -> None:
    root.write("/opt/third/libx.so.1", "")
    root.program("/usr/bin/app", ["/opt/second/libx.so.1"], ["-Wl,-rpath,/opt/second:/opt/third"])
    assert outcome(judged(root.profile(), host(), command=("/usr/bin/app",)), "LIB001") == "ok"
    assert run(root).returncode == 0


def test_a_library_of_another_machine_and_a_directory_are_passed_over(root: Root) -> None:
    library = bytearray(root.at("/opt/second/libx.so.1").read_bytes())
    library[18] = 183  # e_machine: AArch64
    root.at("/opt/first").mkdir()
    root.at("/opt/first/libx.so.1").write_bytes(library)
    assert outcome(judged(root.profile(), host(), command=("/usr/bin/app",)), "LIB001") == "ok"
    assert run(root).returncode == 0


def test_what_the_cache_names_may_have_become_empty(root: Root) -> None:
    root.write("/etc/ld.so.conf", "/opt/second\n")
    root.ldconfig()
    root.program("/usr/bin/app", ["/opt/second/libx.so.1"])
    assert run(root).returncode == 0
    root.write("/opt/second/libx.so.1", "")
    finding = only(judged(root.profile(), host(), command=("/usr/bin/app",)), "LIB001")
    assert finding.predicted_error == run(root).stderr.strip()


def test_a_linker_script_that_no_program_asks_for_is_no_finding(root: Root) -> None:
    root.write("/opt/first/libx.so", "INPUT(/opt/second/libx.so.1)")
    assert outcome(judged(root.profile(), host(), command=("/usr/bin/app",)), "LIB001") == "ok"


@pytest.fixture
def left_by_a_runtime(root: Root) -> ImageProfile:
    """A program for a GPU, and the empty file in which some runtime had mounted its host's libcuda.so.1."""
    root.library("/tmp/libcuda.so.1", soname="libcuda.so.1")
    root.program("/usr/bin/app", ["/tmp/libcuda.so.1"])
    root.at("/tmp/libcuda.so.1").unlink()
    root.write("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "")
    return root.profile()


def opened(image: ImageProfile, runtime: Runtime) -> str:
    machine = host(driver=DRIVER, libraries=known((libcuda(),), "test"))
    return closure_under(image, machine, runtime).opens.get("libcuda.so.1", "")


def test_the_hosts_library_comes_before_an_empty_one_or_not(left_by_a_runtime: ImageProfile) -> None:
    last = KNOWLEDGE.runtimes["apptainer-nv"]
    image_first = msgspec.structs.replace(last, order="image-first")
    assert opened(left_by_a_runtime, last) == "/.singularity.d/libs/libcuda.so.550.54.14"
    assert opened(left_by_a_runtime, image_first) == ""


def test_ldconfig_leaves_an_empty_file_where_it_is(root: Root, left_by_a_runtime: ImageProfile) -> None:
    assert opened(left_by_a_runtime, KNOWLEDGE.runtimes["nvidia"]) == ""
    root.library("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14", soname="libcuda.so.1")
    root.ldconfig()
    assert run(root).stderr.strip().endswith("libcuda.so.1: file too short")
    root.at("/usr/lib/x86_64-linux-gnu/libcuda.so.1").unlink()
    root.ldconfig()
    assert opened(root.profile(), KNOWLEDGE.runtimes["nvidia"]) == "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14"
    assert run(root).returncode == 0
