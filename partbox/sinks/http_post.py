"""One POST by the standard library, in a bounded time and memory, whatever the other side answers.

The timeout of a socket begins anew with each byte that comes. So the connection is cut when the time of the whole is
over. The body of the answer is not read. A redirection is not followed: the POST would become a GET of another page.
"""

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
    """Return when the other side has answered 2xx; OSError or HTTPException for any other answer, and for none."""
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
    """A connection with a second handle of its socket: TLS takes the first one away."""

    handle: socket.socket | None = None
    is_cut: Event

    def connect(self) -> None:
        super().connect()
        self.handle = self.sock.dup()
        if self.is_cut.is_set():  # before there was a handle
            raise TimeoutError


class _TlsConnection(HTTPSConnection, _PlainConnection):
    """The same with TLS, which begins once `_PlainConnection` is connected."""


class _Connections(HTTPHandler, HTTPSHandler, HTTPRedirectHandler):
    """The connections of one request, which may go by way of a proxy."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = Event()
        self._made: list[_PlainConnection] = []

    def http_open(self, request: Request) -> Any:
        return self.do_open(partial(self._make, _PlainConnection), request)

    def https_open(self, request: Request) -> Any:
        return self.do_open(partial(self._make, _TlsConnection), request)

    def redirect_request(self, *_: Any) -> None:
        return None

    def cut(self) -> None:
        """End what the request waits for. Any thread."""
        self.is_cut.set()
        for handle in self._handles():
            with suppress(OSError):  # it has ended by itself
                handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for handle in self._handles():
            handle.close()

    def _make(self, kind: type[_PlainConnection], host: str, **options: Any) -> _PlainConnection:
        made = kind(host, **options)
        made.is_cut = self.is_cut
        self._made.append(made)
        return made

    def _handles(self) -> list[socket.socket]:
        return [each.handle for each in self._made if each.handle is not None]
