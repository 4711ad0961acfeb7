"""Limits on the connections of the HTTP server: their number, and how long one may be silent. Needs `partbox[http]`.

uvicorn limits neither. A client that opens connections and sends nothing would take all the file descriptors of a node,
which then could start no process; one that sends requests and reads no answers would shut out the probes.

A connection is seen from both of its ends, the transport and the ASGI application; between the two is uvicorn's
protocol, of which nothing is known but that it is an `asyncio.Protocol`.
"""

import asyncio
from typing import Any, Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS: Final = 200  # connections
REQUEST_TIMEOUT: Final = 10.0  # seconds for the head of a request, and without headway of its body or of an answer
CHECKS: Final = 4  # in that time
NEVER_EVICTED: Final = (3, 0.0)


class ConnectionLimits:
    """The connections of one server, and the most there may be of them.

    Beyond `MAX_CONNECTIONS`, streams included, a new one replaces another: the idle one that has been silent longest,
    else the oldest whose client is slow to read its answer or to send its body, else the oldest that has no answer yet.
    Without any it is dropped itself.
    """

    def __init__(self) -> None:
        self._by_client: dict[tuple[str, int], Connection] = {}  # their clients

    def make_connection(self, **given: Any) -> "Connection":
        """Make a connection of what uvicorn gives its own."""
        return Connection(self, H11Protocol(**given))

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application for a request, and know meanwhile of which connection."""
        connection = self._by_client.get(tuple(scope["client"] or ()))
        await (app(scope, receive, send) if connection is None else connection.answer(app, scope, receive, send))

    def admit(self, connection: "Connection") -> bool:
        """False if there is no room: only streams that their clients read."""
        if len(self._by_client) >= MAX_CONNECTIONS:
            found = min(self._by_client.values(), key=lambda each: each.eviction_rank)
            if found.eviction_rank >= NEVER_EVICTED:
                return False
            found.transport.abort()
            self.forget(found)  # it is lost in the next turn of the loop, and others may come before
        self._by_client[connection.client] = connection
        return True

    def forget(self, connection: "Connection") -> None:
        if self._by_client.get(connection.client) is connection:
            del self._by_client[connection.client]


class Exchange:
    """A request and its answer, seen in the two calls by which the application hears and says them."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.started = False
        """The answer has begun."""
        self.lacks_body = False
        """The application waits for more of the body."""
        self._has_body = False
        self._receive, self._send = receive, send

    async def receive(self) -> Message:
        self.lacks_body = not self._has_body
        try:
            message = await self._receive()
        finally:
            self.lacks_body = False
        self._has_body = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        self.started = True
        await self._send(message)


class Connection(asyncio.Protocol):
    """Closed unless a request arrives within `REQUEST_TIMEOUT` seconds, or when neither its body nor the answer makes
    headway."""

    transport: asyncio.Transport
    client: tuple[str, int]
    _request: Exchange | None = None
    _request_timer: asyncio.TimerHandle | None = None
    _progress_timer: asyncio.TimerHandle | None = None
    _unread = 0  # bytes that were written and not taken by the client

    def __init__(self, limits: ConnectionLimits, protocol: asyncio.Protocol) -> None:
        self._limits = limits
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._made_at = self._received_at = self._progress_at = self._loop.time()
        for unchanged in ("eof_received", "pause_writing", "resume_writing"):
            setattr(self, unchanged, getattr(protocol, unchanged))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.client = (transport.get_extra_info("peername") or ("gone", id(self)))[:2]
        self._protocol.connection_made(transport)
        if self._limits.admit(self):
            self._start_timer()
            self._check_progress()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        self._protocol.data_received(data)
        if self._request is None and self._request_timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.forget(self)
        self._cancel_timer()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        self._protocol.connection_lost(exc)

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._request = Exchange(receive, send)
        self._cancel_timer()
        try:
            await app(scope, request.receive, request.send)
        finally:
            if self._request is request:  # the next one may have begun: once this is answered, not once it ends
                self._request = None

    @property
    def eviction_rank(self) -> tuple[int, float]:
        """The least is displaced first; from `NEVER_EVICTED` on none is."""
        if self._request is None:
            return 0, self._received_at
        if self._request.lacks_body or self.transport.get_write_buffer_size():  # the rest waits for the client
            return 1, self._made_at
        return 3 if self._request.started else 2, self._made_at

    def _start_timer(self) -> None:
        self._request_timer = self._loop.call_later(REQUEST_TIMEOUT, self._close_idle)

    def _cancel_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _close_idle(self) -> None:
        self._request_timer = None
        if self._request is None:
            self.transport.close()

    def _check_progress(self) -> None:
        """End it if what is under way stands still, also while it closes: that waits for the last byte to be read."""
        now, unread = self._loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._progress_at = now
        self._unread = unread
        lacks_body = self._request is not None and self._request.lacks_body
        if now - self._progress_at >= REQUEST_TIMEOUT or (lacks_body and now - self._received_at >= REQUEST_TIMEOUT):
            self.transport.abort()
        else:
            self._progress_timer = self._loop.call_later(REQUEST_TIMEOUT / CHECKS, self._check_progress)
