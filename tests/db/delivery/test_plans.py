"""A plan is put into force only if what it was decided from still holds."""

from threading import Barrier
from uuid import UUID

import psycopg
import pytest
from ownership import ALL, DEFAULT, SCHEMA, assign, background, bury, join, owners, seize, worker

from partbox.db.delivery import instances
from partbox.protocol.assignment import assign_partitions as decide


def test_a_plan_assigns_and_touches_neither_owner_nor_epoch(conn):
    a, b = sorted(join(conn, 2))
    before = seize(conn, a)
    seen = assignees(conn)
    planned = decide(seen, [a, b])
    assert plan(conn, [b, a], seen, planned)
    assert assignees(conn) == planned
    assert set(owners(conn).values()) == {a}
    epochs = conn.execute("select partition, epoch from partbox.partition").fetchall()
    assert dict(epochs) == {number: row.epoch for number, row in before.items()}


def test_a_plan_rewrites_only_the_rows_that_change(conn):
    a, b = join(conn, 2)
    assign(conn, a)
    versions = row_versions(conn)
    seen = assignees(conn)
    assert plan(conn, [a, b], seen, [b, *seen[1:]])
    assert [number for number, version in row_versions(conn).items() if version != versions[number]] == [0]


def test_a_plan_removes_all_assignees_when_no_instance_is_left(conn):
    (a,) = join(conn)
    assign(conn, a)
    seen = assignees(conn)
    bury(conn, [a], known_dead=True)
    assert plan(conn, [], seen, [None] * 256)
    assert assignees(conn) == [None] * 256


@pytest.mark.parametrize("change", ["join", "leave", "drain"])
def test_a_plan_changes_nothing_when_members_are_not_those_it_was_decided_from(conn, change):
    a, b = join(conn, 2)
    seen = assignees(conn)
    if change == "join":
        join(conn)
    elif change == "leave":
        bury(conn, [b], known_dead=True)
    else:
        instances.renew_heartbeats(conn, SCHEMA, {b: True})
    assert not plan(conn, [a, b], seen, decide(seen, [a, b]))
    assert assignees(conn) == seen


def test_a_plan_changes_nothing_when_an_assignee_is_not_as_it_was_seen(conn):
    a, b = join(conn, 2)
    seen = assignees(conn)
    assign(conn, b, [255])
    assert not plan(conn, [a, b], seen, [a] * 256)
    assert assignees(conn) == [None] * 255 + [b]


def test_draining_instances_are_no_members(conn):
    a, b = join(conn, 2)
    instances.renew_heartbeats(conn, SCHEMA, {b: True})
    assert plan(conn, [a], [None] * 256, [a] * 256)


def test_members_of_another_subscription_do_not_count(conn):
    (a,) = join(conn)
    join(conn, 3, subscription="other")
    assert plan(conn, [a], [None] * 256, [a] * 256)


def test_a_plan_beside_another_is_not_made_and_does_not_wait(dsn, conn):
    a, b = join(conn, 2)
    seen = assignees(conn)
    with worker(dsn) as first, worker(dsn) as second:
        with first.transaction():
            assert plan(first, [a, b], seen, [a] * 256)
            assert not plan(second, [a, b], seen, [b] * 256)
        assert not plan(second, [a, b], seen, [b] * 256)
    assert assignees(conn) == [a] * 256


def test_plans_of_two_subscriptions_do_not_wait_for_each_other(dsn, conn):
    (a,) = join(conn)
    (b,) = join(conn, subscription="other")
    conn.execute("insert into partbox.subscription (name) values ('other')")
    conn.execute(
        "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
        " select 'other', partition, '1:1:', 0, 0 from generate_series(0, 255) partition"
    )
    with worker(dsn) as first, worker(dsn, lease=2) as second, first.transaction():
        assert plan(first, [a], [None] * 256, [a] * 256)
        assert instances.assign_partitions(second, SCHEMA, "other", [b], [None] * 256, [b] * 256)


def test_only_one_of_twenty_concurrent_different_plans_comes_into_force(dsn, conn):
    members = join(conn, 20)
    start = Barrier(20, timeout=30)

    def decide_for(me: UUID) -> bool:
        with worker(dsn) as own:
            start.wait()
            return plan(own, members, [None] * 256, [me] * 256)

    with background() as run:
        answers = {me: run(decide_for, me) for me in members}
        winners = [me for me, answer in answers.items() if answer.result()]
    assert len(winners) == 1
    assert assignees(conn) == winners * 256


def test_twenty_equal_plans_at_once_change_every_row_once(dsn, conn):
    members = join(conn, 20)
    planned = decide([None] * 256, members)
    start = Barrier(20, timeout=30)

    def decide_alike() -> bool:
        with worker(dsn) as own:
            start.wait()
            return plan(own, members, [None] * 256, planned)

    with background() as run:
        answers = [run(decide_alike) for _ in range(20)]
        assert sum(answer.result() for answer in answers) == 1
    assert assignees(conn) == planned
    assert len(set(row_versions(conn).values())) == 1


def test_the_assignees_of_a_paused_or_missing_subscription_are_not_to_be_planned(conn):
    assert len(assignees(conn)) == len(ALL)
    conn.execute("update partbox.subscription set paused_at = now()")
    assert assignees(conn) == []
    assert instances.list_assignees(conn, SCHEMA, "missing") == []


def plan(conn: psycopg.Connection, members: list[UUID], seen: list[UUID | None], planned: list[UUID | None]) -> bool:
    return instances.assign_partitions(conn, SCHEMA, DEFAULT, members, seen, planned)


def assignees(conn: psycopg.Connection) -> list[UUID | None]:
    return instances.list_assignees(conn, SCHEMA, DEFAULT)


def row_versions(conn: psycopg.Connection) -> dict[int, str]:
    """The transaction that wrote each partition's row."""
    return dict(conn.execute("select partition, xmin::text from partbox.partition").fetchall())
