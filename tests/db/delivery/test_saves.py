"""The fenced save: all of it while every partition is mine, else nothing of it."""

import os
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

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
from savings import everything, parking, rows, setting, stored

from partbox.db.delivery import cursors, instances, parked


def test_a_save_writes_the_cursor_of_every_partition_it_names(conn, me, mine):
    snapshots = ["5:9:6", "7:7:", "5:9:6"]
    savings = [saving(mine[n], snapshot, 40 + n, 30 + n) for n, snapshot in zip((2, 0, 1), snapshots, strict=True)]
    assert save(conn, me, savings) == {0, 1, 2}
    assert stored(conn, 0, 1, 2) == [("7:7:", 40, 30, me), ("5:9:6", 41, 31, me), ("5:9:6", 42, 32, me)]
    assert stored(conn, 3) == [("1:1:", 0, 0, me)]


def test_a_save_says_how_long_the_server_took(conn, me, mine):
    _, took = cursors.save(conn, SCHEMA, DEFAULT, me, [saving(mine[0])])
    assert took > 0


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
    still = save(conn, me, savings, parks=[parking(0, 3), parking(0, 1, "dead", is_new=False)], done_ids=[2])
    assert still == {0, 2}
    assert everything(conn) == before
    assert save(conn, me, [each for each in savings if each.partition in still]) == {0, 2}


def test_a_save_with_an_epoch_of_the_future_is_refused(conn, me, mine):
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


def test_another_instance_with_the_same_epoch_saves_nothing(conn, me, mine):
    assert save(conn, uuid4(), [saving(mine[0])]) == set()
    assert stored(conn, 0) == [("1:1:", 0, 0, me)]


def test_a_save_for_the_same_partition_number_of_another_subscription_is_refused(conn, me, mine):
    still, _ = cursors.save(conn, SCHEMA, "other", me, [saving(mine[0])])
    assert still == set()


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
            loaded = parked.list_ahead(other, SCHEMA, DEFAULT, [0])
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
        assert parked.list_ahead(other, SCHEMA, DEFAULT, [0]) == [(0, 7)]


def test_a_save_that_waited_while_some_partitions_were_lost_returns_exactly_those_left(dsn, conn, me, mine):
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
        "plan": lambda own: instances.assign_partitions(
            own, SCHEMA, DEFAULT, members, [me] * 10 + [None] * 246, [me] * 256
        ),
        "heartbeat": lambda own: instances.renew_heartbeats(own, SCHEMA, {me: False}),
        "bury": lambda own: bury(own, [me], known_dead=True),
    }
    with worker(dsn) as own:
        for prepared in ("save", "heartbeat"):  # from here on
            steps[prepared](own)
        trips = {name: round_trips(own, lambda step=step: step(own)) for name, step in steps.items()}
        assert own.info.transaction_status == TransactionStatus.IDLE
    assert trips == dict.fromkeys(steps, 1)


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
