"""A log and cursors put where the tests of monitoring want them."""

from typing import Any

import psycopg

from partbox.db.operator import subscriptions

Conn = psycopg.Connection[Any]

RECORDS = """
insert into partbox.record (partition, event_id, event_type, payload, created_at)
select %(partition)s::smallint, gen_random_uuid(), 'Placed', '{}', now() - %(age)s * interval '1 s'
  from generate_series(1, %(count)s)
"""
CONSUME = """
update partbox.partition set snapshot = pg_current_snapshot(), last_id = coalesce(%(last_id)s, g),
                             floor_id = coalesce(%(floor_id)s, g)
  from (select coalesce(pg_sequence_last_value('partbox.record_id_seq'), 0) g) drawn
 where subscription = %(subscription)s and (%(partition)s::int is null or partition = %(partition)s)
"""


def publish(conn: Conn, partition: int, count: int = 1, *, age: float = 180) -> None:
    """So many records of a partition, published `age` seconds ago."""
    conn.execute(RECORDS, {"partition": partition, "count": count, "age": age})


def consume(
    conn: Conn,
    subscription: str = "default",
    partition: int | None = None,
    *,
    last_id: int | None = None,
    floor_id: int | None = None,
) -> None:
    """As a save now: everything that was drawn unless told otherwise."""
    values = {"subscription": subscription, "partition": partition, "last_id": last_id, "floor_id": floor_id}
    conn.execute(CONSUME, values)


def subscribe(conn: Conn, name: str) -> None:
    """A subscription that begins at the beginning."""
    assert subscriptions.create(conn, "partbox", name, True, None, None)
