"""An application that has installed SQLAlchemy without greenlet, as pip does from 2.1 on. Its argument is a DSN."""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, Column, Integer, String, Table, create_engine, insert, select
from sqlalchemy.orm import Session, registry, scoped_session, sessionmaker

import partbox.alembic  # noqa: F401
from partbox import Event, Outbox
from partbox.errors import PublishError, RegistrationError
from partbox.sqlalchemy import collect

with suppress(ModuleNotFoundError):
    import_module("greenlet")
    sys.exit("this says nothing where greenlet is installed")

outbox, mapped = Outbox(sys.argv[1]), registry()
given: dict[str, Any] = dict(conninfo_to_dict(outbox.dsn))
place = {"host": given["host"], "port": str(given["port"])}
engine = create_engine(URL.create("postgresql+psycopg", given["user"], database=given["dbname"], query=place))
table = Table("sold", mapped.metadata, Column("id", Integer, primary_key=True), Column("type", String))
committed: list[tuple[str, int]] = []
outbox.after_commit(lambda events: committed.append((events[0].event_type, len(events))))


class Sold:
    events: Any = ()


@outbox.on("*", transactional="sqlalchemy")
def save(event: Any, session: Session) -> None:
    session.execute(insert(table).values(type=event.event_type))


mapped.map_imperatively(Sold, table)
mapped.metadata.create_all(engine)
with engine.begin() as conn:
    operations: Any = Operations(MigrationContext.configure(conn))
    operations.partbox_upgrade()
with engine.begin() as conn:
    outbox.publish(conn, "Connection", 1)
    outbox.publish_many(conn, [Event("Copied", number) for number in range(300)])
with Session(engine) as session, session.begin():
    outbox.publish(session, "Session", 1, idempotency_key="k")
scoped = scoped_session(sessionmaker(engine))
outbox.publish(scoped, "Scoped", 1)
scoped.commit()
with collect(sessionmaker(engine), outbox).begin() as session:
    sold = Sold()
    sold.events = [Event("Collected", 1)]
    session.add(sold)
assert committed == [("Connection", 1), ("Copied", 300), ("Session", 1), ("Scoped", 1), ("Collected", 1)]


def refusal_of(call: Callable[[], object]) -> str:
    try:
        call()
    except (PublishError, RegistrationError) as error:
        return str(error)
    return "nothing was refused"


async def save_async(event: Any, session: Any) -> None: ...


unknown: Any = outbox
assert "open a connection" in refusal_of(lambda: unknown.publish(engine, "T", 1))
assert "open a session" in refusal_of(lambda: unknown.publish(sessionmaker(engine), "T", 1))
missing = refusal_of(lambda: outbox.on("T", subscription="async", transactional="sqlalchemy")(save_async))
assert missing.endswith("and greenlet is not installed: pip install 'sqlalchemy[asyncio]'")

assert outbox.drain()
with Session(engine) as session:
    saved = session.scalars(select(table.c.type).where(table.c.type.is_not(None))).all()
assert len(saved) == sum(number for _, number in committed)
