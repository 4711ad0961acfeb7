"""psycopg's connections, and those that its pools lend."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import psycopg_pool
from psycopg.rows import dict_row

from kits.kit import Kit


class Psycopg(Kit):
    name = "psycopg"
    scoped = True

    async def open(self) -> None:
        self.conn = self.closing.enter_context(psycopg.connect(self.dsn, autocommit=True, row_factory=dict_row))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        with self.conn.transaction():
            yield self.conn

    @asynccontextmanager
    async def reported(self) -> AsyncIterator[Any]:
        with self.outbox.transaction(self.conn) as tx:
            yield tx

    @asynccontextmanager
    async def savepoint(self, tx: Any) -> AsyncIterator[Any]:
        with tx.transaction():
            yield tx

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        yield self.conn

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        cursor = tx.execute(statement)
        return [tuple(row.values()) for row in cursor.fetchall()] if cursor.description else []

    def state(self, tx: Any) -> Any:
        return tx.row_factory, tx.autocommit, tx.prepare_threshold, tx.info.transaction_status


class PsycopgPool(Psycopg):
    name = "psycopg-pool"

    async def open(self) -> None:
        kwargs = {"autocommit": True, "row_factory": dict_row}
        lent = psycopg_pool.ConnectionPool(self.dsn, min_size=1, max_size=1, kwargs=kwargs, open=False)
        self.conn = self.closing.enter_context(self.closing.enter_context(lent).connection())


class AsyncPsycopg(Kit):
    name = "psycopg-async"
    is_async = True
    scoped = True

    async def open(self) -> None:
        connecting = psycopg.AsyncConnection.connect(self.dsn, autocommit=True, row_factory=dict_row)
        self.conn = await self.closing.enter_async_context(await connecting)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self.conn.transaction():
            yield self.conn

    @asynccontextmanager
    async def reported(self) -> AsyncIterator[Any]:
        async with self.outbox.transaction(self.conn) as tx:
            yield tx

    @asynccontextmanager
    async def savepoint(self, tx: Any) -> AsyncIterator[Any]:
        async with tx.transaction():
            yield tx

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        yield self.conn

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        cursor = await tx.execute(statement)
        return [tuple(row.values()) for row in await cursor.fetchall()] if cursor.description else []

    state = Psycopg.state


class AsyncPsycopgPool(AsyncPsycopg):
    name = "psycopg-async-pool"

    async def open(self) -> None:
        kwargs = {"autocommit": True, "row_factory": dict_row}
        lent = psycopg_pool.AsyncConnectionPool(self.dsn, min_size=1, max_size=1, kwargs=kwargs, open=False)
        self.conn = await self.closing.enter_async_context((await self.closing.enter_async_context(lent)).connection())
