"""Every pair of a library and a driver, behind one asynchronous face: what the contract of publishing is tried with.

A kit opens transactions and savepoints as its library does, executes what it is given, and publishes. What is
synchronous is called as it is, in the event loop's thread.
"""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar
from unittest import mock

import asyncpg
import psycopg
import psycopg2
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import create_engine, pool
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel import Session as SqlModelSession

from partbox import Event, Outbox


def parts(dsn: str) -> dict[str, Any]:
    """The DSN as asyncpg and Django want it."""
    found = conninfo_to_dict(dsn)
    return {"host": found["host"], "port": int(found.get("port", 5432)), "user": found.get("user"),
            "password": found.get("password"), "database": found["dbname"]}  # fmt: skip


async def connect_asyncpg(dsn: str, **more: Any) -> Any:
    return await asyncpg.connect(**parts(dsn), **more)


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


def configure_django() -> None:
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": {}, "other": {}}, USE_TZ=True, SECRET_KEY="s")
        django.setup()


def install_django(dsn: str) -> Any:
    """Connections of Django to this database, in the places of `default` and `other`; they must be closed."""
    configure_django()
    from django.db import connections
    from django.db.utils import ConnectionHandler

    found = parts(dsn)
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "database": "NAME"}
    given = {"ENGINE": "django.db.backends.postgresql", **{names[key]: each or "" for key, each in found.items()}}
    handler = ConnectionHandler({"default": given, "other": dict(given)})
    for alias in ("default", "other"):
        connections[alias] = handler[alias]
    return connections


class Django(Kit):
    """`django.db.connection`."""

    name = "django"
    tells = ("after_commit",)
    alias: ClassVar[str] = "default"

    async def open(self) -> None:
        self.closing.enter_context(mock.patch.dict(os.environ, {"DJANGO_ALLOW_ASYNC_UNSAFE": "1"}))
        self.connections = install_django(self.dsn)
        self.closing.callback(self.connections.close_all)

    def given(self) -> Any:
        from django.db import connection

        return connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        from django.db import transaction

        with transaction.atomic(using=self.alias):
            yield self.given()

    @asynccontextmanager
    async def savepoint(self, tx: Any) -> AsyncIterator[Any]:
        from django.db import transaction

        with transaction.atomic(using=self.alias):
            yield tx

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        yield self.given()

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        with tx.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def state(self, tx: Any) -> Any:
        return (
            tx.get_autocommit(),
            tx.in_atomic_block,
            tx.needs_rollback,
            tx.connection.row_factory,
            len(tx.savepoint_ids),
        )


class DjangoOther(Django):
    """The wrapper behind another alias."""

    name = "django-using"
    alias = "other"

    def given(self) -> Any:
        return self.connections["other"]


KITS: list[type[Kit]] = [
    Psycopg, PsycopgPool, AsyncPsycopg, AsyncPsycopgPool, PsycopgSession, Psycopg2Session, ScopedSession, SqlModel,
    PsycopgCore, Psycopg2Core, AsyncpgSession, AsyncPsycopgSession, AsyncScopedSession, AsyncpgCore, AsyncPsycopgCore,
    Django, DjangoOther, Asyncpg, AsyncpgPool,
]  # fmt: skip


@asynccontextmanager
async def opened(kind: type[Kit], dsn: str, outbox: Outbox) -> AsyncIterator[Kit]:
    kit = kind(dsn, outbox)
    async with kit.closing:
        await kit.open()
        yield kit
