"""A tick that finds nothing changed reads no partition's row, and whatever has changed is found."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from owner import DEFAULT, PARTITION, SCHEMA, Owner, write
from server_database import SHIPPED
from waiting import eventually

from partbox.db.delivery import bell, cursors
from partbox.db.sql import load_query

Conn = psycopg.Connection[Any]
OTHER = PARTITION + 1


@pytest.fixture
def owner(owner_with: Callable[..., Owner]) -> Owner:
    owner = owner_with((PARTITION, OTHER))
    settle(owner)
    return owner


def settle(owner: Owner) -> None:
    """The first tick claims, the second finds what it has claimed."""
    for _ in range(2):
        owner.tick()


def is_calm(owner: Owner) -> bool:
    return owner.tick().is_calm


def test_a_tick_reads_no_rows_when_nothing_has_changed(conn: Conn, owner: Owner) -> None:
    digest = SHIPPED["run_tick"](owner.conn, SCHEMA, DEFAULT, owner.me, []).digest
    assert is_calm(owner)
    write(conn, 3)
    owner.done(*owner.read_all())
    owner.save()
    assert is_calm(owner), "what is saved concerns nobody who ticks"
    seen = SHIPPED["run_tick"](owner.conn, SCHEMA, DEFAULT, owner.me, [], digest)
    assert seen.partitions is None
    assert seen.digest == digest


def test_a_tick_returns_nothing_for_a_process_that_owns_no_partition(conn: Conn, owner: Owner) -> None:
    conn.execute("update partbox.partition set owner = null, assignee = null")
    seen = SHIPPED["run_tick"](owner.conn, SCHEMA, DEFAULT, owner.me, [])
    assert (seen.digest, seen.partitions, seen.due_times) == (None, [], {})


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
def test_a_tick_sees_any_change_of_one_partition(conn: Conn, owner: Owner, change: str) -> None:
    assert is_calm(owner)
    conn.execute(f"update partbox.partition set {change} where partition = %s", [PARTITION])
    assert not is_calm(owner)


def test_another_partition_that_is_assigned_is_claimed(conn: Conn, owner: Owner) -> None:
    assert is_calm(owner)
    conn.execute("update partbox.partition set assignee = %s where partition = 99", [owner.me])
    assert not is_calm(owner)
    assert 99 in owner.engine.partitions
    assert not is_calm(owner), "it is found as it was claimed"
    assert is_calm(owner)


def test_a_partition_to_give_up_that_cannot_drain_yet_is_checked_again_at_the_next_tick(
    conn: Conn, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = owner.partition()
    with monkeypatch.context() as patch:
        patch.setattr(type(partition), "may_drain", lambda self, now: False)
        conn.execute("update partbox.partition set assignee = null where partition = %s", [PARTITION])
        assert [is_calm(owner) for _ in range(3)] == [False] * 3
    is_calm(owner)
    assert partition.is_draining


def test_rows_that_could_not_be_read_are_read_at_a_later_tick(conn: Conn, owner: Owner) -> None:
    """While a save is under way nobody knows which parked rows there are."""
    partition = owner.partition()
    assert is_calm(owner)
    partition.last_save.is_in_flight = True
    conn.execute("update partbox.partition set parked_version = 7 where partition = %s", [PARTITION])
    assert not is_calm(owner)
    assert partition.parked.version < 7
    partition.last_save.is_in_flight = False
    assert not is_calm(owner)
    assert partition.parked.version == 7
    assert is_calm(owner)


def test_a_tick_under_another_identity_sees_everything(conn: Conn, owner: Owner) -> None:
    assert is_calm(owner)
    owner.process.slot.instance = owner.me
    owner.ownership.resume(owner.connection(owner.process))
    assert not is_calm(owner)
    assert is_calm(owner)


def test_a_tick_reports_due_rows_only_for_the_partitions_of_its_process(conn: Conn, owner: Owner) -> None:
    conn.execute(
        """insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks,
                                       attempts, due_at)
           select %s, partition * 10 + n, partition, 'a', 'e', 'scheduled', false, 0, now() + n * interval '1 hour'
             from unnest(%s::int[]) as partition, generate_series(1, 2) as n""",
        [DEFAULT, [PARTITION - 1, PARTITION, OTHER, 200]],
    )
    conn.execute("update partbox.parked set due_at = now() where partition = %s and record_id %% 10 = 2", [OTHER])
    seen = SHIPPED["run_tick"](owner.conn, SCHEMA, DEFAULT, owner.me, [])
    assert seen.due_times.keys() == {PARTITION, OTHER}
    assert 3500 < seen.due_times[PARTITION] <= 3600
    assert seen.due_times[OTHER] <= 0
    tick = owner.tick()
    assert (tick.due_partitions, tick.is_calm) == ([OTHER], True)
    assert tick.next_due_in is not None
    assert 3500 < tick.next_due_in <= 3600


def test_the_idle_check_of_a_tick_shows_the_current_log(conn: Conn, owner: Owner) -> None:
    assert is_calm(owner)
    before = SHIPPED["run_tick"](owner.conn, SCHEMA, DEFAULT, owner.me, []).idle_check.fence.drawn_id
    write(conn, 2)
    look = owner.tick().idle_check
    assert look is not None
    assert look.fence.drawn_id == before + 2


def cheap_look(owner: Owner) -> object:
    """The answer of the cheap statement, after two ticks that have drawn the same."""
    settle(owner)
    assert owner.ownership._settled_digest is not None
    assert owner.ownership._idle_check is not None
    return SHIPPED["recheck_idle"](
        owner.conn, SCHEMA, DEFAULT, owner.me, owner.ownership._settled_digest, owner.ownership._idle_check
    )


def test_a_cheaper_statement_replaces_the_whole_tick_while_nothing_changes(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(owner)
    look = SHIPPED["run_tick"](owner.conn, SCHEMA, DEFAULT, owner.me, []).idle_check

    def fail(*_: object) -> None:
        raise AssertionError("a whole tick")

    monkeypatch.setattr(cursors, "run_tick", fail)
    tick = owner.tick()
    assert tick.is_calm
    assert tick.idle_check is not None
    assert (tick.idle_check.fence.drawn_id, tick.idle_check.has_ended) == (look.fence.drawn_id, False)
    with pytest.raises(AssertionError, match="whole"):
        owner.ownership.tick(owner.conn, [7])  # a transaction whose end is to be told


@pytest.mark.parametrize(
    "change",
    [
        "update partbox.partition set epoch = epoch + 1 where partition = 99",
        "update partbox.partition set assignee = gen_random_uuid() where partition = 99",
    ],
)
def test_the_cheaper_statement_ignores_changes_of_partitions_of_others(conn: Conn, owner: Owner, change: str) -> None:
    assert cheap_look(owner) is not None
    settled, still = owner.ownership._settled_digest, owner.ownership._idle_check
    assert settled is not None
    assert still is not None
    conn.execute(change)
    assert SHIPPED["recheck_idle"](owner.conn, SCHEMA, DEFAULT, owner.me, settled, still) is not None


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
def test_the_cheaper_statement_leaves_every_relevant_change_to_a_whole_tick(
    conn: Conn, owner: Owner, change: str
) -> None:
    assert cheap_look(owner) is not None
    settled, still = owner.ownership._settled_digest, owner.ownership._idle_check
    assert settled is not None
    assert still is not None
    conn.execute(change, {"p": PARTITION, "me": owner.me})
    assert SHIPPED["recheck_idle"](owner.conn, SCHEMA, DEFAULT, owner.me, settled, still) is None


def test_a_new_session_forgets_the_idle_check_of_the_last_session(owner: Owner) -> None:
    assert cheap_look(owner) is not None
    owner.ownership.resume(owner.connection(owner.process))
    assert owner.ownership._idle_check is None


def test_a_tick_finds_the_partitions_of_its_process_by_two_indexes(owner: Owner) -> None:
    for setting in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_bitmapscan = off"):
        owner.conn.execute(f"set {setting}")
    values = {"subscription": DEFAULT, "me": owner.me}
    rows = owner.conn.execute(b"explain " + load_query("mine", SCHEMA), values).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "partition_assignee" in plan
    assert "partition_owner" in plan


def test_a_poll_says_whether_the_flag_of_the_bell_is_up(conn: Conn, owner: Owner) -> None:
    bell_sequence = bell.find_bell_sequence(conn, SCHEMA)
    assert bell_sequence is not None
    owner.read_all(5)
    owner.conn.bell = bell_sequence.sequence

    def says(ahead: int, up: bool) -> bool:
        conn.execute(f"select setval('partbox.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + {ahead})")
        write(conn)
        owner.read()
        seen = owner.reader.log_state
        assert seen is not None
        return 0 < seen.flag_seconds <= ahead / 1000 if up else seen.flag_seconds == 0

    eventually(lambda: says(1000, True))  # at once, unless the machine takes a second
    assert says(-5, False)
    assert says(3_600_000, False)
