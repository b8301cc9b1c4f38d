"""HTTP as a registry needs it: TLS or not, login, redirects without credentials, patience with limits."""

import os
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from imgcheck import __version__
from imgcheck.errors import SourceError
from imgcheck.sources.attempts import BROKEN, PASSING, Attempts, explain, inner
from imgcheck.sources.blobs import parse_json
from imgcheck.sources.credentials import find_credentials
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.pace import Pace
from imgcheck.sources.patience import PatientAdapter
from imgcheck.sources.registries import Endpoint
from imgcheck.sources.registry_auth import (
    MOST_REDIRECTS,
    TokenServer,
    basic,
    check_realm,
    is_redirect,
    origin_of,
    parse_challenge,
    plain_address,
)

_PROBE_SECONDS = 5.0
_ERROR_LIMIT = 64 << 10
_OWN_CERTS_D = "~/.config/containers/certs.d"
_CERTS_D = (_OWN_CERTS_D, "/etc/containers/certs.d", "/etc/docker/certs.d")
"""Where containers-certs.d(5) keeps a host's authorities and the certificates that it asks for."""
_WANTS_CERTIFICATE = ("ALERT_CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE")
"""What servers end a connection with for want of a client's certificate: the one of TLS 1.3, and Go's before."""
_CERTIFICATE_FAULTS = {
    9: ("is not valid yet", "see whether the clock of this machine is right"),
    10: ("has expired", "have the registry's certificate renewed, or see whether the clock of this machine is right"),
    62: ("does not name this host", "use a name that the certificate has"),
    64: ("does not name this host", "use a name that the certificate has"),
}
"""By OpenSSL's number (X509_V_ERR_*): what is wrong with a certificate other than its authority, and the way out."""
_SIGNS_OF_TLS = ("CERTIFICATE_VERIFY_FAILED", "_ALERT_")
"""In the error of a connection on which the other side spoke TLS, though it did not come about."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class RegistryHttp:
    """Requests to one registry host. Safe for several threads."""

    def __init__(self, endpoint: Endpoint, options: SourceOptions) -> None:
        self.endpoint = endpoint
        self.options = options
        self._session = _session(endpoint, options)
        self.attempts = Attempts(endpoint.host, options)
        self._tokens = TokenServer(self._session, options, endpoint.host)
        self._lock = threading.Lock()
        self._authorization = ""
        self._base = ""

    def close(self) -> None:
        self._session.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        """`send` of a GET."""
        return self.send("GET", path, headers or {})

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> requests.Response:
        """The answer to a request, its body not yet read, whatever its status but those that pass or ask for login.

        `path` begins with a slash, or is a whole URL that the registry gave. Raises SourceError where the host cannot
        be reached, refuses the login, or goes on failing.
        """
        url = self._base_url() + path if path.startswith("/") else path
        logins = renewals = 0
        while True:
            sent = self._authorization
            try:
                response = self.attempts.ask(partial(self._follow, method, url, headers, sent, body))
            except BROKEN as error:
                raise self._unreachable(error) from None
            if response.status_code == 401 and logins < 2 and self._is_at_home(response):
                # One that another thread made may be used up already.
                logins += self._log_in(response, sent)
            elif response.status_code in (401, 403) and not renewals and not self._is_at_home(response):
                # A signed address that ran out: asking the registry again gives a new one.
                renewals += 1
                response.close()
            else:
                return self._checked(response)

    def refuse(self, response: requests.Response, what: str) -> SourceError:
        """The error for an answer that is not what was asked for; `what` names what that was."""
        host, status = self.endpoint.host, response.status_code
        with response:
            said = _error_text(response, self.options.timeout)
        if not self._is_at_home(response):
            return SourceError(
                f"{what}: {urlsplit(response.url).netloc}, to which {host} redirects, answered {status}{said}"
            )
        if status in (401, 403):
            return SourceError(
                f"{what}: access denied by {host} ({status}){said}",
                hint="check the name; log in with podman or docker login, or give --username",
            )
        if status == 404:
            return SourceError(f"{what}: no such image at {host}{said}")
        return SourceError(f"{what}: {host} answered {status}{said}")

    def _checked(self, response: requests.Response) -> requests.Response:
        """`response`, unless it is one that stayed what it was after every attempt."""
        status, count = response.status_code, self.options.attempts
        there = "" if self._is_at_home(response) else f"{urlsplit(response.url).netloc}, to which it redirects, "
        if status == 429:
            raise SourceError(
                f"{self.endpoint.host}: {there}too many requests (429), also after {count} attempts",
                hint="wait, or log in for a higher limit",
            )
        if status in PASSING:
            raise SourceError(f"{self.endpoint.host}: {there}answers {status} after {count} attempts")
        return response

    def _is_at_home(self, response: requests.Response) -> bool:
        """Whether an answer came from the registry itself, not from a store to which it redirects."""
        return origin_of(response.url) == origin_of(self._base_url())

    def _follow(
        self, method: str, url: str, headers: Mapping[str, str], authorization: str, body: bytes
    ) -> requests.Response:
        """Ask `url` through its redirects. Credentials go to the registry's own origin alone (dist-spec: MUST NOT)."""
        home = origin_of(self._base_url())
        for _ in range(MOST_REDIRECTS + 1):
            send = {"Accept-Encoding": "identity", **headers}
            if authorization and origin_of(url) == home:
                send["Authorization"] = authorization
            response = self._session.request(
                method, url, headers=send, data=body, stream=True, allow_redirects=False, timeout=self.options.timeout
            )
            if not is_redirect(response):
                return response
            response.close()
            url = self.location(url, response)
        raise SourceError(f"{self.endpoint.host}: redirects more than {MOST_REDIRECTS} times")

    def location(self, url: str, response: requests.Response) -> str:
        """Where the `Location` of the answer to `url` leads; SourceError where it must not be followed."""
        parts = plain_address(response.headers.get("Location", ""), url)
        if parts is None:
            raise SourceError(f"{self.endpoint.host}: redirects to something that is no http or https address")
        if parts.scheme == "http" and urlsplit(url).scheme == "https":
            raise SourceError(
                f"{self.endpoint.host}: redirects from https to plain http at {parts.hostname}, which is refused"
            )
        return parts.geturl()

    def _log_in(self, response: requests.Response, sent: str) -> bool:
        """Answer the challenge of a 401; False where another thread has done so since `sent` was sent."""
        response.close()
        with self._lock:
            if self._authorization != sent:
                return False
            challenge = parse_challenge(response.headers.get("WWW-Authenticate", ""))
            credentials = find_credentials(self.endpoint, self.options)
            if challenge.scheme == "bearer":
                if credentials and credentials.registry_token:
                    token = credentials.registry_token
                else:
                    check_realm(challenge.realm, self._base)
                    scope = f"repository:{self.endpoint.repository}:pull"
                    token = self._tokens.token(challenge, scope, credentials)
                self._authorization = f"Bearer {token}"
            elif challenge.scheme == "basic" and credentials:
                self._authorization = basic(credentials.username, credentials.password or credentials.identity_token)
                if sent == self._authorization:
                    raise SourceError(
                        f"{self.endpoint.host}: login refused with the credentials from {credentials.origin}"
                    )
            elif challenge.scheme == "basic":
                raise SourceError(
                    f"{self.endpoint.host}: login required (401)",
                    hint="log in with podman or docker login, or give --username and --password-stdin",
                )
            return True

    def _base_url(self) -> str:
        """The URL before `/v2/`, found once: TLS, except where plain HTTP is asked for or the host is this machine."""
        with self._lock:
            if not self._base:
                self._base = f"{self._scheme()}://{self.endpoint.host}"
        return self._base

    def _scheme(self) -> str:
        if self.options.plain_http:
            return "http"
        if not (self.endpoint.is_local or self.endpoint.insecure or self.options.insecure):
            return "https"
        try:
            url = f"https://{self.endpoint.host}/v2/"
            self._session.get(url, timeout=_PROBE_SECONDS, allow_redirects=False, stream=True).close()
        except requests.exceptions.SSLError as error:
            return "https" if any(sign in str(error) for sign in _SIGNS_OF_TLS) else "http"
        except requests.RequestException:
            return "http"
        return "https"

    def _unreachable(self, error: Exception) -> SourceError:
        host, text = self.endpoint.host, str(error)
        if isinstance(error, requests.exceptions.SSLError):
            refused = inner(error, ssl.SSLCertVerificationError)
            if refused:
                untrusted = f"is not trusted ({refused.verify_message})", "give the authority's file with --ca-file"
                what, hint = _CERTIFICATE_FAULTS.get(refused.verify_code, untrusted)
                return SourceError(f"{host}: its TLS certificate {what}", hint)
            if any(sign in text for sign in _WANTS_CERTIFICATE):
                return SourceError(
                    f"{host}: asks for a client certificate, and took none from here",
                    hint=f"put NAME.cert and NAME.key into {_OWN_CERTS_D}/{host}",
                )
            return SourceError(f"{host}: does not speak TLS properly", hint="--plain-http, if it is a plain registry")
        return SourceError(f"{host}: {explain(error, self.options.timeout)}")


class _Session(requests.Session):
    """A session whose `verify = False` holds: REQUESTS_CA_BUNDLE in the environment would turn it on again.

    Redirects are ours to follow, and requests does not look at them: it takes apart where they lead even when it is
    told not to go there, and fails with a bare ValueError where that is no address.
    """

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None

    def merge_environment_settings(self, *arguments: Any, **options: Any) -> Any:
        settings = super().merge_environment_settings(*arguments, **options)
        return settings if self.verify else settings | {"verify": False}


def _session(endpoint: Endpoint, options: SourceOptions) -> requests.Session:
    session = _Session()
    session.headers["User-Agent"] = f"imgcheck/{__version__}"
    # Without this requests would send ~/.netrc logins, also to hosts that a redirect names.
    session.auth = lambda request: request
    insecure = options.insecure or endpoint.insecure
    session.verify = not insecure
    if insecure:
        # The user asked for it; urllib3 would print a warning for every request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    session.mount("https://", _TlsAdapter(_tls_context(endpoint, options, insecure)))
    session.mount("http://", PatientAdapter())
    return session


class _TlsAdapter(PatientAdapter):
    """Connections with our own TLS context."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, ssl_context=self._context, **options)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **options)


def _tls_context(endpoint: Endpoint, options: SourceOptions, insecure: bool) -> ssl.SSLContext:
    """The system's authorities (requests adds its own), the user's file, and what lies under certs.d/HOST:PORT."""
    context = ssl.create_default_context()
    # From Python 3.13 on, this asks for extensions that certificates made by hand lack, and other clients do without.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    places = [Path(os.path.expanduser(place), endpoint.host) for place in _CERTS_D]  # noqa: PTH111 (raises without home)
    authorities = [file for place in places for file in sorted(place.glob("*.crt"))]
    for file in [Path(options.ca_file), *authorities] if options.ca_file else authorities:
        with _read_as(file, "no PEM file of certificate authorities", "name a PEM file with --ca-file"):
            context.load_verify_locations(cafile=str(file))
    # Of each kind of key a context keeps the last one; the user's own directory goes before the others.
    for file in [file for place in reversed(places) for file in sorted(place.glob("*.cert"))]:
        key = file.with_suffix(".key")
        if not key.exists():
            raise SourceError(f"{file}: {key.name} is not beside it", "an authority's file is to end in .crt")
        with _read_as(file, f"no PEM file of a certificate that {key.name} fits"):
            context.load_cert_chain(file, key, password="")  # where it is encrypted, nobody is asked
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _read_as(file: Path, otherwise: str, hint: str = "") -> Iterator[None]:
    """SourceError naming `file` where it cannot be read, or is what `otherwise` says."""
    try:
        yield
    except ssl.SSLError as error:
        raise SourceError(f"{file}: {otherwise} ({error.reason or 'damaged'})") from None
    except OSError as error:
        raise SourceError(f"{file}: {error.strerror}", hint) from None


def _error_text(response: requests.Response, timeout: float) -> str:
    """What the registry says of an error (dist-spec: errors[].message), made safe to print; "" where nothing."""
    try:
        document = parse_json(Pace(timeout).read_all(response, _ERROR_LIMIT), "error")
        message = document["errors"][0]["message"]
    except (SourceError, *BROKEN, LookupError, TypeError):
        return ""
    return ": " + _CONTROL.sub(" ", message)[:200] if isinstance(message, str) and message else ""
