"""The adapter of asyncpg connections, including connections that a pool lends. asyncpg reports neither the outcome of a
transaction nor that it has failed. In a failed transaction, PostgreSQL refuses the next statement."""

from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from partbox.errors import PublishError
from partbox.publish.adapter import AsyncAdapter, NonReportingAdapter, Parameters
from partbox.publish.steps import Copy, Row
from partbox.publish.values import numbered


class AsyncpgAdapter(NonReportingAdapter, AsyncAdapter):
    copies = True
    remedy = "open one with `async with conn.transaction():`, or with `async with outbox.transaction(conn):`"
    untold = "open the transaction with `async with outbox.transaction(conn):`"

    def database(self) -> Hashable:
        # The process id of the server session stands for the database, which asyncpg does not tell.
        return "asyncpg", self.conn.get_server_pid()

    async def in_transaction(self) -> bool:
        if self.conn.is_closed():
            raise PublishError("the connection is closed: open another")
        return bool(self.conn.is_in_transaction())

    async def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        text, names = numbered(statement)
        return await self.conn.fetch(text, *(parameters[name] for name in names))  # type: ignore[no-any-return]

    async def copy(self, step: Copy) -> int:
        return await copy_rows(self.conn, step)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self.conn.transaction()  # type: ignore[no-any-return]


async def copy_rows(conn: Any, step: Copy) -> int:
    """Write rows by COPY on an asyncpg connection, and return the number of written rows."""
    # The text format is used, because the application's own codecs would take part in the binary format.

    async def source() -> AsyncIterator[bytes]:
        for piece in step.lines():
            yield piece.encode()

    to = {"schema_name": step.schema, "columns": step.columns, "format": "text"}
    status = await conn.copy_to_table(step.table, source=source(), **to)
    return int(status.removeprefix("COPY "))


KINDS = {
    "Connection": AsyncpgAdapter,
    "PoolConnectionProxy": AsyncpgAdapter,
    "Pool": "take a connection, `async with pool.acquire() as conn, conn.transaction():`, and pass that",
}
