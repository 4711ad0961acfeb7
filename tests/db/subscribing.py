"""Subscriptions for tests: what is published, and what each is still to get.

That is read from the view `record_status`, which says of each record what a cursor says of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg import Connection

from partbox import Outbox
from partbox.db.operator import subscriptions

SCHEMA = "partbox"
PURGE = "select partbox.locked('purge')"

_OUTBOX = Outbox("")


def publish(conn: Connection[Any], *payloads: int, key: str = "") -> None:
    """Publish events of these payloads, in the connection's transaction if it is in one or opens them by itself."""
    with conn.transaction() if conn.autocommit else nullcontext():
        for payload in payloads:
            _OUTBOX.publish(conn, "Step", payload, aggregate_type="A", aggregate_id=key or str(payload))


@contextmanager
def open_transaction(dsn: str, *payloads: int) -> Iterator[Connection[Any]]:
    """A transaction that has published these, and commits at the end."""
    with psycopg.connect(dsn) as conn:
        publish(conn, *payloads)
        yield conn


def gets(conn: Connection[Any], subscription: str) -> list[int]:
    """The payloads of what it is still to get, in the order of the log."""
    return [
        payload
        for (payload,) in conn.execute(
            "select r.payload::text::int from partbox.record_status s"
            " join partbox.record r on r.partition = s.partition and r.id = s.id"
            " where s.subscription = %s and s.status = 'pending' order by s.id",
            [subscription],
        )
    ]


def ids(conn: Connection[Any]) -> dict[int, int]:
    """The record id of each payload."""
    return dict(conn.execute("select payload::text::int, id from partbox.record").fetchall())


def rows(conn: Connection[Any], subscription: str, columns: str) -> list[tuple[Any, ...]]:
    """These columns of its partitions."""
    return conn.execute(
        f"select {columns} from partbox.partition where subscription = %s order by partition", [subscription]
    ).fetchall()


def is_paused(conn: Connection[Any], subscription: str) -> bool | None:
    return subscriptions.is_paused(conn, SCHEMA, subscription)


def waiting_for_lock(conn: Connection[Any]) -> bool:
    """Does somebody in this database?"""
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    return conn.execute(query).fetchone() == (1,)


def consume(conn: Connection[Any], outbox: Outbox) -> None:
    """Publish events 1 to 9 and make a subscription `audit` that has consumed them."""
    publish(conn, *range(1, 10))
    outbox.subscriptions.create("audit", "now")
    conn.execute("update partbox.partition set floor_id = 4 where subscription = 'audit'")
    assert gets(conn, "audit") == []
