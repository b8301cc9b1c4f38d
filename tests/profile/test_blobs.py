"""Blobs that are kept for the next command: fetched once, compared with their digests, bounded, and private."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.profile.blobs import KeptBlobs
from imgcheck.profile.store import Store
from tests.end_to_end.command import imgcheck
from tests.images import File, ImageBuilder
from tests.layers.layouts import digest_of
from tests.peers import Registry, start_registry
from tests.tools import CHECKOUT, compile_c, need

Command = Callable[..., tuple[int, str, str]]
BIG = os.urandom(400_000)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def command(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main([*map(str, arguments), "--plain-http", "--store", str(store)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def image(registry: Registry, tmp_path: Path) -> str:
    program = compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()
    builder = ImageBuilder(command=("/app",)).layer({"app": File(program, 0o755)})
    layout = builder.layer({"data": File(BIG, 0o644)}).write(tmp_path / "layout")
    return registry.push(f"oci:{layout}:latest", f"blobs/{tmp_path.name.lower()}:1")


def layers_of(profile: str) -> list[str]:
    return [layer["digest"] for layer in json.loads(profile)["layers"]]


def gets(registry: Registry, image: str, digests: list[str]) -> list[int]:
    """How often the registry was asked for each blob of the image's repository, by its log."""
    repository = image.partition("/")[2].rpartition(":")[0]
    lines = (registry.directory.parent / "docker-registry.out").read_text().splitlines()
    answered = [line for line in lines if "GET" in line and "response completed" in line]
    return [sum(f"{repository}/blobs/{digest}" in line for line in answered) for digest in digests]


def kept(store: Path) -> list[Path]:
    return [path for path in store.glob("v1/any/blobs/??/*") if not path.name.startswith(".")]


@pytest.mark.slow
def test_image_and_then_convert_fetch_every_layer_once(
    registry: Registry, image: str, command: Command, store: Path, tmp_path: Path
) -> None:
    status, profile, said = command("profile", image, "--keep-blobs")
    assert (status, said) == (0, "")
    digests = layers_of(profile)
    assert gets(registry, image, digests) == [1, 1]
    assert sorted(path.name for path in kept(store)) == sorted(digest.partition(":")[2] for digest in digests)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept(store))
    assert command("convert", image, "--to", "rootfs", tmp_path / "root")[0] == 0
    assert (tmp_path / "root" / "data").read_bytes() == BIG
    assert command("convert", image, "--to", "oci", tmp_path / "oci")[0] == 0
    assert gets(registry, image, digests) == [1, 1]


@pytest.mark.slow
def test_convert_keeps_them_too_and_nothing_is_kept_unasked(
    registry: Registry, image: str, command: Command, store: Path, tmp_path: Path
) -> None:
    _, profile, _ = command("profile", image)
    assert kept(store) == []
    assert command("convert", image, "--to", "rootfs", tmp_path / "root", "--keep-blobs")[0] == 0
    assert command("convert", image, "--to", "sandbox", tmp_path / "box")[0] == 0
    assert gets(registry, image, layers_of(profile)) == [2, 2]


@pytest.mark.slow
def test_damaged_blob_is_fetched_again_and_verify_finds_it(
    registry: Registry, image: str, command: Command, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = layers_of(command("profile", image, "--keep-blobs")[1])

    def damage() -> None:
        for path in kept(store):
            path.write_bytes(path.read_bytes()[:-1] + b"?")

    damage()
    assert command("convert", image, "--to", "rootfs", tmp_path / "root", "--keep-blobs")[0] == 0
    assert (tmp_path / "root" / "data").read_bytes() == BIG
    assert gets(registry, image, digests) == [2, 2]
    assert main(["store", "verify", "--store", str(store)]) == 0
    damage()
    assert main(["store", "verify", "--store", str(store)]) == 1
    assert capsys.readouterr().err.count("damaged, dropped: blob ") == 2
    assert kept(store) == []


@pytest.mark.slow
def test_store_limit_holds_and_the_answer_comes_all_the_same(
    registry: Registry, image: str, command: Command, store: Path, tmp_path: Path
) -> None:
    status, profile, said = command("profile", image, "--keep-blobs", "--store-limit", "300K")
    assert status == 0
    assert f"the store {store} may take 307200 bytes, too few to keep all blobs" in said
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) < 307_200
    assert len(kept(store)) == 1
    assert command("convert", image, "--to", "rootfs", tmp_path / "root")[0] == 0
    assert (tmp_path / "root" / "data").read_bytes() == BIG
    assert sorted(gets(registry, image, layers_of(profile))) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["100k", "300k"])
def test_full_store_costs_the_blobs_one_line_and_not_the_answer(image: str, store: Path, size: str) -> None:
    store.mkdir()
    answer = imgcheck("profile", image, "--plain-http", "--no-store").stdout
    words = f"{sys.executable} -m imgcheck profile {image} --plain-http --store {store} --keep-blobs"
    script = f"mount -t tmpfs -o size={size} tmpfs {store} && {words}; echo $?; ls {store}/v1/any/blobs/*"
    done = subprocess.run(
        [need("unshare"), "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        timeout=120,
    )
    assert done.stdout.startswith(answer + "0\n")
    assert ".new-" not in done.stdout
    assert done.stderr == f"imgcheck: note: the store {store} cannot be written: No space left on device\n"


@pytest.mark.slow
def test_wrong_bytes_are_never_kept(tmp_path: Path, command: Command, store: Path) -> None:
    layout = ImageBuilder().layer({"data": File(BIG, 0o644)}, compression="none").write(tmp_path / "layout")
    with start_registry(tmp_path / "registry") as own:
        image = own.push(f"oci:{layout}:latest", "app:1")
        (blob,) = (path for path in own.directory.rglob("data") if path.stat().st_size > len(BIG))
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
        status, _, said = command("profile", image, "--keep-blobs")
    assert status == 2 and "hash to" in said
    assert not kept(store) and not list(store.rglob(".new-*"))


def test_no_store_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "oci:nowhere", "--no-store", "--keep-blobs"]) == 2
    assert "--keep-blobs and --no-store exclude each other" in capsys.readouterr().err


def put(blobs: KeptBlobs, data: bytes) -> str:
    digest = digest_of(data)
    new = blobs.keep(digest, len(data))
    if new:
        new.update(data)
        new.file.write(data)
        new.finish(None)
        new.file.close()
    return digest


def test_blobs_make_room_for_blobs_the_oldest_first_and_facts_stay(store: Path) -> None:
    facts = Store(store, "key", limit=3_000)
    facts.keep_profile("sha256:" + "0" * 64, None)
    earlier = KeptBlobs(facts, keep=True)
    first, second = put(earlier, b"1" * 1_000), put(earlier, b"2" * 1_000)
    os.utime(facts.place("blobs", first), (1, 1))
    later = KeptBlobs(facts, keep=True)
    third = put(later, b"3" * 1_500)
    assert [later.has_blob(digest) for digest in (first, second, third)] == [False, True, True]
    assert put(KeptBlobs(facts, keep=True), b"4" * 3_001) and "too few" in facts.trouble
    assert [later.has_blob(digest) for digest in (second, third)] == [True, True]
    assert [file.kind for file in facts.prune(limit=100)] == ["blobs", "blobs"]
    assert [file.kind for file in facts.files()] == ["profiles"]


def test_blobs_of_one_image_do_not_push_each_other_out(store: Path) -> None:
    blobs = KeptBlobs(Store(store, "key", limit=2_500), keep=True)
    digests = [put(blobs, bytes([number]) * 1_000) for number in range(4)]
    assert [blobs.has_blob(digest) for digest in digests] == [True, True, False, False]


def test_a_fifo_in_the_place_of_a_blob_holds_nobody_up(tmp_path: Path) -> None:
    store = Store(tmp_path, "key")
    place = store.place("blobs", "sha256:" + "0" * 64)
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    assert KeptBlobs(store, keep=False).blob("sha256:" + "0" * 64) is None


def test_store_that_cannot_be_written_or_has_no_disk_is_only_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    facts = Store(tmp_path / "file" / "store", "key")
    blobs = KeptBlobs(facts, keep=True)
    assert blobs.keep("sha256:" + "0" * 64, 10) is None and "cannot be written" in facts.trouble
    assert blobs.blob("sha256:" + "0" * 64) is None and blobs.spill() is None and blobs.scratch() is None


def test_spilt_bytes_lie_in_the_store_without_a_name(store: Path) -> None:
    file = KeptBlobs(Store(store, "key"), keep=False).spill()
    file.write(b"x" * 10_000)
    assert os.fstat(file.fileno()).st_nlink == 0
    assert os.fstat(file.fileno()).st_dev == (store / "v1").stat().st_dev
    assert not [path for path in store.rglob("*") if path.is_file()]


def test_blobs_of_a_store_that_cannot_be_written_are_used(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = KeptBlobs(Store(store, "key"), keep=True)
    sound, damaged = put(blobs, b"1" * 1_000), put(blobs, b"2" * 1_000)
    Store(store, "key").place("blobs", damaged).write_bytes(b"other bytes")

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with blobs.blob(sound) as file:
        assert file.read() == b"1" * 1_000
    assert blobs.blob(damaged) is None
    assert blobs.has_blob(damaged)
