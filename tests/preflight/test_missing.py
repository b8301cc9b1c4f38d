"""Images without a profile: read within a time limit, let pass or refused, and never a hang."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tools import CHECKOUT, need

UNDECIDED = 3
DEMO = f"oci:{CHECKOUT}/demo/skylake512"


def test_a_local_image_is_read(place):
    assert place.preflight(DEMO, "--host", place.host(), "--runtime", "apptainer") == 1
    assert place.preflight(DEMO, "--host", place.host("skylake_avx512"), "--runtime", "apptainer") == 0


def test_pass_lets_the_job_run_and_says_so(place, capsys):
    assert place.preflight(DEMO, "--host", place.host(), "--on-missing", "pass") == 0
    assert f"not checked: {DEMO} has no profile" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["pass", "fail", "analyse"])
@pytest.mark.parametrize("name", ["img", "im g", "a:b"])
def test_the_way_out_that_is_told_makes_the_profile_that_is_looked_for(place, capsys, monkeypatch, missing, name):
    from imgcheck.cli import main

    monkeypatch.chdir(place.directory)
    shutil.copytree(CHECKOUT / "demo/skylake512", name)
    reference = f"oci:{name}:skylake512"
    arguments = (reference, "--host", place.host("skylake_avx512"), "--runtime", "apptainer")
    place.preflight(*arguments, "--on-missing", missing, "--timeout", "0.01" if missing == "analyse" else "60")
    said = "".join(capsys.readouterr())
    assert f"{reference}: reading the image takes longer" in said or f"{reference} has no profile" in said
    told = next(line for line in said.splitlines() if "make its profile once: " in line)
    command = shlex.split(told.partition("once: ")[2])
    assert command.pop(0) == "imgcheck"
    assert main([*command, "--no-store", "-q"]) == 0
    assert place.preflight(*arguments, "--on-missing", "fail") == 0


@pytest.mark.parametrize(("scheduler", "status"), [("none", 1), ("lsf", 99), ("sge", 100), ("slurm-prolog", 0)])
def test_fail_stops_the_job_as_an_incompatible_image_does(place, scheduler, status):
    assert place.preflight(DEMO, "--on-missing", "fail", "--scheduler", scheduler) == status


def test_the_store_is_asked_for_the_profile(place, capsys):
    from imgcheck.cli import main

    store = place.directory / "store"
    cache = f"--cache={place.cache}"
    arguments = ["preflight", cache, DEMO, "--host", str(place.host()), "--store", str(store), "--on-missing", "pass"]
    assert main(arguments) == 0
    assert main(["profile", DEMO, "--store", str(store), "-o", os.devnull]) == 0
    assert main(arguments) == 1
    assert "CPU001" in capsys.readouterr().out


def test_an_image_in_a_registry_is_not_fetched(place, capsys):
    assert place.preflight("registry.invalid/team/app:1", "--scheduler", "slurm-task") == 0
    assert "images in registries are not fetched on a node" in capsys.readouterr().out


def test_reading_ends_with_the_time_limit(place, capsys):
    begin = time.monotonic()
    assert place.preflight(DEMO, "--timeout", "0.01") == 2
    assert time.monotonic() - begin < 30
    assert "longer than 0 s" in capsys.readouterr().err
    assert not _children()


def test_a_damaged_profile_is_no_verdict(place, capsys):
    image = place.image()
    (place.directory / "app.sif.imgcheck.json").write_text('{"kind": "image", "schema_version": "1.0"}')
    assert place.preflight(image, "--scheduler", "slurm-task") == 0
    assert "not checked: " in capsys.readouterr().out


def test_an_absurdly_large_profile_is_not_read(place, capsys):
    image = place.image()
    with (place.directory / "app.sif.imgcheck.json").open("r+b") as file:
        file.truncate(40 << 30)
    assert place.preflight(image, "--scheduler", "slurm-prolog", "--on-missing", "pass", "--timeout", "20") == 0
    assert "not checked" in capsys.readouterr().err


def test_a_file_that_is_no_image_is_no_verdict(place, capsys):
    file = place.directory / "notes.txt"
    file.write_text("hello")
    assert place.preflight(file, "--scheduler", "sge") == 0
    assert "not checked: " in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["analyse", "pass", "fail"])
def test_a_fifo_is_not_opened(place, capsys, missing):
    fifo = place.directory / "fifo"
    os.mkfifo(fifo)
    began = time.monotonic()
    assert place.preflight(fifo, "--on-missing", missing, "--scheduler", "slurm-prolog") == 0
    assert time.monotonic() - began < 5
    assert f"not checked: {fifo}: neither a file nor a directory" in "".join(capsys.readouterr())


def test_tasks_that_start_at_once_read_the_image_once(place):
    host = place.host()
    command = [sys.executable, "-m", "imgcheck", "preflight", DEMO, "--host", str(host), "--no-store", "--cache",
               str(place.cache), "--runtime", "apptainer"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    tasks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    said = {task.communicate(timeout=120)[0] for task in tasks}
    assert [task.returncode for task in tasks] == [1] * 4
    assert len(said) == 1
    assert len(place.answers()) == 1


def test_a_layout_that_is_written_while_it_is_read_is_read_again(place, monkeypatch):
    from imgcheck.preflight import analyse

    layout = place.directory / "layout"
    shutil.copytree(CHECKOUT / "demo/skylake512", layout)
    real, read = analyse.analyse, []

    def read_and_rewrite(*arguments):
        profile = real(*arguments)
        (layout / "index.json").write_text((layout / "index.json").read_text() + "\n" * (1 + len(read)))
        return read.append(1) or profile

    monkeypatch.setattr(analyse, "analyse", read_and_rewrite)
    for _ in range(2):
        assert place.preflight(f"oci:{layout}", "--host", place.host(), "--runtime", "apptainer") == 1
    assert len(read) == 2


@pytest.mark.parametrize("transport", ["dir:", ""])
def test_an_unpacked_root_is_read_again_by_the_next_job(place, monkeypatch, transport):
    root = place.directory / "root"
    (root / "bin").mkdir(parents=True)
    (root / "index.json").write_text("{}")  # of a web server, say
    (root / "bin/sh").write_text("#!/bin/none")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert place.preflight(f"{transport}{root}", "--host", place.host()) == UNDECIDED
    (answer,) = place.answers()
    assert b"SLURM_JOB_ID=1" in answer.read_bytes()
    monkeypatch.delenv("SLURM_JOB_ID")
    answer.unlink()
    assert place.preflight(f"{transport}{root}", "--host", place.host()) == UNDECIDED
    assert not place.answers()


def test_a_preflight_that_is_killed_leaves_no_reader_behind(place):
    code = (
        "import os; from imgcheck.preflight import analyse\n"
        "analyse._run(['profile', 'dir:/usr', '--no-store', '-q', '-o', os.devnull], 'x', 600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(CHECKOUT)})
    (reader,) = _within(60, lambda: _children_of(process.pid))
    workers = _within(60, lambda: _children_of(reader))
    process.kill()
    process.wait()
    assert workers and _within(30, lambda: not any(map(_lives, [reader, *workers])))


def _within(seconds, look):
    """What `look` finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _children_of(process: int | str) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def _lives(process: str) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:1]
    except OSError:
        return False


def _children() -> list[str]:
    command = [need("ps"), "-o", "args=", "--ppid", str(os.getpid())]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    return [line for line in text.splitlines() if "imgcheck" in line]
