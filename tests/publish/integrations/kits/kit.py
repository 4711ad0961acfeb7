"""The face of every pair, and how they are opened."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

from psycopg.conninfo import conninfo_to_dict

from partbox import Event, Outbox


def parts(dsn: str) -> dict[str, Any]:
    """The DSN as asyncpg and Django want it."""
    found = conninfo_to_dict(dsn)
    return {"host": found["host"], "port": int(found.get("port", 5432)), "user": found.get("user"),
            "password": found.get("password"), "database": found["dbname"]}  # fmt: skip


class Kit:
    """One pair. `tells`: the hooks after the end that it can call. `scoped`: inside outbox.transaction(conn) alone."""

    name: ClassVar[str]
    is_async: ClassVar[bool] = False
    tells: ClassVar[tuple[str, ...]] = ("after_commit", "after_rollback")
    scoped: ClassVar[bool] = False
    knows_failed: ClassVar[bool] = True

    def __init__(self, dsn: str, outbox: Outbox) -> None:
        self.dsn = dsn
        self.outbox = outbox
        self.closing = AsyncExitStack()

    async def open(self) -> None:
        """Connect."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction as the library makes it; yields what is published on."""
        raise NotImplementedError

    def reported(self) -> AbstractAsyncContextManager[Any]:
        """One whose end is reported."""
        return self.transaction()

    def savepoint(self, tx: Any) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    def outside(self) -> AbstractAsyncContextManager[Any]:
        """Yields what is in no transaction."""
        raise NotImplementedError

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def state(self, tx: Any) -> Any:
        """What publishing must not change."""

    async def publish(self, tx: Any, *args: Any, **fields: Any) -> Any:
        if self.is_async:
            return await self.outbox.publish_async(tx, *args, **fields)
        return self.outbox.publish(tx, *args, **fields)

    async def publish_many(self, tx: Any, events: Iterable[Event]) -> Any:
        if self.is_async:
            return await self.outbox.publish_many_async(tx, events)
        return self.outbox.publish_many(tx, events)

    async def publish_wrongly(self, tx: Any, event: Event) -> Any:
        """By the calls of the other kind."""
        if self.is_async:
            return self.outbox.publish(tx, event)
        return await self.outbox.publish_async(tx, event)


@asynccontextmanager
async def opened(kind: type[Kit], dsn: str, outbox: Outbox) -> AsyncIterator[Kit]:
    kit = kind(dsn, outbox)
    async with kit.closing:
        await kit.open()
        yield kit
