"""The store under faults of disks, users and neighbours: the right answer, and at most one line about the trouble."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.documents import ImageProfile, decode
from imgcheck.profile.store import Store, default_directory, open_store
from tests.end_to_end.command import imgcheck
from tests.images import File, ImageBuilder
from tests.tools import CHECKOUT, compile_c, need


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image whose index takes some 60 KB of the store."""
    program = compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()
    many = {f"usr/share/{os.urandom(12).hex()}": "x" for _ in range(2000)}
    builder = ImageBuilder(command=("/app",)).layer({"app": File(program, 0o755)} | many)
    return f"oci:{builder.write(tmp_path_factory.mktemp('image') / 'layout')}"


@pytest.fixture(scope="module")
def answer(image: str) -> bytes:
    done = imgcheck("profile", image, "--no-store")
    assert done.returncode == 0
    assert [record.path for record in decode(done.stdout.encode(), ImageProfile, "x").files] == ["/app"]
    return done.stdout.encode()


def mounted(store: Path, how: str, image: str, before: str = "true") -> subprocess.CompletedProcess[str]:
    """`imgcheck profile` with `store` a file system of its own, in a namespace of its own; `before` prepares it."""
    words = " ".join([sys.executable, "-m", "imgcheck", "profile", image, "--store", str(store)])
    script = f"mount -t tmpfs -o {how} tmpfs {store} && {before} && exec {words}"
    return subprocess.run(
        [need("unshare"), "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        timeout=120,
    )


@pytest.mark.parametrize(
    ("how", "before", "why"),
    [
        ("size=20k", "true", "No space left on device"),
        ("nr_inodes=3", "true", "No space left on device"),
        ("size=1m", "mount -o remount,ro {store}", "Read-only file system"),
    ],
)
def test_full_or_read_only_store_costs_one_line(
    image: str, answer: bytes, tmp_path: Path, how: str, before: str, why: str
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    done = mounted(store, how, image, before.format(store=store))
    assert done.stdout.encode() == answer
    assert done.stderr == f"imgcheck: note: the store {store} cannot be written: {why}\n"


def test_read_only_store_that_is_filled_answers_without_a_word(image: str, answer: bytes, tmp_path: Path) -> None:
    store = tmp_path / "store"
    imgcheck("profile", image, "--store", store)
    os.utime(next(store.glob("v1/*/profiles/*/*")), (1, 1))
    bind = f"mount --bind {store} {store} && mount -o remount,ro,bind {store}"
    words = " ".join([sys.executable, "-m", "imgcheck", "profile", image, "--store", str(store)])
    done = subprocess.run(
        [need("unshare"), "--map-root-user", "--mount", "sh", "-c", f"{bind} && exec {words}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        timeout=120,
    )
    assert (done.stdout.encode(), done.stderr) == (answer, "")


def test_store_behind_a_dangling_link_costs_one_line(image: str, answer: bytes, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.symlink_to(tmp_path / "unmounted" / "disk")
    done = imgcheck("profile", image, "--store", store)
    assert done.stdout.encode() == answer
    assert done.stderr.startswith(f"imgcheck: note: the store {store} cannot be written: ")
    assert done.stderr.count("\n") == 1


def test_store_that_vanishes_while_it_is_used_is_only_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: object, **__: object) -> None:
        raise OSError(116, "Stale file handle")

    store = Store(tmp_path / "store", "key")
    for name in ("scandir", "stat", "open", "mkdir", "utime", "unlink"):
        monkeypatch.setattr(os, name, stale)
    digest = "sha256:" + "0" * 64
    assert store.profile(digest) is None
    store.keep_profile(digest, None)
    store.tidy()
    assert not list(store.files())
    assert "Stale file handle" in store.trouble


def test_file_in_place_of_the_store_is_refused(image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["profile", image, "--store", str(tmp_path / "file")]) == 2
    assert f"--store {tmp_path}/file: not a directory" in capsys.readouterr().err


def test_user_without_a_home_has_no_store_and_gets_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert default_directory() is None
    assert open_store(None, "key") is None


def test_every_byte_of_every_entry_counts(image: str, answer: bytes, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert imgcheck("profile", image, "--store", store).stdout.encode() == answer
    for path in store.glob("v1/*/*/??/*"):
        data = bytearray(path.read_bytes())
        data[len(data) * 2 // 3] ^= 1
        path.write_bytes(data)
    assert imgcheck("profile", image, "--store", store).stdout.encode() == answer
    sound = imgcheck("store", "verify", "--store", store)
    assert (sound.returncode, sound.stdout) == (0, "2 entries are sound\n")


@pytest.mark.parametrize("prefix", [(), ("unshare", "--map-root-user", "--mount", "--uts", "--pid", "--fork")])
def test_processes_and_hosts_on_one_store_disturb_nobody(
    image: str, answer: bytes, tmp_path: Path, prefix: Sequence[str]
) -> None:
    store = tmp_path / "store"
    command = [*prefix, sys.executable, "-m", "imgcheck", "profile", image, "--store", str(store)]
    started = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(CHECKOUT)}
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.communicate(timeout=240) == (answer, b"")
    assert imgcheck("store", "verify", "--store", store).stdout == "2 entries are sound\n"


def test_what_a_killed_writer_left_goes_only_when_it_is_old(tmp_path: Path) -> None:
    store = Store(tmp_path, "key")
    store.keep_profile("sha256:" + "0" * 64, None)
    left = next(tmp_path.glob("v1/key/profiles/00/*")).with_name(".new-abc")
    left.write_bytes(b"half")
    assert not list(store.damaged())
    assert len(store.prune(limit=0)) == 1 and left.exists()
    os.utime(left, (time.time() - 7200,) * 2)
    assert [file.path for file in store.damaged()] == [left]
    assert [file.path for file in store.prune(limit=0)] == [left] and not left.exists()


def test_size_limit_is_looked_at_once_an_hour(tmp_path: Path) -> None:
    store = Store(tmp_path, "key", limit=0)
    for digit in "12":
        store.keep_profile("sha256:" + digit * 64, None)
        store.tidy()
    assert [file.name[0] for file in store.files()] == ["2"]
    for looked in (1, time.time() + 1e6):  # a clock may have been ahead
        os.utime(tmp_path / "v1" / "tidied", (looked, looked))
        store.keep_profile("sha256:" + "3" * 64, None)
        store.tidy()
        assert not list(store.files())
