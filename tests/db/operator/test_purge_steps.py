"""A purge goes step by step, bounded, one purge at a time, in the lock order of all who write."""

import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from forked_commands import shared
from ownership import SCHEMA, background, blocked, join, save, saving, seize, worker
from psycopg.errors import QueryCanceled
from purgeable import DAY, Conn, Planted, many
from waiting import eventually

from partbox.db.delivery.proof import lower_cursors_sql
from partbox.db.operator import purge as steps
from partbox.operations.purge import Purged, purge
from partbox.protocol.rows import ParkedSave
from partbox.settings import load

OTHERS = {
    "dead": "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks,"
    " parked_at) select 'default', g, g % 256, 'A', 'T', 'dead', false, now() - g % 2 * interval '31 days'"
    " from generate_series(1, 2000) g",
    "keys": "insert into partbox.idempotency select 'k' || g, gen_random_uuid(), now() - g % 2 * interval '31 days'"
    " from generate_series(1, 2000) g",
    "inbox": "insert into partbox.inbox select 'c', gen_random_uuid(), now() - g % 2 * interval '31 days'"
    " from generate_series(1, 2000) g",
    "attempt": "insert into partbox.attempt (subscription, record_id, attempt, outcome)"
    " select 'default', g, 1, 'failed' from generate_series(1, 2000) g",
    "progress_note": "insert into partbox.progress_note"
    " (subscription, partition, at, last_id, snapshot, epoch, instance)"
    " select 'default', g % 256, now() - g % 2 * interval '31 days' - g * interval '1 ms', g, '1:1:', 1, '7 on n'"
    " from generate_series(1, 2000) g",
    "handled_types": "insert into partbox.handled_types (instance_id, subscription, at, types)"
    " select gen_random_uuid(), 'default', now() - g % 2 * interval '31 days', '[]' from generate_series(1, 2000) g",
    "action": "insert into partbox.action (at, who, action) select now() - g % 2 * interval '31 days', 'me', 'replay'"
    " from generate_series(1, 2000) g",
}
HISTORY = ("attempt", "progress_note", "handled_types", "action")


@pytest.fixture
def planted(conn) -> Planted:
    return Planted(conn)


@pytest.fixture
def purged(dsn):
    """Purges with the default retentions and the settings given."""

    def run(dry_run: bool = False, **keywords: Any) -> Purged:
        return purge(lambda: dsn, load(**keywords), dry_run=dry_run)

    return run


@pytest.mark.parametrize("batch", [1, 7, 99, 100, 500])
def test_every_step_takes_at_most_a_batch_and_together_they_take_all(conn, planted, batch):
    many(conn, 400)
    planted.consume(400)
    place, sizes = list(steps.START_POSITION), []
    while place is not None:
        step = steps.run_step(
            conn, "records", SCHEMA, place, retain=7 * DAY, retain_dead=DAY, batch=batch, dry_run=False
        )
        place = step.next_place
        sizes.append(step.deleted)
    assert max(sizes) <= batch
    assert (sum(sizes), planted.left()) == (400, [])


def test_a_purge_step_among_many_attempts_reads_only_its_own_range_of_ids(conn):
    """An index tells which are of records that went: a step that began with it read all of them, each time."""
    plant = OTHERS["attempt"].replace("2000", "400000")
    conn.execute(plant.encode())
    conn.execute("insert into partbox.meta (key, value) values ('purged_id', '100000')")
    many(conn, 300_000)
    conn.execute("analyze partbox.attempt, partbox.record")
    used = b"select idx_scan from pg_stat_user_indexes where indexrelname = 'attempt_pkey'"
    conn.execute("select pg_stat_force_next_flush()")
    before = conn.execute(used).fetchone()
    place = [1_000, 0]  # of what lies there none is of a record that went
    step = steps.run_step(conn, "history", SCHEMA, place, table="attempt", retain=0, batch=1_000, dry_run=False)
    conn.execute("select pg_stat_force_next_flush()")
    assert (step.deleted, step.next_place) == (0, [2_000, 0])
    assert conn.execute(used).fetchone() == before


@pytest.mark.parametrize("kind", ["attempt", "keys"])
def test_the_steps_of_a_purge_read_each_row_about_once(conn, kind):
    """Each step sorted the rows of a thousand blocks to find the first ones: 100,000 attempts were read 100 times."""
    rows = 20_000
    conn.execute(OTHERS[kind].replace("2000", str(rows)).replace("g % 2", "1").encode())
    conn.execute("insert into partbox.meta (key, value) values ('purged_id', %s)", [str(rows)])
    table, limits = ("attempt", {"table": kind}) if kind in HISTORY else ("idempotency", {})
    read = f"select seq_tup_read from pg_stat_user_tables where relid = 'partbox.{table}'::regclass".encode()
    conn.execute("select pg_stat_force_next_flush()")
    before, place, deleted = conn.execute(read).fetchone()[0], list(steps.START_POSITION), 0
    while place is not None:
        step = steps.run_step(
            conn, "history" if limits else kind, SCHEMA, place, retain=30 * DAY, batch=500, dry_run=False, **limits
        )
        place, deleted = step.next_place, deleted + step.deleted
    conn.execute("select pg_stat_force_next_flush()")
    assert deleted == rows
    assert rows <= conn.execute(read).fetchone()[0] - before <= 2 * rows


@pytest.mark.parametrize("kind", OTHERS)
def test_a_table_of_several_blocks_is_purged_and_counted_row_by_row(conn, planted, kind):
    """Of attempts those go whose records are gone, and above what was purged nothing is looked for."""
    planted.consume(2_000)
    conn.execute(OTHERS[kind].encode())
    if kind == "attempt":
        many(conn, 600)
        conn.execute("insert into partbox.meta (key, value) values ('purged_id', '1600')")
    table = {"dead": "parked", "keys": "idempotency", "inbox": "inbox"}.get(kind, kind)
    limits = {"retain": 30 * DAY, "batch": 23} | ({"table": kind} if kind in HISTORY else {})
    kind = "history" if kind in HISTORY else kind
    for dry_run in (True, False):
        place, deleted = list(steps.START_POSITION), []
        while place is not None:
            step = steps.run_step(conn, kind, SCHEMA, place, dry_run=dry_run, **limits)
            place = step.next_place
            deleted.append(step.deleted)
        assert sum(deleted) == 1_000
        assert max(deleted) <= 23
    assert conn.execute(f"select count(*) from partbox.{table}".encode()).fetchone() == (1_000,)


def test_records_that_stay_at_the_low_end_do_not_hide_purgeable_records_above(conn, planted, purged):
    many(conn, 1_000, partitions=1)
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " select 'default', id, partition, 'A', 'T', 'retrying', true from partbox.record where id <= 700"
    )
    planted.consume(1_000)
    assert purged(purge_batch=50) == Purged(records=300)
    assert planted.left() == [*range(1, 701)]


def test_a_record_from_the_future_does_not_hide_purgeable_records_above(conn, planted, purged):
    many(conn, 500, partitions=1)
    conn.execute("update partbox.record set created_at = now() + interval '9 days' where id in (1, 250)")
    planted.consume(500)
    purged()
    assert planted.left() == [1, 250]


def test_young_records_are_not_read_to_the_end(conn, planted):
    many(conn, 5_000, partitions=1, days=0)
    planted.consume(5_000)
    conn.execute("select pg_stat_force_next_flush()")
    before = tuples_read(conn)
    steps.run_step(
        conn, "records", SCHEMA, steps.START_POSITION, retain=7 * DAY, retain_dead=DAY, batch=500, dry_run=False
    )
    conn.execute("select pg_stat_force_next_flush()")
    assert tuples_read(conn) - before <= 200


def test_a_purge_reads_the_cursors_of_many_subscriptions_once_and_not_in_every_step(conn, planted):
    conn.execute("select setval('partbox.life', 1)")
    for number in range(20):
        planted.subscribe(f"number-{number}")
        planted.consume(2_000, subscription=f"number-{number}")
    many(conn, 2_000)
    planted.consume(2_000)
    flushed, read = (
        b"select pg_stat_force_next_flush()",
        b"select seq_tup_read + idx_tup_fetch from pg_stat_user_tables",
    )
    read += b" where schemaname = 'partbox' and relname = 'partition'"
    conn.execute(flushed)
    ((before,),) = conn.execute(read).fetchall()
    place, taken = steps.START_POSITION, 0
    while place is not None:
        limits = {"retain": 7 * DAY, "retain_dead": DAY, "batch": 100}
        place, taken = steps.run_step(conn, "records", SCHEMA, place, dry_run=False, **limits).next_place, taken + 1
    conn.execute(flushed)
    ((after,),) = conn.execute(read).fetchall()
    assert (planted.left(), taken) == ([], 20)
    assert after - before == 21 * 256


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("moved", ["created", "replayed", "replayed and paused", "read again", "lost in a crash"])
def test_a_step_keeps_what_a_subscription_needs_since_the_step_before(conn, planted, outbox, moved, dry_run):
    """The bounds of the step before count only if no cursor has gone back, and no subscription has begun."""
    conn.execute("select setval('partbox.life', 1)")
    many(conn, 200, partitions=1)
    planted.subscribe("audit")
    planted.consume(200)
    planted.consume(200, subscription="audit")
    conn.execute("select setval('partbox.record_id_seq', 200)")
    limits = {"retain": 7 * DAY, "retain_dead": DAY, "batch": 100, "dry_run": dry_run}
    first = steps.run_step(conn, "records", SCHEMA, steps.START_POSITION, **limits)
    assert first.deleted == 100
    match moved:
        case "created":
            outbox.subscriptions.create("late", "beginning")
        case "replayed":
            outbox.subscriptions.replay("audit", from_id=101)
        case "replayed and paused":
            outbox.subscriptions.pause("audit")
            outbox.subscriptions.replay("audit", from_id=101)
        case "read again":
            conn.execute(lower_cursors_sql(SCHEMA, 101).encode())
        case _:
            conn.execute("update partbox.partition set floor_id = 100, last_id = 100 where subscription = 'audit'")
            conn.execute("select setval('partbox.life', 2)")
    assert steps.run_step(conn, "records", SCHEMA, first.next_place, **limits).deleted == 0


def test_a_step_that_takes_too_long_is_repeated_with_half_the_batch_until_it_does_not(
    conn, planted, purged, monkeypatch
):
    many(conn, 600)
    planted.consume(600)
    run, batches = steps.run_step, list[int]()

    def run_slowly(conn: Conn, kind: steps.Kind, *place: Any, batch: int, **limits: Any) -> steps.PurgeStep | None:
        if kind == "records":
            batches.append(batch)
            if batch > 70:
                raise QueryCanceled
        return run(conn, kind, *place, batch=batch, **limits)

    monkeypatch.setattr(steps, "run_step", run_slowly)
    assert purged(purge_batch=500) == Purged(records=600)
    assert batches == [500, 250, 125, *[62] * 10]


def test_a_purge_whose_smallest_step_takes_too_long_fails(conn, planted, purged, monkeypatch):
    def time_out(*place: Any, **limits: Any) -> steps.PurgeStep | None:
        raise QueryCanceled

    monkeypatch.setattr(steps, "run_step", time_out)
    with pytest.raises(QueryCanceled):
        purged()


def test_the_greatest_id_that_was_ever_purged_is_remembered(planted, purged):
    planted.consume(100)
    marker = planted.conn.execute("select xmin::text, value from partbox.meta where key = 'marker'").fetchone()
    assert "purged_id" not in planted.meta()
    planted.record(40, partition=1)
    planted.record(9, partition=2)
    purged(dry_run=True)
    assert "purged_id" not in planted.meta()
    purged()
    assert planted.meta()["purged_id"] == "40"
    planted.record(12)
    purged()
    assert planted.meta()["purged_id"] == "40"
    planted.record(100)
    purged(purge_batch=1)
    assert planted.meta()["purged_id"] == "100"
    assert planted.conn.execute("select xmin::text, value from partbox.meta where key = 'marker'").fetchone() == marker


def test_owners_are_notified_of_dead_rows_that_were_purged(planted, purged, conn):
    planted.consume(100)
    for id, partition in ((1, 3), (2, 3), (3, 9)):
        planted.park(planted.record(id, partition), "dead", partition=partition)
    planted.park(planted.record(4, 5), "dead", partition=5, blocks=True)
    purged(dry_run=True)
    assert not conn.execute("select from partbox.partition where parked_version > 0").fetchall()
    purged()
    raised = conn.execute("select partition, parked_version from partbox.partition where parked_version > 0 order by 1")
    assert raised.fetchall() == [(3, 1), (9, 1)]


def test_a_purge_leaves_a_record_that_was_replayed_while_the_purge_waited(dsn, conn, planted, purged):
    """The purge has chosen the row and waits for the partition, as every writer of parked rows does."""
    planted.consume(100)
    planted.park(planted.record(1), "dead")
    with worker(dsn) as replaying, worker(dsn) as purging, background() as run:
        with replaying.transaction():
            replaying.execute("select from partbox.partition where partition = 0 for no key update")
            step = run(
                steps.run_step, purging, "dead", SCHEMA, steps.START_POSITION, retain=DAY, batch=500, dry_run=False
            )
            blocked(conn, purging)
            replaying.execute("update partbox.parked set state = 'ready' where record_id = 1")
        assert step.result() == (0, None)
    assert purged() == Purged()
    assert planted.left() == [1]


def test_saves_and_purges_of_dead_rows_do_not_lock_each_other_out(dsn, conn):
    """Saves name their partitions in any order, and what they park as dead expires at once."""
    (me,) = join(conn)
    mine = seize(conn, me)
    done = Counter({"saves 1": 0, "saves 2": 0, "purges": 0})

    def saves(seed: int) -> None:
        random = Random(seed)
        with worker(dsn) as own:
            while min(done.values()) < 30:
                some = random.sample(sorted(mine), 100)
                parks = [
                    ParkedSave(n, random.randrange(10**6), "A", "a", "T", "dead", blocks=False, attempts=1)
                    for n in some
                ]
                savings = [saving(mine[n], "5:5:", 10**6, 10**6) for n in some]
                done[f"saves {seed}"] += len(save(own, me, savings, parks=parks)) == 100

    def purges() -> None:
        with worker(dsn) as own:
            while min(done.values()) < 30:
                step = steps.run_step(own, "dead", SCHEMA, steps.START_POSITION, retain=0.0, batch=300, dry_run=False)
                done["purges"] += step.deleted > 0 if step else 0

    with background() as run:
        for each in [run(saves, 1), run(saves, 2), run(purges)]:
            each.result()


@pytest.mark.parametrize("kind", ["records", "dead", "keys", "inbox"])
def test_a_step_does_nothing_while_somebody_else_purges(dsn, conn, planted, kind):
    planted.consume(100)
    planted.park(planted.record(1), "dead")
    more = {"retain_dead": 0.0} if kind == "records" else {}
    with worker(dsn) as other, other.transaction():
        steps.run_step(other, "keys", SCHEMA, steps.START_POSITION, retain=DAY, batch=1, dry_run=False)
        assert (
            steps.run_step(conn, kind, SCHEMA, steps.START_POSITION, retain=0.0, batch=1, dry_run=False, **more) is None
        )
        assert conn.execute("select partbox.locked('segments')").fetchone() == (True,), "that is another thing to do"
    assert planted.left() == [1]


def test_a_purge_that_finds_another_at_work_says_so_and_stops(dsn, conn, planted, purged):
    planted.consume(100)
    planted.record(1)
    with worker(dsn) as other, other.transaction():
        other.execute("select partbox.locked('purge')")
        assert purged() == Purged(complete=False)
        assert purged(dry_run=True) == Purged(records=1)
    assert purged() == Purged(records=1)


def test_concurrent_purges_remove_each_record_once_and_at_least_one_completes(dsn, conn, planted):
    many(conn, 3_000)
    planted.consume(3_000)
    with ThreadPoolExecutor(4) as pool:
        ran = [*pool.map(lambda _: purge(lambda: dsn, load(purge_batch=10)), range(4))]
    assert sum(each.records for each in ran) == 3_000
    assert any(each.complete for each in ran)
    assert planted.left() == []


def test_a_purge_may_be_stopped_between_two_steps(dsn, conn, planted):
    many(conn, 1_000)
    planted.consume(1_000)
    heard: list[Purged] = []
    went = purge(lambda: dsn, load(purge_batch=100), is_stopped=lambda: len(heard) == 4, progress=heard.append)
    assert not went.complete
    assert went == heard[-1]
    assert len(planted.left()) == 1_000 - went.records
    assert 0 < went.records < 1_000


def test_records_left_by_a_killed_purge_are_removed_by_the_next_one(dsn, conn, planted, purged):
    many(conn, 3_000)
    conn.execute("update partbox.record set created_at = now() where id > 2500")
    planted.consume(3_000)
    process = shared().start("partbox", "purge", env=os.environ | {"PARTBOX_DSN": dsn, "PARTBOX_PURGE_BATCH": "1"})
    eventually(lambda: len(planted.left()) < 2_900)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    eventually(
        lambda: not conn.execute("select from pg_stat_activity where application_name = 'partbox purge'").rowcount
    )
    left = planted.left()
    assert 500 < len(left) < 2_900
    assert int(planted.meta()["purged_id"]) == max(set(range(1, 3_001)) - set(left))
    assert purged() == Purged(records=len(left) - 500)
    assert planted.left() == [*range(2_501, 3_001)]


def tuples_read(conn: Conn) -> int:
    """How many index entries of the log were read so far."""
    row = conn.execute(
        "select sum(idx_tup_read) from pg_stat_all_indexes where schemaname = 'partbox' and relname like 'record%'"
    ).fetchone()
    return int(row[0])
