"""Tells a body that is coming from one that only seems to, so that no server keeps a reader waiting for ever."""

import time

import requests

SLOWEST = 1024
"""Bytes a second below which a transfer is given up like a broken one: a byte now and then would hang for ever."""


class Pace:
    """Reads bodies, and tells one that is coming from one that only seems to."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._waited = 0.0
        self._got = 0

    def read(self, response: requests.Response, size: int, decode: bool = False) -> bytes:
        """Up to `size` of the next bytes, as soon as some are there; one of BROKEN where they come too slowly."""
        started = time.monotonic()
        data = response.raw.read1(size, decode_content=decode)
        self._waited += time.monotonic() - started
        self._got += len(data)
        # Our own pauses between reads do not count.
        if self._waited > self._timeout:
            if self._got < SLOWEST * self._waited:
                raise SlowError
            self._waited, self._got = 0.0, 0
        return data

    def read_all(self, response: requests.Response, limit: int, decode: bool = True) -> bytes:
        """The whole body, or the first `limit` bytes of a longer one."""
        pieces = bytearray()
        while len(pieces) < limit and (piece := self.read(response, limit - len(pieces), decode)):
            pieces += piece
        return bytes(pieces)


class SlowError(OSError):
    """A body came more slowly than can be waited for."""
