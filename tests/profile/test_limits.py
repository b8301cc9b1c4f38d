"""A limit of threads or processes is trouble of the tool, and nothing that is said of the image."""

import resource
import threading
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.profile import analysis
from imgcheck.profile.store import Store
from imgcheck.profile.worker import Engines, Worker
from tests.images import File, ImageBuilder
from tests.tools import compile_c, need


@pytest.fixture
def image(tmp_path: Path) -> str:
    program = compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()
    files = {f"bin/p{number}": program + bytes(number) for number in range(9)}
    return f"oci:{ImageBuilder().layer(files).write(tmp_path / 'layout')}"


def _refuse_threads(monkeypatch: pytest.MonkeyPatch, named: str, after: int) -> None:
    """Let `after` threads of this name start, and no other."""
    started: list[str] = []
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == named:
            started.append(named)
            if len(started) > after:
                raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize(
    ("named", "after"), [("imgcheck-hash", 0), ("imgcheck-hash", 1), ("imgcheck-read", 0), ("imgcheck-engines", 0)]
)
def test_a_thread_that_cannot_be_had_is_one_line(image, named, after, monkeypatch, capsys):
    _refuse_threads(monkeypatch, named, after)
    assert main(["image", image, "--no-store"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("imgcheck: no thread could be started\n  the limit of processes may be reached")
    assert said.count("\n") == 2


@pytest.mark.parametrize("named", ["imgcheck-engines", "imgcheck-stop"])
def test_fewer_threads_do_as_well(image, named, monkeypatch, capsys):
    _refuse_threads(monkeypatch, named, 1 if named == "imgcheck-engines" else 0)
    assert main(["image", image, "--no-store"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("kind", "method"), [(Engines, "__init__"), (Engines, "fork")])
def test_a_process_that_cannot_be_had_is_one_line_and_no_empty_image(image, kind, method, monkeypatch, capsys):
    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(kind, method, refuse)
    assert main(["image", image, "--no-store"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("imgcheck: no process could be started to analyse the image's files (")
    assert "ulimit -u" in captured.err


def test_threads_without_a_process_leave_their_files_to_the_others(image, monkeypatch, capsys):
    monkeypatch.setattr(analysis.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    fork, first = Engines.fork, threading.Lock()

    def one(engines: Engines) -> Worker:
        if not first.acquire(blocking=False):
            raise BlockingIOError("no process can be forked")
        return fork(engines)

    monkeypatch.setattr(Engines, "fork", one)
    assert main(["image", image, "--no-store"]) == 0
    assert "could not be read" not in capsys.readouterr().out


def test_what_too_little_memory_has_left_out_is_told_and_not_kept(monkeypatch, tmp_path):
    program = Path(need("bash")).read_bytes()
    image = f"oci:{ImageBuilder(command=('/p',)).layer({'p': File(program, mode=0o755)}).write(tmp_path / 'layout')}"
    fork = Engines.fork

    def poor(engines: Engines) -> Worker:
        worker = fork(engines)
        used = int(Path(f"/proc/{worker._process}/statm").read_text().split()[0]) * resource.getpagesize()
        most = used + len(program) + (1 << 20)
        resource.prlimit(worker._process, resource.RLIMIT_AS, (most, most))
        return worker

    monkeypatch.setattr(Engines, "fork", poor)
    store = Store(tmp_path / "store", "any")
    arguments = ["profile", image, "--store", str(store.directory), "-q", "-o"]
    main([*arguments, str(tmp_path / "poor.json")])
    assert "too little memory to analyse it" in (tmp_path / "poor.json").read_text()
    assert not list(store.files())
    monkeypatch.setattr(Engines, "fork", fork)
    main([*arguments, str(tmp_path / "rich.json")])
    assert "too little memory" not in (tmp_path / "rich.json").read_text()
    assert {file.kind for file in store.files()} == {"layers", "profiles"}
