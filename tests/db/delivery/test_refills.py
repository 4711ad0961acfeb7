"""Refills on a server: what they insert, how far they go, and who else respects that records wait in the log."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from ownership import DEFAULT, SCHEMA, Conn, join, save, saving, seize
from purgeable import Planted, divide
from savings import rows

from partbox.db.delivery import parked
from partbox.db.operator import segments
from partbox.db.operator.blocked import list_keys
from partbox.operations.purge import purge
from partbox.protocol.rows import OwnedPartition, Refill, RefilledKey, RefillKey, SpillStart, StoredSpill
from partbox.protocol.segments import IdRange
from partbox.segments.retention import SegmentRetention, list_reasons
from partbox.settings import load

EVERYTHING = 1 << 40


def plant(conn: Conn, key: str, ids: Sequence[int], *, age: float = 0.0, event_type: str = "Placed") -> None:
    """Records of one aggregate in partition 0."""
    conn.execute(
        "insert into partbox.record (id, partition, event_id, event_type, aggregate_type, aggregate_id, created_at)"
        " select id, 0, gen_random_uuid(), %s, 'Order', %s, clock_timestamp() - %s * interval '1 day'"
        " from unnest(%s::bigint[]) as id",
        [event_type, key, age, list(ids)],
    )


def spill(conn: Conn, me: Any, owned: OwnedPartition, key: str, from_id: int, *, last_id: int) -> None:
    """A save passes records up to `last_id`, and those of the key from `from_id` on have no rows."""
    snapshot = conn.execute("select pg_current_snapshot()::text").fetchone()[0]  # type: ignore[index]
    start = SpillStart(owned.partition, "Order", key, from_id)
    assert save(conn, me, [saving(owned, snapshot, last_id, last_id)], parks=[start]) == {owned.partition}


def refill(conn: Conn, me: Any, owned: OwnedPartition, *keys: tuple[str, int, bool], upto: int = EVERYTHING,
           types: frozenset[str] | None = None) -> list[RefilledKey] | None:  # fmt: skip
    wanted = [RefillKey("Order", key, most, may_end) for key, most, may_end in keys]
    return parked.refill(conn, SCHEMA, DEFAULT, me, Refill(owned.partition, owned.epoch, upto, wanted, types))


def spills(conn: Conn) -> list[StoredSpill]:
    return parked.list_spills(conn, SCHEMA, DEFAULT, [0])


def test_a_refill_inserts_rows_for_the_next_records_and_goes_on_behind_them(conn, me, mine) -> None:
    plant(conn, "a", range(1, 10))
    plant(conn, "b", [20])
    spill(conn, me, mine[0], "a", 3, last_id=30)
    assert refill(conn, me, mine[0], ("a", 2, True)) == [RefilledKey("Order", "a", 5, False, [3, 4])]
    assert {id: row["state"] for id, row in rows(conn).items()} == {3: "held", 4: "held"}
    assert refill(conn, me, mine[0], ("a", 9, False)) == [RefilledKey("Order", "a", 31, True, [5, 6, 7, 8, 9])]
    assert spills(conn) == [StoredSpill(0, "Order", "a", 31)]
    assert refill(conn, me, mine[0], ("a", 9, True)) == [RefilledKey("Order", "a", None, True, [])]
    assert spills(conn) == []


def test_a_record_that_has_a_row_keeps_it_and_counts(conn, me, mine) -> None:
    plant(conn, "a", range(1, 5))
    spill(conn, me, mine[0], "a", 1, last_id=4)
    Planted(conn).park(2, "dead", partition=0)
    assert refill(conn, me, mine[0], ("a", 3, False)) == [RefilledKey("Order", "a", 4, False, [1, 3])]
    assert rows(conn)[2]["state"] == "dead"


def test_a_refill_reads_only_what_the_saved_cursor_and_its_owner_have_consumed(dsn, conn, me, mine) -> None:
    with psycopg.connect(dsn) as late:
        plant(late, "a", [2])
        plant(conn, "a", [1, 3, 4, 5])
        spill(conn, me, mine[0], "a", 1, last_id=4)
        late.commit()
    # 2 had not committed at the saved snapshot: it comes late, and is parked by its owner. 4 is not consumed for good.
    assert refill(conn, me, mine[0], ("a", 9, False), upto=3) == [RefilledKey("Order", "a", 4, True, [1, 3])]
    assert refill(conn, me, mine[0], ("a", 9, False)) == [RefilledKey("Order", "a", 5, True, [4])]


def test_one_scan_serves_all_keys_and_stops_after_so_many_records(conn, me, mine, monkeypatch) -> None:
    monkeypatch.setattr(parked, "MOST_REFILL_READ", 4)
    plant(conn, "a", [1, 2, 7])
    plant(conn, "b", [3, 4, 5, 6])
    spill(conn, me, mine[0], "a", 1, last_id=9)
    spill(conn, me, mine[0], "b", 3, last_id=9)
    found = refill(conn, me, mine[0], ("a", 3, True), ("b", 1, True))
    assert sorted(found or ()) == [
        RefilledKey("Order", "a", 5, False, [1, 2]),
        RefilledKey("Order", "b", 4, False, [3]),
    ]
    assert refill(conn, me, mine[0], ("a", 3, True)) == [RefilledKey("Order", "a", None, True, [7])]


def test_records_of_types_that_the_subscription_does_not_want_are_passed_over(conn, me, mine) -> None:
    plant(conn, "a", [1, 3])
    plant(conn, "a", [2], event_type="Other")
    spill(conn, me, mine[0], "a", 1, last_id=3)
    found = refill(conn, me, mine[0], ("a", 9, True), types=frozenset({"Placed"}))
    assert found == [RefilledKey("Order", "a", None, True, [1, 3])]


@pytest.mark.parametrize("lacks", ["owner", "epoch"])
def test_who_does_not_own_the_partition_inserts_nothing(conn, me, mine, lacks) -> None:
    plant(conn, "a", [1, 2])
    spill(conn, me, mine[0], "a", 1, last_id=2)
    owned = mine[0]._replace(epoch=mine[0].epoch - 1) if lacks == "epoch" else mine[0]
    assert refill(conn, uuid4() if lacks == "owner" else me, owned, ("a", 9, True)) is None
    assert (rows(conn), len(spills(conn))) == ({}, 1)


def test_a_save_that_is_refused_starts_no_spill(conn, me, mine) -> None:
    start = SpillStart(0, "Order", "a", 1)
    assert save(conn, uuid4(), [saving(mine[0], "5:9:6", 4, 4)], parks=[start]) == set()
    assert spills(conn) == []


def test_records_that_wait_in_the_log_are_held_and_neither_done_nor_delivered(conn, me, mine) -> None:
    plant(conn, "a", range(1, 5))
    plant(conn, "b", [5])
    spill(conn, me, mine[0], "a", 3, last_id=5)
    statuses = "select id, status from partbox.record_status order by id"
    assert dict(conn.execute(statuses).fetchall()) == {1: "done", 2: "done", 3: "held", 4: "held", 5: "done"}
    assert conn.execute("select id from partbox.delivery order by id").fetchall() == [(1,), (2,), (5,)]


def test_a_purge_keeps_all_records_of_the_partition_from_the_first_that_waits(dsn, conn, me, mine) -> None:
    plant(conn, "a", range(1, 5), age=30)
    plant(conn, "b", [7], age=30)
    spill(conn, me, mine[0], "a", 3, last_id=9)
    purge(lambda: dsn, load(), dry_run=False)
    assert Planted(conn).left() == [3, 4, 7]
    refill(conn, me, mine[0], ("a", 9, True))
    purge(lambda: dsn, load(), dry_run=False)
    assert Planted(conn).left() == [3, 4]


def test_a_segment_with_records_that_wait_is_kept_and_the_key_is_named(conn, me, mine) -> None:
    divide(conn)
    plant(conn, "a", [10, 110], age=30)
    plant(conn, "b", [120], age=30)
    spill(conn, me, mine[0], "a", 110, last_id=999)
    conn.execute("update partbox.partition set last_id = 999, floor_id = 999")
    assert segments.list_holds(conn, SCHEMA, IdRange(0, 100), None) == []
    found = segments.list_holds(conn, SCHEMA, IdRange(100, 200), None)
    assert [(hold.reason, hold.id, hold.rows) for hold in found] == [("spilled", 110, 1)]
    (reason,) = list_reasons(SegmentRetention(segments.list_segments(conn, SCHEMA)[1], found))
    assert "Order 'a' from id 110 on" in reason


def test_the_list_of_blocked_aggregates_says_from_where_more_waits(conn, me, mine) -> None:
    plant(conn, "a", range(1, 5))
    spill(conn, me, mine[0], "a", 3, last_id=4)
    Planted(conn).park(1, "retrying", blocks=True)
    conn.execute("update partbox.parked set aggregate_type = 'Order'")
    assert [each.more_from_id for each in list_keys(conn, SCHEMA, DEFAULT, 10)] == [3]


@pytest.mark.parametrize(("from_id", "left"), [(2, []), (3, []), (4, [3])])
def test_a_replay_ends_spills_from_its_first_record_on(conn, me, mine, from_id, left) -> None:
    plant(conn, "a", range(1, 6))
    spill(conn, me, mine[0], "a", 3, last_id=5)
    conn.execute("update partbox.partition set owner = null, assignee = null")
    conn.execute("update partbox.subscription set paused_at = now()")
    conn.execute("select * from partbox.subscription_replay('default', %s, null, false)", [from_id])
    assert [each.from_id for each in spills(conn)] == left


def test_a_subscription_is_dropped_with_its_spills(conn, me, mine) -> None:
    spill(conn, me, mine[0], "a", 3, last_id=5)
    conn.execute("update partbox.partition set owner = null; delete from partbox.instance")
    conn.execute("update partbox.subscription set paused_at = now()")
    assert conn.execute("select partbox.subscription_drop('default')").fetchone() == (None,)
    assert spills(conn) == []


def test_a_process_of_an_earlier_version_claims_no_partition_with_a_spill(conn, me, mine) -> None:
    """A process that does not know the table would deliver new events before the ones that wait in the log."""
    spill(conn, me, mine[0], "a", 3, last_id=5)
    conn.execute("update partbox.partition set owner = null, assignee = null")
    (older, newer) = join(conn, 2)
    conn.execute("update partbox.instance set reads_spills = false where instance_id = %s", [older])
    assert list(seize(conn, older, range(3))) == [1, 2]
    assert list(seize(conn, newer, range(3))) == [0]
