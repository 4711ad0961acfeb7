"""Drains of one outbox, one after the other, on connections that are kept between them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from partbox.db.connect import connect
from partbox.db.deadline import WatchedConnection
from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox.testing.drain import Connections, Drain
from partbox.testing.outcomes import Drained
from partbox.testing.sessions import NAME, Sessions


class Drainer:
    """Drains an outbox in the caller's thread, or beside the caller's event loop."""

    def __init__(self, outbox: Outbox, dsn: str, sessions: Sessions | None = None) -> None:
        self._outbox = outbox
        self._dsn = dsn
        self._sessions = sessions or Sessions()
        self._stay = sessions is not None
        self._effects: WatchedConnection | None = None
        self._runner: asyncio.Runner | None = None

    def drain(self, subscription: str) -> Drained:
        """Handlers that are `async def` run in an event loop that is kept until `close`."""
        if _in_a_loop():
            raise PartboxError("drain() would block the event loop that runs here: use `await kit.drain_async()`")
        return self._drain(subscription, self.await_it)

    async def drain_async(self, subscription: str) -> Drained:
        """Drain; `async def` handlers run in the event loop of the caller, others in a thread."""
        loop = asyncio.get_running_loop()

        def await_it(walk: Coroutine[Any, Any, None]) -> None:
            asyncio.run_coroutine_threadsafe(walk, loop).result()

        return await asyncio.to_thread(self._drain, subscription, await_it)

    def await_it(self, walk: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, in that loop."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(walk)

    def connection(self) -> WatchedConnection:
        """The connection of drains, while none runs; in autocommit."""
        return self._sessions.get(self._dsn, self._outbox.settings, "membership")

    def disconnect(self) -> None:
        """Close the connections; the next drain opens others."""
        self._sessions.close()
        self._close_effects()

    def close(self) -> None:
        """Close the event loop, and the connections that are not to stay."""
        self._close_effects()
        if not self._stay:
            self._sessions.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _drain(self, subscription: str, await_it: Callable[[Coroutine[Any, Any, None]], None]) -> Drained:
        outbox = self._outbox
        outbox.handlers.require(subscription, outbox.settings)
        drain = Drain(outbox.settings, outbox.handlers, outbox.codecs, subscription, self._connected, await_it)
        try:
            return drain.run()
        except BaseException:
            self.disconnect()
            raise

    def _connected(self, effects: bool) -> Connections:
        log = self._sessions.get(self._dsn, self._outbox.settings, "log")
        checked = not self._sessions.first_of(log, self._outbox.settings.schema_name)
        return Connections(self.connection(), log, self._lend() if effects else None, checked)

    def _lend(self) -> WatchedConnection:
        """The connection of transactional handlers. It is not kept: they may change its session."""
        if self._effects is None or self._effects.closed:
            settings = self._outbox.settings
            self._effects = connect(self._dsn, lease=settings.lease, pooler=settings.pooler, name=NAME, lent=True)
        return self._effects

    def _close_effects(self) -> None:
        if self._effects is not None:
            self._effects.close()
        self._effects = None


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
