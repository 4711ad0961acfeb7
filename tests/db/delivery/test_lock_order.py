"""Everything that locks, all at once, on the same subscription: no deadlock, no orphan, nothing stuck.

The order is: instance rows by id, partition rows by (subscription, partition). Whoever locks several rows takes them
in it, by an ordered locking CTE; a save, a plan or a heartbeat that does not is caught here within a second or two.
"""

from random import Random
from uuid import UUID

import pytest
from hammer import Role, hammer
from ownership import (
    ALL,
    DEFAULT,
    SCHEMA,
    Conn,
    assign,
    background,
    blocked,
    blockers,
    bury,
    claim,
    expire,
    join,
    orphans,
    owners,
    save,
    worker,
)
from run_size import seconds
from waiting import eventually

from partbox.db.delivery import cursors, instances
from partbox.protocol.rows import CursorSave, OwnedPartition, ParkedSave

LEAST_CHANGES = 10
MEMBERS = 4


def members(conn: Conn) -> list[instances.Member]:
    return instances.list_members(conn, SCHEMA, DEFAULT)


def saved(conn: Conn, random: Random) -> object:
    """A process saves some of its partitions in any order, or all, parks and unparks, releases some."""
    living = members(conn)
    if not living:
        return False
    me = random.choice(living).instance_id
    owned = conn.execute("select partition, epoch from partbox.partition where owner = %s", [me]).fetchall()
    mine = cursors.take_up_partitions(conn, SCHEMA, DEFAULT, me, dict(owned))
    if random.random() < 0.5:
        mine = random.sample(mine, random.randint(0, len(mine)))
    else:
        random.shuffle(mine)
    if not mine:
        return False
    still = save(conn, me, [_saving(row, random) for row in mine], _parks(mine, random), _done(mine, random))
    return len(still) == len(mine) > 1


def _saving(row: OwnedPartition, random: Random) -> CursorSave:
    last_id = row.last_id + random.randint(0, 9)
    return CursorSave(
        row.partition, row.epoch, f"{last_id + 3}:{last_id + 3}:", last_id, row.floor_id, random.random() < 0.05
    )


def _parks(mine: list[OwnedPartition], random: Random) -> list[ParkedSave]:
    """Each partition has records of its own."""
    return [
        ParkedSave(
            row.partition,
            _record(row, random),
            "A",
            "a",
            "E",
            "held",
            blocks=True,
            attempts=0,
            is_new=random.random() < 0.6,
        )
        for row in random.sample(mine, min(5, len(mine)))
    ]


def _done(mine: list[OwnedPartition], random: Random) -> list[int]:
    return [_record(row, random) for row in random.sample(mine, min(3, len(mine)))]


def _record(row: OwnedPartition, random: Random) -> int:
    return row.partition * 10 + random.randrange(10)


def planned(conn: Conn, random: Random) -> object:
    """A supervisor changes up to 64 assignees, so that there is always something to move."""
    living = [member.instance_id for member in members(conn) if not member.is_draining]
    seen = instances.list_assignees(conn, SCHEMA, DEFAULT)
    if not living:
        return False
    moved = set(random.sample(ALL, 64))
    wanted = [random.choice(living) if n in moved else assignee for n, assignee in enumerate(seen)]
    return instances.assign_partitions(conn, SCHEMA, DEFAULT, living, seen, wanted)


def claimed(conn: Conn, random: Random) -> object:
    return sum(len(claim(conn, member.instance_id)) for member in members(conn))


def buried(conn: Conn, random: Random) -> object:
    """Everybody is looked at; now and then somebody is dead, known to be or because its lease is over."""
    living = [member.instance_id for member in members(conn)]
    if not living:
        return False
    random.shuffle(living)
    chance = random.random()
    if chance < 0.05:
        return bury(conn, living[:2], known_dead=True)[1]
    if chance < 0.1:
        expire(conn, living[0])
    return bury(conn, living)[1]


def beaten(conn: Conn, random: Random) -> object:
    living = [member.instance_id for member in members(conn)]
    random.shuffle(living)
    return instances.renew_heartbeats(conn, SCHEMA, {instance: random.random() < 0.02 for instance in living})


def joined(conn: Conn, random: Random) -> object:
    missing = MEMBERS - len(members(conn))
    return missing > 0 and join(conn, missing)


ROLES: list[Role] = [saved, saved, saved, planned, planned, claimed, claimed, buried, beaten, beaten, joined]


@pytest.mark.thorough
def test_saves_plans_claims_buries_and_heartbeats_at_once_never_deadlock(dsn, conn):
    join(conn, MEMBERS)
    hammer(dsn, conn, ROLES, seconds=seconds(6), least=LEAST_CHANGES)
    assert orphans(conn) == 0
    _claimable(conn)


def _claimable(conn: Conn) -> None:
    """Nothing is stuck: when all others are dead one instance takes every partition."""
    bury(conn, [member.instance_id for member in members(conn)], known_dead=True)
    assert owners(conn) == {}
    (heir,) = join(conn)
    assign(conn, heir)
    assert {row.partition for row in claim(conn, heir)} == set(ALL)


def test_a_bury_takes_instances_by_id_wherever_their_rows_lie(dsn, conn):
    low, high = UUID(int=1), UUID(int=2)
    for each in (high, low):
        conn.execute(
            "insert into partbox.instance (instance_id, subscription, node, hostname, pid, version, lease)"
            " values (%s, 'default', 'n', 'h', 1, '0', '20 s')",
            [each],
        )
    with worker(dsn) as beating, worker(dsn) as burying, background() as run:
        with beating.transaction():
            instances.renew_heartbeats(beating, SCHEMA, {low: False})
            buried = run(bury, burying, [high, low], known_dead=True)
            blocked(conn, burying)
            assert instances.renew_heartbeats(beating, SCHEMA, {high: False}).keys() == {high}
        assert set(buried.result()[0]) == {low, high}


def test_a_heartbeat_that_waited_for_another_does_not_queue_behind_a_waiting_bury(dsn, conn):
    """A claim's key share keeps a multixact on the old version, and whoever looks at that one queues for it.

    Locking and renewing in one statement do look at it twice: the statement's snapshot is older than the other
    heartbeat that it waited for.
    """
    (me,) = join(conn)
    assign(conn, me)
    with (
        worker(dsn) as first,
        worker(dsn) as second,
        worker(dsn) as claiming,
        worker(dsn) as burying,
        background() as run,
    ):
        with claiming.transaction():
            with first.transaction():
                instances.renew_heartbeats(first, SCHEMA, {me: False})
                claim(claiming, me)
                renewed = run(instances.renew_heartbeats, second, SCHEMA, {me: False})
                blocked(conn, second)
                buried = run(bury, burying, [me])
                blocked(conn, burying)
            eventually(lambda: renewed.done() or burying.info.backend_pid in blockers(conn, second))
        assert renewed.result().keys() == {me}
        assert buried.result() == ([], 0)
