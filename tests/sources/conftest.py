"""What the tests of sources share: a quiet environment, reading an image, and a registry that misbehaves."""

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from imgcheck.sources.model import Image
from imgcheck.sources.open import open_image
from imgcheck.sources.options import SourceOptions

QUICK = SourceOptions(platform="linux/amd64", plain_http=True, timeout=2, backoff=0.01)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No credentials, no registries.conf and no proxy of whoever runs the tests; returns the empty home."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", "/dev/null")
    monkeypatch.setenv("NO_PROXY", "*")
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
        "DOCKER_CONFIG",
        "REGISTRY_AUTH_FILE",
        "IMGCHECK_DEFAULT_REGISTRY",
    ):
        monkeypatch.delenv(name, raising=False)
    return home


def contents(image: Image) -> dict[str, bytes]:
    """Every regular file of every layer, lowest first; reading them verifies the layers."""
    found = {}
    for layer in image.layers:
        for entry, content in layer.entries():
            if content is not None:
                found[entry.path] = content.read()
    return found


def read(reference: str, options: SourceOptions = QUICK) -> dict[str, bytes]:
    with open_image(reference, options) as image:
        return contents(image)


@dataclass
class Server:
    """A small registry over plain HTTP whose every answer a test may replace."""

    address: str
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """By tag or digest: media type and bytes."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path with query and headers of each request, in order."""
    fault: Callable[["Handler"], bool] | None = None
    """Asked first; True where it has answered (or cut) itself."""

    def load(self, layout: Path) -> str:
        """Serve an OCI layout as `repo:latest`; returns the reference."""
        for path in (layout / "blobs" / "sha256").iterdir():
            data = path.read_bytes()
            self.blobs[f"sha256:{path.name}"] = data
            if data.startswith(b"{"):
                self.manifests[f"sha256:{path.name}"] = (json.loads(data).get("mediaType", ""), data)
        root = json.loads((layout / "index.json").read_bytes())["manifests"][0]
        self.manifests["latest"] = (root["mediaType"], self.blobs[root["digest"]])
        return f"{self.address}/repo:latest"


class Handler(BaseHTTPRequestHandler):
    """One request to a Server."""

    protocol_version = "HTTP/1.1"
    store: Server

    def do_GET(self) -> None:
        self.store.requests.append((self.path, dict(self.headers.items())))
        if not (self.store.fault and self.store.fault(self)):
            self.serve()

    do_HEAD = do_POST = do_PUT = do_CONNECT = do_GET  # noqa: N815

    def serve(self) -> None:
        kind, _, name = self.path.rpartition("/")
        if kind.endswith("/manifests") and name in self.store.manifests:
            media_type, data = self.store.manifests[name]
            self.answer(200, data, {"Content-Type": media_type})
        elif kind.endswith("/blobs") and name in self.store.blobs:
            self.ranged(self.store.blobs[name])
        else:
            self.answer(404, b'{"errors":[{"code":"NOT_FOUND","message":"nothing here"}]}')

    def ranged(self, data: bytes) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match:
            start = int(match[1])
            self.answer(206, data[start:], {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})
        else:
            self.answer(200, data)

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, cut: int = -1) -> None:
        """Send `body`; with `cut`, break the connection after that many of its bytes."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if cut < 0 else body[:cut])
        if cut >= 0:
            self.wfile.flush()
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    """Connections that a test breaks are no news."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with start_server() as running:
        yield running


@pytest.fixture
def other_server() -> Iterator[Server]:
    with start_server() as running:
        yield running


@contextmanager
def start_server(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A running Server on a free port of loopback, behind TLS where a context for that is given."""
    handler = type("BoundHandler", (Handler,), {})
    http = QuietServer(("127.0.0.1", 0), handler)
    if tls:
        http.socket = tls.wrap_socket(http.socket, server_side=True)
    handler.store = Server(f"127.0.0.1:{http.server_address[1]}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield handler.store
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
