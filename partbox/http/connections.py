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

MOST: Final = 200  # connections
FIRST: Final = 10.0  # seconds for the head of a request, and without headway of its body or of an answer
LOOKS: Final = 4  # in that time
KEPT: Final = (3, 0.0)


class ConnectionLimits:
    """The connections of one server, and the most there may be of them.

    Beyond `MOST`, streams included, a new one replaces another: the idle one that has been silent longest, else the
    oldest whose client is slow to read its answer or to send its body, else the oldest that has no answer yet. Without
    any it is dropped itself.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], Connection] = {}  # their clients

    def made(self, **given: Any) -> "Connection":
        """Make a connection of what uvicorn gives its own."""
        return Connection(self, H11Protocol(**given))

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application for a request, and know meanwhile of which connection."""
        link = self._of.get(tuple(scope["client"] or ()))
        await (app(scope, receive, send) if link is None else link.answer(app, scope, receive, send))

    def admit(self, link: "Connection") -> bool:
        """False if there is no room: only streams that their clients read."""
        if len(self._of) >= MOST:
            found = min(self._of.values(), key=lambda each: each.claim)
            if found.claim >= KEPT:
                return False
            found.transport.abort()
            self.forget(found)  # it is lost in the next turn of the loop, and others may come before
        self._of[link.client] = link
        return True

    def forget(self, link: "Connection") -> None:
        if self._of.get(link.client) is link:
            del self._of[link.client]


class Exchange:
    """A request and its answer, seen in the two calls by which the application hears and says them."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.started = False
        """The answer has begun."""
        self.lacks_body = False
        """The application waits for more of the body."""
        self._whole = False
        self._receive, self._send = receive, send

    async def receive(self) -> Message:
        self.lacks_body = not self._whole
        try:
            message = await self._receive()
        finally:
            self.lacks_body = False
        self._whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        self.started = True
        await self._send(message)


class Connection(asyncio.Protocol):
    """Closed unless a request arrives within `FIRST` seconds, or when neither its body nor the answer makes headway."""

    transport: asyncio.Transport
    client: tuple[str, int]
    _request: Exchange | None = None
    _waiting: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _unread = 0  # bytes that were written and not taken by the client

    def __init__(self, all: ConnectionLimits, within: asyncio.Protocol) -> None:
        self._all = all
        self._within = within
        self._loop = asyncio.get_running_loop()
        self._made_at = self._heard_at = self._moved_at = self._loop.time()
        for unchanged in ("eof_received", "pause_writing", "resume_writing"):
            setattr(self, unchanged, getattr(within, unchanged))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.client = (transport.get_extra_info("peername") or ("gone", id(self)))[:2]
        self._within.connection_made(transport)
        if self._all.admit(self):
            self._wait()
            self._look()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._within.data_received(data)
        if self._request is None and self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.forget(self)
        self._forget()
        if self._looking is not None:
            self._looking.cancel()
        self._within.connection_lost(exc)

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._request = Exchange(receive, send)
        self._forget()
        try:
            await app(scope, request.receive, request.send)
        finally:
            if self._request is request:  # the next one may have begun: once this is answered, not once it ends
                self._request = None

    @property
    def claim(self) -> tuple[int, float]:
        """The least is displaced first; from `KEPT` on none is."""
        if self._request is None:
            return 0, self._heard_at
        if self._request.lacks_body or self.transport.get_write_buffer_size():  # the rest waits for the client
            return 1, self._made_at
        return 3 if self._request.started else 2, self._made_at

    def _wait(self) -> None:
        self._waiting = self._loop.call_later(FIRST, self._expire)

    def _forget(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _expire(self) -> None:
        self._waiting = None
        if self._request is None:
            self.transport.close()

    def _look(self) -> None:
        """End it if what is under way stands still, also while it closes: that waits for the last byte to be read."""
        now, unread = self._loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._moved_at = now
        self._unread = unread
        lacks_body = self._request is not None and self._request.lacks_body
        if now - self._moved_at >= FIRST or (lacks_body and now - self._heard_at >= FIRST):
            self.transport.abort()
        else:
            self._looking = self._loop.call_later(FIRST / LOOKS, self._look)
