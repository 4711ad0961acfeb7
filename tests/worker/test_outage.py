"""What a handler calls is down: a bounded number of parked rows, nobody's fault, and all goes on by itself."""

import logging
import threading
from collections import defaultdict

from desk import Desk
from waiting import eventually

from partbox import DownstreamUnavailable, Event

EVENTS, AGGREGATES = 100_000, 5_000


class Downstream:
    """Notes the numbers of each aggregate in their order while it is up; refuses everything while it is down."""

    def __init__(self, error: type[Exception] = ConnectionError) -> None:
        self.down = True
        self.error = error
        self.tried = 0
        self.taken: dict[str, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def handle(self, event):
        with self._lock:
            self.tried += 1
            if self.down:
                raise self.error("refused")
            self.taken[event.aggregate_id].append(event.payload["number"])


def publish(desk: Desk) -> None:
    with desk.conn.transaction():
        desk.outbox.publish_many(
            desk.conn,
            [
                Event("Counted", {"number": n}, aggregate_type="Key", aggregate_id=f"k{n % AGGREGATES}")
                for n in range(EVENTS)
            ],
        )


def open_rows(desk: Desk) -> int:
    """The most open rows that a partition has."""
    row = desk.conn.execute(
        """select coalesce(max(count), 0) from (select count(*) from partbox.parked
            where state not in ('scheduled', 'dead') group by partition) as each"""
    ).fetchone()
    assert row is not None
    return int(row[0])


def minutes_pass(desk: Desk) -> None:
    """A minute of due time: every due time comes a minute nearer."""
    with desk.conn.transaction():
        desk.conn.execute("select from partbox.partition order by subscription, partition for no key update")
        desk.conn.execute("update partbox.parked set due_at = due_at - interval '1 minute' where due_at is not null")
        desk.conn.execute("update partbox.partition set parked_version = parked_version + 1")


def dead(desk: Desk) -> int:
    return desk.conn.execute("select count(*) from partbox.parked where state = 'dead'").fetchone()[0]


def due(desk: Desk) -> int:
    return desk.conn.execute(
        "select count(*) from partbox.parked where state <> 'dead' and due_at <= clock_timestamp()"
    ).fetchone()[0]


def test_an_outage_of_ten_minutes_costs_bounded_rows_and_kills_nobody(desk_with):
    desk = desk_with(max_parked=20, max_attempts=3)
    downstream = Downstream()
    desk.outbox.register(downstream, "Counted")
    publish(desk)
    with desk.outbox.worker():
        eventually(lambda: open_rows(desk) >= 15, timeout=60)
        for _ in range(10):
            minutes_pass(desk)
            eventually(lambda: due(desk) == 0, timeout=60)
            assert open_rows(desk) <= 20
            assert dead(desk) == 0
        assert downstream.tried < 100
        downstream.down = False
        eventually(desk.all_done, timeout=100)
        assert dead(desk) == 0
    assert sum(map(len, downstream.taken.values())) == EVENTS
    assert all(taken == sorted(taken) and len(taken) == EVENTS / AGGREGATES for taken in downstream.taken.values())


def test_other_handlers_of_the_process_go_on(desk_with, caplog):
    caplog.set_level(logging.INFO, "partbox.worker")
    desk = desk_with()
    downstream = Downstream(DownstreamUnavailable)
    desk.outbox.register(downstream, "Mailed")
    desk.outbox.register(desk.note, "Counted")
    desk.publish("m", 1, 2, event_type="Mailed")
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {1: "deferred", 2: "held"})
        assert [row[2] for row in desk.parked()] == [0, 0]
        desk.publish("k", *range(20))
        desk.eventually(lambda: desk.numbers() == list(range(20)))
        downstream.down = False
        desk.eventually(desk.all_done)
    assert downstream.taken["m"] == [1, 2]
    assert [record.levelname for record in caplog.records if "circuit" in record.message] == ["WARNING", "INFO"]


def test_one_event_that_always_fails_opens_no_circuit(desk_with, caplog):
    desk = desk_with(retry="fixed:0.001", max_attempts=30)
    downstream = Downstream()
    desk.outbox.register(downstream, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "dead", 30, False)])
    assert downstream.tried == 30
    assert not [record for record in caplog.records if "circuit" in record.message]
