"""Real peers that tests start or install: a registry, Apptainer, udocker."""

import base64
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.tools import need, pypi_directory, run

UNPRIVILEGED = 65534
"""The user `nobody`: peers that refuse root, or need a user that exists, run as this one."""
_GRACE = 20.0
"""Seconds that a daemon has to end once it is asked to."""


@dataclass(frozen=True)
class Registry:
    """A running docker-registry on loopback, over plain HTTP."""

    address: str
    """`localhost:PORT`, as it stands before a repository's name."""
    directory: Path
    """Its storage."""
    user: str = ""
    password: str = ""

    def push(self, source: str, name: str) -> str:
        """Copy `source` (a skopeo reference: oci:DIR:TAG, docker-archive:FILE) to `name`; returns the reference."""
        credentials = ["--dest-creds", f"{self.user}:{self.password}"] if self.user else []
        reference = f"{self.address}/{name}"
        run(need("skopeo"), "--insecure-policy", "copy", "--quiet", "--all", "--dest-tls-verify=false",
            *credentials, source, f"docker://{reference}")  # fmt: skip
        return reference


@contextmanager
def start_registry(
    directory: Path, user: str = "", password: str = "", environment: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[Registry]:
    """A docker-registry that stores under `directory`, with Basic authentication where `user` is given.

    `environment` holds further REGISTRY_* settings as its documentation names them; `port` 0 takes any free one.
    """
    program = need("docker-registry")
    directory.mkdir(parents=True, exist_ok=True)
    lines = ["version: 0.1", "storage:", "  filesystem:", f"    rootdirectory: {directory / 'data'}", "  delete:"]
    lines += ["    enabled: true", "http:", "  addr: 127.0.0.1:0"]
    if user:
        passwords = directory / "htpasswd"
        passwords.write_text(run(need("htpasswd"), "-Bbn", user, password).stdout)
        lines += ["auth:", "  htpasswd:", "    realm: test", f"    path: {passwords}"]
    configuration = directory / "config.yml"
    configuration.write_text("\n".join(lines) + "\n")
    port = port or free_port()
    settings = {"REGISTRY_HTTP_ADDR": f"127.0.0.1:{port}", "OTEL_TRACES_EXPORTER": "none", **(environment or {})}
    with daemons(directory, os.environ | settings) as start:
        process = start("docker-registry", program, "serve", configuration)
        _await_http(f"http://127.0.0.1:{port}/v2/", process, directory / "docker-registry.out", user, password)
        yield Registry(f"localhost:{port}", directory / "data", user, password)


def free_port() -> int:
    """A TCP port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def daemons(directory: Path, environment: Mapping[str, str]) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Gives start(name, *command), which runs a command in the background with its output in DIRECTORY/NAME.out.

    At the end all of them are ended, the last one first: servers that others lean on were started before.
    """
    with ExitStack() as running:

        def start(name: str, *command: str | Path) -> subprocess.Popen[bytes]:
            with (directory / f"{name}.out").open("wb") as out:
                process = subprocess.Popen(list(map(str, command)), env=dict(environment), stdout=out, stderr=out)
            running.callback(_end, process)
            return process

        yield start


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_http(url: str, process: subprocess.Popen, log: Path, user: str, password: str) -> None:
    request = urllib.request.Request(url)
    if user:
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    for _ in range(1200):
        try:
            urllib.request.urlopen(request, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            if process.poll() is not None:
                raise AssertionError(f"docker-registry ended at once:\n{log.read_text()}") from None
            time.sleep(0.05)
    raise AssertionError(f"docker-registry does not answer:\n{log.read_text()}")


def as_unprivileged(*command: str | Path) -> tuple[str, ...]:
    """`command`, run as an ordinary user where the tests run as root."""
    words = tuple(str(word) for word in command)
    if os.getuid():
        return words
    drop = (need("setpriv"), f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups")
    return (*drop, *words)


@dataclass(frozen=True)
class Peer:
    """A container runtime that runs as an ordinary user."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    home: Path

    def __call__(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it with `arguments`; exit status and output are the caller's to judge."""
        return subprocess.run(
            as_unprivileged(*self.command, *arguments),
            capture_output=True,
            text=True,
            env={**self.environment, **environment},
            cwd=self.home,
            timeout=300,
        )


def install_udocker() -> Path:
    """A directory for PYTHONPATH that holds udocker from PyPI, readable by every user."""
    directory = pypi_directory("udocker==1.3.17")
    directory.chmod(0o755)
    return directory
