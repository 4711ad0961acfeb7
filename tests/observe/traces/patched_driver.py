"""An application whose psycopg is patched before or after partbox is imported. Arguments: patch, when, DSN."""

import sys
from typing import Any

import psycopg
import wrapt
from opentelemetry import trace
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from psycopg.sql import Composable

name, when, dsn = sys.argv[1:]


def commented(statement: Any) -> Any:
    """The statement with a comment, which makes b'…' of bytes."""
    return statement if isinstance(statement, Composable) else f"/* traced */ {statement}"


def by_opentelemetry() -> None:
    """Comments on the text of each statement, by cursors that each new connection gets."""
    trace.set_tracer_provider(TracerProvider())
    PsycopgInstrumentor().instrument(enable_commenter=True, skip_dep_check=True)


def by_proxies() -> None:
    """Replaces `connect` and leaves no trace of that: connections are proxies, as Datadog's and New Relic's are."""

    class Proxy(wrapt.ObjectProxy):  # type: ignore[type-arg]
        def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
            return self.__wrapped__.execute(commented(statement), *args, **options)

    plain, plain_async = psycopg.Connection.connect, psycopg.AsyncConnection.connect

    def connect(cls: Any, *args: Any, **options: Any) -> Any:
        return Proxy(plain.__func__(cls, *args, **options))  # type: ignore[attr-defined]

    async def connect_async(cls: Any, *args: Any, **options: Any) -> Any:
        return Proxy(await plain_async.__func__(cls, *args, **options))  # type: ignore[attr-defined]

    psycopg.Connection.connect = classmethod(connect)  # type: ignore[assignment]
    psycopg.AsyncConnection.connect = classmethod(connect_async)  # type: ignore[assignment]
    psycopg.connect = psycopg.Connection.connect


def by_methods() -> None:
    """Replaces the methods of cursors and connections themselves."""
    for kind in (psycopg.Cursor, psycopg.AsyncCursor, psycopg.Connection, psycopg.AsyncConnection):

        def execute(self: Any, statement: Any, *args: Any, plain: Any = kind.execute, **options: Any) -> Any:
            return plain(self, commented(statement), *args, **options)

        kind.execute = execute  # type: ignore[assignment,method-assign]


patch = globals()[f"by_{name}"]
if when == "before":
    assert "partbox" not in sys.modules
    patch()

from sqlalchemy import text  # noqa: E402
from sqlalchemy.ext.asyncio import AsyncSession  # noqa: E402
from sqlalchemy.orm import Session  # noqa: E402

from partbox import Event, Outbox  # noqa: E402
from partbox.db.schema.migrate import migrate  # noqa: E402

if when == "after":
    patch()

migrate(dsn)  # as an application does at its start
outbox = Outbox(dsn)
INSERT = "insert into effect values (%s, current_query())"
with psycopg.connect(dsn) as conn:
    conn.execute("create table effect (kind text, statement text)")
    outbox.publish(conn, "Sync", 1)
    outbox.publish_many(conn, [Event("Sync", 2), Event("Async", 1)])
with psycopg.connect(dsn) as conn, outbox.transaction(conn):
    outbox.publish(conn, "Session", 1, idempotency_key="k")
    outbox.publish_many(conn, [Event("AsyncSession", number) for number in range(300)])
with outbox.transaction() as tx:
    outbox.publish(tx, "Plain", 1)


@outbox.on("Sync", transactional=True)
def in_sync(event: Any, tx: Any) -> None:
    tx.execute(INSERT, [event.event_type])
    with tx.cursor() as cursor:
        cursor.execute("select 1")


@outbox.on("Async", transactional=True)
async def in_async(event: Any, tx: Any) -> None:
    await tx.execute(INSERT, [event.event_type])


@outbox.on("Session", transactional="sqlalchemy")
def in_session(event: Any, session: Session) -> None:
    session.execute(text("insert into effect values (:kind, current_query())"), {"kind": event.event_type})


@outbox.on("AsyncSession", transactional="sqlalchemy")
async def in_async_session(event: Any, session: AsyncSession) -> None:
    await session.execute(text("insert into effect values (:kind, current_query())"), {"kind": event.event_type})


@outbox.on("Plain")
def beside(event: Any) -> None: ...


assert outbox.drain(timeout=60), "not everything was delivered"
with psycopg.connect(dsn) as conn:
    conn.execute("select 'of the application'")
    rows = conn.execute("select kind, count(*) from effect group by kind order by kind").fetchall()
    assert rows == [("Async", 1), ("AsyncSession", 300), ("Session", 1), ("Sync", 2)], rows
    (changed,) = conn.execute("select count(*) from effect where statement like '%/*%'").fetchone() or (None,)
    assert changed == 0, changed
