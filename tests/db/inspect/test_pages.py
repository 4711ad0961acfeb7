"""`outbox.stats`: numbers, and records a page at a time."""

import random

import psycopg
import pytest
from observing import consume, publish, subscribe

from partbox.errors import PartboxError, SchemaError


def ids(records) -> list[int]:
    return [each.id for each in records]


def test_a_failed_record_that_is_gone_from_the_log_has_no_time(plant, outbox):
    dead = plant.park("a", "dead", attempts=3)
    plant.conn.execute("delete from partbox.record")
    (failed,) = outbox.stats.failed()
    assert (failed.id, failed.event_id, failed.created_at) == (dead, None, None)
    assert outbox.dead.show(dead).published_at is None


def walked(page, limit: int) -> list[int]:
    """The ids of all pages, one after the other."""
    found: list[int] = []
    while records := page(limit=limit, after=found[-1] if found else None):
        assert len(records) <= limit
        assert not found or records[0].id > found[-1]
        found += ids(records)
    return found


def test_every_record_is_on_one_kind_of_page(plant, outbox):
    done = plant.park("a", "ready")
    plant.conn.execute("delete from partbox.parked")
    retrying = plant.park("a", "retrying", blocks=True, attempts=2, error="ValueError: boom")
    held = plant.park("a", "held", blocks=True, attempts=0, error=None)
    dead = plant.park("b", "dead", attempts=10)
    plant.publish("c", payload={"card": "sesame"})
    stats = outbox.stats
    assert ids(stats.completed()) == [done]
    assert ids(stats.failed()) == [retrying, dead]
    assert ids(stats.parked()) == [retrying, held, dead]
    (pending,) = stats.pending()
    assert (pending.event_type, pending.aggregate_type, pending.aggregate_id) == ("Placed", "Order", "c")
    assert (pending.status, pending.attempts, pending.last_error) == ("pending", 0, None)
    failed = stats.failed()[0]
    assert (failed.status, failed.attempts, failed.last_error) == ("retrying", 2, "ValueError: boom")
    assert failed.event_id == plant.event_id(retrying)
    assert failed.created_at.tzinfo is not None
    assert stats.completed()[0].status == "completed"
    assert "sesame" not in repr(pending)
    assert stats.records() == {
        "pending": 1,
        "completed": 1,
        "retrying": 1,
        "deferred": 0,
        "scheduled": 0,
        "held": 1,
        "ready": 0,
        "dead": 1,
        "discarded": 0,
    }


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_pages_agree_with_the_status_view_on_every_record(conn, dsn, outbox, seed):
    chance = random.Random(seed)
    subscribe(conn, "audit")
    with psycopg.connect(dsn) as slow:
        for _ in range(6):
            publish(conn, chance.randrange(5), chance.randrange(1, 9))
            publish(slow, chance.randrange(5), 2)
            newest = outbox.stats.overview().newest_id
            for partition in range(5):
                at = chance.randrange(newest + 1)
                consume(conn, "audit", partition, last_id=at, floor_id=chance.randrange(at + 1))
        slow.commit()
    said = conn.execute(
        "select id, status from partbox.record_status where subscription = 'audit' order by id"
    ).fetchall()
    for limit in (1, 7, 1_000):
        pending = walked(lambda **page: outbox.stats.pending("audit", **page), limit)
        completed = walked(lambda **page: outbox.stats.completed("audit", **page), limit)
        assert pending == [id for id, status in said if status == "pending"]
        assert completed == [id for id, status in said if status == "done"]


def test_subscriptions_have_pages_of_their_own(conn, plant, outbox):
    subscribe(conn, "audit")
    record = plant.park("a", "dead")
    consume(conn)
    assert (ids(outbox.stats.failed()), ids(outbox.stats.failed("audit"))) == ([record], [])
    outbox.subscriptions.pause("audit")
    assert [each.paused for each in outbox.stats.overview().clusters] == [True, False]


def test_partitions_and_cluster_are_those_of_the_subscription(conn, outbox):
    publish(conn, 3, 2)
    assert [each.pending for each in outbox.stats.partitions()][:5] == [0, 0, 0, 2, 0]
    assert outbox.stats.cluster().pending == 2


PAGES = ["records", "partitions", "cluster", "pending", "failed", "parked", "completed"]


def test_a_mistyped_subscription_does_not_look_empty(outbox):
    for name in PAGES:
        with pytest.raises(SchemaError, match="'audit' does not exist in schema 'partbox': there is 'default'"):
            pytest.fail(f"{name}: {getattr(outbox.stats, name)('audit')}")
        with pytest.raises(PartboxError, match="subscription"):
            pytest.fail(f"{name}: {getattr(outbox.stats, name)('a' + chr(0) + 'b')}")


WRONG_LIMITS = [0, -1, True, 1.5, 1_001]


def test_a_page_has_one_to_a_thousand_records(outbox):
    for limit in WRONG_LIMITS:
        with pytest.raises(PartboxError, match="limit"):
            pytest.fail(f"{limit!r} is taken: {outbox.stats.pending(limit=limit)}")


NO_IDS = [-1, True, "7", 1 << 63]


def test_a_page_begins_after_a_record_id(outbox):
    for after in NO_IDS:
        with pytest.raises(PartboxError, match="after"):
            pytest.fail(f"{after!r} is taken: {outbox.stats.pending(after=after)}")


def test_reading_a_page_of_a_deep_log_reads_about_one_page_of_each_partition(conn, outbox):
    """Of 40,000 records in one partition a page of ten reads as many rows as it has to."""
    publish(conn, 7, 40_000)
    conn.execute("vacuum analyze partbox.record")
    assert ids(outbox.stats.pending(limit=10, after=39_980)) == list(range(39_981, 39_991))
    conn.execute("select pg_stat_force_next_flush()")
    before = fetched(conn)
    assert ids(outbox.stats.pending(limit=10, after=100)) == list(range(101, 111))
    assert fetched(conn) - before < 1_000


def fetched(conn) -> int:
    """Index entries of the log that were read so far."""
    conn.execute("select pg_stat_force_next_flush()")
    ((count,),) = conn.execute(
        "select sum(idx_tup_read) from pg_stat_user_indexes where relname like 'record%'"
    ).fetchall()
    return int(count)
