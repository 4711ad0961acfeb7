"""A tick that finds nothing changed reads no partition's row, and whatever has changed is found."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from rig import DEFAULT, PARTITION, SCHEMA, Rig, write

from partbox.db.delivery import cursors
from partbox.db.sql import query

Conn = psycopg.Connection[Any]
OTHER = PARTITION + 1


@pytest.fixture
def rig(dsn: str) -> Iterator[Rig]:
    rig = Rig(dsn, partitions=(PARTITION, OTHER))
    settle(rig)
    yield rig
    rig.close()


def settle(rig: Rig) -> None:
    """The first tick claims, the second finds what it has claimed."""
    for _ in range(2):
        rig.ownership.tick(rig.conn)


def is_calm(rig: Rig) -> bool:
    return rig.ownership.tick(rig.conn).is_calm


def test_where_nothing_has_changed_no_row_comes(conn: Conn, rig: Rig) -> None:
    digest = cursors.tick(rig.conn, SCHEMA, DEFAULT, rig.me, []).digest
    assert is_calm(rig)
    write(conn, 3)
    rig.done(*rig.read_all())
    rig.save()
    assert is_calm(rig), "what is saved concerns nobody who ticks"
    seen = cursors.tick(rig.conn, SCHEMA, DEFAULT, rig.me, [], digest)
    assert seen.partitions is None
    assert seen.digest == digest


def test_a_process_that_holds_nothing_is_told_nothing(conn: Conn, rig: Rig) -> None:
    conn.execute("update partbox.partition set owner = null, assignee = null")
    seen = cursors.tick(rig.conn, SCHEMA, DEFAULT, rig.me, [])
    assert (seen.digest, seen.partitions, seen.dues) == (None, [], {})


@pytest.mark.parametrize(
    "change",
    [
        "assignee = null",
        "owner = null",
        "owner = gen_random_uuid()",
        "epoch = epoch + 1",
        "parked_version = parked_version + 1",
    ],
)
def test_whatever_changes_of_one_partition_is_seen(conn: Conn, rig: Rig, change: str) -> None:
    assert is_calm(rig)
    conn.execute(f"update partbox.partition set {change} where partition = %s", [PARTITION])
    assert not is_calm(rig)


def test_another_partition_that_is_assigned_is_claimed(conn: Conn, rig: Rig) -> None:
    assert is_calm(rig)
    conn.execute("update partbox.partition set assignee = %s where partition = 99", [rig.me])
    assert not is_calm(rig)
    assert 99 in rig.engine.partitions
    assert not is_calm(rig), "it is found as it was claimed"
    assert is_calm(rig)


def test_a_partition_to_give_up_that_cannot_drain_yet_is_looked_at_again(
    conn: Conn, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = rig.partition()
    monkeypatch.setattr(type(partition), "may_drain", lambda self, now: False)
    conn.execute("update partbox.partition set assignee = null where partition = %s", [PARTITION])
    assert [is_calm(rig) for _ in range(3)] == [False] * 3
    monkeypatch.undo()
    is_calm(rig)
    assert partition.draining


def test_rows_that_could_not_be_read_are_read_at_a_later_tick(conn: Conn, rig: Rig) -> None:
    """While a save is under way nobody knows which parked rows there are."""
    partition = rig.partition()
    assert is_calm(rig)
    partition.last_save.under_way = True
    conn.execute("update partbox.partition set parked_version = 7 where partition = %s", [PARTITION])
    assert not is_calm(rig)
    assert partition.parked.version < 7
    partition.last_save.under_way = False
    assert not is_calm(rig)
    assert partition.parked.version == 7
    assert is_calm(rig)


def test_under_another_identity_everything_is_seen(conn: Conn, rig: Rig) -> None:
    assert is_calm(rig)
    rig.slot.instance = rig.me
    rig.ownership.take_up(rig.conn)
    assert not is_calm(rig)
    assert is_calm(rig)


def test_rows_that_fall_due_are_told_of_mine_alone(conn: Conn, rig: Rig) -> None:
    conn.execute(
        """insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks,
                                       attempts, due_at)
           select %s, partition * 10 + n, partition, 'a', 'e', 'scheduled', false, 0, now() + n * interval '1 hour'
             from unnest(%s::int[]) as partition, generate_series(1, 2) as n""",
        [DEFAULT, [PARTITION - 1, PARTITION, OTHER, 200]],
    )
    conn.execute("update partbox.parked set due_at = now() where partition = %s and record_id %% 10 = 2", [OTHER])
    seen = cursors.tick(rig.conn, SCHEMA, DEFAULT, rig.me, [])
    assert seen.dues.keys() == {PARTITION, OTHER}
    assert 3500 < seen.dues[PARTITION] <= 3600
    assert seen.dues[OTHER] <= 0
    tick = rig.ownership.tick(rig.conn)
    assert (tick.due, tick.is_calm) == ([OTHER], True)
    assert tick.soonest is not None
    assert 3500 < tick.soonest <= 3600


def test_a_look_that_comes_with_the_tick_is_of_now(conn: Conn, rig: Rig) -> None:
    assert is_calm(rig)
    before = cursors.tick(rig.conn, SCHEMA, DEFAULT, rig.me, []).look.fence.drawn
    write(conn, 2)
    look = rig.ownership.tick(rig.conn).look
    assert look is not None
    assert look.fence.drawn == before + 2


def cheap_look(rig: Rig) -> object:
    """The answer of the cheap statement, after two ticks that have drawn the same."""
    settle(rig)
    assert rig.ownership._settled is not None
    assert rig.ownership._still is not None
    return cursors.calm(rig.conn, SCHEMA, DEFAULT, rig.me, rig.ownership._settled, rig.ownership._still)


def test_while_all_is_calm_a_cheaper_statement_says_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(rig)
    look = cursors.tick(rig.conn, SCHEMA, DEFAULT, rig.me, []).look

    def fail(*_: object) -> None:
        raise AssertionError("a whole tick")

    monkeypatch.setattr(cursors, "tick", fail)
    tick = rig.ownership.tick(rig.conn)
    assert tick.is_calm
    assert tick.look is not None
    assert (tick.look.fence.drawn, tick.look.ended) == (look.fence.drawn, False)
    with pytest.raises(AssertionError, match="whole"):
        rig.ownership.tick(rig.conn, [7])  # a transaction whose end is to be told


@pytest.mark.parametrize(
    "change",
    [
        "update partbox.partition set epoch = epoch + 1 where partition = 99",
        "update partbox.partition set assignee = gen_random_uuid() where partition = 99",
    ],
)
def test_what_changes_of_others_partitions_is_nothing_to_the_cheaper_statement(
    conn: Conn, rig: Rig, change: str
) -> None:
    assert cheap_look(rig) is not None
    settled, still = rig.ownership._settled, rig.ownership._still
    assert settled is not None
    assert still is not None
    conn.execute(change)
    assert cursors.calm(rig.conn, SCHEMA, DEFAULT, rig.me, settled, still) is not None


@pytest.mark.parametrize(
    "change",
    [
        "update partbox.partition set epoch = epoch + 1 where partition = %(p)s",
        "update partbox.partition set parked_version = parked_version + 1 where partition = %(p)s",
        "update partbox.partition set owner = null where partition = %(p)s",
        "update partbox.partition set assignee = null where partition = %(p)s",
        "update partbox.partition set assignee = %(me)s where partition = 99",
        "update partbox.partition set owner = %(me)s where partition = 99",
        "select nextval('partbox.record_id_seq')",
        """insert into partbox.parked
                  (subscription, record_id, partition, aggregate_type, event_type, state, blocks, due_at)
           values ('default', 1, %(p)s, 'a', 'e', 'scheduled', false, now() + interval '1 hour')""",
    ],
)
def test_whatever_the_cheaper_statement_cannot_tell_is_left_to_a_tick(conn: Conn, rig: Rig, change: str) -> None:
    assert cheap_look(rig) is not None
    settled, still = rig.ownership._settled, rig.ownership._still
    assert settled is not None
    assert still is not None
    conn.execute(change, {"p": PARTITION, "me": rig.me})
    assert cursors.calm(rig.conn, SCHEMA, DEFAULT, rig.me, settled, still) is None


def test_a_new_session_remembers_no_look_of_the_last_one(rig: Rig) -> None:
    assert cheap_look(rig) is not None
    rig.ownership.take_up(rig.conn)
    assert rig.ownership._still is None


def test_a_tick_finds_the_partitions_of_its_process_by_two_indexes(rig: Rig) -> None:
    for setting in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_bitmapscan = off"):
        rig.conn.execute(f"set {setting}")
    values = {"subscription": DEFAULT, "me": rig.me}
    rows = rig.conn.execute(b"explain " + query("mine", SCHEMA), values).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "partition_assignee" in plan
    assert "partition_owner" in plan
