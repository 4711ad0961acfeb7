"""Whoever changes a plan or parked rows tells the workers of that subscription, which may sleep for seconds."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psycopg
import pytest
from full_notification_queue import crowd
from ownership import DEFAULT, SCHEMA, assign, join, seize
from planted_records import Planter
from roles import locks_held

from partbox.db.delivery import instances
from partbox.db.operator import blocked, dead, subscriptions
from partbox.protocol.bell import RING_CHANGED, build_channel_name

pytestmark = pytest.mark.every_version("NOTIFY in functions")

Conn = psycopg.Connection[Any]


def plan(conn: Conn, plant: Any) -> None:
    (me,) = join(conn)
    assign(conn, None, range(256))
    assert instances.assign_partitions(conn, SCHEMA, DEFAULT, [me], [None] * 256, [me] * 256)


def pause(conn: Conn, plant: Any) -> None:
    assert subscriptions.pause(conn, SCHEMA, DEFAULT)


def retry_now(conn: Conn, plant: Any) -> None:
    plant.park("a", "retrying", blocks=True, due=3_600)
    assert blocked.retry_now(conn, SCHEMA, blocked.Key(DEFAULT, "Order", "a"))


def skip(conn: Conn, plant: Any) -> None:
    plant.park("a", "retrying", blocks=True, due=3_600)
    assert blocked.skip(conn, SCHEMA, blocked.Key(DEFAULT, "Order", "a"), reason="enough", error_limit=100)


def replay(conn: Conn, plant: Any) -> None:
    assert dead.replay(conn, SCHEMA, DEFAULT, [plant.park("a")]) == 1


def discard(conn: Conn, plant: Any) -> None:
    assert dead.discard(conn, SCHEMA, DEFAULT, [plant.park("a")]) == 1


@pytest.mark.parametrize("change", [plan, pause, retry_now, skip, replay, discard])
def test_workers_are_notified_of_a_change_once_it_is_committed(
    change: Callable[[Conn, Any], None], plant: Any, conn: Conn, dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as listening:
        listening.execute(f'listen "{build_channel_name(SCHEMA)}"')
        with conn.transaction():
            change(conn, plant)
            assert not [*listening.notifies(timeout=0)]
        (told,) = listening.notifies(timeout=30, stop_after=1)
    assert told.payload == f"{RING_CHANGED} {DEFAULT}"


@pytest.mark.parametrize("beside", [nullcontext, locks_held])
@pytest.mark.parametrize("change", [plan, pause, retry_now, skip, replay, discard])
def test_a_change_is_made_without_a_notification_while_the_notification_queue_is_full(
    change: Callable[[Conn, Any], None], beside: Callable[[str], AbstractContextManager[Any]], crowded_dsn: str
) -> None:
    with beside(crowded_dsn), crowd(crowded_dsn), psycopg.connect(crowded_dsn, autocommit=True) as conn:
        change(conn, Planter(conn))


def test_workers_are_not_notified_of_a_plan_that_is_not_put_into_force(conn: Conn, dsn: str) -> None:
    (me,) = join(conn)
    seize(conn, me)
    with psycopg.connect(dsn, autocommit=True) as listening:
        listening.execute(f'listen "{build_channel_name(SCHEMA)}"')
        assert not instances.assign_partitions(conn, SCHEMA, DEFAULT, [me], [None] * 256, [me] * 256)
        assert not [*listening.notifies(timeout=0)]
