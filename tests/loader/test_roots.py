"""From a command to the ELF files that it executes."""

from pathlib import Path

import msgspec
import pytest

from imgcheck.documents.image import ImageConfig, ImageProfile, Script
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from tests.loader.builder import Root
from tests.loader.walk import profile_of
from tests.tools import need

_MODULE = "/usr/lib/python3.11/site-packages/pkg/core.cpython-311-x86_64-linux-gnu.so"
_SCRIPTS = (
    Script("/usr/bin/tool", ("/usr/bin/python3",)),
    Script("/entry.sh", ("/bin/bash",), ("$@",)),
    Script("/start.sh", ("/bin/sh",), ("server",)),
    Script("/opaque.sh", ("/bin/sh",)),
    Script("/usr/bin/envtool", ("/usr/bin/env", "python3")),
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    need("gcc")
    root = Root(tmp_path_factory.mktemp("roots") / "root")
    for program in ("/usr/bin/python3.11", "/bin/bash", "/bin/dash", "/usr/bin/server", "/usr/bin/tini", "/opt/job"):
        root.program(program)
    root.link("/usr/bin/python3", "python3.11")
    root.link("/bin/sh", "dash")
    root.library(_MODULE, flags=["-x", "c", "-include", str(_header(root))])
    root.library("/usr/lib/python3.12/site-packages/pkg/core.cpython-312-x86_64-linux-gnu.so")
    profile = profile_of(root.path)
    return msgspec.structs.replace(profile, tree=msgspec.structs.replace(profile.tree, scripts=_SCRIPTS))


def _header(root: Root) -> Path:
    root.write("/entry.h", "void PyInit_core(void){}\n")
    return root.at("/entry.h")


def roots(image: ImageProfile, *command: str, entrypoint: tuple[str, ...] = (), user: tuple[str, ...] | None = None):
    config = ImageConfig(entrypoint=entrypoint, command=command)
    return find_roots(msgspec.structs.replace(image, config=config), user)


@pytest.mark.parametrize(
    ("command", "entries"),
    [
        (("server",), {"/usr/bin/server"}),
        (("/usr/bin/env", "A=1", "server"), {"/usr/bin/env", "/usr/bin/server"}),
        (("/usr/bin/env", "-S", "server -x"), {"/usr/bin/env", "/usr/bin/server"}),
        (("tini", "--", "server"), {"/usr/bin/tini", "/usr/bin/server"}),
        (("tool",), {"/usr/bin/python3.11"}),
        (("envtool",), {"/usr/bin/env", "/usr/bin/python3.11"}),
        (("/entry.sh", "server"), {"/bin/bash", "/usr/bin/server"}),
        (("/start.sh",), {"/bin/dash", "/usr/bin/server"}),
        (("sh", "-c", "cd /x && exec server --port 1"), {"/bin/dash", "/usr/bin/server"}),
        (("bash", "/start.sh"), {"/bin/bash", "/bin/dash", "/usr/bin/server"}),
    ],
)
def test_a_command_leads_to_what_it_executes(image: ImageProfile, command: tuple[str, ...], entries: set[str]) -> None:
    found = roots(image, *command)
    assert set(found.entries) == entries
    assert not found.everything


@pytest.mark.parametrize(
    "command", [(), ("bash",), ("sh", "-l"), ("/opaque.sh",), ("sh", "-c", "$JOB"), ("/entry.sh",)]
)
def test_a_shell_that_waits_for_commands_reaches_everything(image: ImageProfile, command: tuple[str, ...]) -> None:
    found = roots(image, *command)
    assert found.everything
    assert set(close(image, found).reaches.values()) == {"entry"}


def test_the_users_command_takes_the_place_of_the_images(image: ImageProfile) -> None:
    found = roots(image, "server", entrypoint=("tini", "--"), user=("/opt/job",))
    assert set(found.entries) == {"/usr/bin/tini", "/opt/job"}


def test_a_named_entry_replaces_the_command(image: ImageProfile) -> None:
    found = find_roots(image, None, ("/opt/job",))
    assert (found.entries, found.everything) == (("/opt/job",), False)


def test_a_command_that_is_not_there_is_told(image: ImageProfile) -> None:
    found = roots(image, "nothing")
    assert found.missing == ("nothing",)
    assert found.everything  # it comes from outside, and may use anything


def test_a_python_reaches_its_own_modules_as_imports(image: ImageProfile) -> None:
    found = roots(image, "python3", "train.py")
    assert found.imports == (_MODULE,)
    closure = close(image, found)
    assert closure.reach(_MODULE) == "import"
    assert closure.reach("/usr/bin/python3.11") == "entry"
    assert closure.reach("/usr/bin/server") == "path"
    assert closure.reach("/opt/job") == "unreached"


def test_scripts_that_run_each_other_end(image: ImageProfile) -> None:
    circle = (Script("/a", ("/bin/sh",), ("/b",)), Script("/b", ("/bin/sh",), ("/a",)))
    looped = msgspec.structs.replace(image, tree=msgspec.structs.replace(image.tree, scripts=circle))
    assert roots(looped, "/a").entries == ("/bin/dash",)
