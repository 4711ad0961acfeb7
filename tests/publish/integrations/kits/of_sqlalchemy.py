"""Sessions and connections of SQLAlchemy, and SQLModel's sessions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import psycopg
import psycopg2
from sqlalchemy import create_engine, pool
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel import Session as SqlModelSession
from sqlmodel.ext.asyncio.session import AsyncSession as SqlModelAsyncSession

from kits.kit import Kit
from kits.of_asyncpg import connect_asyncpg


def engine_of(driver: str, dsn: str, **options: Any) -> Any:
    """An engine of SQLAlchemy with one connection, which a test must give back to take it again."""
    creators = {"psycopg": psycopg.connect, "psycopg2": psycopg2.connect}
    options = {"poolclass": pool.QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": 5} | options
    return create_engine(f"postgresql+{driver}://", creator=lambda: creators[driver](dsn), **options)


def async_engine_of(driver: str, dsn: str, **options: Any) -> Any:
    creators: Any = {"psycopg_async": psycopg.AsyncConnection.connect, "asyncpg": connect_asyncpg}
    options = {"poolclass": pool.AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": 5} | options

    async def create(*_: Any, **__: Any) -> Any:
        return await creators[driver](dsn)

    return create_async_engine(f"postgresql+{driver}://", async_creator=create, **options)


class Sqlalchemy(Kit):
    """A Session over the driver."""

    driver: ClassVar[str]

    async def open(self) -> None:
        self.engine = engine_of(self.driver, self.dsn)
        self.closing.callback(self.engine.dispose)

    def make(self, engine: Any) -> Any:
        return Session(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        made = self.make(self.engine)
        with made if not isinstance(made, scoped_session) else made(), made.begin():
            yield made

    @asynccontextmanager
    async def savepoint(self, tx: Any) -> AsyncIterator[Any]:
        with tx.begin_nested():
            yield tx

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        made = self.make(self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        with made if not isinstance(made, scoped_session) else made():
            yield made

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        result = self.connection(tx).exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []

    def connection(self, tx: Any) -> Any:
        return tx.connection()

    def state(self, tx: Any) -> Any:
        conn = self.connection(tx)
        return conn.get_isolation_level(), conn.in_transaction(), conn.connection.dbapi_connection.autocommit


class PsycopgSession(Sqlalchemy):
    name = "session-psycopg"
    driver = "psycopg"


class Psycopg2Session(Sqlalchemy):
    name = "session-psycopg2"
    driver = "psycopg2"


class ScopedSession(PsycopgSession):
    name = "scoped-session-psycopg"

    def make(self, engine: Any) -> Any:
        registry = scoped_session(sessionmaker(engine))
        self.closing.callback(registry.remove)
        return registry


class SqlModel(Psycopg2Session):
    name = "sqlmodel-psycopg2"

    def make(self, engine: Any) -> Any:
        return SqlModelSession(engine)


class PsycopgCore(PsycopgSession):
    name = "connection-psycopg"

    def make(self, engine: Any) -> Any:
        return engine.connect()

    def connection(self, tx: Any) -> Any:
        return tx


class Psycopg2Core(PsycopgCore):
    name = "connection-psycopg2"
    driver = "psycopg2"


class AsyncSqlalchemy(Kit):
    """An AsyncSession over the driver."""

    is_async = True
    driver: ClassVar[str]

    async def open(self) -> None:
        self.engine = async_engine_of(self.driver, self.dsn)
        self.closing.push_async_callback(self.engine.dispose)

    def make(self, engine: Any) -> Any:
        return AsyncSession(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        made = self.make(self.engine)
        async with made if not isinstance(made, async_scoped_session) else made(), made.begin():
            yield made

    @asynccontextmanager
    async def savepoint(self, tx: Any) -> AsyncIterator[Any]:
        async with tx.begin_nested():
            yield tx

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        made = self.make(self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        async with made if not isinstance(made, async_scoped_session) else made():
            yield made

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        result = await (await self.connection(tx)).exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []

    async def connection(self, tx: Any) -> Any:
        return await tx.connection()

    def state(self, tx: Any) -> Any:
        return tx().in_transaction() if isinstance(tx, async_scoped_session) else tx.in_transaction()


class AsyncpgSession(AsyncSqlalchemy):
    name = "async-session-asyncpg"
    driver = "asyncpg"
    knows_failed = False


class AsyncPsycopgSession(AsyncSqlalchemy):
    name = "async-session-psycopg"
    driver = "psycopg_async"


class AsyncScopedSession(AsyncpgSession):
    name = "async-scoped-session-asyncpg"

    def make(self, engine: Any) -> Any:
        registry = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
        self.closing.push_async_callback(registry.remove)
        return registry


class AsyncSqlModel(AsyncpgSession):
    name = "async-sqlmodel-asyncpg"

    def make(self, engine: Any) -> Any:
        return SqlModelAsyncSession(engine)


class AsyncpgCore(AsyncpgSession):
    name = "async-connection-asyncpg"

    def make(self, engine: Any) -> Any:
        return engine.connect()

    async def connection(self, tx: Any) -> Any:
        return tx


class AsyncPsycopgCore(AsyncpgCore):
    name = "async-connection-psycopg"
    driver = "psycopg_async"
    knows_failed = True
