"""Before a partition is let go, and before a handler starts: each step that a rebalance or a pause relies on."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from rig import PARTITION, Rig, write

from partbox.platform import boottime
from partbox.protocol.cursor import CutPage, ReadMode
from partbox.protocol.horizon import Page
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.reconnect import SETTLE
from partbox.worker.engine.saves import committed, gather
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.timeouts import Timeouts
from partbox.worker.slot import Slot

Conn = psycopg.Connection[Any]
EVENT_ID = b"\1" * 16


@pytest.fixture
def rig(conn: Conn, rig_with: Callable[[], Rig]) -> Rig:
    """It has read three records, and none has been started."""
    write(conn, 3)
    rig = rig_with()
    rig.reader.read(rig.conn)
    return rig


def test_a_release_parks_what_is_unfinished_below_the_cursor_it_saves(rig: Rig) -> None:
    partition = rig.partition()
    with rig.engine.lock:
        partition.finish([(2, EVENT_ID)])
        partition.drain()
        batch = gather(partition)
    assert (batch.release, batch.target.last_id) == (True, 2)
    assert [(each.park.record_id, each.park.state) for each in batch.parks] == [(1, "ready")]


def test_nothing_is_released_while_a_handler_runs(rig: Rig) -> None:
    partition = rig.partition()
    with rig.engine.lock:
        partition.drain()
        partition.running = 1
        assert not gather(partition).release
        partition.running = 0
        assert gather(partition).release


def test_what_was_let_go_is_not_saved_again_though_a_lane_that_began_nothing_touches_it(rig: Rig) -> None:
    partition, engine = rig.partition(), rig.engine
    with engine.lock:
        partition.drain()
        engine.touch(partition)
        assert engine.clean() == [partition]
        engine.touch(partition)
        engine.drop(partition)
        engine.touch(partition)
        assert engine.clean() == []


def test_nothing_is_released_inside_a_cut_page(rig: Rig) -> None:
    partition = rig.partition()
    with rig.engine.lock:
        partition.drain()
        page = Page("1:1:", 0)
        partition.cursor.to(ReadMode.CUT, page, CutPage(page, 0))
        assert not gather(partition).release
        partition.cursor.to(ReadMode.BACKLOG, page)
        assert gather(partition).release


def test_a_process_with_a_handler_that_was_given_up_ends_when_the_save_that_says_so_is_committed(rig: Rig) -> None:
    nothing_runs: Any = SimpleNamespace(running=list)
    timeouts = Timeouts(rig.engine, nothing_runs, nothing_runs, nothing_runs, isolates=True)
    timeouts.stuck.add(rig.partition())
    assert timeouts.settled()
    with rig.engine.lock:
        batch = gather(rig.partition())
    assert not timeouts.settled()
    with rig.engine.lock:
        committed(rig.engine, [batch], 0.0)
    assert timeouts.settled()


def finish_all(rig: Rig) -> None:
    with rig.engine.lock:
        for event in rig.waiting.take():
            rig.partition().finish([(event.id, event.event_id.bytes)])


@pytest.fixture
def asked_for(rig: Rig, conn: Conn) -> Rig:
    """Its three records are done and not saved when its connection is lost, and somebody else is to have them."""
    finish_all(rig)
    conn.execute("update partbox.partition set assignee = null")
    rig.reconnect()
    return rig


def released(rig: Rig) -> tuple[bool, int, list[Any]]:
    """The content of a save now: true if it lets go, the last id, and the records parked."""
    with rig.engine.lock:
        batch = gather(rig.partition())
    return batch.release, batch.target.last_id, [each.park.record_id for each in batch.parks]


def test_what_was_done_before_a_lost_connection_is_read_again_before_the_partition_is_let_go(asked_for: Rig) -> None:
    asked_for.ownership.tick(asked_for.conn)
    assert released(asked_for) == (False, 0, [])
    asked_for.reader.read(asked_for.conn)
    asked_for.ownership.tick(asked_for.conn)
    assert released(asked_for) == (True, 3, [])


def test_what_was_done_before_a_lost_connection_is_no_suspect_when_it_is_read_again(rig: Rig, conn: Conn) -> None:
    finish_all(rig)
    conn.execute("update partbox.partition set suspect_until_id = 3")
    write(conn)
    rig.reconnect()
    assert rig.read() == [4]
    assert (rig.partition().parked.pending, rig.partition().progress.released().last_id) == ({}, 3)


def test_the_same_if_the_process_is_to_end(asked_for: Rig) -> None:
    asked_for.ownership.drain_all()
    assert not asked_for.partition().draining
    asked_for.reader.read(asked_for.conn)
    asked_for.ownership.drain_all()
    assert released(asked_for) == (True, 3, [])


def test_a_drain_under_way_when_the_connection_is_lost_begins_anew(rig: Rig, conn: Conn) -> None:
    finish_all(rig)
    conn.execute("update partbox.partition set assignee = null")
    rig.ownership.tick(rig.conn)
    assert rig.partition().draining
    rig.reconnect()
    rig.ownership.tick(rig.conn)
    assert released(rig) == (False, 0, [])
    rig.reader.read(rig.conn)
    rig.ownership.tick(rig.conn)
    assert released(rig) == (True, 3, [])


def test_a_partition_that_may_not_read_is_let_go_after_a_while_though_its_events_come_again(asked_for: Rig) -> None:
    asked_for.partition().resumption._reset_at -= SETTLE
    asked_for.ownership.tick(asked_for.conn)
    assert released(asked_for) == (True, 0, [])


def test_it_is_let_go_though_what_was_done_is_gone_from_the_log(asked_for: Rig, conn: Conn) -> None:
    conn.execute("delete from partbox.record")
    asked_for.reader.read(asked_for.conn)
    asked_for.ownership.tick(asked_for.conn)
    assert asked_for.partition().draining


# It is found by its due time only, which the first tick after a reconnect tells: the log may be read again before.
def test_what_ran_and_is_found_by_its_due_time_only_is_found_again_before_the_partition_is_let_go(
    conn: Conn, rig_with: Callable[[], Rig]
) -> None:
    write(conn)
    conn.execute(
        "insert into partbox.parked"
        " (subscription, record_id, partition, aggregate_type, event_type, state, blocks, due_at)"
        " values ('default', 1, %s, '__GLOBAL__', 'Written', 'ready', false, now())",
        [PARTITION],
    )
    rig = rig_with()
    rig.reader.read(rig.conn)
    rig.read_due()
    (event,) = rig.waiting.take()
    rig.reconnect()
    with rig.engine.lock:
        rig.partition().resumption.remembered.add(event.identity)  # its handler, which ran, is done
    rig.reader.read(rig.conn)
    rig.ownership.drain_all()
    assert not rig.partition().draining
    rig.read_due()
    rig.ownership.drain_all()
    assert released(rig) == (True, 1, [])
    assert rig.partition().parked.deleting == {1: event.identity[1]}


def test_what_is_parked_ahead_of_the_saved_cursor_is_not_handed_over_again(
    conn: Conn, rig_with: Callable[[], Rig]
) -> None:
    write(conn, 3)
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " values ('default', 2, %s, '__GLOBAL__', 'Written', 'dead', false)",
        [PARTITION],
    )
    assert rig_with().read_all() == [1, 3]


@pytest.mark.parametrize(("boot", "wall", "trusted"), [(60, 60, True), (-1, 60, False), (60, -1, False)])
def test_trust_ends_by_either_clock(boot: float, wall: float, trusted: bool) -> None:
    slot = Slot.local()
    slot.trust_until(boottime() + boot, time.time() + wall)
    assert slot.trusted() is trusted


def test_no_handler_starts_without_trust() -> None:
    slot, engine = Slot.local(), Engine()
    engine.version = slot.version
    worker: Any = SimpleNamespace(_slot=slot, _engine=engine, _trusted_at=0.0)
    slot.trust_until(boottime() - 1, time.time() - 1)
    assert not LaneRunner.trusted(worker)
    slot.trust_until(boottime() + 60, time.time() + 60)
    assert LaneRunner.trusted(worker)
