"""Parked records as workers leave them: published, passed by the saved cursor, and parked by hand."""

from typing import Any
from uuid import UUID

import psycopg

from partbox import Event, Outbox

PARK = """
insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks,
                            attempts, due_at, parked_at, started_at, last_error)
select %(subscription)s, r.id, r.partition, r.aggregate_type, r.aggregate_id, r.event_type, %(state)s, %(blocks)s,
       %(attempts)s, clock_timestamp() + %(due)s * interval '1 s', clock_timestamp() - %(age)s * interval '1 s',
       case when %(started)s then clock_timestamp() end, %(error)s
  from partbox.record r where r.event_id = %(event_id)s
returning record_id
"""
CONSUME = """
update partbox.partition set snapshot = pg_current_snapshot(), last_id = g, floor_id = g
  from (select coalesce(max(id), 0) as g from partbox.record) r
"""


class Planter:
    """Plants records through an autocommit connection to the test's database."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.outbox = Outbox(conn.info.dsn)

    def publish(
        self, aggregate_id: str | None = "7", *, event_type: str = "Placed", payload: Any = None, **fields: Any
    ) -> UUID:
        with self.conn.transaction():
            named: dict[str, Any] = {} if aggregate_id is None else {"aggregate_id": aggregate_id}
            event = Event(event_type, payload, **{"aggregate_type": "Order", **named, **fields})
            return self.outbox.publish(self.conn, event) or UUID(int=0)

    def consume(self) -> None:
        """Every cursor passes what is in the log."""
        self.conn.execute(CONSUME)

    def park(
        self,
        aggregate_id: str | None = "7",
        state: str = "dead",
        *,
        blocks: bool = False,
        attempts: int = 10,
        due: float | None = None,
        age: float = 60,
        started: bool = False,
        error: str | None = "ValueError: boom",
        trace: str | None = None,
        subscription: str = "default",
        consumed: bool = True,
        **event: Any,
    ) -> int:
        """Publish an event, let it be consumed unless told otherwise, and park it; its record id."""
        event_id = self.publish(aggregate_id, **event)
        if consumed:
            self.consume()
        values = {
            "subscription": subscription,
            "state": state,
            "blocks": blocks,
            "attempts": attempts,
            "due": due,
            "age": age,
            "started": started,
            "error": error,
            "event_id": event_id,
        }
        ((record_id,),) = self.conn.execute(PARK, values).fetchall()
        if trace is not None:  # the first versions of the schema have no such column
            self.conn.execute("update partbox.parked set traceback = %s where record_id = %s", [trace, record_id])
        return int(record_id)

    def row(self, record_id: int, subscription: str = "default") -> dict[str, Any] | None:
        """The parked row as stored."""
        with self.conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(
                "select *, due_at <= clock_timestamp() as is_due from partbox.parked"
                " where subscription = %s and record_id = %s",
                [subscription, record_id],
            )
            return cursor.fetchone()

    def states(self) -> dict[int, str]:
        """The state of every parked record."""
        return dict(self.conn.execute("select record_id, state from partbox.parked order by record_id").fetchall())

    def versions(self) -> dict[int, int]:
        """The parked_version of every partition in which a command has changed something."""
        found = "select partition, parked_version from partbox.partition where parked_version > 0"
        return dict(self.conn.execute(found).fetchall())

    def event_id(self, record_id: int) -> UUID:
        ((event_id,),) = self.conn.execute("select event_id from partbox.record where id = %s", [record_id]).fetchall()
        return UUID(str(event_id))


def divide(conn: psycopg.Connection[Any]) -> None:
    """Have an empty log in segments of a hundred ids: [0, 100), [100, 200) ... [900, 1000)."""
    conn.execute("drop table partbox.record_1")
    for lower in range(0, 1000, 100):
        conn.execute(
            f"create table partbox.record_{lower or 1} partition of partbox.record"
            f" for values from ({lower or 'minvalue'}) to ({lower + 100})"
        )
