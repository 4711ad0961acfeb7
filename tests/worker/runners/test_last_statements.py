"""The save is the last statement of a transaction of handlers: partition rows are locked from then to the COMMIT."""

from pathlib import Path
from typing import Any

import pytest
from orm import TABLES, write
from psycopg import AsyncConnection, Connection
from psycopg.pq import Trace
from psycopg.sql import SQL
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from partbox.db.sql import load_query, load_script
from partbox.worker.runners import transactor

# The trace shows the first line of a statement, which is the comment at its head.
SAVE = load_query("save", "partbox").decode().partition("\n")[0]
BEFORE_SAVE = load_script("effects_end", limit=SQL("0"), lock_timeout=SQL("0")).decode().partition("\n")[0]


def raw(event: Any, conn: Connection[Any]) -> None:
    TRACE.follow(conn)
    conn.execute("insert into effect (number) values (1)")


def of_sqlalchemy(event: Any, session: Session) -> None:
    TRACE.follow(session.connection().connection.driver_connection)
    write(event, session)
    TRACE.outbox.publish(session, "Echo", event.payload)


async def awaited(event: Any, conn: AsyncConnection[Any]) -> None:
    TRACE.follow(conn)
    await conn.execute("insert into effect (number) values (1)")


async def of_async_sqlalchemy(event: Any, session: AsyncSession) -> None:
    TRACE.follow((await (await session.connection()).get_raw_connection()).driver_connection)
    await session.execute(text("insert into effect (number) values (1)"))
    await TRACE.outbox.publish_async(session, "Echo", event.payload)


class Traces:
    """The messages of libpq on one connection, from the first handler on. `outbox`: by which handlers publish."""

    outbox: Any = None

    def __init__(self) -> None:
        self.file: Any = None
        self._seen: list[Any] = []

    def follow(self, conn: Any) -> None:
        if not self._seen:
            self._seen.append(conn)
            conn.pgconn.trace(self.file.fileno())
            conn.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)

    def begin(self, path: Path) -> None:
        self.file = path.open("wb")
        self._seen.clear()

    def sent(self) -> list[str]:
        """The statements that were sent."""
        for conn in self._seen:
            if conn.pgconn.status == 0:
                conn.pgconn.untrace()
        self.file.close()
        lines = Path(self.file.name).read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.startswith(("F\t",)) and ("\tQuery" in line or "\tParse" in line)]


TRACE = Traces()


@pytest.mark.parametrize(
    ("handle", "transactional"),
    [(raw, True), (of_sqlalchemy, "sqlalchemy"), (awaited, True), (of_async_sqlalchemy, "sqlalchemy")],
    ids=["psycopg", "SQLAlchemy", "async psycopg", "async SQLAlchemy"],
)
def test_the_save_is_the_last_statement_before_the_commit(
    desk: Any, tmp_path: Path, monkeypatch: Any, handle: Any, transactional: Any
) -> None:
    monkeypatch.setattr(transactor, "MAX_EVENTS", 2)
    desk.conn.execute(TABLES)
    TRACE.begin(tmp_path / "trace")
    TRACE.outbox = desk.outbox
    desk.outbox.register(desk.note, "Echo")
    desk.outbox.register(handle, "Counted", transactional=transactional)
    desk.publish("k", 1, 2, 3, 4)
    desk.outbox.after_commit(lambda events: None)  # for which it is read what savepoints have undone
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
        sent = TRACE.sent()
    commits = [at for at, statement in enumerate(sent) if "COMMIT" in statement]
    assert len(commits) >= 2
    for at in commits:
        assert SAVE in sent[at - 1], sent[at - 1]
        assert BEFORE_SAVE in sent[at - 2], sent[at - 2]
