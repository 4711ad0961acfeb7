"""Reads the log as a handler's process does, and hands it to handlers, for the tests of publishing."""

import asyncio
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Loader
from psycopg.rows import tuple_row

from partbox import Outbox
from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent

_RAW = ("uuid", "json", "timestamptz")

_LOG = """
    select partition, id, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, payload_bytes,
           content_type, headers, available_at, occurred_at, created_at
      from partbox.record order by id
"""


class _Bytes(Loader):
    format = pq.Format.BINARY

    def load(self, data: Any) -> bytes:
        return bytes(data)


def delivered(conn: psycopg.Connection[Any], codecs: Codecs | None = None) -> list[DeliveredEvent]:
    """Every record of the log as a handler would get it."""
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        for name in _RAW:
            cursor.adapters.register_loader(name, _Bytes)
        rows = cursor.execute(_LOG, binary=True).fetchall()
    return [DeliveredEvent(row, ClaimContext(1, "default", codecs or Codecs())) for row in rows]


def count(conn: psycopg.Connection[Any]) -> int:
    """How many records there are."""
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        ((number,),) = cursor.execute("select count(*) from partbox.record").fetchall()
    return int(number)


def deliver(outbox: Outbox, conn: psycopg.Connection[Any]) -> list[Any]:
    """Hand every record of the log to its handler, as a worker would; the outcomes."""
    routes = outbox.handlers.build_routes("default", outbox.settings)
    outcomes = []
    for event in delivered(conn):
        handler = routes[event.event_type, event.aggregate_type]
        assert handler is not None
        outcomes.append(asyncio.run(handler.call(event)) if handler.is_async else handler.call(event))
    return outcomes
