"""The fenced save: all of it while every partition is mine, else nothing of it."""

import os
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryFile
from typing import Any
from uuid import UUID, uuid4

import pytest
from ownership import (
    ALL,
    DEFAULT,
    SCHEMA,
    Conn,
    assign,
    background,
    blocked,
    bury,
    claim,
    join,
    save,
    saving,
    seize,
    worker,
)
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from partbox.db.delivery import cursors, instances, parked
from partbox.db.delivery.parked import Park


@pytest.fixture
def me(conn) -> UUID:
    return join(conn)[0]


@pytest.fixture
def mine(conn, me) -> dict[int, cursors.Owned]:
    return seize(conn, me, range(10))


def test_a_save_writes_the_cursor_of_every_partition_it_names(conn, me, mine):
    snapshots = ["5:9:6", "7:7:", "5:9:6"]
    savings = [saving(mine[n], snapshot, 40 + n, 30 + n) for n, snapshot in zip((2, 0, 1), snapshots, strict=True)]
    assert save(conn, me, savings) == {0, 1, 2}
    assert stored(conn, 0, 1, 2) == [("7:7:", 40, 30, me), ("5:9:6", 41, 31, me), ("5:9:6", 42, 32, me)]
    assert stored(conn, 3) == [("1:1:", 0, 0, me)]


def test_a_save_says_how_long_the_server_took(conn, me, mine):
    _, took = cursors.save(conn, SCHEMA, DEFAULT, me, [saving(mine[0])])
    assert 0 < took < 5


def test_a_save_without_a_snapshot_keeps_the_cursor(conn, me, mine):
    save(conn, me, [saving(mine[0], "5:9:6", 40, 30)])
    assert save(conn, me, [saving(mine[0], None, None, None)]) == {0}
    assert stored(conn, 0) == [("5:9:6", 40, 30, me)]


def test_one_save_may_move_some_cursors_and_keep_others(conn, me, mine):
    save(conn, me, [saving(mine[0], None, None, None), saving(mine[1], "5:9:6", 40, 30)], parks=[parking(0, 7)])
    assert stored(conn, 0, 1) == [("1:1:", 0, 0, me), ("5:9:6", 40, 30, me)]
    assert list(rows(conn)) == [7]


def test_a_release_saves_the_cursor_and_takes_the_owner_away(conn, me, mine):
    assert save(conn, me, [saving(mine[0], "5:9:6", 40, 30, release=True), saving(mine[1])]) == {0, 1}
    assert stored(conn, 0) == [("5:9:6", 40, 30, None)]
    assert save(conn, me, [saving(mine[0])]) == set()


@pytest.mark.parametrize("lost", ["stale epoch", "other owner", "released", "unknown partition"])
def test_if_one_partition_is_lost_nothing_at_all_is_written(conn, me, mine, lost):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 1), parking(0, 2)])
    before = everything(conn)
    savings = [saving(mine[n], "5:9:6", 40, 30) for n in (0, 1, 2)]
    if lost == "stale epoch":
        savings[1] = savings[1]._replace(epoch=mine[1].epoch - 1)
    elif lost == "other owner":
        conn.execute("update partbox.partition set owner = %s where partition = 1", [uuid4()])
    elif lost == "released":
        conn.execute("update partbox.partition set owner = null where partition = 1")
    else:
        savings[1] = savings[1]._replace(partition=300)
    if lost != "unknown partition":
        before = everything(conn)
    still = save(conn, me, savings, parks=[parking(0, 3), parking(0, 1, "dead", new=False)], done_ids=[2])
    assert still == {0, 2}
    assert everything(conn) == before
    assert save(conn, me, [each for each in savings if each.partition in still]) == {0, 2}


def test_an_epoch_of_the_future_is_not_mine_either(conn, me, mine):
    assert save(conn, me, [saving(mine[0])._replace(epoch=mine[0].epoch + 1)]) == set()


def test_the_same_instance_after_losing_and_claiming_again_is_fenced_by_the_epoch(conn, me, mine):
    bury(conn, [me], known_dead=True)
    conn.execute(
        "insert into partbox.instance (instance_id, subscription, node, hostname, pid, version, lease)"
        " values (%s, 'default', 'n', 'h', 1, '0', '20 s')",
        [me],
    )
    (again,) = [row for row in claim(conn, me) if row.partition == 0]
    assert save(conn, me, [saving(mine[0])]) == set()
    assert save(conn, me, [saving(again)]) == {0}


def test_somebody_else_with_my_epoch_saves_nothing(conn, me, mine):
    assert save(conn, uuid4(), [saving(mine[0])]) == set()
    assert stored(conn, 0) == [("1:1:", 0, 0, me)]


def test_another_subscription_s_partition_of_the_same_number_is_not_mine(conn, me, mine):
    still, _ = cursors.save(conn, SCHEMA, "other", me, [saving(mine[0])])
    assert still == set()


def test_a_park_keeps_what_it_says(conn, me, mine):
    full = Park(
        0,
        7,
        "Order",
        "42 ß ä 'quoted' \"x\" \\",
        "OrderPlaced",
        "retrying",
        blocks=True,
        attempts=2,
        delay=60,
        error='ValueError: ä\n"no"',
        trace='File "ß.py"\n',
    )
    save(conn, me, [saving(mine[0])], parks=[full])
    (row,) = rows(conn).values()
    assert row | {"due_at": None, "parked_at": None} == {
        "subscription": "default",
        "record_id": 7,
        "partition": 0,
        "aggregate_type": "Order",
        "aggregate_id": "42 ß ä 'quoted' \"x\" \\",
        "event_type": "OrderPlaced",
        "state": "retrying",
        "blocks": True,
        "attempts": 2,
        "due_at": None,
        "parked_at": None,
        "started_at": None,
        "last_error": 'ValueError: ä\n"no"',
        "traceback": 'File "ß.py"\n',
    }


def test_parking_again_changes_nothing_and_never_resets_attempts(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", attempts=5, delay=60, error="first")])
    before = everything(conn)[1]
    assert save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "held"), parking(0, 8)]) == {0}
    assert {id: row for id, row in rows(conn).items() if id == 7} == before


def test_a_change_of_a_parked_row_keeps_its_error_unless_there_is_a_new_one(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", attempts=1, delay=60, error="first")])
    conn.execute("update partbox.parked set started_at = now()")
    parked_at = rows(conn)[7]["parked_at"]
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "held", attempts=1, new=False)])
    held = rows(conn)[7]
    assert (held["state"], held["attempts"], held["due_at"]) == ("held", 1, None)
    assert (held["last_error"], held["parked_at"], held["started_at"]) == ("first", parked_at, None)
    save(
        conn,
        me,
        [saving(mine[0])],
        parks=[parking(0, 7, "retrying", blocks=False, attempts=2, delay=9, error="second", new=False)],
    )
    again = rows(conn)[7]
    assert (again["state"], again["blocks"], again["attempts"], again["last_error"]) == ("retrying", False, 2, "second")
    assert again["due_at"] is not None


def test_a_traceback_stays_as_long_as_its_error_and_goes_with_it(conn, me, mine):
    def stored(**changes):
        parks = [parking(0, 7, "retrying", attempts=1, delay=60, new=False, **changes)]
        save(conn, me, [saving(mine[0])], parks=parks)
        row = rows(conn)[7]
        return row["last_error"], row["traceback"]

    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", delay=60, error="first", trace="there")])
    assert stored() == ("first", "there")
    assert stored(error="second", trace="here") == ("second", "here")
    assert stored(error="third") == ("third", None)


def test_a_park_of_a_worker_that_knows_no_tracebacks_is_saved(conn, me, mine):
    class Older(Park):
        def wire(self) -> dict[str, Any]:
            return {name: value for name, value in super().wire().items() if name != "t"}

    old = Older(0, 7, "Order", "42", "OrderPlaced", "retrying", blocks=True, attempts=0, delay=60, error="x")
    save(conn, me, [saving(mine[0])], parks=[old])
    assert (rows(conn)[7]["last_error"], rows(conn)[7]["traceback"]) == ("x", None)


def test_a_row_that_dies_is_dated_from_its_death(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", attempts=9, delay=1)])
    parked_at = rows(conn)[7]["parked_at"]
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "dead", attempts=10, error="last", new=False)])
    assert rows(conn)[7]["parked_at"] > parked_at


def test_changing_a_row_that_is_gone_does_not_bring_it_back(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "dead", new=False)])
    assert rows(conn) == {}


def test_what_is_done_is_deleted_in_this_subscription_only(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, id) for id in (7, 8, 9)])
    conn.execute(
        "insert into partbox.parked select 'other', (p).record_id, (p).partition, 'A', 'a', 'E', 'held', true"
        " from partbox.parked p"
    )
    save(conn, me, [saving(mine[0])], done_ids=[7, 9, 10])
    left = conn.execute("select subscription, record_id from partbox.parked order by 1, 2").fetchall()
    assert left == [("default", 8), ("other", 7), ("other", 8), ("other", 9)]


def test_one_save_parks_changes_and_deletes(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 1), parking(0, 2)])
    save(
        conn,
        me,
        [saving(mine[0]), saving(mine[1])],
        done_ids=[1],
        parks=[parking(0, 2, "ready", new=False), parking(1, 3, "dead")],
    )
    assert {id: row["state"] for id, row in rows(conn).items()} == {2: "ready", 3: "dead"}


def test_a_delay_counts_from_the_database_s_clock(conn, me, mine):
    before = clock(conn)
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", delay=60.5), parking(0, 8, "held")])
    after = clock(conn)
    wait = timedelta(seconds=60.5)
    assert before + wait <= rows(conn)[7]["due_at"] <= after + wait
    assert rows(conn)[8]["due_at"] is None


def test_a_due_time_is_kept_to_the_microsecond(conn, me, mine):
    due = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    save(
        conn,
        me,
        [saving(mine[0])],
        parks=[
            parking(0, 7, "scheduled", blocks=False, due=due.isoformat()),
            parking(0, 8, "scheduled", blocks=False, due="infinity"),
        ],
    )
    assert rows(conn, "where record_id = 7")[7]["due_at"] == due
    infinite = conn.execute("select due_at = 'infinity' from partbox.parked where record_id = 8").fetchone()
    assert infinite == (True,)


def test_a_delay_beyond_the_calendar_is_a_far_day(conn, me, mine):
    delays = {1: 1e13, 2: timedelta.max.total_seconds(), 3: 1e300}
    parks = [parking(0, id, "deferred", delay=delay) for id, delay in delays.items()]
    assert save(conn, me, [saving(mine[0])], parks=parks) == {0}
    far = conn.execute("select count(*) from partbox.parked where due_at > now() + interval '90 years'").fetchone()
    assert far == (3,)


def test_a_save_that_is_not_durable_leaves_the_session_as_it_was(dsn, me, mine):
    with worker(dsn) as own:
        save(own, me, [saving(mine[0])])
        assert setting(own, "synchronous_commit") == "on"
        own.execute("set synchronous_commit = 'remote_write'")
        save(own, me, [saving(mine[0])])
        assert setting(own, "synchronous_commit") == "remote_write"


@pytest.mark.parametrize(("durable", "during"), [(False, "off"), (True, "on")])
def test_a_save_waits_for_the_disk_only_if_it_is_durable(dsn, me, mine, durable, during):
    with worker(dsn) as own:
        with own.transaction():
            save(own, me, [saving(mine[0])], durable=durable)
            assert setting(own, "synchronous_commit") == during
        assert setting(own, "synchronous_commit") == "on"


def test_a_save_waits_for_a_bury_and_then_writes_nothing(dsn, conn, me, mine):
    """Were the fence not a lock, the park would come after the new owner has loaded its parked rows."""
    (heir,) = join(conn)
    assign(conn, heir)
    with worker(dsn) as saver, worker(dsn) as other, background() as run:
        with other.transaction():
            bury(other, [me], known_dead=True)
            assert 0 in {row.partition for row in claim(other, heir)}
            loaded = parked.ahead(other, SCHEMA, DEFAULT, [0])
            saved = run(save, saver, me, [saving(mine[0])], parks=[parking(0, 7)])
            blocked(conn, saver)
        assert saved.result() == set()
    assert loaded == []
    assert rows(conn) == {}


def test_a_bury_waits_for_a_save_and_the_heir_finds_what_it_parked(dsn, conn, me, mine):
    (heir,) = join(conn)
    assign(conn, heir)
    with worker(dsn) as saver, worker(dsn) as other, background() as run:
        with saver.transaction():
            assert save(saver, me, [saving(mine[0])], parks=[parking(0, 7)]) == {0}
            buried = run(bury, other, [me], known_dead=True)
            blocked(conn, other)
        assert buried.result() == ([me], 10)
        assert len(claim(other, heir)) == 256
        assert parked.ahead(other, SCHEMA, DEFAULT, [0]) == [(0, 7)]


def test_a_save_that_waited_for_a_partial_loss_returns_exactly_what_is_left(dsn, conn, me, mine):
    savings = [saving(mine[n], "5:9:6", 40, 30) for n in range(10)]
    with worker(dsn) as saver, worker(dsn) as other, background() as run:
        with other.transaction():
            other.execute("update partbox.partition set owner = null where partition < 5")
            saved = run(save, saver, me, savings)
            blocked(conn, saver)
        assert saved.result() == {5, 6, 7, 8, 9}
    assert {row[1] for row in stored(conn, *range(10))} == {0}


def test_a_save_waits_for_a_lock_on_the_last_of_its_partitions(dsn, conn, me, mine):
    with worker(dsn) as saver, worker(dsn) as other, background() as run:
        with other.transaction():
            other.execute("select from partbox.partition where partition = 9 for no key update")
            saved = run(save, saver, me, [saving(mine[n]) for n in (9, 3, 0)])
            blocked(conn, saver)
        assert saved.result() == {0, 3, 9}


def test_a_save_does_not_wait_for_partitions_it_does_not_name(dsn, me, mine):
    with worker(dsn, lease=2) as saver, worker(dsn) as other, other.transaction():
        other.execute("select from partbox.partition where partition = 9 for no key update")
        assert save(saver, me, [saving(mine[0])]) == {0}


def test_a_save_of_all_partitions_at_once_is_kept_whole(conn, me):
    every = seize(conn, me)
    savings = [saving(every[n], f"{n + 5}:{n + 5}:", n, n) for n in ALL]
    assert save(conn, me, savings) == set(ALL)
    assert [row[0] for row in stored(conn, *ALL)] == [f"{n + 5}:{n + 5}:" for n in ALL]


def test_every_fenced_step_is_one_round_trip_outside_of_any_transaction(dsn, me, mine):
    members = [me]
    steps = {
        "save": lambda own: save(own, me, [saving(mine[0])], parks=[parking(0, 7)], done_ids=[7]),
        "claim": lambda own: claim(own, me),
        "plan": lambda own: instances.plan(own, SCHEMA, DEFAULT, members, [me] * 10 + [None] * 246, [me] * 256),
        "heartbeat": lambda own: instances.heartbeat(own, SCHEMA, {me: False}),
        "bury": lambda own: bury(own, [me], known_dead=True),
    }
    with worker(dsn) as own:
        trips = {name: round_trips(own, lambda step=step: step(own)) for name, step in steps.items()}
        assert own.info.transaction_status == TransactionStatus.IDLE
    assert trips == dict.fromkeys(steps, 1)


def parking(
    partition: int, id: int, state: str = "held", *, blocks: bool = True, attempts: int = 0, **more: Any
) -> Park:
    return Park(partition, id, "Order", "42", "OrderPlaced", state, blocks=blocks, attempts=attempts, **more)


def stored(conn: Conn, *partitions: int) -> list[tuple]:
    """(snapshot, last_id, floor_id, owner) of each partition, in their order."""
    return conn.execute(
        "select snapshot::text, last_id, floor_id, owner from partbox.partition"
        " where subscription = 'default' and partition = any (%s) order by partition",
        [list(partitions)],
    ).fetchall()


def rows(conn: Conn, where: str = "") -> dict[int, dict[str, Any]]:
    """The parked rows by record id."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return {row["record_id"]: row for row in cursor.execute(f"select * from partbox.parked {where}")}


def everything(conn: Conn) -> tuple[list, dict]:
    partitions = conn.execute("select p, p.xmin::text from partbox.partition p order by p.partition").fetchall()
    return partitions, rows(conn)


def clock(conn: Conn) -> datetime:
    return conn.execute("select clock_timestamp()").fetchone()[0]


def setting(conn: Conn, name: str) -> str:
    return conn.execute("select current_setting(%s)", [name]).fetchone()[0]


def round_trips(conn: Conn, step: Any) -> int:
    """How often the server was waited for: its ReadyForQuery messages in libpq's own trace."""
    with TemporaryFile() as trace:
        conn.pgconn.trace(trace.fileno())
        try:
            step()
        finally:
            conn.pgconn.untrace()
        os.lseek(trace.fileno(), 0, os.SEEK_SET)
        return trace.read().count(b"ReadyForQuery")
