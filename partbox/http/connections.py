"""Limits on the connections of the HTTP server: their number, and how long one may be silent. Needs `partbox[http]`.

uvicorn limits neither, and a client that opens connections and sends nothing would take all the file descriptors of a
node, which then could start no process.
"""

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST: Final = 200  # connections
FIRST: Final = 10.0  # seconds for the head of a request


class Connection(H11Protocol):
    """Closed unless a request arrives within `FIRST` seconds.

    Beyond `MOST` connections, streams included, it replaces the one that has been silent longest, or is dropped itself
    if all are busy.
    """

    _waiting: asyncio.TimerHandle | None = None
    _heard_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._heard_at = self.loop.time()
        if len(self.connections) > MOST and not self._displace():
            self.transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)
        if not self._idle:
            self._forget()
        elif self._waiting is None:
            self._wait()

    def _displace(self) -> bool:
        """Drop the idle connection that has been silent longest; False if there is none."""
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self and each._idle]
        if not others:
            return False
        silent = min(others, key=lambda each: each._heard_at)
        silent._forget()
        silent.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

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
