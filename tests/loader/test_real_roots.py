"""Whole distributions and trees made on purpose: every ELF file by the model and by the root's own loader."""

import shutil
from pathlib import Path

import pytest

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.model import close
from tests.loader.builder import Root
from tests.loader.parity import Parity, compare
from tests.loader.roots import ROOTS, SUITES
from tests.loader.walk import profile_of
from tests.tools import need

pytestmark = pytest.mark.slow


def _told(parity: Parity, image: ImageProfile) -> str:
    lines = [f"{image.reference}: {parity.agreed} of {parity.total} agree"]
    lines += [f"{path}: ld.so {real}, model {mine}" for path, (real, mine) in list(parity.differences.items())[:5]]
    return "\n".join(lines)


@pytest.mark.parametrize("name", list(ROOTS))
def test_every_file_of_a_root_resolves_as_its_own_loader_does(name: str) -> None:
    tree = ROOTS[name]()
    image = profile_of(tree.path)
    parity = compare(tree.path, image, levels=tree.levels, below=tree.below)
    print(_told(parity, image))
    assert not parity.differences, _told(parity, image)
    assert parity.total > (100 if name not in SUITES else 600)
    assert len(parity.skipped) <= 2, parity.skipped


@pytest.mark.parametrize("suite", list(SUITES))
def test_a_plain_distribution_has_no_library_problem_of_a_program(suite: str) -> None:
    closure = close(profile_of(ROOTS[suite]().path))
    assert [problem for problem in closure.problems if problem.context != "library"] == []


def test_musl_inherits_runpath_ignores_sonames_and_takes_its_own_names(tmp_path: Path) -> None:
    need("gcc")
    root = Root(tmp_path / "root")
    musl = ROOTS["bookworm"]().path / "lib/x86_64-linux-musl/libc.so"
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
