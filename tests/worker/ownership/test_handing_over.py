"""A partition on its way from one process to another: who awaits it knows that, and no save rests meanwhile."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from rig import PARTITION, Rig, write

from partbox.worker.poller.listener import Listener
from partbox.worker.slot import PLANS

Conn = psycopg.Connection[Any]
OTHER = PARTITION + 1


@pytest.fixture
def rig(conn: Conn, rig_with: Callable[[], Rig]) -> Rig:
    """It has read three records of its only partition, and none has been started."""
    write(conn, 3)
    rig = rig_with()
    rig.reader.read(rig.conn)
    return rig


def test_who_is_to_have_a_partition_that_another_owns_awaits_it_until_it_is_released(rig: Rig) -> None:
    plan = "update partbox.partition set assignee = %s, owner = %s where partition = %s"
    rig.conn.execute(plan, [rig.me, uuid4(), OTHER])
    assert rig.ownership.tick(rig.conn).awaits
    rig.conn.execute(plan, [rig.me, None, OTHER])
    assert not rig.ownership.tick(rig.conn).awaits
    assert rig.engine.partitions.keys() == {PARTITION, OTHER}


def test_a_plan_of_its_supervisor_is_news_until_the_next_tick(rig: Rig) -> None:
    assert not rig.ownership.replanned
    rig.slot[PLANS] += 1
    assert rig.ownership.replanned
    rig.ownership.tick(rig.conn)
    assert not rig.ownership.replanned


def test_a_plan_is_no_news_for_ever_to_a_process_that_is_nobody(rig: Rig) -> None:
    rig.ownership.me = None
    rig.slot[PLANS] += 1
    rig.ownership.tick(rig.conn)
    assert not rig.ownership.replanned


def test_what_others_have_changed_in_this_subscription_is_news_until_the_next_tick_and_wakes(rig: Rig) -> None:
    listener = Listener(rig.context)
    rig.wakeup.clear()
    listener.heard("changed others")
    assert not rig.ownership.replanned
    assert not rig.wakeup.is_set()
    listener.heard("changed default")
    assert rig.ownership.replanned
    assert rig.wakeup.is_set()
    rig.ownership.tick(rig.conn)
    assert not rig.ownership.replanned


def test_a_process_has_something_in_hand_while_a_handler_runs_and_while_what_it_has_read_is_not_saved_or_parked(
    rig: Rig,
) -> None:
    partition, engine = rig.partition(), rig.engine
    assert not engine.is_quiet()
    partition.progress.saved_passed = partition.progress.read_new
    assert engine.is_quiet()
    partition.running = 1
    assert not engine.is_quiet()
    partition.running, partition.parked.open = 0, 1
    assert not engine.is_quiet()


def test_the_next_save_is_hurried_as_soon_as_a_partition_may_be_released(rig: Rig) -> None:
    partition, engine, released = rig.partition(), rig.engine, list[bool]()
    engine.wakes.release = lambda: released.append(True)
    with engine.lock:
        partition.running = 1
        engine.touch(partition)
        partition.drain()
        engine.touch(partition)
        assert not released
        partition.running = 0
        engine.touch(partition)
        assert released
