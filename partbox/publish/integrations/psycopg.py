"""psycopg 3: cursors of its own, pipelines, and an end that only `outbox.transaction(conn)` reports."""

from collections.abc import Hashable
from typing import Any, TypeGuard, TypeVar

from psycopg import AsyncConnection, Connection

from partbox.db.type_conversion import AsyncOwnCursor, OwnCursor
from partbox.publish import integrations, steps, transaction, transaction_outcome
from partbox.publish.adapter import BOTH, Adapter, AsyncAdapter, Library
from partbox.publish.bell import place_of
from partbox.publish.steps import Steps

T = TypeVar("T")


class _Psycopg(Library):
    untold = "open it with `with outbox.transaction(conn):`"

    def __init__(self, conn: Any) -> None:
        self.conn = conn
        self.copies = not transaction.is_pipelined(conn)
        self._ending = transaction_outcome.of(conn)
        self.tells = () if self._ending is None else BOTH

    def end_reporter(self) -> transaction_outcome.EndReporter:
        assert self._ending is not None
        return self._ending

    def database(self) -> Hashable:
        return place_of(self.conn)


class PsycopgAdapter(_Psycopg, Adapter):
    conn: Connection[Any]

    def require_transaction(self) -> None:
        transaction.settle(self.conn)
        transaction.check(self.conn)

    def run(self, steps_: Steps[T]) -> T:
        with OwnCursor(self.conn) as cursor:
            return steps.run(steps_, cursor)


class AsyncPsycopgAdapter(_Psycopg, AsyncAdapter):
    conn: AsyncConnection[Any]

    async def require_transaction(self) -> None:
        await transaction.settle_async(self.conn)
        transaction.check(self.conn)

    async def run(self, steps_: Steps[T]) -> T:
        async with AsyncOwnCursor(self.conn) as cursor:
            return await steps.run_async(steps_, cursor)


def is_psycopg(conn: Any) -> TypeGuard[Connection[Any]]:
    """True if it is published on as a connection of psycopg."""
    return integrations.adapter_of(conn) is PsycopgAdapter


def is_async_psycopg(conn: Any) -> TypeGuard[AsyncConnection[Any]]:
    """True if it is published on as an asynchronous connection of psycopg."""
    return integrations.adapter_of(conn) is AsyncPsycopgAdapter


_POOL = "take a connection, `with pool.connection() as conn:`, and pass that"
_ASYNC_POOL = "take a connection, `async with pool.connection() as conn:`, and pass that"
_CURSOR = "pass its connection, `cursor.connection`"

KINDS = {
    "Connection": PsycopgAdapter,
    "AsyncConnection": AsyncPsycopgAdapter,
    "BaseCursor": _CURSOR,
    "ConnectionPool": _POOL,
    "AsyncConnectionPool": _ASYNC_POOL,
}
