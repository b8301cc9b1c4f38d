"""Connections that wait for an answer's headers as a whole, not for each byte of them.

A socket's time limit begins anew with every byte, so a server that sends one now and then could hold a reader for
days. What comes after the headers is watched by sources.pace.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import PoolManager

from imgcheck.threads import start

_CONNECTIONS = 16
"""Kept open at once: more than the threads that read layers."""
_GRACE = 0.25
"""Seconds on top, so that of a server that sends nothing at all the socket's own time limit tells."""


class SlowHeadersError(OSError):
    """The headers of an answer, or a proxy's answer, took longer than the connection's time limit."""


class _Patient:
    """What both kinds of connection do more than urllib3's."""

    sock: Any
    timeout: Any

    def _tunnel(self) -> None:
        # A proxy that is asked for a tunnel answers with headers too.
        with self._limited():
            super()._tunnel()  # type: ignore[misc]

    def getresponse(self) -> Any:
        with self._limited():
            return super().getresponse()  # type: ignore[misc]

    @contextmanager
    def _limited(self) -> Iterator[None]:
        if not isinstance(self.timeout, int | float):
            yield
            return
        late = threading.Event()
        timer = threading.Timer(self.timeout + _GRACE, self._give_up, (late,))
        timer.daemon = True
        start(timer)
        try:
            yield
        except Exception as error:
            if late.is_set():
                raise SlowHeadersError from error
            raise
        finally:
            timer.cancel()
        # Headers that break off look like headers that end (http.client reads up to an empty line or the end).
        if late.is_set():
            raise SlowHeadersError

    def _give_up(self, late: threading.Event) -> None:
        late.set()
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


class _Connection(_Patient, HTTPConnection):
    pass


class _TlsConnection(_Patient, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}


class PatientAdapter(HTTPAdapter):
    """A transport of requests whose connections are such."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=_CONNECTIONS)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self._teach(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        self._teach(manager)
        return manager

    @staticmethod
    def _teach(manager: PoolManager) -> None:
        manager.pool_classes_by_scheme = _POOLS
