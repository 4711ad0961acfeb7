"""Writes events, one or many, on a connection that psycopg runs synchronously or asynchronously.

Many go by COPY from `COPY_FROM` events on: below it single inserts in one pipeline are as fast (they share a prepared
statement), above it COPY wins, threefold at two hundred; arrays with `unnest` lose to both. Delays count from the
database's clock; COPY evaluates no expressions, so it is asked for the time first. A staging table would save that
round trip and cost every publisher a change of the catalog.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from partbox.codecs import Codecs
from partbox.db.sql import query
from partbox.errors import SchemaError
from partbox.events import Event
from partbox.publish import transaction
from partbox.publish.fields import Fields, all_fields, fields_of, is_timed, parameters, timed

COPY_FROM = 8


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes into one schema. Every method raises PublishError before anything is written, and leaves the
    connection as it was: it neither commits nor changes it. `max_payload` is in bytes."""

    schema: str
    codecs: Codecs
    max_payload: int

    def publish(self, conn: Connection[Any], event: Event) -> UUID:
        """Write the event in the caller's transaction; its id."""
        transaction.check_kind(conn, Connection)
        values = parameters(event, fields_of(event, self.codecs, self.max_payload))
        _settle(conn)
        with self._explained(), Cursor(conn) as cursor:
            cursor.execute(self._query("publish"), values)
        return event.event_id

    async def publish_async(self, conn: AsyncConnection[Any], event: Event) -> UUID:
        """`publish` on an asynchronous connection."""
        transaction.check_kind(conn, AsyncConnection)
        values = parameters(event, fields_of(event, self.codecs, self.max_payload))
        await _settle_async(conn)
        with self._explained():
            async with AsyncCursor(conn) as cursor:
                await cursor.execute(self._query("publish"), values)
        return event.event_id

    def publish_many(self, conn: Connection[Any], events: Iterable[Event]) -> list[UUID]:
        """Write the events in the order of the list, all of them or none; their ids in that order."""
        transaction.check_kind(conn, Connection)
        events = list(events)
        batch = all_fields(events, self.codecs, self.max_payload)
        _settle(conn)
        with self._explained(), Cursor(conn, row_factory=tuple_row) as cursor:
            if not _is_copied(conn, batch):
                cursor.executemany(self._query("publish"), map(parameters, events, batch))
            else:
                clock = None
                if any(map(is_timed, events)):
                    clock = cursor.execute(self._query("publish_clock")).fetchone()
                statement, rows = self._copy(events, batch, clock)
                with cursor.copy(statement) as copy:
                    for row in rows:
                        copy.write_row(row)
        return [event.event_id for event in events]

    async def publish_many_async(self, conn: AsyncConnection[Any], events: Iterable[Event]) -> list[UUID]:
        """`publish_many` on an asynchronous connection."""
        transaction.check_kind(conn, AsyncConnection)
        events = list(events)
        batch = all_fields(events, self.codecs, self.max_payload)
        await _settle_async(conn)
        with self._explained():
            async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
                if not _is_copied(conn, batch):
                    await cursor.executemany(self._query("publish"), map(parameters, events, batch))
                else:
                    clock = None
                    if any(map(is_timed, events)):
                        clock = await (await cursor.execute(self._query("publish_clock"))).fetchone()
                    statement, rows = self._copy(events, batch, clock)
                    async with cursor.copy(statement) as copy:
                        for row in rows:
                            await copy.write_row(row)
        return [event.event_id for event in events]

    def _query(self, name: str) -> bytes:
        return query(name, self.schema)

    def _copy(
        self, events: list[Event], batch: list[Fields], clock: tuple[int] | None
    ) -> tuple[bytes, Iterable[Fields]]:
        if clock is None:
            return self._query("publish_copy"), batch
        return self._query("publish_copy_timed"), timed(events, batch, clock[0])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedColumn) as e:
            raise SchemaError(
                f"schema {self.schema!r} is missing or not complete in this database: run `partbox init`"
            ) from e


def _settle(conn: Connection[Any]) -> None:
    """Raise PublishError unless the connection is in a transaction."""
    if transaction.needs_sync(conn):
        with conn.pipeline():  # entering the nested pipeline waits for the server's answers
            pass
    transaction.check(conn)


async def _settle_async(conn: AsyncConnection[Any]) -> None:
    if transaction.needs_sync(conn):
        async with conn.pipeline():
            pass
    transaction.check(conn)


def _is_copied(conn: transaction.AnyConnection, batch: list[Fields]) -> bool:
    return len(batch) >= COPY_FROM and not transaction.is_pipelined(conn)
