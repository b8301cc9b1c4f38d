"""Layers that come ahead of their reader: sooner, within limits, and never one that nobody wants."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgcheck.errors import SourceError
from imgcheck.sources.ahead import PARALLEL
from imgcheck.sources.open import open_image
from tests.images import ImageBuilder
from tests.sources.conftest import QUICK, Handler, Server, contents

LAYERS = 8
FILES = {f"file{number}": random.Random(number).randbytes(20_000) for number in range(LAYERS)}


@pytest.fixture
def reference(server: Server, tmp_path: Path) -> str:
    builder = ImageBuilder()
    for name, data in FILES.items():
        builder = builder.layer({name: data}, compression="none")
    return server.load(builder.write(tmp_path / "layout"))


def fetched(server: Server) -> list[str]:
    """The blobs of layers that were asked for, in order."""
    names = [path.rpartition("/")[2] for path, _ in server.requests if "/blobs/" in path]
    return [name for name in names if len(server.blobs.get(name, b"")) > 20_000]


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_layers_behind_the_current_one_come_before_they_are_asked_for(server: Server, reference: str) -> None:
    with open_image(reference, QUICK) as image:
        time.sleep(0.1)
        assert fetched(server) == []
        with image.layers[0].open():
            eventually(lambda: len(fetched(server)) == LAYERS)
        assert contents(image) == FILES
    order = [layer.info.digest for layer in image.layers]
    # The first was opened twice by this test.
    assert sorted(fetched(server)) == sorted([order[0], *order])


def test_layers_come_in_the_order_in_which_they_will_be_read(
    server: Server, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgcheck.sources.ahead.PARALLEL", 1)  # else those at the same time race
    order = [6, 2, 7, 0, 1, 3, 4, 5]
    with open_image(reference, QUICK) as image:
        image.expect(order)
        with image.layers[6].open():
            eventually(lambda: len(fetched(server)) == LAYERS)
    assert fetched(server) == [image.layers[index].info.digest for index in order]


def test_latency_is_paid_once_for_several_layers(server: Server, reference: str) -> None:
    def far_away(request: Handler) -> bool:
        time.sleep(0.15)
        return False

    with open_image(reference, QUICK) as image:
        server.fault = far_away
        started = time.monotonic()
        assert contents(image) == FILES
    assert time.monotonic() - started < 0.15 * LAYERS * 0.75


def test_no_more_downloads_than_are_fair_run_at_once(server: Server, reference: str) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def watch(request: Handler) -> bool:
        nonlocal running, most
        if "/blobs/" not in request.path:
            return False
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.03)
        request.serve()
        with lock:
            running -= 1
        return True

    with open_image(reference, QUICK) as image:
        server.fault = watch
        assert contents(image) == FILES
    assert 1 < most <= PARALLEL


def test_layers_that_will_not_be_read_are_not_fetched(server: Server, reference: str) -> None:
    with open_image(reference, QUICK) as image:
        unread = {layer.info.diff_id for layer in image.layers[1::2]}
    with open_image(reference, replace(QUICK, unread=unread.__contains__)) as image:
        for layer in image.layers[::2]:
            list(layer.entries())
        time.sleep(0.1)
        assert sorted(fetched(server)) == sorted(layer.info.digest for layer in image.layers[::2])


def test_little_room_holds_the_downloads_back_and_loses_nothing(server: Server, reference: str) -> None:
    with open_image(reference, replace(QUICK, ahead_in_memory=1)) as image, image.layers[0].open():
        time.sleep(0.2)
        assert len(fetched(server)) <= PARALLEL
        assert contents(image) == FILES


def test_fault_of_a_layer_is_told_when_its_turn_comes(server: Server, reference: str) -> None:
    with open_image(reference, QUICK) as image:
        del server.blobs[image.layers[2].info.digest]
        with image.layers[0].open():
            time.sleep(0.1)
        for layer in image.layers[:2]:
            list(layer.entries())
        with pytest.raises(SourceError, match=f"{image.layers[2].info.digest} is missing in the registry"):
            list(image.layers[2].entries())


def test_leaving_early_ends_every_download(server: Server, reference: str) -> None:
    with open_image(reference, replace(QUICK, ahead_in_memory=1)) as image, image.layers[0].open() as blob:
        assert blob.read(10)
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "imgcheck-download"])
    with pytest.raises(ValueError, match="closed"):
        blob.read(10)
