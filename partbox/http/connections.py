"""Limits on the connections of the HTTP server: their number, and how long one may be silent. Needs `partbox[http]`.

uvicorn limits neither. A client that opens connections and sends nothing would take all the file descriptors of a node,
which then could start no process; one that sends requests and reads no answers would shut out the probes.
"""

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST: Final = 200  # connections
FIRST: Final = 10.0  # seconds for the head of a request, and without headway of its body or of an answer
LOOKS: Final = 4  # in that time
KEPT: Final = (3, 0.0)


class Connection(H11Protocol):
    """Closed unless a request arrives within `FIRST` seconds, or when neither its body nor the answer makes headway.

    Beyond `MOST` connections, streams included, a new one replaces another: the idle one that has been silent longest,
    else the oldest whose client is slow to read its answer or to send its body, else the oldest that has no answer yet.
    Without any it is dropped itself.
    """

    _waiting: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _made_at = 0.0
    _heard_at = 0.0
    _moved_at = 0.0
    _unread = 0  # bytes that were written and not taken by the client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._made_at = self._heard_at = self._moved_at = self.loop.time()
        if len(self.connections) > MOST and not self._displace():
            self.transport.abort()
        else:
            self._wait()
            self._look()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)
        if not self._idle:
            self._forget()
        elif self._waiting is None:
            self._wait()

    def _displace(self) -> bool:
        """Drop another connection; False if there are only streams that their clients read."""
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        found = min(others, key=lambda each: each._claim, default=None)
        if found is None or found._claim >= KEPT:
            return False
        found.transport.abort()
        self.connections.discard(found)  # it is lost in the next turn of the loop, and others may come before
        return True

    @property
    def _claim(self) -> tuple[int, float]:
        """The least is displaced first; from `KEPT` on none is."""
        if self._idle:
            return 0, self._heard_at
        if self._sends or self.transport.get_write_buffer_size():  # the rest waits for the client
            return 1, self._made_at
        return 3 if self.cycle.response_started else 2, self._made_at

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _sends(self) -> bool:
        return not self._idle and self.cycle.more_body

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(FIRST, self._expire)

    def _forget(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _expire(self) -> None:
        self._waiting = None
        if self._idle:
            self.transport.close()

    def _look(self) -> None:
        """End it if what is under way stands still, also while it closes: that waits for the last byte to be read."""
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._moved_at = now
        self._unread = unread
        if now - self._moved_at >= FIRST or (self._sends and now - self._heard_at >= FIRST):
            self.transport.abort()
        else:
            self._looking = self.loop.call_later(FIRST / LOOKS, self._look)
