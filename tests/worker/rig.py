"""The reading half of a worker, moved by hand: page by page, with handlers that end when the test says so."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any
from uuid import UUID

import psycopg
from contexts import context
from psycopg import Connection

from partbox.db.blocking import lean
from partbox.db.connect import connect
from partbox.db.delivery import cursors, instances, records
from partbox.events import DeliveredEvent
from partbox.observe import Observers
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.engine.saves import sent
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.poller.log_poll import LogReader
from partbox.worker.poller.parked_fetch import ParkedReader
from partbox.worker.poller.payload_fetch import Payloads
from partbox.worker.reports.outcomes import Reports

SCHEMA = "partbox"
DEFAULT = "default"
NOBODY = Observers()
PARTITION = 5


class Waiting:
    """In the place of the engine's queue: keeps the lanes that are ready, for the test to take."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []

    def __bool__(self) -> bool:
        return False

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        self.lanes.extend(lanes)

    def take(self) -> list[DeliveredEvent]:
        events = []
        for lane in self.lanes:
            events.extend(lane.queue)
            lane.queue.clear()
            lane.active = False
        self.lanes.clear()
        return events


class Rig:
    """Owns `partitions`, from where their saved cursors stand."""

    def __init__(self, dsn: str, partitions: Sequence[int] = (PARTITION,), **settings: Any) -> None:
        self.conn: Connection[Any] = connect(dsn, lease=60, name="partbox rig")
        self.waiting = Waiting()
        waiting: Any = self.waiting
        self.context = context(dsn, queue=waiting, **settings)
        self.slot = self.context.slot
        self.me = self._own(partitions)
        self.slot.instance = self.me
        self.engine, self.wakeup = self.context.engine, self.context.wakeup
        payloads = Payloads(self.context)
        self.reader = LogReader(self.context, payloads)
        self.parked = ParkedReader(self.context, payloads, Reports(NOBODY, self.context.routes))
        self.ownership = Ownership(self.context, self.reader.claimed)
        lean(self.conn)
        self.ownership.take_up(self.conn)
        self.ownership.tick(self.conn)
        self.events: dict[int, DeliveredEvent] = {}

    def _own(self, partitions: Sequence[int]) -> UUID:
        """A new instance, after which nobody else is left."""
        before = [member.instance_id for member in instances.members(self.conn, SCHEMA, DEFAULT)]
        instances.bury(self.conn, SCHEMA, before, known_dead=True)
        me = instances.register(
            self.conn, SCHEMA, subscription=DEFAULT, node="n", hostname="h", pids=[1], version="0", lease=60
        )[1]
        self.conn.execute(
            """update partbox.partition set assignee = case when partition = any (%s) then %s::uuid end,
                                           suspect_until_id = null""",
            [list(partitions), me],
        )
        return me

    def partition(self, number: int = PARTITION) -> Partition:
        return self.engine.partitions[number]

    def read(self) -> list[int]:
        """The ids that one step of the reader brings, in the order of handing over."""
        self.reader._weighed_at = 0.0  # no page in full waits until it is time for one
        self.reader.read(self.conn)
        events = self.waiting.take()
        self.events.update((event.id, event) for event in events)
        return [event.id for event in events]

    def tick(self) -> None:
        """As a worker that is asleep does every quarter of a second."""
        tick = self.ownership.tick(self.conn, self.reader.listed())
        assert tick.look is not None
        self.reader.looked(tick.look)

    def read_due(self) -> None:
        """As a worker does at each tick: ready what is due and blocks nothing."""
        self.parked.run_due(self.conn, self.me, self.ownership.tick(self.conn).due)

    def read_all(self, steps: int = 30) -> list[int]:
        """The ids that so many steps bring, while nothing is published."""
        return [id for _ in range(steps) for id in self.read()]

    def done(self, *ids: int) -> None:
        """Their handlers are done."""
        for id in ids:
            event = self.events.pop(id)
            partition = self.partition(event.partition)
            assert not self.engine.outcomes.finish([(partition.line, event, partition.incarnation)])

    def save(self, *, all: bool = True) -> set[int]:
        """Save every partition, or only those that have something to save; those that are still mine."""
        if all:
            self.engine.saves.advance_idle(inf)
        saves = self.engine.saves.gather()
        if not saves:
            return set()
        mine, _ = cursors.save(self.conn, SCHEMA, DEFAULT, self.me, *sent(saves))
        self.engine.saves.committed(saves, 0.0)
        return mine

    def reconnect(self) -> None:
        """As after a lost connection."""
        self.reader.forget()
        self.ownership.take_up(self.conn)

    def close(self) -> None:
        self.conn.close()


def write(conn: psycopg.Connection[Any], count: int = 1, partition: int = PARTITION) -> None:
    """Publish so many events, each of an aggregate of its own."""
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select %s, gen_random_uuid(), 'Written', '{}' from generate_series(1, %s)",
        [partition, count],
    )


def counted_polls(monkeypatch: Any) -> list[int]:
    """A list with one element for each poll from now on."""
    polls: list[int] = []
    poll = records.poll

    def counting(*args: Any, **kwargs: Any) -> Any:
        polls.append(1)
        return poll(*args, **kwargs)

    monkeypatch.setattr(records, "poll", counting)
    return polls


@contextmanager
def transaction(dsn: str) -> Iterator[Connection[Any]]:
    """A transaction with an xid; rolled back at the end of the block unless committed before."""
    with psycopg.connect(dsn) as conn:
        conn.execute("select pg_current_xact_id()")
        yield conn
        conn.rollback()


def saved_cursor(conn: Connection[Any]) -> tuple[str, int, int]:
    """(snapshot, last id, floor) of the partition, as saved."""
    row = conn.execute(
        "select snapshot::text, last_id, floor_id from partbox.partition where partition = %s", [PARTITION]
    ).fetchone()
    assert row is not None
    return row
