"""Limits on the number of the HTTP server's connections and on their idle time, which uvicorn does not limit. Without
limits, a silent client could use up all file descriptors of a node. Needs `partbox[http]`."""

import asyncio
from typing import Any, Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS: Final = 200
# Seconds for the head of a request, and without progress of its body or of a response.
REQUEST_TIMEOUT: Final = 10.0
# Progress checks within that time.
CHECKS: Final = 4
NEVER_EVICTED: Final = (3, 0.0)


class ConnectionLimits:
    """The open connections of an HTTP server, limited to `MAX_CONNECTIONS`.

    Streams are included."""

    def __init__(self) -> None:
        # By the client's address.
        self._by_client: dict[tuple[str, int], Connection] = {}

    def make_connection(self, **given: Any) -> "Connection":
        # A connection is watched from both ends, the transport and the ASGI application. Between the two is uvicorn's
        # protocol, used only as an `asyncio.Protocol`.
        return Connection(self, H11Protocol(**given))

    async def answer_request(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        # The connection of the request is marked as busy meanwhile.
        connection = self._by_client.get(tuple(scope["client"] or ()))
        await (
            app(scope, receive, send) if connection is None else connection.answer_request(app, scope, receive, send)
        )

    def admit_connection(self, connection: "Connection") -> bool:
        """Add a new connection, and close an old connection if there are too many. Return False if none can be
        closed."""
        # If there are too many connections, the idle one that has been silent longest is closed, else the oldest whose
        # client is slow to read the response or to send the body, else the oldest without a response so far. A client
        # that sends requests and reads no responses can therefore not lock out the probes. There is no room if all
        # connections are streams whose clients read.
        if len(self._by_client) >= MAX_CONNECTIONS:
            found = min(self._by_client.values(), key=lambda each: each.eviction_rank)
            if found.eviction_rank >= NEVER_EVICTED:
                return False
            found.transport.abort()
            # The transport reports the loss only in the loop's next turn, and other connections may come before.
            self.forget_connection(found)
        self._by_client[connection.client] = connection
        return True

    def forget_connection(self, connection: "Connection") -> None:
        if self._by_client.get(connection.client) is connection:
            del self._by_client[connection.client]


class Exchange:
    """An HTTP request and its response while the application handles them.

    `lacks_body` is True while the application waits for more of the body."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.is_started = False
        self.lacks_body = False
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
        self.is_started = True
        await self._send(message)


class Connection(asyncio.Protocol):
    """An HTTP connection that closes after `REQUEST_TIMEOUT` seconds without a request or without any progress."""

    transport: asyncio.Transport
    client: tuple[str, int]
    _request: Exchange | None = None
    _request_timer: asyncio.TimerHandle | None = None
    _progress_timer: asyncio.TimerHandle | None = None
    # Bytes that were written and not read by the client, at the last check.
    _unread = 0

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
        if self._limits.admit_connection(self):
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
        self._limits.forget_connection(self)
        self._cancel_timer()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        self._protocol.connection_lost(exc)

    async def answer_request(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._request = Exchange(receive, send)
        self._cancel_timer()
        try:
            await app(scope, request.receive, request.send)
        finally:
            # The next request may already have begun, since the client may send it as soon as this one is answered.
            if self._request is request:
                self._request = None

    @property
    def eviction_rank(self) -> tuple[int, float]:
        """The order in which connections are closed if there are too many: the lowest rank goes first."""
        # A connection with `NEVER_EVICTED` or more stays open.
        if self._request is None:
            return 0, self._received_at
        # The client holds up the rest.
        if self._request.lacks_body or self.transport.get_write_buffer_size():
            return 1, self._made_at
        return 3 if self._request.is_started else 2, self._made_at

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
        # The connection is aborted if neither the request body nor the response has made progress within
        # `REQUEST_TIMEOUT` seconds. This applies even while the connection closes, because closing waits until the last
        # byte is read.
        now, unread = self._loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._progress_at = now
        self._unread = unread
        lacks_body = self._request is not None and self._request.lacks_body
        if now - self._progress_at >= REQUEST_TIMEOUT or (lacks_body and now - self._received_at >= REQUEST_TIMEOUT):
            self.transport.abort()
        else:
            self._progress_timer = self._loop.call_later(REQUEST_TIMEOUT / CHECKS, self._check_progress)
