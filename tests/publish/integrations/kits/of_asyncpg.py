"""asyncpg's connections, and those that its pool lends."""

from typing import Any

import asyncpg

from kits.kit import Kit, parts
from kits.of_psycopg import AsyncPsycopg


async def connect_asyncpg(dsn: str, **more: Any) -> Any:
    return await asyncpg.connect(**parts(dsn), **more)


class Asyncpg(Kit):
    name = "asyncpg"
    is_async = True
    scoped = True
    knows_failed = False

    async def open(self) -> None:
        self.conn = await connect_asyncpg(self.dsn)
        self.closing.push_async_callback(self.conn.close)

    transaction = AsyncPsycopg.transaction
    reported = AsyncPsycopg.reported
    savepoint = AsyncPsycopg.savepoint
    outside = AsyncPsycopg.outside

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await tx.fetch(statement)]

    def state(self, tx: Any) -> Any:
        return tx.is_in_transaction(), tx.get_settings().application_name


class AsyncpgPool(Asyncpg):
    name = "asyncpg-pool"

    async def open(self) -> None:
        lent = await asyncpg.create_pool(**parts(self.dsn), min_size=1, max_size=1)
        self.conn = await (await self.closing.enter_async_context(lent)).acquire()
        self.closing.push_async_callback(lent.release, self.conn)
