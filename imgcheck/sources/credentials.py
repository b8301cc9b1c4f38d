"""Credentials for registries, from where Podman, Docker and Apptainer keep them (containers-auth.json(5))."""

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imgcheck.errors import SourceError
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.registries import Endpoint

_HELPER_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_HELPER_SECONDS = 30
_IDENTITY_USER = "<token>"
"""The user name with which credential helpers mark the secret as an identity token."""


@dataclass(frozen=True)
class Credentials:
    """What one logs in with. Never printed."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """A refresh token to be exchanged at the token server."""
    registry_token: str = field(default="", repr=False)
    """A bearer token that the registry takes as it is."""
    origin: str = ""
    """Where they were found, for messages."""


def find_credentials(
    endpoint: Endpoint, options: SourceOptions, environment: Mapping[str, str] = os.environ
) -> Credentials | None:
    """The credentials for `endpoint`, None where there are none.

    Options go before files; the first file with an entry wins, in it the credential helper of the host, then the
    longest matching path. Raises SourceError where a file that was asked for by name cannot be read, or a helper
    fails.
    """
    if options.username and not endpoint.mirror:
        return Credentials(options.username, options.password, origin="--username")
    for path, required in _files(options, environment):
        document = _read(path, required)
        if found := _lookup(document, endpoint, str(path)):
            return found
    return None


def _files(options: SourceOptions, environment: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """The files to look into, in order, each with whether the user asked for it by name."""
    if named := options.authfile or environment.get("REGISTRY_AUTH_FILE"):
        yield Path(named), True
        return
    runtime = environment.get("XDG_RUNTIME_DIR")
    session = f"{runtime}/containers" if runtime else f"/run/containers/{os.getuid()}"
    home = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 (Path.home raises for who has none)
    places = [
        Path(session, "auth.json"),
        Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config", "containers/auth.json"),
        Path(environment.get("DOCKER_CONFIG") or f"{home}/.docker", "config.json"),
        Path(home, ".apptainer/docker-config.json"),
        Path(home, ".singularity/docker-config.json"),
    ]
    # A user without a home has none of the files in it.
    yield from ((place, False) for place in places if place.is_absolute())


def _read(path: Path, required: bool) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        if required:
            raise SourceError(f"{path}: credentials cannot be read: {error.strerror}") from None
        return {}
    except (ValueError, RecursionError):
        # json's message would quote the file: it holds secrets.
        raise SourceError(f"{path}: credentials file is not valid JSON") from None
    return document if isinstance(document, dict) else {}


def _lookup(document: Mapping[str, Any], endpoint: Endpoint, origin: str) -> Credentials | None:
    helpers, auths = _table(document, "credHelpers"), _table(document, "auths")
    for name in endpoint.login:
        if helper := helpers.get(name):
            return _ask_helper(helper, name, origin)
    entry = _longest_match(auths, endpoint)
    if entry and (found := _decode(entry, origin)):
        return found
    if store := document.get("credsStore"):
        return next((found for name in endpoint.login if (found := _ask_helper(store, name, origin))), None)
    return None


def _longest_match(auths: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any] | None:
    """The entry for HOST/PATH with the longest PATH that leads to the repository."""
    parts = endpoint.repository.split("/")
    paths = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    hosts = [_normalise(name) for name in endpoint.login]
    wanted = [f"{host}/{path}" for path in paths for host in hosts] + hosts
    # Plain keys last: they go before addresses of the same host.
    keys = sorted((key for key, value in auths.items() if isinstance(value, dict)), key=lambda key: "://" not in key)
    normalised = {_normalise(key): auths[key] for key in keys}
    return next((normalised[name] for name in wanted if name in normalised), None)


def _normalise(key: str) -> str:
    """Docker's keys may be addresses: `https://HOST/v1/` means HOST, and so does `HOST/v1/`.

    Any other path is a namespace; beside its own key Docker has some for tokens (`https://HOST/v1/refresh-token`).
    """
    bare = key.removeprefix("https://").removeprefix("http://")
    host, _, path = bare.partition("/")
    is_address = bare != key or key.endswith("/")
    return host if is_address and path.rstrip("/") in ("", "v1", "v2") else bare.rstrip("/")


def _decode(entry: Mapping[str, Any], origin: str) -> Credentials | None:
    username, password = _text(entry, "username"), _text(entry, "password")
    if auth := entry.get("auth"):
        try:
            username, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
        except (ValueError, TypeError, binascii.Error):
            raise SourceError(f"{origin}: an `auth` entry is not base64 of USER:PASSWORD") from None
    identity, token = _text(entry, "identitytoken"), _text(entry, "registrytoken")
    if not (username or identity or token):
        return None
    # Docker pads the password with NULs in files that very old versions wrote.
    return Credentials(username, password.rstrip("\0"), identity, token, origin)


def _ask_helper(helper: Any, server: str, origin: str) -> Credentials | None:
    """`docker-credential-HELPER get`: the server's name on standard input, a JSON object back."""
    if not isinstance(helper, str) or not _HELPER_NAME.fullmatch(helper):
        raise SourceError(f"{origin}: {str(helper)[:80]!r} is not the name of a credential helper")
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run([program, "get"], input=server.encode(), capture_output=True, timeout=_HELPER_SECONDS)
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except FileNotFoundError:
        raise SourceError(f"{origin} names the credential helper {program}, which is not installed") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"{program} did not answer within {_HELPER_SECONDS} s") from None
    except (OSError, ValueError):
        raise SourceError(f"{program} gave no usable answer for {server}") from None
    if answer is None:
        if b"not found" in done.stdout + done.stderr:
            return None
        raise SourceError(f"{program} failed for {server} (exit status {done.returncode})")
    if not isinstance(answer, dict) or not answer.get("Secret"):
        return None
    username, secret = str(answer.get("Username") or ""), str(answer["Secret"])
    if username == _IDENTITY_USER:
        return Credentials(identity_token=secret, origin=program)
    return Credentials(username, secret, origin=program)


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}
