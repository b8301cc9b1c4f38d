"""What a preflight costs at its start."""

import os
import resource
import subprocess
import sys

import pytest

from tests.installation import installed_tree
from tests.tools import CHECKOUT, need

NEW_NEEDS_NOT = {"argparse", "decimal", "difflib", "platform", "shlex", "signal", "tempfile", "uuid"}
OF_OTHER_IMAGES = {
    f"imgcheck.{name}" for name in ("loader.model", "loader.tree", "check.gpu_targets", "check.mpi_rules")
}
OF_SCRIPTS = {
    f"imgcheck.loader.{name}"
    for name in ("course", "roots", "shell", "shell_words", "started", "expansion", "launchers", "python")
}
HEAVY = {"numpy", "capstone", "requests", "rich", "iced_x86", "zstandard", "isal", "elftools"}
KEPT_NEEDS_NOT = HEAVY | {"argparse", "typing", "msgspec", "tomllib", "dataclasses", "inspect", "pathlib", "json", "re"}


def _imports(place, *arguments: object) -> set[str]:
    command = [sys.executable, "-S", "-X", "importtime", "-m", "imgcheck", "preflight", f"--cache={place.cache}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(CHECKOUT), *sys.path])}
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, env=environment)
    assert done.returncode == 1, done.stderr
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    return names | {name.partition(".")[0] for name in names}


def test_neither_a_new_nor_a_kept_answer_imports_what_is_heavy(place):
    arguments = (place.image(), "--host", place.host(), "--runtime", "apptainer")
    assert not _imports(place, *arguments) & (HEAVY | NEW_NEEDS_NOT)
    assert not _imports(place, *arguments) & KEPT_NEEDS_NOT


def test_a_new_answer_imports_nothing_for_what_the_image_lacks_or_its_profile_keeps(place):
    arguments = ("--host", place.host(), "--runtime", "apptainer")
    assert not _imports(place, place.image(), *arguments) & OF_OTHER_IMAGES
    assert "imgcheck.loader.model" in _imports(place, place.image(), *arguments, "--", "/usr/bin/app")


def test_a_driver_that_is_injected_brings_no_reader_of_scripts(place):
    host = place.host(gpus=("Tesla V100-SXM2-16GB",), driver="396.44")
    imported = _imports(place, place.image(), "--host", host, "--runtime", "apptainer-nv")
    assert "imgcheck.loader.model" in imported
    assert not imported & OF_SCRIPTS


def test_who_asks_later_gets_the_modules_that_msgspec_was_imported_without():
    code = """
from imgcheck.lean import import_msgspec
import_msgspec()
import datetime, decimal, uuid
import msgspec.inspect
assert decimal.Decimal("1.5") + 1 == decimal.Decimal("2.5") and uuid.uuid4().version == 4
assert datetime.datetime.now(datetime.timezone.utc).tzinfo and datetime.__file__
assert msgspec.inspect.type_info(int) and msgspec.json.decode(b"[1]") == [1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(CHECKOUT)})


@pytest.mark.slow
def test_a_kept_answer_takes_at_most_five_times_the_start_of_python(place):
    arguments = [str(place.image()), "--host", str(place.host()), f"--cache={place.cache}"]
    preflight = [sys.executable, "-m", "imgcheck", "preflight", *arguments]
    nothing = [sys.executable, "-c", "pass"]
    _cpu_time(preflight)
    # Processor time: other work on the machine does not spoil it. The smallest of several is free of cold caches.
    pairs = [(_cpu_time(preflight), _cpu_time(nothing)) for _ in range(7)]
    ours, bare = (min(column) for column in zip(*pairs, strict=True))
    assert ours <= 5 * bare


@pytest.mark.slow
def test_the_first_verdict_on_an_image_is_cheap(place):
    # Of an installed tree, which alone has compiled modules and parsed rules. The figures are in bench/preflight.md.
    arguments = [str(place.image()), "--host", str(place.host()), f"--cache={place.cache}"]
    preflight = [str(installed_tree() / "bin/imgcheck"), "preflight", *arguments]
    nothing = [need("python3"), "-c", "pass"]
    pairs = [(_cpu_time([*preflight, f"--timeout={round}"]), _cpu_time(nothing)) for round in range(10, 25)]
    ours, bare = (min(column) for column in zip(*pairs, strict=True))
    assert ours <= 7 * bare


def _cpu_time(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(CHECKOUT)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_one_that_hears_no_signal_is_given_up_at_its_limit(place):
    # SIGSTOP stands for a file system that is gone: what waits there hears nothing either.
    code = """
import os, signal, sys
from imgcheck.cli import main, preflight
from imgcheck.preflight import kept
preflight._MARGIN = 0.5
kept.find = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
{more}
sys.exit(main())
"""
    arguments = ["preflight", place.image(), f"--cache={place.cache}", "--timeout=0.1", "--scheduler"]
    for scheduler, status in (("slurm-task", 0), ("none", 2)):
        for more in ("", "preflight._in_trouble = kept.find"):
            command = [sys.executable, "-c", code.format(more=more), *map(str, arguments), scheduler]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == status
            assert "not checked: no answer within 0.1 s" in done.stdout + done.stderr
