"""Asks a server again that is busy, or to which the connection breaks, with patience that has limits."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import requests
from urllib3.exceptions import HTTPError, NameResolutionError

from imgcheck.errors import SourceError
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.pace import SLOWEST, SlowError
from imgcheck.sources.patience import SlowHeadersError

PASSING = (429, 500, 502, 503, 504)
"""Statuses of a server that may do better in a while."""
_LONGEST_WAIT = 120.0
"""Seconds that a Retry-After may ask for; more is told to the user instead of waited."""

E = TypeVar("E", bound=BaseException)

BROKEN = (requests.RequestException, HTTPError, OSError)
"""What requests and urllib3 raise where a connection breaks, also while a body is read."""


class Attempts:
    """Requests to one server, each made as often as the options allow. Safe for several threads."""

    def __init__(self, server: str, options: SourceOptions) -> None:
        """`server` is what messages call it."""
        self._server = server
        self._options = options
        self._reached = False

    def ask(self, once: Callable[[], requests.Response]) -> requests.Response:
        """The answer of `once`, called again where it breaks or the status is one of PASSING; the last one as it is.

        Raises one of BROKEN where the last call breaks, or one after which trying again is pointless.
        """
        for attempt in range(self._options.attempts):
            last = attempt + 1 == self._options.attempts
            try:
                response = once()
            except BROKEN as error:
                if last or _is_final(error, self._reached):
                    raise
                self.pause(attempt)
                continue
            self._reached = True
            if last or response.status_code not in PASSING:
                return response
            response.close()
            self.pause(attempt, response.headers.get("Retry-After", ""))
        raise SourceError(f"{self._server}: no attempt was allowed")

    def pause(self, attempt: int, retry_after: str = "") -> None:
        """Wait before the next attempt: as long as the server asks, else longer each time."""
        asked = _seconds(retry_after)
        if asked is not None and asked > _LONGEST_WAIT:
            raise SourceError(
                f"{self._server}: asks to wait {asked:.0f} s (rate limit)", hint="try again then, or log in"
            )
        time.sleep(self._options.backoff * 2**attempt if asked is None else asked)


def explain(error: BaseException, timeout: float) -> str:
    """What broke, in words. The exceptions' own texts are not used: they hold URLs, and so may hold secrets."""
    if isinstance(error, SlowError):
        return f"sent less than {SLOWEST} bytes a second for {timeout:g} s"
    if inner(error, SlowHeadersError):
        return f"did not finish the headers of its answer within {timeout:g} s"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy cannot be used (see the *_proxy environment variables)"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return f"no connection within {timeout:g} s"
    if isinstance(error, requests.exceptions.Timeout) or "timed out" in str(error).lower():
        return f"sent nothing for {timeout:g} s"
    if inner(error, NameResolutionError):
        return "the host name cannot be resolved"
    if "Connection refused" in str(error):
        return "connection refused"
    return "the connection broke"


def _is_final(error: BaseException, reached: bool) -> bool:
    """Whether trying again is pointless: an untrusted certificate, no such name, nobody there from the start."""
    if isinstance(error, requests.exceptions.SSLError) or inner(error, NameResolutionError):
        return True
    return not reached and "Connection refused" in str(error)


def inner(error: object, kind: type[E]) -> E | None:
    """The one of `kind` that `error` is, or was made from: requests and urllib3 wrap what they meet."""
    if isinstance(error, kind):
        return error
    if not isinstance(error, BaseException):
        return None
    causes = (*error.args, getattr(error, "reason", None))
    return next(filter(None, (inner(cause, kind) for cause in causes)), None)


def _seconds(retry_after: str) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date (RFC 9110 section 10.2.3)."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
