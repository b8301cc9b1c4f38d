"""The pipe between a download and its reader: nothing is lost or mixed up, limits hold, nobody waits for ever."""

import io
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from imgcheck.sources.spool import Budget, Room, Spool, StoppedError


def room(memory: int, disk: int, place: Path | None = None) -> Room:
    return Room(Budget(memory), Budget(disk), lambda: (place / "spill").open("w+b", buffering=0) if place else None)


def full_disk() -> io.FileIO:
    return io.FileIO("/dev/full", "r+")


def feed(spool: Spool, pieces: list[bytes], error: BaseException | None = None) -> threading.Thread:
    def write() -> None:
        try:
            for piece in pieces:
                spool.put(piece)
        except StoppedError:
            return
        spool.end(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def drain(spool: Spool, size: int = 700) -> bytes:
    return b"".join(iter(lambda: spool.read(size), b""))


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize(("memory", "disk"), [(1 << 30, 0), (0, 0), (5_000, 0), (5_000, 20_000), (0, 1 << 30)])
def test_bytes_come_out_as_they_went_in_whatever_the_limits(tmp_path: Path, memory: int, disk: int) -> None:
    chosen = random.Random(memory + disk)
    pieces = [chosen.randbytes(chosen.randrange(1, 3_000)) for _ in range(300)]
    where = room(memory, disk, tmp_path)
    spool = Spool(where)
    writer = feed(spool, pieces)
    taken = bytearray()
    while data := spool.read(chosen.randrange(1, 4_000)):
        taken += data
        if chosen.random() < 0.05:
            time.sleep(0.002)
    assert taken == b"".join(pieces)
    writer.join(5)
    assert (where.memory._left, where.disk._left) == (memory, disk)


def test_writer_waits_where_memory_and_disk_are_full(tmp_path: Path) -> None:
    spool = Spool(room(2_000, 3_000, tmp_path))
    writer = feed(spool, [b"x" * 1_000] * 8)
    eventually(lambda: (tmp_path / "spill").exists() and (tmp_path / "spill").stat().st_size == 3_000)
    writer.join(0.1)
    assert writer.is_alive()
    assert len(drain(spool)) == 8_000


def test_one_full_spool_does_not_keep_another_from_its_reader() -> None:
    shared = room(1_000, 0)
    ahead, current = Spool(shared), Spool(shared)
    feed(ahead, [b"a" * 1_000] * 4)
    eventually(lambda: shared.exhausted)
    feed(current, [b"b" * 900] * 5)
    assert drain(current) == b"b" * 4_500
    assert drain(ahead) == b"a" * 4_000


def test_disk_that_fills_up_is_no_fault() -> None:
    spool = Spool(Room(Budget(1_000), Budget(1 << 20), full_disk))
    pieces = [bytes([number]) * 600 for number in range(20)]
    feed(spool, pieces)
    assert drain(spool) == b"".join(pieces)


def test_no_place_for_a_file_is_no_fault() -> None:
    spool = Spool(room(1_000, 1 << 20))
    feed(spool, [b"x" * 600] * 10)
    assert len(drain(spool)) == 6_000


def test_error_comes_behind_what_came_before_it() -> None:
    spool = Spool(room(1 << 20, 0))
    feed(spool, [b"a", b"b"], ValueError("broke"))
    assert spool.read(10) == b"a"
    assert spool.read(10) == b"b"
    with pytest.raises(ValueError, match="broke"):
        spool.read(10)


def test_stop_frees_a_waiting_writer_and_all_room_and_is_no_end_of_file(tmp_path: Path) -> None:
    where = room(1_000, 2_000, tmp_path)
    spool = Spool(where)
    writer = feed(spool, [b"x" * 1_000] * 9)
    eventually(lambda: where.exhausted)
    spool.stop()
    writer.join(5)
    assert not writer.is_alive()
    assert (where.memory._left, where.disk._left) == (1_000, 2_000)
    with pytest.raises(StoppedError):
        spool.read(10)


def test_file_that_is_to_keep_all_holds_all_and_takes_no_room(tmp_path: Path) -> None:
    where = room(0, 0)
    spool = Spool(where)
    spool.keep_in((tmp_path / "kept").open("w+b", buffering=0))
    feed(spool, [b"abc"] * 1_000)
    assert drain(spool) == b"abc" * 1_000
    assert spool.whole and (tmp_path / "kept").read_bytes() == b"abc" * 1_000
    assert where.memory._left == 0


def test_file_that_cannot_keep_all_says_so_and_the_reader_misses_nothing() -> None:
    spool = Spool(room(10_000, 0))
    spool.keep_in(full_disk())
    feed(spool, [b"abc"] * 1_000)
    assert drain(spool) == b"abc" * 1_000
    assert not spool.whole
