"""Libraries that frameworks open by themselves, beside what the real dlopen makes of the same files."""

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from imgcheck.documents.image import Component
from imgcheck.loader.model import Loader
from imgcheck.loader.roots import find_roots
from tests.loader.builder import Root
from tests.loader.walk import profile_of
from tests.tools import need

OPENS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        struct link_map *map = 0;
        void *library = dlopen(names[i], RTLD_NOW);
        if (library) dlinfo(library, RTLD_DI_LINKMAP, &map);
        puts(map ? map->l_name : "");
    }
    return 0;
}
"""


@pytest.fixture
def root(tmp_path: Path) -> Root:
    need("gcc")
    return Root(tmp_path / "root")


def found(root: Root, *names: str, tags: str = "enable") -> list[bool]:
    """Which of `names` a program gets by dlopen, one after the other; imgcheck must say the same of a framework, and
    name the same files.

    It has a RUNPATH, or with `tags` of "disable" an RPATH.
    """
    flags = [f"-Wl,--{tags}-new-dtags,-rpath,$ORIGIN/lib"]
    root.program("/opt/framework/opener", flags=flags, code=OPENS)
    image = profile_of(root.path)
    component = Component("Framework", opener="/opt/framework/opener", opens=names)
    image = replace(image, components=(component,))
    closure = Loader(image, find_roots(image)).close()
    problems = [p for p in closure.problems if p.kind == "opened"]
    missed = {(p.needed if p.path == component.opener else p.path).rpartition("/")[2] for p in problems}
    told = [name.rpartition("/")[2] not in missed for name in names]
    origin = str(root.at("/opt/framework"))
    command = [root.at("/opt/framework/opener"), *(name.replace("$ORIGIN", origin) for name in names)]
    really = subprocess.run(command, capture_output=True, text=True, check=True, env={}).stdout.splitlines()
    assert told == [bool(path) for path in really]
    for name, path in zip(names, really, strict=True):
        chosen = closure.chosen.get((component.opener, name))
        assert (root.at(chosen) if chosen else "") == (Path(path).resolve() if path else "")
    return told


@pytest.mark.parametrize("tags", ["enable", "disable"])
def test_by_the_runpath_or_rpath_of_the_opener(root: Root, tags: str) -> None:
    root.library("/opt/framework/lib/libone.so.1")
    assert found(root, "libone.so.1", "libtwo.so.1", tags=tags) == [True, False]


def test_by_a_path_beside_the_opener(root: Root) -> None:
    root.library("/opt/framework/libbeside.so")
    assert found(root, "$ORIGIN/libbeside.so", "$ORIGIN/libnone.so") == [True, False]


def test_with_what_the_library_needs(root: Root) -> None:
    root.library("/opt/elsewhere/libinner.so.1")
    root.library("/opt/framework/lib/libouter.so.1", ["/opt/elsewhere/libinner.so.1"])
    assert found(root, "libouter.so.1") == [False]


def test_rpath_of_the_opener_serves_what_the_library_needs_and_runpath_does_not(root: Root) -> None:
    root.library("/opt/framework/lib/libinner.so.1")
    root.library("/opt/framework/lib/libouter.so.1", ["/opt/framework/lib/libinner.so.1"])
    assert found(root, "libouter.so.1", tags="disable") == [True]
    assert found(root, "libouter.so.1", tags="enable") == [False]


def test_what_was_opened_before_is_there_and_what_failed_is_not(root: Root) -> None:
    root.library("/opt/framework/lib/libinner.so.1")
    root.library("/opt/gone/libgone.so.1")
    root.library("/opt/framework/lib/libbroken.so.1", ["/opt/framework/lib/libinner.so.1", "/opt/gone/libgone.so.1"])
    root.library("/opt/framework/lib/libouter.so.1", ["/opt/framework/lib/libinner.so.1"])
    assert found(root, "libbroken.so.1", "libouter.so.1") == [False, False]
    assert found(root, "libinner.so.1", "libouter.so.1") == [True, True]
