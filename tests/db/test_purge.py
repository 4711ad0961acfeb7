"""Only what is terminal in every subscription, and expired, is purged; in steps, by one purge at a time."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ownership import DEFAULT, SCHEMA, background, blocked, join, save, saving, seize, worker
from waiting import eventually

from partbox import Outbox
from partbox.db import purge as steps
from partbox.db.parked import park
from partbox.purge import Purged, purge
from partbox.settings import load

Conn = psycopg.Connection[Any]

DAY = 86_400.0
OLD, YOUNG, ANCIENT = 8.0, 6.0, 31.0
"""Days: past the retention of handled records, within it, past that of dead ones."""
SLOW = "slow"


@dataclass
class Planted:
    """Records and parked rows as they would be, with ages in days."""

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


@pytest.fixture
def planted(conn) -> Planted:
    return Planted(conn)


@pytest.fixture
def purged(dsn):
    """Purges with the default retentions and the settings given."""

    def run(dry_run: bool = False, **keywords: Any) -> Purged:
        return purge(lambda: dsn, load(**keywords), dry_run=dry_run)

    return run


def test_only_what_is_terminal_everywhere_and_expired_goes(planted, purged):
    """The acceptance: every state, a fast subscription, and a slow one that is paused."""
    planted.subscribe(SLOW)
    planted.conn.execute("update partbox.subscription set paused_at = now() where name = %s", [SLOW])
    planted.consume(100)
    planted.consume(60, 50, SLOW)
    going = [planted.record(id) for id in (1, 2, 50)]
    for id in (51, 60):  # passed by the slow cursor, but above its floor: a late one may yet come
        planted.record(id)
    planted.record(61)  # the slow one has not read it
    planted.record(101)  # nobody has
    planted.record(200, partition=7)
    planted.consume(300, partition=7)  # only the fast one
    for id, state in enumerate(("retrying", "deferred", "scheduled", "held", "ready"), start=10):
        planted.record(id)
        planted.park(id, state, due=state in ("retrying", "deferred", "scheduled"), blocks=state != "scheduled")
        planted.record(id + 10)  # the same, parked by the slow one only
        planted.park(id + 10, state, SLOW, due=state in ("retrying", "deferred", "scheduled"))
    deaths = {
        30: {"age": 29},  # died within its retention
        31: {"blocks": True},  # its key waits for it
        32: {"due": True},  # its dead-letter hook is owed
    }
    for id, how in deaths.items():
        planted.park(planted.record(id), "dead", **how)
    for id in (33, 34, 35, 55):
        planted.record(id)
    planted.park(33, "dead")
    planted.park(34, "dead", SLOW)
    planted.park(35, "dead")
    planted.park(35, "retrying", SLOW, due=True, blocks=True)
    planted.park(55, "dead", SLOW)  # above its floor: the row alone says that it was consumed
    planted.park(planted.record(36, age=YOUNG), "dead", age=ANCIENT)  # a clock that was wrong
    going += [33, 34]
    planted.record(40, age=YOUNG)

    before, rows = planted.left(), planted.parked()
    expected = Purged(records=5, dead=4)
    assert purged(dry_run=True) == expected
    assert (planted.left(), planted.parked()) == (before, rows)
    assert purged() == expected
    assert sorted(set(before) - set(planted.left())) == sorted(going)
    assert sorted(set(rows) - set(planted.parked())) == [(DEFAULT, 33), (DEFAULT, 35), (DEFAULT, 36), (SLOW, 34)]
    assert purged() == Purged()

    planted.conn.execute("delete from partbox.parked")
    planted.consume(500)
    planted.consume(500, 500, SLOW)
    purged()
    assert planted.left() == [36, 40]


@dataclass
class Model:
    """The rule in plain Python."""

    records: dict[int, tuple[int, float]] = field(default_factory=dict)
    cursors: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    rows: dict[tuple[str, int], tuple[str, float, bool, bool]] = field(default_factory=dict)

    def passed(self, name: str, id: int) -> bool:
        return id <= min(self.cursors[name, self.records[id][0]])

    def rows_left(self) -> list[tuple[str, int]]:
        return sorted(
            (name, id)
            for (name, id), (state, age, blocks, due) in self.rows.items()
            if state != "dead" or age <= 30 or blocks or due or not self.passed(name, id)
        )

    def left(self) -> list[int]:
        kept = {id for _, id in self.rows_left()}
        names = {name for name, _ in self.cursors}
        return sorted(
            id
            for id, (_, age) in self.records.items()
            if age <= 7 or id in kept or not all(self.passed(name, id) for name in names)
        )


IDS = st.integers(1, 12)
ROWS = st.tuples(
    st.sampled_from(["dead", "dead", "dead", "retrying", "held"]), st.sampled_from([29.0, 31.0]), *[st.booleans()] * 2
)
MODELS = st.builds(
    Model,
    records=st.fixed_dictionaries(
        {id: st.tuples(st.sampled_from([0, 255]), st.sampled_from([6.0, 8.0])) for id in range(1, 13)}
    ),
    cursors=st.one_of(
        st.fixed_dictionaries({(n, p): st.tuples(IDS, IDS) for n in names for p in (0, 255)})
        for names in ([DEFAULT], [DEFAULT, SLOW])
    ),
    rows=st.dictionaries(st.tuples(st.just(DEFAULT), IDS), ROWS, max_size=6),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=MODELS, batch=st.integers(1, 5))
def test_a_purge_leaves_what_the_rule_says(dsn, conn, model, batch):
    conn.execute("truncate partbox.record, partbox.parked, partbox.subscription, partbox.partition")
    planted = Planted(conn)
    for name in {name for name, _ in model.cursors}:
        planted.subscribe(name)
    for (name, partition), (last_id, floor_id) in model.cursors.items():
        planted.consume(last_id, floor_id, name, partition=partition)
    for id, (partition, age) in model.records.items():
        planted.record(id, partition, age)
    for (name, id), (state, age, blocks, due) in model.rows.items():
        planted.park(id, state, name, partition=model.records[id][0], age=age, blocks=blocks, due=due)
    went = Purged(records=len(model.records) - len(model.left()), dead=len(model.rows) - len(model.rows_left()))
    counted = purge(lambda: dsn, load(), dry_run=True)
    assert purge(lambda: dsn, load(purge_batch=batch)) == went == counted
    assert (planted.left(), planted.parked()) == (model.left(), model.rows_left())


def test_a_subscription_without_a_cursor_keeps_everything(planted, purged):
    planted.record(1)
    planted.consume(10)
    planted.conn.execute("insert into partbox.subscription (name) values ('half')")
    assert purged() == Purged()


def test_retentions_count_from_publish_and_from_death(planted, purged):
    planted.consume(10)
    planted.record(1, age=3)
    planted.park(planted.record(2, age=100), "dead", age=5)
    assert purged(retain_done="4d", retain_dead="6d") == Purged()
    assert purged(retain_done="2d", retain_dead="6d") == Purged(records=1)
    assert purged(retain_done="4d", retain_dead="4d") == Purged(records=1, dead=1)
    planted.record(3, age=0)
    assert purged(retain_done=0) == Purged(records=1)
    assert purged(retain_done=1e299) == Purged()


def test_old_keys_and_inbox_rows_go_and_young_ones_stay(conn, purged):
    for days in (6, 8, 29, 31):
        created = f"clock_timestamp() - interval '{days} days'"
        conn.execute(f"insert into partbox.idempotency select 'k{days}', gen_random_uuid(), {created}".encode())
        conn.execute(f"insert into partbox.inbox select 'c{days}', gen_random_uuid(), {created}".encode())
    assert purged(dry_run=True) == purged() == Purged(keys=3, inbox=1)
    assert conn.execute("select key from partbox.idempotency").fetchall() == [("k6",)]
    assert sorted(conn.execute("select consumer from partbox.inbox").fetchall()) == [("c29",), ("c6",), ("c8",)]


@pytest.mark.parametrize("batch", [1, 7, 99, 100, 500])
def test_every_step_takes_at_most_a_batch_and_together_they_take_all(conn, planted, batch):
    many(conn, 1_000)
    planted.consume(1_000)
    place, sizes = list(steps.START), []
    while place is not None:
        step = steps.records(conn, SCHEMA, place, retain=7 * DAY, retain_dead=DAY, batch=batch, dry_run=False)
        place = step.onward
        sizes.append(step.gone)
    assert max(sizes) <= batch
    assert (sum(sizes), planted.left()) == (1_000, [])


@pytest.mark.parametrize("kind", ["dead", "keys", "inbox"])
def test_a_table_of_several_blocks_is_purged_and_counted_row_by_row(conn, planted, kind):
    planted.consume(5_000)
    conn.execute(OTHERS[kind].encode())
    table = {"dead": "parked", "keys": "idempotency", "inbox": "inbox"}[kind]
    for dry_run in (True, False):
        place, gone = list(steps.START), []
        while place is not None:
            step = getattr(steps, kind)(conn, SCHEMA, place, retain=30 * DAY, batch=7, dry_run=dry_run)
            place = step.onward
            gone.append(step.gone)
        assert sum(gone) == 2_500
        assert max(gone) <= 7
    assert conn.execute(f"select count(*) from partbox.{table}".encode()).fetchone() == (2_500,)


def test_survivors_at_the_low_end_do_not_hide_what_lies_above(conn, planted, purged):
    many(conn, 1_000, partitions=1)
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " select 'default', id, partition, 'A', 'T', 'retrying', true from partbox.record where id <= 700"
    )
    planted.consume(1_000)
    assert purged(purge_batch=50) == Purged(records=300)
    assert planted.left() == [*range(1, 701)]


def test_a_record_of_the_future_does_not_hide_what_lies_above(conn, planted, purged):
    many(conn, 500, partitions=1)
    conn.execute("update partbox.record set created_at = now() + interval '9 days' where id in (1, 250)")
    planted.consume(500)
    purged()
    assert planted.left() == [1, 250]


def test_young_records_are_not_read_to_the_end(conn, planted):
    many(conn, 5_000, partitions=1, days=0)
    planted.consume(5_000)
    conn.execute("select pg_stat_force_next_flush()" if conn.info.server_version >= 150000 else "select 1")
    before = tuples_read(conn)
    steps.records(conn, SCHEMA, steps.START, retain=7 * DAY, retain_dead=DAY, batch=500, dry_run=False)
    conn.execute("select pg_stat_force_next_flush()")
    assert tuples_read(conn) - before <= 200


def test_the_greatest_id_that_ever_went_is_kept(planted, purged):
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


def test_owners_are_told_of_dead_rows_that_went(planted, purged, conn):
    planted.consume(100)
    for id, partition in ((1, 3), (2, 3), (3, 9)):
        planted.park(planted.record(id, partition), "dead", partition=partition)
    planted.park(planted.record(4, 5), "dead", partition=5, blocks=True)
    purged(dry_run=True)
    assert not conn.execute("select from partbox.partition where parked_version > 0").fetchall()
    purged()
    raised = conn.execute("select partition, parked_version from partbox.partition where parked_version > 0 order by 1")
    assert raised.fetchall() == [(3, 1), (9, 1)]


def test_a_replay_that_was_faster_keeps_its_record(dsn, conn, planted, purged):
    """The purge has chosen the row and waits for the partition, as every writer of parked rows does."""
    planted.consume(100)
    planted.park(planted.record(1), "dead")
    with worker(dsn) as replaying, worker(dsn) as purging, background() as run:
        with replaying.transaction():
            replaying.execute("select from partbox.partition where partition = 0 for no key update")
            step = run(steps.dead, purging, SCHEMA, steps.START, retain=DAY, batch=500, dry_run=False)
            blocked(conn, purging)
            replaying.execute("update partbox.parked set state = 'ready' where record_id = 1")
        assert step.result() == (0, None)
    assert purged() == Purged()
    assert planted.left() == [1]


def test_saves_and_purges_of_dead_rows_do_not_lock_each_other_out(dsn, conn):
    """Saves name their partitions in any order, and what they park as dead expires at once."""
    (me,) = join(conn)
    mine = seize(conn, me)
    ends = time.monotonic() + 2.0

    def saves(seed: int) -> int:
        random, count = Random(seed), 0
        with worker(dsn) as own:
            while time.monotonic() < ends:
                some = random.sample(sorted(mine), 100)
                parks = [
                    park(n, random.randrange(10**6), "A", "a", "T", "dead", blocks=False, attempts=1) for n in some
                ]
                savings = [saving(mine[n], "5:5:", 10**6, 10**6) for n in some]
                count += len(save(own, me, savings, parks=parks)) == 100
        return count

    def purges() -> int:
        gone = 0
        with worker(dsn) as own:
            while time.monotonic() < ends:
                step = steps.dead(own, SCHEMA, steps.START, retain=0.0, batch=300, dry_run=False)
                gone += step.gone if step else 0
        return gone

    with background() as run:
        done = [run(saves, 1), run(saves, 2), run(purges)]
        assert all(each.result() > 20 for each in done)


@pytest.mark.parametrize("kind", ["records", "dead", "keys", "inbox"])
def test_a_step_does_nothing_while_somebody_else_purges(dsn, conn, planted, kind):
    planted.consume(100)
    planted.park(planted.record(1), "dead")
    more = {"retain_dead": 0.0} if kind == "records" else {}
    with worker(dsn) as other, other.transaction():
        steps.keys(other, SCHEMA, steps.START, retain=DAY, batch=1, dry_run=False)
        assert getattr(steps, kind)(conn, SCHEMA, steps.START, retain=0.0, batch=1, dry_run=False, **more) is None
        other_schema = conn.execute(
            "select pg_try_advisory_lock(hashtext('partbox.purge'), hashtext('orders'))"
        ).fetchone()
        assert other_schema == (True,)
    assert planted.left() == [1]


def test_a_purge_that_finds_another_at_work_says_so_and_stops(dsn, conn, planted, purged):
    planted.consume(100)
    planted.record(1)
    with worker(dsn) as other, other.transaction():
        other.execute("select pg_advisory_xact_lock(hashtext('partbox.purge'), hashtext('partbox'))")
        assert purged() == Purged(complete=False)
        assert purged(dry_run=True) == Purged(records=1)
    assert purged() == Purged(records=1)


def test_of_many_purges_at_once_each_record_goes_once_and_one_ends_the_work(dsn, conn, planted):
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
    went = purge(lambda: dsn, load(purge_batch=100), stopped=lambda: len(heard) == 4, progress=heard.append)
    assert not went.complete
    assert went == heard[-1]
    assert len(planted.left()) == 1_000 - went.records
    assert 0 < went.records < 1_000


def test_a_purge_that_is_killed_leaves_what_the_next_one_takes(dsn, conn, planted, purged):
    many(conn, 3_000)
    conn.execute("update partbox.record set created_at = now() where id > 2500")
    planted.consume(3_000)
    process = subprocess.Popen(
        [sys.executable, "-c", "from partbox.cli import main; main(['purge'])"],
        env=os.environ | {"PARTBOX_DSN": dsn, "PARTBOX_PURGE_BATCH": "1"},
    )
    eventually(lambda: len(planted.left()) < 2_900)
    process.send_signal(signal.SIGKILL)
    process.wait()
    eventually(
        lambda: not conn.execute("select from pg_stat_activity where application_name = 'partbox purge'").rowcount
    )
    left = planted.left()
    assert 500 < len(left) < 2_900
    assert int(planted.meta()["purged_id"]) == max(set(range(1, 3_001)) - set(left))
    assert purged() == Purged(records=len(left) - 500)
    assert planted.left() == [*range(2_501, 3_001)]


def test_without_a_subscription_records_go_by_age_alone(planted, purged, dsn):
    planted.conn.execute("delete from partbox.partition")
    planted.conn.execute("delete from partbox.subscription")
    planted.record(1)
    planted.record(2, partition=255)
    planted.record(3, age=YOUNG)
    with psycopg.connect(dsn) as writer:
        Planted(writer).record(4)  # not committed yet
        assert purged(dry_run=True) == purged() == Purged(records=2)
        writer.commit()
    assert planted.left() == [3, 4]
    assert purged() == Purged(records=1)


def test_a_logical_copy_is_not_purged(planted, purged):
    """Its cursors are those of another cluster, and might call done what nobody has read."""
    planted.consume(100)
    planted.record(1)
    planted.conn.execute("update partbox.meta set xid = '3' where key = 'marker'")
    with pytest.raises(Exception, match="is a logical copy"):
        purged()
    assert planted.left() == [1]


def test_the_outbox_purges_from_python(dsn, planted):
    planted.consume(100)
    planted.record(1)
    outbox = Outbox(dsn)
    assert outbox.purge(dry_run=True) == Purged(records=1)
    assert planted.left() == [1]
    assert outbox.purge() == Purged(records=1)
    assert planted.left() == []


def test_another_schema_s_purge_touches_only_its_own(dsn, planted):
    from partbox.db.migrate import migrate

    name = "o'x\"; %s {x} %I"
    migrate(dsn, name)
    planted.consume(100)
    planted.park(planted.record(1), "dead")
    assert purge(lambda: dsn, load(schema=name)) == Purged()
    assert planted.left() == [1]


OTHERS = {
    "dead": "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks,"
    " parked_at) select 'default', g, g % 256, 'A', 'T', 'dead', false, now() - g % 2 * interval '31 days'"
    " from generate_series(1, 5000) g",
    "keys": "insert into partbox.idempotency select 'k' || g, gen_random_uuid(), now() - g % 2 * interval '31 days'"
    " from generate_series(1, 5000) g",
    "inbox": "insert into partbox.inbox select 'c', gen_random_uuid(), now() - g % 2 * interval '31 days'"
    " from generate_series(1, 5000) g",
}


def many(conn: Conn, count: int, *, partitions: int = 256, days: float = OLD) -> None:
    """Plant `count` records in turn in the partitions."""
    conn.execute(
        "insert into partbox.record (id, partition, event_id, event_type, payload, created_at)"
        " select g, g %% %s, gen_random_uuid(), 'T', '{}', clock_timestamp() - %s * interval '1 day'"
        " from generate_series(1, %s) g",
        [partitions, days, count],
    )


def tuples_read(conn: Conn) -> int:
    """How many index entries of the log were read so far."""
    row = conn.execute(
        "select sum(idx_tup_read) from pg_stat_all_indexes where schemaname = 'partbox' and relname like 'record%'"
    ).fetchone()
    return int(row[0])
