"""Claim and bury: a partition has one owner, and never one that does not exist."""

import psycopg
import pytest
from ownership import (
    ALL,
    SCHEMA,
    assign,
    background,
    blocked,
    bury,
    claim,
    expire,
    join,
    orphans,
    owners,
    save,
    saving,
    seize,
    worker,
)

from partbox.db.delivery import instances


def test_a_claim_takes_what_is_assigned_and_free_and_nothing_else(conn):
    me, other = join(conn, 2)
    seize(conn, other, [1, 2])
    assign(conn, me, [2, 3, 4])
    assign(conn, other, [5])
    assert {row.partition for row in claim(conn, me)} == {3, 4}
    assert owners(conn) == {1: other, 2: other, 3: me, 4: me}
    assert claim(conn, me) == []


def test_a_claim_stays_inside_its_subscription(conn):
    (me,) = join(conn)
    conn.execute(
        "insert into partbox.partition (subscription, partition, assignee, snapshot, last_id, floor_id)"
        " values ('other', 7, %s, '1:1:', 0, 0)",
        [me],
    )
    assert claim(conn, me) == []


def test_a_claim_returns_the_saved_cursor(conn):
    me, other = join(conn, 2)
    row = seize(conn, me, [9])[9]
    assert (row.snapshot, row.last_id, row.floor_id) == ("1:1:", 0, 0)
    save(conn, me, [saving(row, "5:9:6,7", 40, 30, release=True)])
    row = seize(conn, other, [9])[9]
    assert (row.snapshot, row.last_id, row.floor_id) == ("5:9:6,7", 40, 30)


def test_an_epoch_is_at_least_the_milliseconds_since_1970(conn):
    (me,) = join(conn)
    before = now_ms(conn)
    epochs = {row.epoch for row in seize(conn, me).values()}
    assert before <= min(epochs) <= max(epochs) <= now_ms(conn)


def test_an_epoch_rises_above_one_that_is_ahead_of_the_clock(conn):
    (me,) = join(conn)
    ahead = now_ms(conn) + 10_000_000
    conn.execute("update partbox.partition set epoch = %s where partition = 3", [ahead])
    assert seize(conn, me, [3])[3].epoch == ahead + 1


def test_an_epoch_never_repeats_however_fast_partitions_change_hands(conn):
    (me,) = join(conn)
    epochs = []
    for _ in range(50):
        row = seize(conn, me, [0])[0]
        epochs.append(row.epoch)
        save(conn, me, [saving(row, release=True)])
    assert epochs == sorted(set(epochs))


def test_an_epoch_rises_even_if_a_crash_has_lost_the_last_one(conn):
    (me,) = join(conn)
    lost = seize(conn, me, [0])[0].epoch
    conn.execute("update partbox.partition set epoch = 0, owner = null where partition = 0")
    time_passes(conn, lost)
    assert claim(conn, me)[0].epoch > lost


def test_claims_at_once_give_each_partition_one_owner(dsn, conn):
    (me,) = join(conn)
    assign(conn, me)
    with worker(dsn) as a, worker(dsn) as b, background() as run:
        claims = [run(claim, a, me), run(claim, b, me)]
        taken = [row.partition for each in claims for row in each.result()]
    assert sorted(taken) == list(ALL)


def test_a_buried_instance_claims_nothing(conn):
    (me,) = join(conn)
    assign(conn, me)
    assert bury(conn, [me], known_dead=True) == ([me], 0)
    assert claim(conn, me) == []
    assert owners(conn) == {}


def test_a_bury_waits_for_an_open_claim_and_frees_what_it_took(dsn, conn):
    (me,) = join(conn)
    assign(conn, me)
    with worker(dsn) as claiming, worker(dsn) as burying, background() as run:
        with claiming.transaction():
            assert len(claim(claiming, me)) == 256
            buried = run(bury, burying, [me], known_dead=True)
            blocked(conn, burying)
        assert buried.result() == ([me], 256)
    assert orphans(conn) == 0
    assert owners(conn) == {}


def test_a_claim_waits_for_an_open_bury_and_takes_nothing(dsn, conn):
    (me,) = join(conn)
    assign(conn, me)
    with worker(dsn) as claiming, worker(dsn) as burying, background() as run:
        with burying.transaction():
            assert bury(burying, [me], known_dead=True) == ([me], 0)
            claimed = run(claim, claiming, me)
            blocked(conn, claiming)
        assert claimed.result() == []
    assert orphans(conn) == 0


def test_a_claim_that_waited_for_a_bury_that_failed_takes_everything(dsn, conn):
    (me,) = join(conn)
    assign(conn, me)
    with worker(dsn) as claiming, worker(dsn) as burying, background() as run:
        with burying.transaction():
            bury(burying, [me], known_dead=True)
            claimed = run(claim, claiming, me)
            blocked(conn, claiming)
            raise psycopg.Rollback
        assert len(claimed.result()) == 256


def test_a_claim_held_up_at_a_partition_and_a_bury_behind_it_leave_no_orphan(dsn, conn):
    (me,) = join(conn)
    assign(conn, me)
    with worker(dsn) as holding, worker(dsn) as claiming, worker(dsn) as burying, background() as run:
        with holding.transaction():
            holding.execute("select from partbox.partition where partition = 100 for no key update")
            claimed = run(claim, claiming, me)
            blocked(conn, claiming)
            buried = run(bury, burying, [me], known_dead=True)
            blocked(conn, burying)
        assert len(claimed.result()) == 256
        assert buried.result() == ([me], 256)
    assert orphans(conn) == 0


def test_a_claim_re_checks_what_it_waited_for(dsn, conn):
    me, other = join(conn, 2)
    assign(conn, me, [1, 2, 3])
    with worker(dsn) as claiming, worker(dsn) as changing, background() as run:
        with changing.transaction():
            assign(changing, other, [1])
            changing.execute("update partbox.partition set owner = %s where partition = 2", [other])
            claimed = run(claim, claiming, me)
            blocked(conn, claiming)
        assert [row.partition for row in claimed.result()] == [3]
    assert owners(conn) == {2: other, 3: me}


def test_a_bury_removes_only_instances_whose_lease_is_over(conn):
    gone, alive, bystander = join(conn, 3)
    seize(conn, gone, [1, 2])
    seize(conn, alive, [3])
    seize(conn, bystander, [4])
    expire(conn, gone, bystander)
    assert bury(conn, [gone, alive]) == ([gone], 2)
    assert owners(conn) == {3: alive, 4: bystander}
    assert {member.instance_id for member in instances.list_members(conn, SCHEMA, "default")} == {alive, bystander}


def test_a_child_known_dead_is_buried_within_its_lease(conn):
    (child,) = join(conn)
    seize(conn, child, [1, 2])
    assert bury(conn, [child]) == ([], 0)
    assert bury(conn, [child], known_dead=True) == ([child], 2)


def test_a_bury_frees_orphans_of_any_cause_and_marks_them_suspect(conn):
    (alive,) = join(conn)
    seize(conn, alive, [1])
    conn.execute("update partbox.partition set owner = gen_random_uuid() where partition in (5, 6)")
    conn.execute("select nextval('partbox.record_id_seq') from generate_series(1, 70)")
    assert bury(conn) == ([], 2)
    assert suspects(conn) == {5: 70, 6: 70}
    assert owners(conn) == {1: alive}
    assert bury(conn) == ([], 0)


def test_orphans_are_suspect_up_to_id_0_before_the_first_publish(conn):
    conn.execute("update partbox.partition set owner = gen_random_uuid() where partition = 5")
    assert bury(conn) == ([], 1)
    assert suspects(conn) == {5: 0}


def test_a_bury_frees_orphans_of_every_subscription(conn):
    conn.execute(
        "insert into partbox.partition (subscription, partition, owner, snapshot, last_id, floor_id)"
        " values ('other', 7, gen_random_uuid(), '1:1:', 0, 0)"
    )
    assert bury(conn) == ([], 1)


def test_a_bury_keeps_the_assignee_the_epoch_and_the_cursor(conn):
    (gone,) = join(conn)
    row = seize(conn, gone, [8])[8]
    save(conn, gone, [saving(row, "5:9:6", 40, 30)])
    bury(conn, [gone], known_dead=True)
    kept = conn.execute(
        "select assignee, epoch, snapshot::text, last_id, floor_id from partbox.partition where partition = 8"
    ).fetchone()
    assert kept == (gone, row.epoch, "5:9:6", 40, 30)


def test_a_bury_that_waited_for_a_partition_leaves_it_to_its_new_owner(dsn, conn):
    """The new owner even registers after the bury began to look."""
    conn.execute("update partbox.partition set owner = gen_random_uuid() where partition = 5")
    with worker(dsn) as claiming, worker(dsn) as burying, background() as run:
        with claiming.transaction():
            claiming.execute("update partbox.partition set owner = null where partition = 5")
            buried = run(bury, burying)
            blocked(conn, burying)
            (alive,) = join(conn)
            assert set(seize(claiming, alive, [5])) == {5}
        assert buried.result() == ([], 0)
    assert owners(conn) == {5: alive}


def test_a_renewed_heartbeat_saves_an_expired_instance_from_a_waiting_bury(dsn, conn):
    (me,) = join(conn)
    seize(conn, me)
    expire(conn, me)
    with worker(dsn) as beating, worker(dsn) as burying, background() as run:
        with beating.transaction():
            assert instances.renew_heartbeats(beating, SCHEMA, {me: False}).keys() == {me}
            buried = run(bury, burying, [me])
            blocked(conn, burying)
        assert buried.result() == ([], 0)
    assert len(owners(conn)) == 256


def test_a_heartbeat_that_waited_for_a_bury_learns_that_the_instance_is_gone(dsn, conn):
    gone, alive = join(conn, 2)
    with worker(dsn) as beating, worker(dsn) as burying, background() as run:
        with burying.transaction():
            bury(burying, [gone], known_dead=True)
            beat = run(instances.renew_heartbeats, beating, SCHEMA, {gone: False, alive: True})
            blocked(conn, beating)
        assert beat.result().keys() == {alive}
    assert [member.is_draining for member in instances.list_members(conn, SCHEMA, "default")] == [True]


def test_a_claim_does_not_wait_for_a_heartbeat(dsn, conn):
    (me,) = join(conn)
    assign(conn, me)
    with worker(dsn, lease=2) as claiming, worker(dsn) as beating, beating.transaction():
        instances.renew_heartbeats(beating, SCHEMA, {me: False})
        assert len(claim(claiming, me)) == 256


def test_concurrent_buries_bury_each_instance_once(dsn, conn):
    dead = join(conn, 8)
    for number, each in enumerate(dead):
        seize(conn, each, range(number * 32, number * 32 + 32))
    conns = [worker(dsn) for _ in range(8)]
    with background() as run:
        results = [run(bury, each, dead, known_dead=True) for each in conns]
        buried = [result.result() for result in results]
    for each in conns:
        each.close()
    assert sorted(instance for gone, _ in buried for instance in gone) == sorted(dead)
    assert sum(freed for _, freed in buried) == 256
    assert owners(conn) == {}


def test_a_client_that_freezes_inside_a_save_blocks_a_bury_for_half_a_lease_only(dsn, conn):
    lease = 2.0
    (me,) = join(conn)
    row = seize(conn, me, [1])[1]
    with worker(dsn, lease) as frozen, worker(dsn) as burying:
        frozen.execute("begin")
        assert save(frozen, me, [saving(row, "5:9:6", 40, 30)]) == {1}
        assert frozen.execute("show idle_in_transaction_session_timeout").fetchone() == ("1s",)
        assert bury(burying, [me], known_dead=True) == ([me], 1)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            frozen.execute("commit")
    saved = conn.execute("select owner, last_id from partbox.partition where partition = 1").fetchone()
    assert saved == (None, 0)


def now_ms(conn: psycopg.Connection) -> int:
    return conn.execute("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint").fetchone()[0]


def time_passes(conn: psycopg.Connection, milliseconds: int) -> None:
    """Wait until the database's clock is past that."""
    conn.execute(
        "select pg_sleep(greatest(0, %s - extract(epoch from clock_timestamp()) * 1000) / 1000)", [milliseconds + 1]
    )


def suspects(conn: psycopg.Connection) -> dict[int, int]:
    rows = conn.execute(
        "select partition, suspect_until_id from partbox.partition where suspect_until_id is not null"
    ).fetchall()
    return dict(rows)
