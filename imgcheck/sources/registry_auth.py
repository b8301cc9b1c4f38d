"""Answers a registry's challenge: Basic, or a Bearer token from its token server.

Formats: RFC 9110 section 11 for challenges; the Distribution project's token.md and oauth.md for tokens.
"""

import base64
import ipaddress
import re
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

import requests

from imgcheck.errors import SourceError
from imgcheck.sources.attempts import BROKEN, Attempts
from imgcheck.sources.blobs import parse_json
from imgcheck.sources.credentials import Credentials
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.pace import Pace

_BEARER = re.compile(r"\bBearer\s+(.*)", re.IGNORECASE | re.DOTALL)
_BASIC = re.compile(r"(?:^|,\s*)Basic\b", re.IGNORECASE)
_PARAMETER = re.compile(r'(?<![A-Za-z])([A-Za-z]++)\s*+=\s*(?:"([^"]*)"|([^\s",]+))')
_REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 5
_ANSWER_LIMIT = 1 << 20
_CLIENT = "imgcheck"


@dataclass(frozen=True)
class Challenge:
    """The `WWW-Authenticate` of a 401 answer, Bearer before Basic where both are offered."""

    scheme: str
    """`bearer`, `basic`, or "" where neither is offered."""
    realm: str = ""
    service: str = ""
    scope: str = ""


def parse_challenge(header: str) -> Challenge:
    if match := _BEARER.search(header):
        found = {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(match[1])}
        return Challenge("bearer", found.get("realm", ""), found.get("service", ""), found.get("scope", ""))
    return Challenge("basic" if _BASIC.search(header) else "")


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def plain_address(url: str, base: str = "") -> SplitResult | None:
    """`url`, which a server has named at `base`, taken apart; None where it is no plain http or https address."""
    try:
        parts = urlsplit(urljoin(base, url))
        plain = parts.scheme in ("http", "https") and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:  # brackets that do not close, a port above 65535
        return None
    return parts if plain else None


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: what credentials for `url` may be sent to."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def is_redirect(response: requests.Response) -> bool:
    return response.status_code in _REDIRECTS and "Location" in response.headers


def check_realm(realm: str, origin: str) -> None:
    """Refuse a token server to which a request must not go.

    The registry at `origin` names it, and it may well be another host (registries and token servers often are). But
    credentials must not leave TLS, and an outside registry must not direct us to services inside this network.
    """
    parts, registry = plain_address(realm), urlsplit(origin)
    if parts is None:
        raise SourceError(f"{registry.netloc}: its token server is refused: not a plain http or https address")
    refused = f"{registry.netloc}: its token server {parts.scheme}://{parts.hostname} is refused: "
    if parts.scheme == "http" and registry.scheme == "https":
        raise SourceError(refused + "it would receive credentials without TLS")
    if (
        parts.hostname != registry.hostname
        and _is_inside(parts.hostname or "")
        and not _is_inside(registry.hostname or "")
    ):
        raise SourceError(refused + "an address inside this network, named by a registry outside")


def _is_inside(host: str) -> bool:
    """Whether `host` is this machine or literally a private address. Names are not resolved."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False


class TokenServer:
    """Fetches bearer tokens, over the session that the registry client uses."""

    def __init__(self, session: requests.Session, options: SourceOptions, host: str) -> None:
        """`host` is the registry."""
        self._session = session
        self._timeout = options.timeout
        self._host = host
        self._attempts = Attempts(f"{host}: its token server", options)

    def token(self, challenge: Challenge, scope: str, credentials: Credentials | None) -> str:
        """A bearer token for `scope` at the registry. Raises SourceError where none is given."""
        fields = {"scope": challenge.scope or scope}
        if challenge.service:
            fields["service"] = challenge.service
        response = self._request(challenge.realm, fields, credentials)
        with response:
            if response.status_code in (401, 403):
                raise _refused(self._host, credentials)
            if response.status_code != 200:
                raise SourceError(f"{self._host}: its token server answered {response.status_code}")
            body = self._body(response)
        document = parse_json(body, f"{self._host}: the answer of its token server")
        token = _first_text(document, "token", "access_token")
        # What else it may be would break the header that it becomes a part of.
        if not token or not token.isascii() or not token.isprintable():
            raise SourceError(f"{self._host}: its token server gave no token")
        return token

    def _body(self, response: requests.Response) -> bytes:
        try:
            return Pace(self._timeout).read_all(response, _ANSWER_LIMIT)
        except BROKEN:
            raise SourceError(f"{self._host}: its token server broke off or came too slowly") from None

    def _request(self, realm: str, fields: dict[str, str], credentials: Credentials | None) -> requests.Response:
        if credentials and credentials.identity_token:
            form = fields | {
                "grant_type": "refresh_token",
                "refresh_token": credentials.identity_token,
                "client_id": _CLIENT,
            }
            response = self._send("POST", realm, data=form)
            # A server without the OAuth 2 form takes the same token as a password (token.md).
            if response.status_code not in (404, 405):
                return response
            response.close()
        headers = {}
        if credentials:
            secret = credentials.password or credentials.identity_token
            headers["Authorization"] = basic(credentials.username, secret)
        joint = "&" if urlsplit(realm).query else "?"
        return self._send("GET", realm + joint + urlencode(fields), headers=headers)

    def _send(self, method: str, url: str, **options: Any) -> requests.Response:
        try:
            return self._attempts.ask(partial(self._follow, method, url, **options))
        except BROKEN:
            # The exception's text holds the URL; nothing of it is shown.
            raise SourceError(f"{self._host}: its token server {urlsplit(url).hostname} cannot be reached") from None

    def _follow(self, method: str, url: str, **options: Any) -> requests.Response:
        """Ask `url` through redirects of its own origin: elsewhere the credentials would be taken along."""
        home = origin_of(url)
        for _ in range(MOST_REDIRECTS):
            response = self._session.request(
                method, url, allow_redirects=False, stream=True, timeout=self._timeout, **options
            )
            target = plain_address(response.headers["Location"], url) if is_redirect(response) else None
            if target is None or origin_of(target.geturl()) != home:
                return response
            response.close()
            url = target.geturl()
        return response


def _refused(host: str, credentials: Credentials | None) -> SourceError:
    if credentials:
        return SourceError(f"{host}: login refused with the credentials from {credentials.origin}")
    return SourceError(
        f"{host}: no anonymous access to this image, or it does not exist",
        hint="check the name; log in with podman or docker login, or give --username",
    )


def _first_text(document: dict[str, Any], *keys: str) -> str:
    return next((value for key in keys if isinstance(value := document.get(key), str) and value), "")
