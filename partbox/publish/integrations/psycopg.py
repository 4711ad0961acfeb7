"""The adapters of psycopg 3. Only `outbox.transaction(conn)` reports the end of their transactions."""

from collections.abc import Hashable
from typing import Any, TypeGuard, TypeVar

from psycopg import AsyncConnection, Connection

from partbox.db.type_conversion import AsyncOwnCursor, OwnCursor
from partbox.publish import integrations, transaction
from partbox.publish.adapter import Adapter, AsyncAdapter, NonReportingAdapter
from partbox.publish.bell import database_key_of
from partbox.publish.steps import Steps, run_steps, run_steps_async

T = TypeVar("T")


class _Psycopg(NonReportingAdapter):
    untold = "open it with `with outbox.transaction(conn):`"

    def __init__(self, conn: Any) -> None:
        super().__init__(conn)
        self.copies = not transaction.is_pipelined(conn)

    def database(self) -> Hashable:
        return database_key_of(self.conn)


class PsycopgAdapter(_Psycopg, Adapter):
    conn: Connection[Any]

    def require_transaction(self) -> None:
        transaction.refresh_status(self.conn)
        transaction.check_open(self.conn)

    def run(self, steps: Steps[T]) -> T:
        with OwnCursor(self.conn) as cursor:
            return run_steps(steps, lambda step: step.run(cursor))


class AsyncPsycopgAdapter(_Psycopg, AsyncAdapter):
    conn: AsyncConnection[Any]

    async def require_transaction(self) -> None:
        await transaction.refresh_status_async(self.conn)
        transaction.check_open(self.conn)

    async def run(self, steps: Steps[T]) -> T:
        async with AsyncOwnCursor(self.conn) as cursor:
            return await run_steps_async(steps, lambda step: step.run_async(cursor))


def is_psycopg(conn: Any) -> TypeGuard[Connection[Any]]:
    """Return True if the connection is a synchronous psycopg connection."""
    return integrations.adapter_class_of(conn) is PsycopgAdapter


def is_async_psycopg(conn: Any) -> TypeGuard[AsyncConnection[Any]]:
    """Return True if the connection is an asynchronous psycopg connection."""
    return integrations.adapter_class_of(conn) is AsyncPsycopgAdapter


_POOL = "take a connection, `with pool.connection() as conn:`, and pass that"

KINDS = {
    "Connection": PsycopgAdapter,
    "AsyncConnection": AsyncPsycopgAdapter,
    "BaseCursor": "pass its connection, `cursor.connection`",
    "ConnectionPool": _POOL,
    "AsyncConnectionPool": _POOL.replace("with", "async with"),
}
