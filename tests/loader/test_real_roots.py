"""Whole distributions by debootstrap: every ELF file by the model and by the root's own loader."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.model import close
from tests.loader.builder import Root
from tests.loader.parity import Parity, compare
from tests.loader.walk import profile_of
from tests.tools import need

pytestmark = pytest.mark.slow

_CACHE = Path(os.environ.get("IMGCHECK_TEST_CACHE", "/var/tmp/imgcheck-test-cache")) / "roots"
_PACKAGES = {
    "bullseye": ["python3-numpy"],
    "bookworm": ["ffmpeg", "git", "musl", "openmpi-bin", "python3-scipy", "r-base-core"],
    "trixie": ["python3-numpy"],
}


def _root(suite: str) -> Path:
    """A debootstrap root of `suite`, made once."""
    place = _CACHE / suite
    if not (place / "complete").is_file():
        debootstrap = need("debootstrap")
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        tree = place / "root"
        command = [debootstrap, "--variant=minbase", f"--include={','.join(_PACKAGES[suite])}", suite, str(tree)]
        subprocess.run(command, check=True, capture_output=True)
        (place / "complete").touch()
    return place / "root"


def _told(parity: Parity, image: ImageProfile) -> str:
    lines = [f"{image.reference}: {parity.agreed} of {parity.total} agree"]
    lines += [f"{path}: ld.so {real}, model {mine}" for path, (real, mine) in list(parity.differences.items())[:5]]
    return "\n".join(lines)


@pytest.mark.parametrize("suite", list(_PACKAGES))
def test_every_file_of_a_distribution_resolves_as_its_own_loader_does(suite: str) -> None:
    root = _root(suite)
    image = profile_of(root)
    parity = compare(root, image)
    print(_told(parity, image))
    assert not parity.differences, _told(parity, image)
    assert parity.total > 600
    assert len(parity.skipped) <= 2, parity.skipped


@pytest.mark.parametrize("suite", list(_PACKAGES))
def test_a_plain_distribution_has_no_library_problem_of_a_program(suite: str) -> None:
    closure = close(profile_of(_root(suite)))
    assert [problem for problem in closure.problems if problem.context != "library"] == []


def test_musl_inherits_runpath_ignores_sonames_and_takes_its_own_names(tmp_path: Path) -> None:
    need("gcc")
    root = Root(tmp_path / "root")
    musl = _root("bookworm") / "lib/x86_64-linux-musl/libc.so"
    root.at("/lib").mkdir(exist_ok=True)
    shutil.copy2(musl, root.at("/lib/ld-musl-x86_64.so.1"))
    runpath = ["-Wl,--enable-new-dtags,-rpath,/opt/a:/opt/deep"]
    musl_program = ["-nostdlib", "-Wl,-e,main", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]
    root.library("/opt/deep/libinner.so")
    root.library("/opt/a/libouter.so", ["/opt/deep/libinner.so"])
    root.library("/usr/local/lib/libplain.so")
    root.library("/lib64/libhidden.so")
    root.library("/opt/self/libm.so.6")
    root.program("/bin/inherits", ["/opt/a/libouter.so", "/usr/local/lib/libplain.so"], [*musl_program, *runpath])
    root.program("/bin/glibc-directory", ["/lib64/libhidden.so"], musl_program)
    root.program("/bin/self", ["/opt/self/libm.so.6"], musl_program)
    image = profile_of(root.path)
    parity = compare(root.path, image)
    assert not parity.differences
    closure = close(image)
    assert closure.chosen["/opt/a/libouter.so", "libinner.so"] == "/opt/deep/libinner.so"
    assert [problem.needed for problem in closure.problems] == ["libhidden.so"]
