"""Libraries and GPU code that a program may open by itself: those whose names stand in its strings."""

from pathlib import Path

import pytest
from msgspec import structs

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.kept import kept_work, with_loads
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from imgcheck.loader.ways import Ways
from tests.loader.builder import Root

PTX = "//\n.version 7.0\n.target sm_80\n.address_size 64\n"
NAMES = """
#include <stdio.h>
const char *names[] = {
  "/opt/app/lib/libplain.so", "libbyname.so.2", "lib/librelative.so", "libkind_%s.so", "/opt/app/share/k_sm%d%d.ptx",
  "/opt/elsewhere/libother.so", "%s.so", "a text with libinside.so in it",
};
int main(int c, char **v) { return puts(names[c]); }
"""
FILES = {
    "/opt/app/lib/libplain.so": "path",
    "/usr/lib/libbyname.so.2": "path",
    "/opt/app/lib/librelative.so": "path",
    "/opt/app/lib/libkind_fast.so": "path",
    "/opt/app/lib/libkind_slow.so": "path",
    "/usr/lib/libother.so": "unreached",
    "/usr/lib/libinside.so": "unreached",
    "/usr/lib/libnobody.so": "unreached",
    "/usr/lib/libdeeper.so": "path",
    "/usr/lib/libneeded.so": "path",
}
DATA = {"/opt/app/share/k_sm80.ptx": "path", "/opt/app/share/other.ptx": "unreached"}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    root = Root(tmp_path_factory.mktemp("mentions") / "root")
    root.program("/bin/app", code=NAMES)
    root.program("/bin/idle", code='#include <stdio.h>\nint main(void) { return puts("libnobody.so"); }\n')
    root.program("/usr/bin/python3.11")
    root.library("/usr/lib/libof_job.so")
    root.program("/opt/app/bin/job", needs=["/usr/lib/libof_job.so"])
    root.library("/usr/lib/libneeded.so")
    root.write("/names.h", 'const char *deeper = "libdeeper.so";\n')
    named = ["-x", "c", "-include", str(root.at("/names.h"))]
    for path in FILES.keys() - {"/usr/lib/libneeded.so"}:
        plain = path == "/opt/app/lib/libplain.so"
        root.library(path, needs=["/usr/lib/libneeded.so"] if plain else [], flags=named if plain else [])
    for path in DATA:
        root.write(path, PTX)
    root.write(
        "/app/run.py",
        "import ctypes\nctypes.CDLL('/usr/lib/libinside.so')\nPROGRAM = '/opt/app/bin/job'\nDATA = \"other.ptx\"\n",
    )
    root.write("/app/idle.py", "import ctypes\nctypes.CDLL('libother.so')\n")
    return root.profile()


JOB = {"/opt/app/bin/job": "unreached", "/usr/lib/libof_job.so": "unreached"}


def reached(image: ImageProfile, *command: str) -> dict[str, str]:
    closure = close(image, find_roots(image, command))
    return {path: closure.reach(path) for path in FILES.keys() | DATA.keys() | JOB.keys()}


def test_what_a_program_names_may_be_opened_and_so_may_what_that_names(image: ImageProfile) -> None:
    assert reached(image, "app") == FILES | DATA | JOB


def test_a_profile_keeps_it_and_the_names_are_not_in_its_facts(image: ImageProfile) -> None:
    config = structs.replace(image.config, entrypoint=("app",), command=())
    kept = kept_work(with_loads(structs.replace(image, config=config)), ())
    assert kept is not None
    assert kept.closure is not None
    assert {path: kept.closure.reach(path) for path in FILES.keys() | DATA.keys()} == FILES | DATA
    assert not any(facts.linkage and facts.linkage.mentions for facts in image.objects.values())


def test_a_script_that_runs_names_what_it_may_open(image: ImageProfile) -> None:
    found = reached(image, "python3.11", "/app/run.py")
    assert {path for path, reach in found.items() if reach == "path"} == {
        "/usr/lib/libinside.so", "/opt/app/share/other.ptx", *JOB,
    }  # fmt: skip


def test_a_word_of_the_command_names_a_file_of_gpu_code(image: ImageProfile) -> None:
    found = reached(image, "idle", "/opt/app/share/other.ptx")
    assert {path for path, reach in found.items() if reach == "path"} == {
        "/usr/lib/libnobody.so", "/opt/app/share/other.ptx",
    }  # fmt: skip


def test_the_report_says_who_names_it(image: ImageProfile) -> None:
    roots = find_roots(image, ("app",))
    closure = close(image, roots)
    assert Ways(roots, closure, image.tree).to("/opt/app/lib/libplain.so") == ("/bin/app",)
    assert Ways(roots, closure, image.tree).to("/usr/lib/libneeded.so") == ("/bin/app", "/opt/app/lib/libplain.so")
    assert Ways(roots, closure, image.tree).to("/opt/app/share/k_sm80.ptx") == ("/bin/app",)
    roots = find_roots(image, ("python3.11", "/app/run.py"))
    assert Ways(roots, close(image, roots), image.tree).to("/usr/lib/libinside.so") == ("/app/run.py",)


def test_a_file_with_very_many_names_is_read_in_part(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    lines = "".join(f'  "libnumber{number:05}x.so",\n' for number in range(5000))
    root.program(
        "/bin/app", code=f"const char *names[] = {{\n{lines}}};\nint main(int c, char **v) {{ return *names[c]; }}"
    )
    root.library("/usr/lib/libnumber00007x.so")
    image = root.profile()
    closure = close(image, find_roots(image, ("app",)))
    assert closure.reach("/usr/lib/libnumber00007x.so") == "path"
