"""Images in a Docker engine, over a small server that speaks its API on a Unix socket."""

import os
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from imgcheck.errors import SourceError
from tests.images import ImageBuilder
from tests.sources.conftest import read
from tests.tools import need, run


class _Engine(BaseHTTPRequestHandler):
    images: dict[str, bytes] = {}

    def do_GET(self) -> None:
        body = self.images.get(self.path)
        if self.path == "/images/broken:latest/get":
            self._send(500, b'{"message":"no space\\u001b[31m left"}')
        elif body is None:
            self._send(404, b'{"message":"No such image"}')
        else:
            # As the engine does: chunked, without a length.
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass


_Engine.protocol_version = "HTTP/1.1"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """The images that the engine has, by the path under which it is asked for them."""
    images: dict[str, bytes] = {}
    handler = type("Handler", (_Engine,), {"images": images})
    # The path of a socket has at most 107 characters.
    place = Path(os.path.relpath(tmp_path / "engine.sock"))
    with socketserver.ThreadingUnixStreamServer(str(place), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
        yield images
        server.shutdown()
        thread.join()


def test_saved_image_is_read_and_latest_is_meant_where_no_tag_is_given(
    engine: dict[str, bytes], tmp_path: Path
) -> None:
    layout = ImageBuilder().layer({"bin/tool": "x"}).write(tmp_path / "layout")
    archive = tmp_path / "a.tar"
    run(
        need("skopeo"),
        "--insecure-policy",
        "copy",
        "-q",
        f"oci:{layout}:latest",
        f"docker-archive:{archive}:a/b:latest",
    )
    engine["/images/a/b:latest/get"] = engine["/images/a/b:2/get"] = archive.read_bytes()
    for name in ("a/b", "a/b:latest", "a/b:2"):
        assert read(f"docker-daemon:{name}") == {"bin/tool": b"x"}


def test_what_the_engine_refuses_is_one_clear_error(engine: dict[str, bytes]) -> None:
    with pytest.raises(SourceError, match="other:latest: no such image in the Docker engine"):
        read("docker-daemon:other")
    with pytest.raises(SourceError, match=r"answers 500 no space\[31m left"):
        read("docker-daemon:broken")


def test_answer_that_is_cut_short_is_one_clear_error(engine: dict[str, bytes]) -> None:
    engine["/images/a:latest/get"] = b"\x1f\x8b\x08\x00 not gzip at all"
    with pytest.raises(SourceError, match="a:latest: "):
        read("docker-daemon:a")


def test_no_engine_and_a_remote_one_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(SourceError, match="no Docker engine answers there"):
        read("docker-daemon:a")
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(SourceError, match="only a local socket is read"):
        read("docker-daemon:a")
