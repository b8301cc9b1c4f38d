"""What a user gets when the network or a registry fails: the right answer, or one clear line and exit status 2."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgcheck.cli import main, options
from tests.images import File, ImageBuilder
from tests.sources.conftest import Handler, Server
from tests.tools import compile_c

Outcome = tuple[int, str, str]
Command = Callable[..., Outcome]
LAYERS = 3
SHORT = 0.4


@pytest.fixture
def reference(server: Server, tmp_path: Path) -> str:
    program = compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()
    builder = ImageBuilder(command=("/app0",))
    for number in range(LAYERS):
        data = random.Random(number).randbytes(150_000)
        builder = builder.layer({f"app{number}": File(program + bytes([number]), 0o755), f"data{number}": data})
    return server.load(builder.write(tmp_path / "layout"))


@pytest.fixture
def command(reference: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`imgcheck profile` of the image, by somebody with little patience."""
    patient = options.source_options

    def call(timeout: float = 10.0) -> Outcome:
        def impatient(*arguments: object, **named: object) -> object:
            return replace(patient(*arguments, **named), timeout=timeout, backoff=0.01)

        monkeypatch.setattr("imgcheck.cli.reference.source_options", impatient)
        status = main(["profile", reference, "--plain-http", "--no-store"])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def layer(request: Handler) -> bytes:
    """The blob that is asked for, if it is a layer."""
    data = request.store.blobs.get(request.path.rpartition("/")[2], b"")
    return data if "/blobs/" in request.path and len(data) > 100_000 else b""


def send(request: Handler, body: bytes, cut: int) -> bool:
    """Answer a request for a blob, ranges included, and break the connection at its byte `cut`."""
    start = int(request.headers.get("Range", "bytes=0-")[6:-1])
    headers = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
    request.answer(206 if start else 200, body[start:], headers, cut=max(cut - start, 0))
    return True


def right(outcome: Outcome, answer: Outcome) -> None:
    assert outcome == answer
    assert [record["path"] for record in json.loads(outcome[1])["files"]] == ["/app0", "/app1", "/app2"]


def one_line(outcome: Outcome, *words: str) -> None:
    status, out, said = outcome
    assert (status, out) == (2, "")
    first, *hint = said.splitlines()
    assert first.startswith("imgcheck: ") and all(word in first for word in words), said
    assert len(hint) <= 1 and "Traceback" not in said


def test_ten_cuts_at_random_offsets_change_nothing(server: Server, command: Command) -> None:
    answer = command()
    chosen = random.Random(4)
    blobs = [digest for digest, data in server.blobs.items() if len(data) > 100_000]
    # In the order in which a download meets them; four, three and three in the three layers.
    cuts = {
        digest: sorted(chosen.sample(range(1, len(server.blobs[digest])), count))
        for digest, count in zip(blobs, (4, 3, 3), strict=True)
    }

    def cut(request: Handler) -> bool:
        body, left = layer(request), cuts.get(request.path.rpartition("/")[2])
        return bool(left) and send(request, body, left.pop(0))

    server.fault = cut
    right(command(), answer)
    assert not any(cuts.values())


def test_storm_of_429_is_ridden_out_or_told(server: Server, command: Command) -> None:
    answer = command()
    refused: Counter[str] = Counter()

    def twice_each(request: Handler) -> bool:
        refused[request.path] += 1
        return refused[request.path] <= 2 and request.answer(429, headers={"Retry-After": "0"}) is None

    server.fault = twice_each
    right(command(), answer)
    assert max(refused.values()) == 3
    server.fault = lambda request: bool(layer(request)) and request.answer(429) is None
    one_line(command(), server.address, "too many requests (429), also after 5 attempts")


def test_token_that_expires_inside_a_layer_is_renewed(server: Server, command: Command) -> None:
    answer = command()
    issued, expired, cuts = [0], [False], iter([40_000, 90_000])

    def fault(request: Handler) -> bool:
        if request.path.startswith("/token"):
            issued[0] += 1
            expired[0] = False
            return request.answer(200, json.dumps({"token": f"t{issued[0]}"}).encode()) is None
        if request.headers.get("Authorization") != f"Bearer t{issued[0]}" or expired[0]:
            challenge = f'Bearer realm="http://{server.address}/token",service="x"'
            return request.answer(401, headers={"WWW-Authenticate": challenge}) is None
        body = layer(request)
        at = next(cuts, None) if body else None
        if at is None:
            return False
        expired[0] = True
        return send(request, body, at)

    server.fault = fault
    right(command(), answer)
    assert issued[0] >= 3


def test_wrong_bytes_are_one_line_that_names_the_blob(server: Server, command: Command) -> None:
    digest = next(digest for digest, data in server.blobs.items() if len(data) > 100_000)
    data = bytearray(server.blobs[digest])
    data[len(data) // 2] ^= 1
    server.blobs[digest] = bytes(data)
    one_line(command(), digest, "hash to")


def test_silent_and_dribbling_servers_are_one_line_in_bounded_time(server: Server, command: Command) -> None:
    def dribble(request: Handler, head: bytes) -> bool:
        request.wfile.write(head)
        for _ in range(200):
            request.wfile.write(b"x")
            request.wfile.flush()
            time.sleep(0.05)
        return True

    faults = {
        "sent nothing for 0.4 s": lambda request: time.sleep(SHORT * 2) is None,
        "did not finish the headers": lambda request: dribble(request, b"HTTP/1.1 200 OK\r\nX: "),
        "sent less than 1024 bytes a second": lambda request: dribble(request, _head(len(layer(request)))),
    }
    for words, fault in faults.items():
        server.fault = lambda request, fault=fault: bool(layer(request)) and fault(request)
        started = time.monotonic()
        one_line(command(SHORT), words)
        assert time.monotonic() - started < 20


def _head(size: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode()


def test_connection_that_always_breaks_is_one_line(server: Server, command: Command) -> None:
    server.fault = lambda request: bool(body := layer(request)) and send(request, body, 1_000)
    one_line(command(), "broke off at byte 1000 of")
