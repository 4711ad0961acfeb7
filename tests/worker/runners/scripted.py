"""Transactional handlers of each kind that execute the statements in the payload of their event."""

from typing import Any

import pytest
from psycopg import AsyncConnection, Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from partbox import Event

TABLES = """
create table effect (number int, tenant text, xid xid8 default pg_current_xact_id(), at timestamptz default now());
create table counter (id int primary key, n int default 0);
insert into counter select generate_series(1, 3)
"""
NOTE = "insert into effect (number) values ({})"


class Runs(list[int]):
    """The numbers of the events that handlers have begun, in their order."""

    def of_psycopg(self, event: Any, conn: Connection[Any]) -> None:
        self.append(event.payload["number"])
        for statement in event.payload["run"]:
            conn.execute(statement)

    def of_sqlalchemy(self, event: Any, session: Session) -> None:
        self.append(event.payload["number"])
        for statement in event.payload["run"]:
            session.connection().exec_driver_sql(statement)

    async def of_async_psycopg(self, event: Any, conn: AsyncConnection[Any]) -> None:
        self.append(event.payload["number"])
        for statement in event.payload["run"]:
            await conn.execute(statement)

    async def of_async_sqlalchemy(self, event: Any, session: AsyncSession) -> None:
        self.append(event.payload["number"])
        for statement in event.payload["run"]:
            await (await session.connection()).exec_driver_sql(statement)


KINDS = pytest.mark.parametrize("kind", ["psycopg", "sqlalchemy", "async_psycopg", "async_sqlalchemy"])


def register(desk: Any, kind: str, **options: Any) -> Runs:
    """Make the tables, and register a handler of this kind."""
    runs = Runs()
    desk.conn.execute(TABLES)
    transactional = "sqlalchemy" if "sqlalchemy" in kind else True
    desk.outbox.register(getattr(runs, f"of_{kind}"), "Scripted", transactional=transactional, **options)
    return runs


def publish(desk: Any, *scripts: list[str], key: str = "k") -> None:
    """Publish an event for each of these lists of statements, in one transaction."""
    events = [
        Event("Scripted", {"number": number, "run": script}, aggregate_type="Key", aggregate_id=key)
        for number, script in enumerate(scripts)
    ]
    with desk.conn.transaction():
        desk.outbox.publish_many(desk.conn, events)


def effects(desk: Any) -> list[int]:
    """The numbers that were noted, in their order."""
    return [number for (number,) in desk.conn.execute("select number from effect order by number").fetchall()]
