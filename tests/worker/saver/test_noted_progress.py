"""From notes of progress and rows of attempts it follows between which times an event was delivered, and by whom."""

import os
import random
import threading
import time

import psycopg
import pytest

from partbox.protocol.horizon import Page
from partbox.protocol.rows import OwnedPartition, ProgressNote
from partbox.worker.engine import last_save
from partbox.worker.engine.partition import Partition

PLAIN = """
select (r.payload ->> 'number')::integer, extract(epoch from greatest(r.created_at, low.at))::float8,
       extract(epoch from high.at)::float8, high.instance
  from partbox.record r
  left join lateral (select n.at, n.instance from partbox.progress_note n
                      where n.partition = r.partition and r.id <= n.last_id
                            and pg_visible_in_snapshot(r.xid, n.snapshot)
                      order by n.at limit 1) high on true
  left join lateral (select max(n.read_at) as at from partbox.progress_note n
                      where n.partition = r.partition and n.read_id < r.id and n.at <= high.at) low on true
 where not exists (select from partbox.attempt a where a.record_id = r.id)"""
WAITED = """
select (r.payload ->> 'number')::integer, extract(epoch from a.at)::float8
  from partbox.attempt a join partbox.record r on r.id = a.record_id where a.outcome = 'done'"""


@pytest.fixture
def often(monkeypatch):
    """Each save notes what it has."""
    monkeypatch.setattr(last_save, "NOTE_EVERY", 0.0)


def counted(desk):
    return desk.conn.execute("select count(*) from partbox.progress_note").fetchone()[0]


class Teller:
    """A handler that keeps when it has ended with each number, takes a while with some, and fails with some first."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.ended = {}
        self.lock = threading.Lock()

    def handle(self, event):
        with self.lock:
            naps, fails = self.random.random() < 0.1, self.random.random() < 0.03
        if naps:
            threading.Event().wait(0.03)
        if fails and event.attempt == 1:
            raise ValueError("not at the first go")
        with self.lock:
            self.ended[event.payload["number"]] = time.time()

    def within(self, event, conn):
        self.handle(event)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("transactional", [False, True])
def test_each_delivery_happened_between_the_times_that_are_noted(desk_with, dsn, transactional):
    """Beside transactions that commit late, with handlers that end out of order, and workers one after the other."""
    seed = random.randrange(1_000_000)
    desk, teller, rand = desk_with(retry="fixed:0s"), Teller(seed), random.Random(seed)
    desk.outbox.register(teller.within if transactional else teller.handle, "Counted", transactional=transactional)
    numbers = iter(range(1_000_000))
    with psycopg.connect(dsn) as late:
        for _ in range(3):
            with desk.outbox.worker(concurrency=4):
                for _ in range(8):
                    key = f"k{rand.randrange(300)}"
                    behind = [next(numbers) for _ in range(5)]
                    desk_publish(desk, late, f"l{rand.randrange(300)}", behind)  # lower ids, which commit later
                    desk.publish(key, *(next(numbers) for _ in range(10)))
                    for _ in range(10):
                        desk.publish(f"k{rand.randrange(300)}", next(numbers))
                    late.commit()
                published = next(numbers)
                desk.publish(None, published)
                desk.eventually(lambda published=published: published in teller.ended)
                desk.eventually(desk.all_done)
    plain, waited = desk.conn.execute(PLAIN).fetchall(), dict(desk.conn.execute(WAITED).fetchall())
    assert {number for number, *_ in plain}.isdisjoint(waited)
    assert {number for number, *_ in plain} | waited.keys() == teller.ended.keys()
    for number, low, high, instance in plain:
        assert low <= teller.ended[number] <= high, (seed, number, low, teller.ended[number], high)
        assert instance.startswith(f"{os.getpid()} on ")
    assert all(teller.ended[number] <= at for number, at in waited.items())
    assert waited
    narrow = sum(high - low < 1.0 for _, low, high, _ in plain)
    assert narrow > len(plain) / 2, "most are known to within a second"


def desk_publish(desk, conn, key, numbers):
    """Publish within a transaction that stays open."""
    for number in numbers:
        desk.outbox.publish(conn, "Counted", {"number": number}, aggregate_type="Key", aggregate_id=key)


def test_a_partition_is_noted_once_a_minute_and_when_it_is_released(desk):
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        for number in range(5):
            desk.publish("k", number)
            desk.eventually(desk.all_done)
        assert counted(desk) == 0
    assert counted(desk) == 1
    with desk.outbox.worker():
        pass
    assert counted(desk) == 1, "a release after which nothing has become of anything says nothing new"


@pytest.mark.usefixtures("often")
def test_nothing_is_noted_where_no_history_is_kept(desk_with):
    desk = desk_with(retain_history="0s")
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        desk.publish("k", 1)
        desk.eventually(desk.all_done)
    assert counted(desk) == 0


def test_progress_notes_include_records_that_were_read_before_a_lost_connection():
    """It may have been done then, though it is read anew from the saved cursor."""
    claimed = OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)
    partition = Partition(claimed, 0.0, window=100, dead_letters=False, notes=True)
    partition.cursor.last_id = 50
    partition.reset(1.0)
    partition.begin_reading(claimed._replace(epoch=2), 1.0)
    assert partition.build_note(1, 59.0, release=False) is None
    assert partition.build_note(1, 60.0, release=False) == ProgressNote(5, 50)
    partition.progress.take_page(Page("9:9:", 70), [], [60, 70])
    assert partition.build_note(1, 60.0, release=False) == ProgressNote(5, 70)
    assert partition.build_note(0, 90.0, release=True) is None


@pytest.mark.parametrize("is_in_flight", [False, True])
def test_progress_that_was_saved_before_a_lost_connection_is_noted_at_the_release(is_in_flight):
    """Though nothing has become of anything since, or the next owner would be told to have delivered it."""
    claimed = OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)
    partition = Partition(claimed, 0.0, window=100, dead_letters=False, notes=True)
    target = partition.progress.find_save_target()
    partition.note_saved(target, 0 if is_in_flight else 1, 1.0)
    partition.last_save.is_in_flight = is_in_flight
    partition.reset(2.0)
    partition.begin_reading(claimed, 2.0)
    assert partition.build_note(0, 3.0, release=False) is None
    assert partition.build_note(0, 3.0, release=True) is not None
    partition.note_saved(target, 0, 3.0, noted=True)
    assert partition.build_note(0, 4.0, release=True) is None


def test_the_first_events_of_an_owner_carry_its_name_though_they_were_published_before_it_came(desk):
    """While it works, when it has gone, and after the next one has taken its partitions over."""
    desk.outbox.register(desk.note, "Counted")
    unnamed = "select count(*), count(*) filter (where process is null) from partbox.delivery"
    for turn in (1, 2):
        for number in range(100):
            desk.publish(f"{number}", turn)
        with desk.outbox.worker() as worker:
            assert worker.wait_until_empty(60)
            assert desk.conn.execute(unnamed).fetchone() == (100 * turn, 0)
        assert desk.conn.execute(unnamed).fetchone() == (100 * turn, 0)


def test_an_event_published_before_its_subscription_was_made_is_shown_as_delivered(desk):
    desk.publish("k", 1)
    desk.outbox.subscriptions.create("later")
    desk.outbox.register(desk.note, "Counted", subscription="later")
    with desk.outbox.worker(subscription="later") as worker:
        assert worker.wait_until_empty(60)
        (found,) = desk.outbox.records.find(aggregate="k").records
    assert {each.subscription: each.state for each in found.standings} == {"default": "waiting", "later": "delivered"}
