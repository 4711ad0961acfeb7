"""`partbox status`, and the numbers behind it."""

import json

import psycopg
import pytest

from partbox.db import stats
from partbox.errors import SchemaError

RECORDS = """
insert into partbox.record (partition, event_id, event_type, payload, created_at)
select {partition}, gen_random_uuid(), 'Placed', '{{}}', now() - interval '3 minutes' from generate_series(1, {count})
"""
INSTANCE = """
insert into partbox.instance (subscription, node, hostname, pid, version, lease, heartbeat_at, draining)
values ('default', %s, %s, %s, '0.1.0', '6 s', now() - %s * interval '1 s', %s) returning instance_id
"""


@pytest.fixture
def publish(conn):
    def publish(partition: int, count: int = 1, on: psycopg.Connection = conn) -> None:
        on.execute(RECORDS.format(partition=partition, count=count).encode())

    return publish


@pytest.fixture
def consume(conn):
    """As a save: everything up to now, the floor too unless given."""

    def consume(floor_id: int | None = None) -> None:
        conn.execute(
            "update partbox.partition set snapshot = pg_current_snapshot(), last_id = g,"
            " floor_id = coalesce(%s, g) from (select coalesce(max(id), 0) g from partbox.record) r",
            [floor_id],
        )

    return consume


def look(conn) -> stats.Cluster:
    return stats.cluster(conn, "partbox", "default")


def pending(conn) -> dict[int, int]:
    return {each.partition: each.pending for each in look(conn).partitions if each.pending}


def test_a_fresh_outbox_has_nothing_but_256_free_partitions(conn):
    cluster = look(conn)
    assert (len(cluster.partitions), cluster.unowned) == (256, 256)
    assert (cluster.instances, cluster.pending, cluster.pending_max, cluster.oldest_age, cluster.exact) == (
        (),
        0,
        0,
        None,
        True,
    )
    assert (cluster.parked, cluster.paused) == ({}, False)


def test_pending_is_what_lies_above_the_cursor(conn, publish, consume):
    publish(3, 5)
    consume()
    assert pending(conn) == {}
    publish(3, 7)
    publish(200, 2)
    assert pending(conn) == {3: 7, 200: 2}
    cluster = look(conn)
    assert (cluster.pending, cluster.pending_max) == (9, 7)
    assert cluster.oldest_age == pytest.approx(180, abs=60)


def test_a_record_that_commits_late_is_pending(conn, dsn, publish, consume):
    with psycopg.connect(dsn) as slow:
        publish(9, 2, on=slow)
        publish(9, 4)
        consume(floor_id=0)
        assert pending(conn) == {}
        slow.commit()
    assert pending(conn) == {9: 2}
    assert look(conn).oldest_age == pytest.approx(180, abs=60)


def test_parked_records_count_apart_by_state(conn, publish, consume):
    publish(1, 3)
    consume()
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " values ('default', 1, 1, 'Order', 'Placed', 'held', true),"
        " ('default', 2, 1, 'Order', 'Placed', 'dead', false),"
        " ('default', 3, 1, 'Order', 'Placed', 'held', true), ('other', 1, 1, 'Order', 'Placed', 'held', true)"
    )
    cluster = look(conn)
    assert (cluster.parked, cluster.pending) == ({"dead": 1, "held": 2}, 0)


def test_a_deep_backlog_is_counted_up_to_the_limit_and_estimated_beyond(conn, publish):
    publish(7, stats.EXACT_UP_TO)
    assert (look(conn).pending, look(conn).exact) == (stats.EXACT_UP_TO, True)
    publish(7, 20_000)
    cluster = look(conn)
    assert not cluster.exact
    assert cluster.pending == pytest.approx(30_000, rel=0.05)


def test_a_deep_log_that_is_consumed_is_not_read(conn, publish, consume):
    for partition in range(8):
        publish(partition, 5_000)
    consume()
    publish(0, 3)
    conn.execute("vacuum analyze partbox.record")
    plan = "explain (analyze, format json, costs off, timing off) "
    with conn.transaction():
        conn.execute(stats.query("stats_plan", "partbox"))
        values = {"subscription": "default", "limit": stats.EXACT_UP_TO}
        ((explained,),) = conn.execute(plan.encode() + stats.query("stats_cluster", "partbox"), values).fetchall()
    assert sum(rows_of_records(explained[0]["Plan"])) < 50


def rows_of_records(node: dict) -> list[float]:
    """How many rows each scan of the log brought, its filter included."""
    own = []
    if node.get("Relation Name", "").startswith("record"):
        own = [(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]]
    return own + [rows for child in node.get("Plans", []) for rows in rows_of_records(child)]


def test_owners_are_counted_and_what_the_dead_own_is_unowned(conn):
    ids = [conn.execute(INSTANCE, [*row]).fetchone()[0] for row in (("a", "host", 1, 0, False), ("b", "b", 2, 9, True))]
    conn.execute("update partbox.partition set owner = %s where partition < 100", [ids[0]])
    conn.execute("update partbox.partition set owner = gen_random_uuid() where partition between 100 and 109")
    cluster = look(conn)
    assert [(i.node, i.partitions, i.draining, i.expired) for i in cluster.instances] == [
        ("a", 100, False, False),
        ("b", 0, True, True),
    ]
    assert cluster.unowned == 156


def test_a_subscription_that_does_not_exist_is_refused(conn, partbox, dsn):
    with pytest.raises(SchemaError, match="'audit' does not exist in schema 'partbox': there are default"):
        stats.cluster(conn, "partbox", "audit")
    assert "there are default" in partbox("status", "--dsn", dsn, "--subscription", "audit").error


def test_status_prints_processes_partitions_and_what_is_left(conn, partbox, dsn, publish, monkeypatch):
    publish(3, 1_234)
    conn.execute(INSTANCE, ["node-a", "host-a", 4711, 0, False])
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    lines = [line.strip() for line in partbox("status").out.splitlines()]
    assert lines[0].split() == ["node", "pid", "state", "heartbeat", "partitions"]
    assert lines[1].startswith("node-a (host-a)  4711  working")
    assert "processes     1 on 1 node, version 0.1.0" in lines
    assert "partitions    256, 256 unowned" in lines
    assert "pending       1,234 in all, 1,234 at most in a partition, the oldest published 3 m ago" in lines
    assert "parked        none" in lines


def test_status_without_workers_says_how_to_start_some(partbox, dsn):
    assert "start some with `partbox worker" in partbox("status", "--dsn", dsn).out


def test_status_as_json_holds_every_partition(conn, partbox, dsn, publish):
    publish(3, 2)
    conn.execute(INSTANCE, ["a", "a", 1, 0, False])
    shown = json.loads(partbox("status", "--dsn", dsn, "--json").out)
    assert (shown["pending"], shown["pending_max"], shown["unowned"], shown["exact"]) == (2, 2, 256, True)
    assert [each["pending"] for each in shown["partitions"]] == [0, 0, 0, 2, *[0] * 252]
    assert shown["instances"][0]["node"] == "a"
