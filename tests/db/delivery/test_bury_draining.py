"""An instance that was told to end accuses nobody: what it ran when it ended had no part in that."""

import pytest
from ownership import (
    DEFAULT,
    SCHEMA,
    assign,
    background,
    blocked,
    bury,
    claim,
    expire,
    join,
    owners,
    save,
    seize,
    worker,
)
from planted_records import Planter

from partbox.db.delivery import instances
from partbox.protocol.hashing import partition_of
from partbox.protocol.rows import CursorSave, ParkedSave

KEY = "7"
HERE = partition_of(KEY)


@pytest.fixture
def planter(conn):
    return Planter(conn)


def suspects(conn):
    """Until which id each partition is suspect."""
    rows = conn.execute("select partition, suspect_until_id from partbox.partition where suspect_until_id is not null")
    return dict(rows.fetchall())


def charge(conn, me, owned, record_id, attempts):
    """As `Due` charges a record that is parked."""
    sent = ParkedSave(
        HERE, record_id, "Order", KEY, "Placed", "ready", blocks=True, attempts=attempts, is_new=False, is_charge=True
    )
    assert save(conn, me, [CursorSave(HERE, owned.epoch, None, None, None, False)], [sent]) == {HERE}


def charged(planter, *records):
    """(attempts, whether it was started) of each."""
    rows = [planter.row(each) for each in records]
    return [(row["attempts"], row["started_at"] is not None) for row in rows]


def test_an_instance_that_drained_when_it_ended_leaves_no_suspects_and_takes_its_charges_back(conn, planter):
    (me,) = join(conn)
    first, second = (planter.park(KEY, "ready", blocks=True, attempts=attempts) for attempts in (0, 4))
    owned = seize(conn, me)[HERE]
    charge(conn, me, owned, first, 1)
    charge(conn, me, owned, second, 5)
    instances.mark_leaving(conn, SCHEMA, me)
    assert bury(conn, [me], known_dead=True) == ([me], 256)
    assert suspects(conn) == {}
    assert charged(planter, first, second) == [(0, False), (4, False)]
    assert owners(conn) == {}


def test_an_instance_that_did_not_drain_leaves_suspects_though_one_buried_with_it_did_drain(conn, planter):
    crashed, stopped = join(conn, 2)
    record = planter.park(KEY, "ready", blocks=True, attempts=0)
    owned = seize(conn, crashed, [HERE])[HERE]
    there = (HERE + 1) % 256
    seize(conn, stopped, [there])
    charge(conn, crashed, owned, record, 1)
    instances.mark_leaving(conn, SCHEMA, stopped)
    assert sorted(bury(conn, [crashed, stopped], known_dead=True)[0]) == sorted([crashed, stopped])
    assert suspects(conn).keys() == {HERE}
    assert charged(planter, record) == [(1, True)]


def test_an_instance_whose_heartbeat_said_it_drains_is_buried_after_its_lease_without_suspects(conn):
    (me,) = join(conn)
    seize(conn, me)
    assert instances.renew_heartbeats(conn, SCHEMA, {me: True}).keys() == {me}
    assert bury(conn, [me]) == ([], 0)
    expire(conn, me)
    assert bury(conn, [me]) == ([me], 256)
    assert suspects(conn) == {}


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_a_heartbeat_that_was_on_its_way_does_not_take_a_drain_back(conn, others):
    me, *rest = join(conn, 1 + others)
    seize(conn, me)
    instances.mark_leaving(conn, SCHEMA, me)
    instances.renew_heartbeats(conn, SCHEMA, dict.fromkeys([me, *rest], False))
    bury(conn, [me], known_dead=True)
    assert suspects(conn) == {}


def test_leaving_does_not_renew_the_lease_of_an_instance(conn):
    (me,) = join(conn)
    seize(conn, me)
    expire(conn, me)
    instances.mark_leaving(conn, SCHEMA, me)
    assert bury(conn, [me]) == ([me], 256)


def test_suspects_of_an_earlier_crash_stay_suspect_when_the_next_owner_leaves_cleanly(conn, planter):
    crashed, stopped = join(conn, 2)
    record, other = (planter.park(KEY, "ready", blocks=True, attempts=0) for _ in range(2))
    planter.publish(KEY)  # the saved cursor has not passed all that is suspect
    owned = seize(conn, crashed)[HERE]
    charge(conn, crashed, owned, record, 1)
    charge(conn, crashed, owned, other, 1)
    bury(conn, [crashed], known_dead=True)
    until = suspects(conn)
    assert len(until) == 256
    owned = seize(conn, stopped)[HERE]
    charge(conn, stopped, owned, other, 2)  # the first one had no turn
    instances.mark_leaving(conn, SCHEMA, stopped)
    bury(conn, [stopped], known_dead=True)
    assert suspects(conn) == until
    assert charged(planter, record, other) == [(1, True), (1, False)]


def test_a_partition_freed_from_a_drained_instance_counts_as_released_at_that_moment(conn):
    gone, heir = join(conn, 2)
    seize(conn, gone)
    conn.execute("update partbox.partition set saved_at = clock_timestamp() - interval '1 h'")
    instances.mark_leaving(conn, SCHEMA, gone)
    bury(conn, [gone], known_dead=True)
    assign(conn, heir)
    pauses = {row.unowned_seconds for row in claim(conn, heir)}
    assert 0 <= min(pauses) <= max(pauses) < 1_800


def test_the_bury_function_that_older_workers_call_marks_no_suspects_after_a_drain_either(conn):
    (me,) = join(conn)
    seize(conn, me)
    conn.execute("select partbox.heartbeat(array[%s]::uuid[], array[true])", [me])
    assert conn.execute("select freed from partbox.bury(array[%s]::uuid[], true)", [me]).fetchone() == (256,)
    assert suspects(conn) == {}


def test_a_bury_that_takes_charges_back_locks_the_partitions_first(dsn, conn, planter):
    """A command that holds the partition's row, and then changes its parked rows, meets no deadlock."""
    (me,) = join(conn)
    record = planter.park(KEY, "ready", blocks=True, attempts=0)
    owned = seize(conn, me)[HERE]
    charge(conn, me, owned, record, 1)
    instances.mark_leaving(conn, SCHEMA, me)
    with worker(dsn) as commanding, worker(dsn) as burying, background() as run:
        with commanding.transaction():
            commanding.execute(
                "select from partbox.partition where subscription = %s and partition = %s for no key update",
                [DEFAULT, HERE],
            )
            buried = run(bury, burying, [me], known_dead=True)
            blocked(conn, burying)
            commanding.execute("set local lock_timeout = '10s'")
            commanding.execute("update partbox.parked set last_error = 'seen' where record_id = %s", [record])
        assert buried.result() == ([me], 256)
    assert charged(planter, record) == [(0, False)]
