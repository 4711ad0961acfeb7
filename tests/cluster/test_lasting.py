"""A worker process at work for long: it stays small, and leaves nothing behind in the server.

`PARTBOX_TEST_SOAK_SECONDS=3600 ./scripts/test --soak tests/cluster/test_lasting.py` runs it for an hour. Its load are
PARTBOX_TEST_SOAK_RATE events a second, and PARTBOX_TEST_SOAK_WAVES times a backlog of PARTBOX_TEST_SOAK_BACKLOG events.
PARTBOX_TEST_SOAK_FILE keeps what it saw as CSV.

The weeks in which segments of the log come and go are made short. Events are eight days old when they are written, so
that they expire soon; and ids are left out, as many as fill a segment in a sixtieth of the time.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from belongings import Watch
from in_use import InUse, grown, told
from node import Node
from waiting import eventually

from partbox.protocol.segments import SMALLEST

SECONDS = float(os.environ.get("PARTBOX_TEST_SOAK_SECONDS", "300"))
RATE = float(os.environ.get("PARTBOX_TEST_SOAK_RATE", "200"))
BACKLOG = int(os.environ.get("PARTBOX_TEST_SOAK_BACKLOG", "1000000"))
WAVES = int(os.environ.get("PARTBOX_TEST_SOAK_WAVES", "6"))

PERIOD = SECONDS / 60
"""Seconds for a segment; the log is purged twice meanwhile."""
DAYS = 8 * 86_400
CHUNK = 10_000
AT_ONCE = 10  # events of a small transaction
LARGEST = 150  # MB of a worker process
EXPIRY = min(60.0, PERIOD)
STANDING = 24  # segments: on a busy machine, where purges come late, ids are left out no faster than segments go
SETTLING = 3.0  # seconds for which a process has next to nothing to do, before it is at rest

PUBLISH = """
insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload, created_at)
select partbox.partition_of(key), gen_random_uuid(), 'OrderPlaced', 'Order', key,
       json_build_object('number', n, 'note', repeat('x', 150)), clock_timestamp() - %(days)s * interval '1 second'
  from generate_series(1, %(events)s::bigint) as n,
       lateral (select 'order-' || (random() * 5000 + 0 * n)::integer as key) as k
"""
LEAVE_OUT = """
select setval('partbox.record_id_seq', coalesce(pg_sequence_last_value('partbox.record_id_seq'), 0) + %s)
"""
LEFT = "select status, count(*) from partbox.record_status where status not in ('done', 'dead') group by status"
PASSED = "select sum(last_id), (select count(*) from partbox.parked) from partbox.partition"


def publish(conn: psycopg.Connection[Any], backlog: int) -> None:
    """A backlog, in transactions of CHUNK."""
    for _ in range(0, backlog, CHUNK):
        conn.execute(PUBLISH, {"events": min(CHUNK, backlog), "days": DAYS})


class Stream(threading.Thread):
    """Writes events at a steady rate until told to stop."""

    def __init__(self, dsn: str) -> None:
        super().__init__(name="stream")
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.stopping = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopping.wait(AT_ONCE / RATE):
                self.conn.execute(PUBLISH, {"events": AT_ONCE, "days": DAYS})
        except Exception as error:
            self.error = error


@contextmanager
def streaming(dsn: str) -> Iterator[Stream]:
    stream = Stream(dsn)
    stream.start()
    try:
        yield stream
    finally:
        stream.stopping.set()
        stream.join()
        stream.conn.close()
    assert stream.error is None, stream.error


@pytest.fixture
def lasting(new_cluster, own_server):
    """A cluster of one worker process, as a user starts one, on a server that vacuums as often as the time is short."""
    cluster = new_cluster(own_server.dsn)
    for statement in ("alter system set autovacuum_naptime = '5s'", "select pg_reload_conf()"):
        cluster.owners.conn.execute(statement)
    settings = {
        "dsn": cluster.dsn,
        "retain_done": DAYS + EXPIRY,
        "retain_dead": EXPIRY,
        "purge_interval": PERIOD / 2,
    }
    node = Node(
        "node", cluster.folder, cluster.journal.folder, ["--processes", "1"], settings, "lasting_app:outbox", fresh=True
    )
    cluster.nodes.append(node)
    cluster.balanced(1)
    return cluster


class Weather:
    """What happens beside the stream: now and then a backlog comes, and ids are left out."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        began = time.monotonic()
        self._waves = deque(began + SECONDS * number / WAVES for number in range(WAVES))
        self._leap = began + PERIOD

    def turn(self, segments: int) -> None:
        """Bring what is due, now that there are so many segments."""
        now = time.monotonic()
        leaps = now >= self._leap and segments <= STANDING
        if not (self._waves and now >= self._waves[0]) and not leaps:
            return
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            if self._waves and now >= self._waves[0]:
                self._waves.popleft()
                publish(conn, BACKLOG)
            if leaps:
                self._leap = now + PERIOD
                conn.execute(LEAVE_OUT, [SMALLEST])


def at_rest(lasting: Any) -> InUse:
    """The worker's own account, once all is delivered and it has had next to nothing to do for a while."""
    conn, (node,), folder = lasting.owners.conn, lasting.nodes, lasting.journal.folder

    def delivered() -> bool:
        left = conn.execute(LEFT).fetchall()
        assert not left, f"not delivered: {left}; {node.log[-2000:]}"
        return True

    eventually(delivered, 60, 1, moves=lambda: conn.execute(PASSED).fetchone())
    busy = told(folder)

    def tells() -> bool:
        conn.execute(PUBLISH, {"events": 1, "days": DAYS})
        return told(folder).at > busy.at + SETTLING

    eventually(tells, interval=0.5)
    return told(folder)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS * 2 + 900)
def test_a_process_does_not_grow_and_leaves_nothing_behind_however_long_it_works(lasting):
    """A leak is what a process has in use at rest beyond what it had there at half time. Not after its first backlog:
    until each partition has delivered in each way that there is, a process may still get a little larger. Its RSS stays
    as large as the most that was ever in use at once, so there are only limits to that."""
    conn, (node,) = lasting.owners.conn, lasting.nodes
    publish(conn, BACKLOG)
    weather = Weather(lasting.dsn)
    watch = Watch(conn, node.pid, os.environ.get("PARTBOX_TEST_SOAK_FILE"))

    def over(seconds: float, more: int) -> bool:
        """The time has passed, and a busy machine has also been given the time for some segments to come and go."""
        assert node.process.poll() is None, node.log[-2000:]
        seen = watch.look()
        weather.turn(seen.segments)
        return seen.at >= seconds and len(watch.made) > seen.segments + more

    def in_use_after(seconds: float, more: int) -> InUse:
        with streaming(lasting.dsn):
            eventually(lambda: over(seconds, more), SECONDS * 2 + 600, min(1.0, SECONDS / 600))
        return at_rest(lasting)

    before, after = in_use_after(SECONDS / 2, 0), in_use_after(SECONDS, 10)

    assert max(each.worker for each in watch.seen) <= LARGEST
    assert grown(before, after) == {}
    assert watch.growth() == {}
