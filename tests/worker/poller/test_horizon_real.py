"""The horizon test: whatever publishers do, and however often the reader dies, nothing is lost, doubled or reordered.

The reader is the real worker with small windows. It is killed by dropping it without saving what is unsaved, and
another instance takes over from the saved cursors, getting its partitions a few at a time.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random, randrange
from typing import Any
from uuid import UUID

import psycopg
import pytest
import writers
from waiting import eventually

from partbox.codecs import Codecs
from partbox.db.delivery import instances
from partbox.events import DeliveredEvent
from partbox.handlers import Handlers
from partbox.platform import boottime
from partbox.protocol import cursor, sweep
from partbox.settings import load
from partbox.worker.slot import Slot
from partbox.worker.worker import Worker

pytestmark = pytest.mark.every_version("what a snapshot sees")

LIVES, EVENTS = 4, 500
"""So many workers have died at least, and so many events are published, before nothing more happens."""
LIFE = 0.7
"""Seconds that a worker lives at most."""


@dataclass
class Life:
    """The deliveries of one worker: (record id, aggregate, number in it), in the order of the handlers' starts."""

    delivered: list[tuple[int, str | None, int]] = field(default_factory=list)


class Cluster:
    """One worker at a time over all partitions of a database."""

    def __init__(self, dsn: str, random: Random) -> None:
        self.dsn = dsn
        self.random = random
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.lives: list[Life] = []
        self.instance: UUID | None = None
        self.worker: Worker | None = None

    def born(self) -> None:
        """A new worker takes over what the dead one had, part now, part soon."""
        dead, self.instance = self.instance, self._register()
        if dead is not None:
            instances.bury_instances(self.conn, "partbox", [dead], known_dead=True)
        self._plan(set(self.random.sample(range(writers.PARTITIONS), 3)))
        life = Life()
        self.lives.append(life)
        self.worker = self._worker(life)
        self.worker.start()

    def live(self) -> None:
        """Let the worker run for a while; the rest of the partitions joins."""
        time.sleep(LIFE * self.random.random() / 2)
        self._plan(set(range(256)))
        time.sleep(LIFE * self.random.random() / 2)

    def published(self) -> int:
        row = self.conn.execute("select count(*) from partbox.record").fetchone()
        assert row is not None
        return int(row[0])

    def kill(self) -> None:
        """Drop the worker: its handlers end, nothing is saved or released any more."""
        assert self.worker is not None
        self.worker.engine.scheduler.stop()
        self.worker.poller.end()
        assert self.worker.dispatcher.join(time.monotonic() + 30)
        assert self.worker.failure is None
        self.worker = None

    def _register(self) -> UUID:
        return instances.register_instances(
            self.conn, "partbox", subscription="default", node="n", hostname="h", pids=[1], version="0", lease=600
        )[1]

    def _plan(self, numbers: set[int]) -> None:
        seen = instances.list_assignees(self.conn, "partbox", "default")
        assert self.instance is not None
        planned = [self.instance if number in numbers else None for number in range(256)]
        assert instances.assign_partitions(self.conn, "partbox", "default", [self.instance], seen, planned)

    def _worker(self, life: Life) -> Worker:
        settings = load(dsn=self.dsn, window=4, poll_idle=0.01, lease=600)
        lock = threading.Lock()
        random = Random(self.random.random())

        def handle(event: DeliveredEvent) -> None:
            with lock:
                life.delivered.append((event.id, event.aggregate_id, event.payload["n"]))
                slow = random.random() < 0.05
            if slow:
                time.sleep(0.02)

        handlers = Handlers()
        handlers.register(handle, "*")
        slot = Slot.create_local()
        slot.instance = self.instance
        slot.trust_until(boottime() + 600, time.time() + 600)
        return Worker(
            settings,
            handlers,
            Codecs(),
            slot,
            subscription="default",
            concurrency=self.random.choice([1, 4]),  # what is new stands in line, or in lanes
            dsn=lambda: self.dsn,
            is_replaceable=False,
        )


@contextmanager
def held_open(dsn: str, wanted: bool) -> Iterator[None]:
    """A transaction that has published and stays open to the end of the block."""
    with psycopg.connect(dsn) as conn:
        if wanted:
            writers.publish_freely(conn, 1)
        yield


@pytest.mark.parametrize(
    ("cap", "beside_an_open_transaction"),
    [
        pytest.param(1_000, False, marks=pytest.mark.thorough),
        (2, True),
        pytest.param(1_000, True, marks=pytest.mark.soak),
    ],
)
def test_nothing_is_lost_doubled_or_reordered(dsn, monkeypatch, cap, beside_an_open_transaction):
    """With a cap of two late records to a page many pages are cut."""
    seed = int(os.environ.get("PARTBOX_TEST_SEED") or randrange(2**32))
    print(f"PARTBOX_TEST_SEED={seed}")  # noqa: T201  # shown when the test fails, to run it again
    monkeypatch.setattr(cursor, "MAX_LATE", cap)
    monkeypatch.setattr(sweep, "MIN_PARTITIONS", 2)
    random = Random(seed)
    writers.prepare(dsn)
    cluster = Cluster(dsn, random)
    cluster.born()
    try:
        with held_open(dsn, beside_an_open_transaction), writers.writing(dsn, random):
            while len(cluster.lives) <= LIVES or cluster.published() < EVENTS:
                cluster.live()
                cluster.kill()
                cluster.born()
        cluster._plan(set(range(256)))
        check_delivered(cluster)
        check_order(cluster)
    finally:
        if cluster.worker is not None:
            cluster.kill()
        cluster.conn.close()


def check_delivered(cluster: Cluster) -> None:
    published = {id for (id,) in cluster.conn.execute("select id from partbox.record")}
    assert len(published) >= EVENTS

    def all_delivered() -> bool:
        missing = published - {id for life in cluster.lives for id, _, _ in life.delivered}
        assert not missing, f"lost: {sorted(missing)[:20]} of {len(published)}"
        return True

    eventually(all_delivered)
    assert {id for life in cluster.lives for id, _, _ in life.delivered} == published
    for life in cluster.lives:
        ids = [id for id, _, _ in life.delivered]
        assert len(ids) == len(set(ids)), "delivered twice within a life"


def check_order(cluster: Cluster) -> None:
    """In every life numbers rise; and over all lives no number is reached before those below it."""
    reached: dict[str | None, int] = defaultdict(int)
    for life in cluster.lives:
        last: dict[str | None, int] = {}
        for id, aggregate, number in life.delivered:
            if number:
                what = f"{aggregate} number {number} (record {id})"
                assert last.get(aggregate) in (None, number - 1), f"{what} follows {last[aggregate]}"
                assert number <= reached[aggregate] + 1, f"{what} comes before {reached[aggregate] + 1}"
                last[aggregate] = number
                reached[aggregate] = max(reached[aggregate], number)
    truth: Any = cluster.conn.execute("select 'locked-' || key, published from public.aggregate where published > 0")
    assert dict(reached) == dict(truth.fetchall())
