"""An HTTP POST by the standard library, bounded in time and memory, however the other side answers. A timer cuts the
connection when the time for the whole request is over, because a socket's timeout starts again with each byte."""

import socket
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event, Timer
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

SHOWN = 200  # characters of the reason of a refusal


def post(url: str, body: bytes, headers: dict[str, str], timeout: float) -> None:
    """Send an HTTP POST. Raise OSError or HTTPException unless a 2xx answer arrives within `timeout` seconds."""
    # The body of the answer is not read, because it may be of any size.
    connections = _Connections()
    timer = Timer(timeout, connections.cut)
    timer.daemon = True
    timer.start()
    try:
        with build_opener(connections).open(Request(url, body, headers, method="POST"), timeout=timeout):  # noqa: S310
            pass
    except HTTPError as refused:
        refused.close()
        raise ConnectionError(f"HTTP {refused.code} {refused.reason[:SHOWN]}".rstrip()) from None
    except (OSError, HTTPException) as error:
        if connections.is_cut.is_set():
            raise TimeoutError(f"no answer within {timeout:g} s") from error
        raise
    finally:
        timer.cancel()
        connections.close()


class _PlainConnection(HTTPConnection):
    """An HTTP connection that another thread can interrupt.

    It keeps a second handle of its socket for that, because TLS takes the first handle away."""

    handle: socket.socket | None = None
    is_cut: Event

    def connect(self) -> None:
        super().connect()
        self.handle = self.sock.dup()
        # The timer has ended before there was a handle to shut down.
        if self.is_cut.is_set():
            raise TimeoutError


class _TlsConnection(HTTPSConnection, _PlainConnection):
    """An HTTPS connection that another thread can interrupt.

    TLS starts after `_PlainConnection.connect`."""


class _Connections(HTTPHandler, HTTPSHandler, HTTPRedirectHandler):
    """The connections that one HTTP request opens, directly or through a proxy."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = Event()
        self._made_connections: list[_PlainConnection] = []

    def http_open(self, request: Request) -> Any:
        return self.do_open(partial(self._make_connection, _PlainConnection), request)

    def https_open(self, request: Request) -> Any:
        return self.do_open(partial(self._make_connection, _TlsConnection), request)

    def redirect_request(self, *_: Any) -> None:
        # Follow no redirection: the POST would become a GET.
        return None

    def cut(self) -> None:
        """Shut down the connections of a request, so that the waiting thread stops. Any thread may call."""
        self.is_cut.set()
        for handle in self._list_handles():
            # The connection has ended by itself.
            with suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for handle in self._list_handles():
            handle.close()

    def _make_connection(self, kind: type[_PlainConnection], host: str, **options: Any) -> _PlainConnection:
        made = kind(host, **options)
        made.is_cut = self.is_cut
        self._made_connections.append(made)
        return made

    def _list_handles(self) -> list[socket.socket]:
        return [each.handle for each in self._made_connections if each.handle is not None]
