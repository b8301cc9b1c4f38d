"""`imgcheck binary FILE`: the instruction sets of single files, for people and for scripts."""

import gc
import json
import re
import zipfile
from pathlib import Path

import pytest

from imgcheck.cli import main
from tests.isa.programs import SOURCES
from tests.isa.test_words_dispatch import MACHINES, built
from tests.profile.frozen import frozen
from tests.tools import compile_c

WRONG_TEST = """
#include <stdio.h>
static float x[64];
__attribute__((noinline, target("avx512f"), optimize("O3"))) static void use(void) {
    for (int i = 0; i < 64; i++) x[i] = x[i] * 3 + 1;
}
int main() { if (__builtin_cpu_supports("avx2")) use(); printf("%f\\n", x[7]); return 0; }
"""


def test_a_program_that_asks_the_cpu_dispatches(capsys) -> None:
    path = compile_c(SOURCES["supports"], "-O3")
    assert main(["binary", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "asks the CPU" in shown
    assert re.search(r"avx512f +dispatched", shown)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_for_another_machine_is_shown_as_well(machine: str, capsys) -> None:
    of = MACHINES[machine]
    path = built(of, "a test in main", "O2, static", of.bit)
    gc.disable()  # nothing may keep the file's map until the collector comes
    try:
        assert main(["binary", str(path)]) == 0
    finally:
        gc.enable()
    assert re.search(r"(asimddp|arch_3_00) +dispatched", capsys.readouterr().out)


def test_a_test_for_something_else_names_the_cpus_that_die(capsys) -> None:
    path = compile_c(WRONG_TEST, "-O2", "-s")
    assert main(["binary", str(path), "-o", "json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)["files"].values()
    assert "symbols" not in facts
    uses = {use["feature"]: use for use in facts["isa"]["uses"]}
    assert uses["avx512f"]["answer"] == "required"
    assert uses["avx512f"]["given"] == [["avx2"]]
    assert "on a CPU with avx2" in uses["avx512f"]["reason"]


def test_libraries_that_a_program_unpacks_are_shown_beside_it(tmp_path: Path, capsys) -> None:
    library = compile_c(SOURCES["supports"], "-O3").read_bytes()
    (path := tmp_path / "app").write_bytes(frozen(("libx.so", library, "b")))
    assert main(["binary", str(path), "-o", "json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert list(files) == [str(path), f"{path}!/libx.so"]
    assert {use["feature"]: use["answer"] for use in files[f"{path}!/libx.so"]["isa"]["uses"]}[
        "avx512f"
    ] == "dispatched"


def test_libraries_in_an_archive_are_shown_by_their_place_in_it(tmp_path: Path, capsys) -> None:
    inner, outer, empty = tmp_path / "inner.jar", tmp_path / "outer.jar", tmp_path / "empty.jar"
    program = compile_c(SOURCES["supports"], "-O3").read_bytes()
    for path, members in ((inner, {"linux/libx.so": program}), (empty, {"Main.class": b"\xca\xfe\xba\xbe"})):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(inner, "lib/inner.jar")
    assert main(["binary", str(outer), "-o", "json"]) == 0
    (name, facts), *others = json.loads(capsys.readouterr().out)["files"].items()
    assert (name, others) == (f"{outer}!/lib/inner.jar!/linux/libx.so", [])
    assert {use["feature"]: use["answer"] for use in facts["isa"]["uses"]}["avx512f"] == "dispatched"
    application = tmp_path / "app"
    application.write_bytes(b"#!/usr/bin/env python3\n" + outer.read_bytes())
    assert main(["binary", str(application), "-o", "json"]) == 0
    assert [*json.loads(capsys.readouterr().out)["files"]] == [f"{application}!/lib/inner.jar!/linux/libx.so"]
    assert main(["binary", str(empty)]) == 2
    assert "no library in this archive" in capsys.readouterr().err
