"""The registry client against a server that misbehaves as registries and networks do."""

import base64
import hashlib
import json
import random
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from imgcheck.errors import DigestError, SourceError
from imgcheck.sources.open import open_image
from tests.images import ImageBuilder
from tests.peers import start_registry
from tests.sources.conftest import QUICK, Handler, Server, read

BIG = random.Random(1).randbytes(300_000)


@pytest.fixture
def reference(server: Server, tmp_path: Path) -> str:
    image = ImageBuilder().layer({"bin/tool": BIG}, compression="none").layer({"etc/name": "value"})
    return server.load(image.write(tmp_path / "layout"))


def _is_blob(request: Handler, data: bytes = BIG) -> bool:
    return request.path.rpartition("/")[0].endswith("/blobs") and len(_blob(request)) > len(data)


def _blob(request: Handler) -> bytes:
    return request.store.blobs.get(request.path.rpartition("/")[2], b"")


def test_image_is_read_where_nothing_fails(reference: str) -> None:
    assert read(reference) == {"bin/tool": BIG, "etc/name": b"value"}


def test_connection_cut_at_ten_random_offsets_is_resumed(server: Server, reference: str) -> None:
    cuts = iter(sorted(random.Random(2).sample(range(1, len(BIG)), 10)))

    def cut(request: Handler) -> bool:
        if not _is_blob(request):
            return False
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        end = next(cuts, None)
        if end is None:
            return False
        body = _blob(request)
        status, headers = (206, {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}) if start else (200, {})
        request.answer(status, body[start:], headers, cut=end - start)
        return True

    server.fault = cut
    assert read(reference)["bin/tool"] == BIG
    assert sum("Range" in headers for _, headers in server.requests) == 10


def test_server_without_ranges_is_read_again_from_the_start(server: Server, reference: str) -> None:
    first = iter([True])

    def cut(request: Handler) -> bool:
        if not _is_blob(request):
            return False
        request.answer(200, _blob(request), cut=150_000 if next(first, False) else -1)
        return True

    server.fault = cut
    assert read(reference)["bin/tool"] == BIG


def test_connection_that_always_breaks_ends_with_a_clear_message(server: Server, reference: str) -> None:
    def cut(request: Handler) -> bool:
        if not _is_blob(request):
            return False
        request.answer(200, _blob(request), cut=1000)
        return True

    server.fault = cut
    with pytest.raises(SourceError, match="broke off at byte 1000 of"):
        read(reference)


def test_silent_server_times_out_with_a_message(server: Server, reference: str) -> None:
    def sleep(request: Handler) -> bool:
        time.sleep(1.0)
        return False

    server.fault = sleep
    with pytest.raises(SourceError, match=r"sent nothing for 0\.2 s"):
        read(reference, replace(QUICK, timeout=0.2, attempts=2))


def test_429_is_waited_out_as_retry_after_says(server: Server, reference: str) -> None:
    refusals = iter(["0", "0", "1"])

    def storm(request: Handler) -> bool:
        wait = next(refusals, None)
        if wait is not None:
            request.answer(429, headers={"Retry-After": wait})
        return wait is not None

    server.fault = storm
    started = time.monotonic()
    assert read(reference)["bin/tool"] == BIG
    assert time.monotonic() - started >= 1


def test_endless_429_ends_with_a_clear_message(server: Server, reference: str) -> None:
    server.fault = lambda request: request.answer(429) is None
    with pytest.raises(SourceError, match=r"too many requests \(429\), also after 5 attempts"):
        read(reference)
    assert len(server.requests) == 5


def test_retry_after_of_an_hour_is_told_and_not_waited(server: Server, reference: str) -> None:
    server.fault = lambda request: request.answer(429, headers={"Retry-After": "3600"}) is None
    with pytest.raises(SourceError, match="asks to wait 3600 s"):
        read(reference)


def test_passing_server_errors_are_retried(server: Server, reference: str) -> None:
    refusals = iter([500, 502, 503, 504])

    def fail(request: Handler) -> bool:
        status = next(refusals, None)
        if status:
            request.answer(status)
        return status is not None

    server.fault = fail
    assert read(reference)["etc/name"] == b"value"


def test_wrong_bytes_of_a_layer_are_named(server: Server, reference: str) -> None:
    digest = next(digest for digest, data in server.blobs.items() if len(data) > len(BIG))
    server.blobs[digest] = server.blobs[digest][:-1] + b"X"
    with pytest.raises(DigestError, match=digest):
        read(reference)


def test_layer_of_another_length_is_refused_at_once(server: Server, reference: str) -> None:
    digest = next(digest for digest, data in server.blobs.items() if len(data) > len(BIG))
    server.blobs[digest] += b"more"
    with pytest.raises(DigestError, match=f"{digest}.*not {len(server.blobs[digest]) - 4}"):
        read(reference)


def test_wrong_manifest_is_refused_by_digest_and_by_the_registrys_own_word(server: Server, reference: str) -> None:
    digest = next(
        key for key in server.manifests if key.startswith("sha256:") and b"layers" in server.manifests[key][1]
    )
    media_type, data = server.manifests[digest]
    server.manifests[digest] = (media_type, data + b" ")
    with pytest.raises(DigestError, match="hash to"):
        read(f"{server.address}/repo@{digest}")

    def lie(request: Handler) -> bool:
        if not request.path.endswith("/manifests/latest"):
            return False
        request.answer(200, data, {"Content-Type": media_type, "Docker-Content-Digest": "sha256:" + "0" * 64})
        return True

    server.fault = lie
    with pytest.raises(DigestError, match="hash to"):
        read(reference)


def test_missing_image_and_missing_layer_are_told_apart(server: Server, reference: str) -> None:
    with pytest.raises(SourceError, match="repo:nope: no such image at 127"):
        read(f"{server.address}/repo:nope")
    digest = next(digest for digest, data in server.blobs.items() if len(data) > len(BIG))
    del server.blobs[digest]
    with pytest.raises(SourceError, match=f"{digest} is missing in the registry"):
        read(reference)


def test_oversized_manifest_is_refused(server: Server, reference: str) -> None:
    media_type, data = server.manifests["latest"]
    server.manifests["latest"] = (media_type, data + b" " * (4 << 20))
    with pytest.raises(SourceError, match="larger than 4 MiB"):
        read(reference)


# --- login


class TokenDesk:
    """A fault that asks for bearer tokens and hands them out, each good until it is told to be expired."""

    def __init__(self, realm: str) -> None:
        self.realm = realm
        self.issued = 0
        self.expired = True

    def __call__(self, request: Handler) -> bool:
        if request.path.startswith("/token"):
            self.issued += 1
            self.expired = False
            request.answer(200, json.dumps({"token": f"t{self.issued}"}).encode())
            return True
        if request.headers.get("Authorization") == f"Bearer t{self.issued}" and not self.expired:
            return False
        challenge = f'Bearer realm="{self.realm}",service="desk",scope="repository:repo:pull"'
        request.answer(401, headers={"WWW-Authenticate": challenge})
        return True


def test_anonymous_token_is_fetched_once_and_used(server: Server, reference: str) -> None:
    server.fault = desk = TokenDesk(f"http://{server.address}/token")
    assert read(reference)["bin/tool"] == BIG
    assert desk.issued == 1
    asked = next(path for path, _ in server.requests if path.startswith("/token"))
    assert "service=desk" in asked and "scope=repository%3Arepo%3Apull" in asked


def test_token_that_expires_between_and_within_layers_is_renewed(server: Server, reference: str) -> None:
    desk = TokenDesk(f"http://{server.address}/token")
    ends = iter([0, 100_000])

    def expire(request: Handler) -> bool:
        if desk(request):
            return True
        end = next(ends, None) if _is_blob(request) else None
        if end is None:
            return False
        desk.expired = True
        if not end:
            return desk(request)
        request.answer(200, _blob(request), cut=end)
        return True

    server.fault = expire
    assert read(reference) == {"bin/tool": BIG, "etc/name": b"value"}
    assert desk.issued == 3


def test_password_goes_to_the_token_server_and_the_token_to_the_registry(server: Server, reference: str) -> None:
    server.fault = TokenDesk(f"http://{server.address}/token")
    read(reference, replace(QUICK, username="user", password="s3cret"))
    sent = {
        path.partition("?")[0].rpartition("/")[0]: headers.get("Authorization") for path, headers in server.requests
    }
    assert sent[""] == "Basic " + base64.b64encode(b"user:s3cret").decode()
    assert sent["/v2/repo/manifests"] == "Bearer t1"


def test_identity_token_is_exchanged_by_post(server: Server, reference: str, bare_environment: Path) -> None:
    (bare_environment / ".docker").mkdir()
    auths = {"auths": {server.address: {"identitytoken": "refresh-me"}}}
    (bare_environment / ".docker" / "config.json").write_text(json.dumps(auths))
    desk = TokenDesk(f"http://{server.address}/token")
    bodies = []

    def note(request: Handler) -> bool:
        if request.command == "POST":
            bodies.append(request.rfile.read(int(request.headers["Content-Length"])).decode())
        return desk(request)

    server.fault = note
    assert read(reference)["etc/name"] == b"value"
    assert "grant_type=refresh_token" in bodies[0] and "refresh_token=refresh-me" in bodies[0]


@pytest.mark.parametrize("fault", ["503", "429", "reset", "moved"])
@pytest.mark.parametrize("identity", [True, False])
def test_token_server_that_is_busy_or_moves_within_its_host_is_asked_again(
    server: Server, reference: str, bare_environment: Path, fault: str, identity: bool
) -> None:
    (bare_environment / ".docker").mkdir()
    secret = {"identitytoken": "refresh"} if identity else {"auth": base64.b64encode(b"user:pass").decode()}
    auths = {"auths": {server.address: secret}}
    (bare_environment / ".docker" / "config.json").write_text(json.dumps(auths))
    desk = TokenDesk(f"http://{server.address}/token")
    faults = iter([fault, fault])

    def fail(request: Handler) -> bool:
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        kind = next(faults, "") if request.path.startswith("/token") else ""
        if kind == "reset":
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True
        elif kind == "moved":
            request.answer(307, headers={"Location": request.path.replace("/token", "/token/new")})
        elif kind:
            request.answer(int(kind), headers={"Retry-After": "0"})
        return bool(kind) or desk(request)

    server.fault = fail
    assert read(reference)["etc/name"] == b"value"
    assert desk.issued == 1


def test_token_server_that_stays_busy_or_leads_elsewhere_is_told(
    server: Server, other_server: Server, reference: str
) -> None:
    desk = TokenDesk(f"http://{server.address}/token")
    elsewhere = {"Location": f"http://{other_server.address}/token"}
    for status, headers, said in (
        (503, {}, "its token server answered 503"),
        (429, {"Retry-After": "600"}, r"its token server: asks to wait 600 s \(rate limit\)"),
        (307, elsewhere, "its token server answered 307"),
    ):

        def fail(request: Handler, status: int = status, headers: dict[str, str] = headers) -> bool:
            return desk(request) if request.path.startswith("/v2") else request.answer(status, headers=headers) is None

        server.fault = fail
        with pytest.raises(SourceError, match=said):
            read(reference, replace(QUICK, username="user", password="s3cret"))
    assert not other_server.requests


def test_refused_login_names_where_the_credentials_came_from_and_never_shows_them(
    server: Server, reference: str
) -> None:
    server.fault = lambda request: request.answer(401, headers={"WWW-Authenticate": 'Basic realm="x"'}) is None
    options = replace(QUICK, username="user", password="s3cret")
    with pytest.raises(SourceError, match="login refused with the credentials from --username") as caught:
        read(reference, options)
    assert "s3cret" not in str(caught.value) + repr(options)
    with pytest.raises(SourceError, match=r"login required \(401\)"):
        read(reference)


def test_anonymous_user_refused_a_token_is_told_to_log_in(server: Server, reference: str) -> None:
    desk = TokenDesk(f"http://{server.address}/token")
    server.fault = lambda request: (request.answer(403) is None) if request.path.startswith("/token") else desk(request)
    with pytest.raises(SourceError, match="no anonymous access to this image, or it does not exist"):
        read(reference)


@pytest.mark.parametrize(
    "realm", ["ftp://127.0.0.1/token", "http://u@127.0.0.1/", "/token", "", "http://[", "http://a:99999/"]
)
def test_token_server_at_an_absurd_address_is_refused(server: Server, reference: str, realm: str) -> None:
    server.fault = TokenDesk(realm)
    with pytest.raises(SourceError, match="is refused: not a plain http or https address"):
        read(reference)


# --- redirects


def test_redirect_to_another_host_carries_no_credentials(server: Server, other_server: Server, reference: str) -> None:
    desk = TokenDesk(f"http://{server.address}/token")

    def elsewhere(request: Handler) -> bool:
        if desk(request):
            return True
        if not _is_blob(request):
            return False
        request.answer(307, headers={"Location": f"http://{other_server.address}{request.path}?signature=abc"})
        return True

    def signed(request: Handler) -> bool:
        request.path = request.path.partition("?")[0]
        return False

    server.fault, other_server.fault = elsewhere, signed
    other_server.blobs = server.blobs
    assert read(reference, replace(QUICK, username="user", password="s3cret"))["bin/tool"] == BIG
    assert other_server.requests
    assert all("Authorization" not in headers for _, headers in other_server.requests)


def test_signed_address_that_ran_out_is_asked_for_again(server: Server, other_server: Server, reference: str) -> None:
    other_server.blobs = server.blobs
    expired = iter([True])

    def elsewhere(request: Handler) -> bool:
        if _is_blob(request):
            request.answer(307, headers={"Location": f"http://{other_server.address}{request.path}"})
            return True
        return False

    server.fault = elsewhere
    other_server.fault = lambda request: next(expired, False) and request.answer(403) is None
    assert read(reference)["bin/tool"] == BIG


def test_store_that_refuses_is_named_with_what_it_answers(server: Server, other_server: Server, reference: str) -> None:
    def elsewhere(request: Handler) -> bool:
        if _is_blob(request):
            request.answer(307, headers={"Location": f"http://{other_server.address}{request.path}?signature=s3cret"})
        return _is_blob(request)

    server.fault = elsewhere
    for status, count in ((401, 2), (403, 2), (503, QUICK.attempts)):
        other_server.requests.clear()
        other_server.fault = lambda request, status=status: request.answer(status) is None
        told = f"{other_server.address}, to which .*redirects, answer.* {status}"
        with pytest.raises(SourceError, match=told) as refused:
            read(reference)
        assert "s3cret" not in refused.value.message and len(other_server.requests) == count


def test_endless_redirects_and_other_schemes_are_refused(server: Server, reference: str) -> None:
    server.fault = lambda request: request.answer(302, headers={"Location": request.path}) is None
    with pytest.raises(SourceError, match="redirects more than 5 times"):
        read(reference)
    for target in ("file:///etc/passwd", "http://[", "http://127.0.0.1:99999/", "http://user@127.0.0.1/"):
        server.fault = lambda request, target=target: request.answer(302, headers={"Location": target}) is None
        with pytest.raises(SourceError, match="redirects to something that is no http or https address"):
            read(reference)


@pytest.mark.parametrize("token", ["a\r\nX-Header: b", "\u2603", ""])
def test_token_that_would_break_a_header_is_none(server: Server, reference: str, token: str) -> None:
    def answer(request: Handler) -> bool:
        if request.path.startswith("/token"):
            request.answer(200, json.dumps({"token": token}).encode())
        else:
            challenge = f'Bearer realm="http://{server.address}/token"'
            request.answer(401, headers={"WWW-Authenticate": challenge})
        return True

    server.fault = answer
    with pytest.raises(SourceError, match="its token server gave no token"):
        read(reference)


def test_length_of_absurdly_many_digits_is_one_clear_error(server: Server, reference: str) -> None:
    def lie(request: Handler) -> bool:
        if not _is_blob(request):
            return False
        request.send_response(200)
        request.send_header("Content-Length", "9" * 5000)
        request.end_headers()
        return True

    server.fault = lie
    with pytest.raises(DigestError, match=r"the registry has 9+ bytes, not"):
        read(reference)


# --- where nothing answers


def test_nobody_listening_is_said_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1: connection refused"):
        read("127.0.0.1:1/repo", replace(QUICK, backoff=60))
    assert time.monotonic() - started < 30


def test_localhost_is_spoken_to_in_plain_http_without_being_told(server: Server, reference: str) -> None:
    with open_image(reference, replace(QUICK, plain_http=False)) as image:
        assert len(image.layers) == 2


def test_netrc_logins_are_not_sent(server: Server, reference: str, bare_environment: Path) -> None:
    (bare_environment / ".netrc").write_text("machine 127.0.0.1 login me password mine\n")
    read(reference)
    assert server.requests
    assert all("Authorization" not in headers for _, headers in server.requests)


def test_nothing_is_asked_for_twice(server: Server, reference: str) -> None:
    read(reference)
    paths = [path for path, _ in server.requests]
    assert sorted(paths) == sorted(set(paths)) and len(paths) == 4


# --- slow servers, restarts, proxies


def _dribble(request: Handler, body: bytes, headers: dict[str, str] | None = None) -> bool:
    """Send `body` a byte at a time, each well within any time limit on silence."""
    request.send_response(200)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    for at in range(200):
        request.wfile.write(body[at : at + 1])
        request.wfile.flush()
        time.sleep(0.05)
    return True


def test_blob_that_only_dribbles_ends_with_a_clear_message(server: Server, reference: str) -> None:
    server.fault = lambda request: _is_blob(request) and _dribble(request, _blob(request))
    started = time.monotonic()
    with pytest.raises(
        SourceError, match=r"broke off at byte \d+ of \d+: sent less than 1024 bytes a second for 0.5 s"
    ):
        read(reference, replace(QUICK, timeout=0.5, attempts=3))
    assert time.monotonic() - started < 9


def test_manifest_and_token_that_only_dribble_end_with_a_clear_message(server: Server, reference: str) -> None:
    media_type, data = server.manifests["latest"]
    server.fault = lambda request: _dribble(request, data, {"Content-Type": media_type})
    quick = replace(QUICK, timeout=0.3, attempts=2)
    with pytest.raises(SourceError, match="manifest latest: sent less than 1024 bytes a second"):
        read(reference, quick)
    desk = TokenDesk(f"http://{server.address}/token")
    server.fault = lambda request: (
        _dribble(request, b"{" + b" " * 5000) if request.path.startswith("/token") else desk(request)
    )
    with pytest.raises(SourceError, match="token server broke off or came too slowly"):
        read(reference, quick)


def _dribble_headers(request: Handler) -> bool:
    """An answer whose status line and headers come a byte at a time, each well within any time limit on silence."""
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Padding: x\r\n" * 1000:
        request.wfile.write(bytes([byte]))
        request.wfile.flush()
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("part", ["manifests", "blobs"])
def test_headers_that_only_dribble_end_with_a_clear_message(server: Server, reference: str, part: str) -> None:
    server.fault = lambda request: f"/{part}/" in request.path and _dribble_headers(request)
    started = time.monotonic()
    with pytest.raises(SourceError, match=r"127.*: did not finish the headers of its answer within 0\.3 s"):
        read(reference, replace(QUICK, timeout=0.3, attempts=2))
    assert time.monotonic() - started < 30


def test_headers_that_dribble_once_are_asked_for_again(server: Server, reference: str) -> None:
    first = iter([True])
    server.fault = lambda request: _is_blob(request) and next(first, False) and _dribble_headers(request)
    assert read(reference, QUICK)["bin/tool"] == BIG


def test_proxy_whose_headers_dribble_ends_with_a_clear_message(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("https_proxy", f"http://{server.address}")
    server.fault = _dribble_headers
    with pytest.raises(SourceError, match=r"the proxy cannot be used|did not finish the headers of its answer"):
        read("registry.invalid/repo:latest", replace(QUICK, plain_http=False, timeout=0.3, attempts=1))


def test_slow_but_steady_server_is_waited_for(server: Server, reference: str) -> None:
    def steady(request: Handler) -> bool:
        if not _is_blob(request):
            return False
        body = _blob(request)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        for at in range(0, len(body), 30_000):
            request.wfile.write(body[at : at + 30_000])
            request.wfile.flush()
            time.sleep(0.1)
        return True

    server.fault = steady
    assert read(reference, QUICK)["bin/tool"] == BIG


def test_reader_who_takes_his_time_does_not_make_the_server_slow(server: Server, reference: str) -> None:
    with open_image(reference, replace(QUICK, timeout=1)) as image, image.layers[0].open() as blob:
        pieces = []
        while piece := blob.read(50_000):
            pieces.append(piece)
            time.sleep(0.4)
    assert BIG in b"".join(pieces)


@pytest.mark.slow
def test_registry_that_restarts_in_the_middle_is_taken_up_again(tmp_path: Path) -> None:
    big = random.Random(3).randbytes(64 << 20)
    layout = ImageBuilder().layer({"bin/tool": big}, compression="none").write(tmp_path / "layout")
    options = replace(QUICK, timeout=5, backoff=0.2, attempts=8)
    with ExitStack() as stack:
        first = stack.enter_context(start_registry(tmp_path / "registry"))
        reference = first.push(f"oci:{layout}:latest", "app:1")
        port = int(first.address.rpartition(":")[2])
        with open_image(reference, replace(options, ahead_in_memory=1 << 20)) as image, image.layers[0].open() as blob:
            taken = bytearray(blob.read(1 << 20))
            stack.close()
            restart = threading.Timer(
                1.0, lambda: stack.enter_context(start_registry(tmp_path / "registry", port=port))
            )
            restart.start()
            while piece := blob.read(1 << 20):
                taken += piece
            restart.join()
        assert "sha256:" + hashlib.sha256(taken).hexdigest() == image.layers[0].info.digest
        assert len(taken) > len(big) // 2


@pytest.mark.slow
def test_registry_that_does_not_come_back_is_told(tmp_path: Path) -> None:
    big = random.Random(3).randbytes(64 << 20)
    layout = ImageBuilder().layer({"bin/tool": big}, compression="none").write(tmp_path / "layout")
    with start_registry(tmp_path / "registry") as running:
        reference = running.push(f"oci:{layout}:latest", "app:1")
        image = open_image(reference, replace(QUICK, attempts=3, ahead_in_memory=1 << 20))
        opened = image.__enter__().layers[0].open()
        blob = opened.__enter__()
        blob.read(1 << 20)
    with pytest.raises(SourceError, match=f"{running.address}: connection refused"):
        while blob.read(1 << 20):
            pass
    image.__exit__(None, None, None)


def test_proxy_of_the_environment_is_used_and_no_proxy_holds(
    server: Server, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{server.address}")
    monkeypatch.setenv("NO_PROXY", "")
    assert read("registry.invalid/repo:latest")["etc/name"] == b"value"
    assert all(path.startswith("http://registry.invalid/v2/") for path, _ in server.requests)
    monkeypatch.setenv("NO_PROXY", "registry.invalid")
    with pytest.raises(SourceError, match="the host name cannot be resolved"):
        read("registry.invalid/repo:latest")


def test_proxy_that_is_not_there_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    for scheme, options in (("http", QUICK), ("https", replace(QUICK, plain_http=False))):
        monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:1")
        with pytest.raises(SourceError, match="the proxy cannot be used"):
            read("registry.invalid/repo:latest", replace(options, attempts=1))
