"""Records, parked rows and cursors as purges find them, planted by hand; ages are in days."""

from dataclasses import dataclass
from typing import Any

import planted_records
import psycopg
from ownership import DEFAULT

Conn = psycopg.Connection[Any]

DAY = 86_400.0
OLD, YOUNG, ANCIENT = 8.0, 6.0, 31.0
"""Past the retention of handled records, within it, past that of dead ones."""


@dataclass
class Planted:
    """Plants through an autocommit connection to the test's database."""

    conn: Conn

    def record(self, id: int, partition: int = 0, age: float = OLD) -> int:
        self.conn.execute(
            "insert into partbox.record (id, partition, event_id, event_type, payload, created_at) values"
            " (%s, %s, gen_random_uuid(), 'T', '{}', clock_timestamp() - %s * interval '1 day')",
            [id, partition, age],
        )
        return id

    def park(
        self,
        id: int,
        state: str,
        subscription: str = DEFAULT,
        *,
        partition: int = 0,
        age: float = ANCIENT,
        blocks: bool = False,
        due: bool = False,
    ) -> None:
        self.conn.execute(
            "insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,"
            " state, blocks, parked_at, due_at) values (%s, %s, %s, 'A', 'a', 'T', %s, %s,"
            " clock_timestamp() - %s * interval '1 day', case when %s then now() - interval '1 hour' end)",
            [subscription, id, partition, state, blocks, age, due],
        )

    def subscribe(self, name: str) -> None:
        self.conn.execute("insert into partbox.subscription (name) values (%s)", [name])
        self.conn.execute(
            "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
            " select %s, partition, '1:1:', 0, 0 from generate_series(0, 255) partition",
            [name],
        )

    def consume(self, last_id: int, floor_id: int | None = None, subscription: str = DEFAULT, **of: int) -> None:
        self.conn.execute(
            "update partbox.partition set last_id = %(last)s, floor_id = %(floor)s"
            " where subscription = %(name)s and partition = coalesce(%(partition)s, partition)",
            {
                "last": last_id,
                "floor": last_id if floor_id is None else floor_id,
                "name": subscription,
                "partition": of.get("partition"),
            },
        )

    def left(self) -> list[int]:
        return [id for (id,) in self.conn.execute("select id from partbox.record order by id")]

    def parked(self) -> list[tuple[str, int]]:
        return self.conn.execute("select subscription, record_id from partbox.parked order by 1, 2").fetchall()

    def meta(self) -> dict[str, str]:
        return dict(self.conn.execute("select key, value from partbox.meta").fetchall())


def many(conn: Conn, count: int, *, partitions: int = 256, days: float = OLD) -> None:
    """Plant `count` records in turn in the partitions."""
    conn.execute(
        "insert into partbox.record (id, partition, event_id, event_type, payload, created_at)"
        " select g, g %% %s, gen_random_uuid(), 'T', '{}', clock_timestamp() - %s * interval '1 day'"
        " from generate_series(1, %s) g",
        [partitions, days, count],
    )


def divide(conn: Conn) -> None:
    """Have an empty log in ten segments, and 1000 ids drawn."""
    planted_records.divide(conn)
    conn.execute("select setval('partbox.record_id_seq', 1000)")
