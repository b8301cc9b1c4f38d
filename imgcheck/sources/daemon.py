"""Images in a Docker engine, over its socket (Docker Engine API, `GET /images/NAME/get`)."""

import http.client
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import BinaryIO, cast
from urllib.parse import quote

from imgcheck.errors import SourceError
from imgcheck.progress import Progress
from imgcheck.sources.archive import ArchiveFiles, archive_image, spooled
from imgcheck.sources.blobs import parse_json
from imgcheck.sources.model import Image
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.reference import Reference

_DEFAULT_SOCKET = "/var/run/docker.sock"
_SECONDS = 900
"""The engine collects all layers before it sends a byte: minutes for a large image, so the usual limit is too short."""
_ERROR_LIMIT = 64 << 10


@contextmanager
def open_daemon(reference: Reference, options: SourceOptions, progress: Progress) -> Iterator[Image]:
    """The image of a `docker-daemon:` reference, as `docker save` would write it."""
    # Without a tag the engine would send every tag of the repository.
    name = reference.name if reference.tag or reference.digest else f"{reference.name}:latest"
    path = socket_path(os.environ)
    with closing(_Connection(path)) as connection:
        response = _request(connection, path, name)
        with spooled(cast(BinaryIO, response), name, options, progress) as archive:
            yield archive_image(
                replace(reference, kind="archive", tag="", digest=""), ArchiveFiles(archive, name), options
            )


def socket_path(environment: Mapping[str, str]) -> str:
    """The engine's socket: DOCKER_HOST, else the usual place. SourceError where DOCKER_HOST is no local socket."""
    host = environment.get("DOCKER_HOST", "")
    if not host:
        return _DEFAULT_SOCKET
    if not host.startswith("unix://"):
        raise SourceError(
            f"DOCKER_HOST={host}: only a local socket is read", hint="docker save IMAGE | imgcheck image -"
        )
    return host.removeprefix("unix://")


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _request(connection: _Connection, path: str, name: str) -> http.client.HTTPResponse:
    try:
        connection.request("GET", f"/images/{quote(name, safe='/:@')}/get")
        response = connection.getresponse()
    except PermissionError:
        raise SourceError(
            f"{path}: permission denied", hint="join the group docker, or docker save IMAGE | imgcheck image -"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise SourceError(f"{path}: no Docker engine answers there ({cause})", hint="set DOCKER_HOST") from None
    if response.status == 200:
        return response
    try:
        said = str(parse_json(response.read(_ERROR_LIMIT), "answer").get("message", ""))
    except (SourceError, OSError, http.client.HTTPException):
        said = ""
    if response.status == 404:
        raise SourceError(f"{name}: no such image in the Docker engine at {path}")
    printable = "".join(letter for letter in said if letter.isprintable())
    raise SourceError(f"{name}: the Docker engine at {path} answers {response.status} {printable[:200]}")
