"""A customer whose events fail, with a long backlog, on a real database: the rows are few, and others go on."""

from typing import Any

import psycopg

from partbox import partition_of

ROWS = 10
EVENTS = 200


class Customers:
    """Handles all customers, except that of the key `dead` each event fails while `is_down`."""

    def __init__(self, desk: Any) -> None:
        self.is_down = True
        self.done: list[tuple[str, int]] = []
        desk.outbox.on("Counted", name="counted")(self.handle)

    def handle(self, event: Any) -> None:
        if event.aggregate_id == "dead" and self.is_down:
            raise ValueError("no")
        self.done.append((event.aggregate_id, event.payload["number"]))


def neighbour_of(key: str) -> str:
    """Return another key of the same partition."""
    return next(name for name in map(str, range(10_000)) if partition_of(name) == partition_of(key))


def row_count(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("select count(*) from partbox.parked").fetchone()
    assert row is not None
    return int(row[0])


def test_a_dead_key_costs_few_rows_and_its_neighbours_go_on_and_then_all_come_in_order(desk_with):
    desk = desk_with(spill_after=ROWS, window=20, retry="fixed:60", max_attempts=None)
    customers, other = Customers(desk), neighbour_of("dead")
    for first in range(0, EVENTS, 20):
        desk.publish("dead", *range(first, first + 20))
        desk.publish(other, first)
        desk.drain()
    assert customers.done == [(other, first) for first in range(0, EVENTS, 20)]
    assert row_count(desk.conn) <= 2 * ROWS + 20
    waiting = desk.conn.execute(
        "select count(*) from partbox.record_status where status in ('held', 'retrying')"
    ).fetchone()
    assert waiting == (EVENTS,)

    customers.is_down = False
    customers.done.clear()
    desk.make_due()
    desk.drain()
    assert customers.done == [("dead", number) for number in range(EVENTS)]
    assert (row_count(desk.conn), desk.conn.execute("select count(*) from partbox.spill").fetchone()) == (0, (0,))
    assert desk.all_done()
