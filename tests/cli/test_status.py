"""`partbox status`, and the numbers behind it."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from itertools import islice

import psycopg
import pytest
from forked_commands import Command
from waiting import eventually

from partbox.db.inspect import stats
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
    return stats.read_cluster(conn, "partbox", "default")


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


def test_records_above_the_cursor_are_pending(conn, publish, consume):
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


def test_partitions_are_counted_by_owner_and_partitions_of_dead_owners_are_unowned(conn):
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
    with pytest.raises(SchemaError, match="'audit' does not exist in schema 'partbox': there is 'default'"):
        stats.read_cluster(conn, "partbox", "audit")
    assert "there is 'default'" in partbox("status", "--dsn", dsn, "--subscription", "audit").error


def test_status_prints_processes_partitions_and_what_is_left(conn, partbox, dsn, publish, monkeypatch):
    publish(3, 1_234)
    conn.execute(INSTANCE, ["node-a", "host-a", 4711, 0, False])
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    lines = [line.strip() for line in partbox("status").out.splitlines()]
    assert lines[0].split() == ["node", "pid", "state", "heartbeat", "partitions"]
    assert lines[1].startswith("node-a on host-a  4711  working")
    assert "processes     1 on 1 node, version 0.1.0" in lines
    assert "partitions    256, 256 without an owner" in lines
    assert "pending       1,234, at most 1,234 in a partition, the oldest published 3 m ago" in lines
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


WATCH = ["partbox", "status", "--watch", "--every", "100ms"]


@pytest.fixture
def watch(dsn, forks):
    """Starts `partbox status --watch` with its output in a pipe."""
    started = []

    def start(*arguments: str) -> Command:
        started.append(forks.start(*WATCH, *arguments, env=os.environ | {"PARTBOX_DSN": dsn}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def blocks(process: Command) -> Iterator[dict[str, str]]:
    """The tables that it prints, one after the other: what stands behind each name."""
    block: dict[str, str] = {}
    for line in process.stdout:
        if line.strip():
            name, _, value = line.strip().partition(" ")
            block[name] = value.strip()
        else:
            yield block
            block = {}


def test_watching_in_a_pipe_prints_one_table_after_the_other(conn, watch, publish):
    process = watch()
    seen = blocks(process)
    assert next(seen)["pending"] == "none"
    publish(3, 1_234)
    assert any(block["pending"].startswith("1,234, at most") for block in islice(seen, 50))
    assert "/s published" in next(seen)["rates"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_watching_in_order(watch, number):
    process = watch()
    next(blocks(process))
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert "Traceback" not in out


def test_watching_as_json_is_a_line_each(conn, watch, publish):
    process = watch("--json")
    first = json.loads(process.stdout.readline())
    assert (first["subscription"], first["published_per_second"], first["pending"]) == ("default", None, 0)
    publish(3, 5)
    lines = (json.loads(line) for line in process.stdout)
    found = next(line for line in islice(lines, 50) if line["pending"] == 5)
    assert found["published_per_second"] > 0
    assert found["delivered_per_second"] == 0
    assert len(found["partitions"]) == 256


def test_watching_goes_on_when_the_database_was_away(watch, away):
    process = watch("--json")
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout))  # or the pipe would fill
    reader.start()
    eventually(lambda: lines)
    with away():
        said = process.stderr.readline()
    before = len(lines)
    eventually(lambda: len(lines) > before)
    process.send_signal(signal.SIGINT)
    reader.join()
    assert process.wait(timeout=120) == 0
    assert said.startswith("partbox: ")
    assert "terminating connection" in said or "not currently accepting connections" in said


def test_a_database_that_is_not_there_ends_watching_in_one_line(partbox):
    nowhere = "host=127.0.0.1 port=1 connect_timeout=1 user=u password=sesame"
    assert "sesame" not in partbox("status", "--watch", "--dsn", nowhere).error


@pytest.mark.parametrize("every", ["0", "1ms", "often", "-1s"])
def test_a_wrong_interval_is_refused(partbox, every):
    assert f"--every '{every}'" in partbox("status", "--watch", f"--every={every}").error


def test_watching_a_writer_only_schema_says_so_and_ends(conn, partbox, dsn):
    conn.execute("delete from partbox.subscription")
    assert "is writer-only" in partbox("status", "--watch", "--dsn", dsn).out


def test_watching_on_a_terminal_draws_in_place_and_leaves_it_as_it_was(conn, dsn, publish, screen):
    with screen("status", "--watch", "--every", "100ms", dsn=dsn) as screen:
        screen.until("pending       none")
        publish(3, 1_234)
        screen.until("1,234, at most")
        screen.until("/s published")
        assert "Ctrl-C ends it" in screen.text
        screen.press("\x03")
        assert screen.ended() == 0
        assert screen.restored
        assert screen.said("\x1b[1A")  # moved up, to draw over what was there


def test_status_counts_blocked_aggregates_and_what_is_completed(conn, partbox, dsn, publish, consume):
    publish(1, 3)
    consume()
    conn.execute(
        "insert into partbox.parked"
        " (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks)"
        " values ('default', 1, 1, 'Order', '7', 'Placed', 'retrying', true)"
    )
    lines = [line.strip() for line in partbox("status", "--dsn", dsn).out.splitlines()]
    assert "blocked       1 aggregate, waiting for an event that cannot be finished now" in lines
    assert "`partbox blocked list` names them" in lines
    assert "completed     about 2 of the log" in lines
    assert "trouble       `partbox doctor` says why, and what to do" in lines


def test_status_says_what_is_dead_or_paused_and_the_command_for_each(conn, partbox, dsn):
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " values ('default', 1, 1, 'Order', 'Placed', 'dead', false)"
    )
    conn.execute("update partbox.subscription set paused_at = '2026-01-31 09:00Z'")
    lines = [line.strip() for line in partbox("status", "--dsn", dsn).out.splitlines()]
    assert "parked        none" in lines
    for line, remedy in (
        (
            "paused        since 2026-01-31 09:00:00Z: nothing is delivered",
            "`partbox subscription resume default` resumes it",
        ),
        ("dead          1 event, not tried again unless replayed", "`partbox dead list` shows them"),
    ):
        assert lines[lines.index(line) + 1].startswith(remedy)
    conn.execute("update partbox.parked set state = 'discarded'")
    lines = [line.strip() for line in partbox("status", "--dsn", dsn).out.splitlines()]
    assert {
        "parked        none",
        "dead          none",
        "discarded     1 event, by an operator, or cancelled before delivery",
    } <= {*lines}


RUNNING = """
update partbox.instance set running = json_build_array(
    json_build_object('handler', 'ship', 'event_type', 'Placed', 'aggregate_type', 'Order', 'aggregate_id', %s::text,
                      'record_id', 17, 'since', extract(epoch from now())::float8 - 720), json_build_object('more', 3))
"""
HOSTILE = "7\x1b[2J\u202e" + "x" * 90


def test_status_names_the_handlers_that_run_for_long(conn, partbox, dsn):
    conn.execute(INSTANCE, ["node-a", "node-a", 4711, 0, False])
    conn.execute(RUNNING, [HOSTILE])
    out = partbox("status", "--dsn", dsn).out
    (line,) = [line for line in out.splitlines() if "ship" in line]
    assert line.split()[:4] == ["ship", "12", "m", "Placed"]
    assert "4711 on node-a" in line
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "… 3 more" in out
    (shown,) = json.loads(partbox("status", "--dsn", dsn, "--json").out)["instances"]
    assert shown["running"][0] | {"seconds": 0} == {
        "handler": "ship", "event_type": "Placed", "aggregate_type": "Order", "aggregate_id": HOSTILE, "record_id": 17,
        "seconds": 0, "partition": None, "timeout": None,
    }  # fmt: skip
    assert (720 <= shown["running"][0]["seconds"] < 780, shown["running_more"]) == (True, 3)


def test_status_says_what_a_stop_would_cost_now(conn, partbox, dsn):
    def said(*options: str) -> tuple[str, dict[str, float]]:
        lines = [line.strip() for line in partbox("status", "--dsn", dsn, *options).out.splitlines()]
        found = [line.removeprefix("stop now").strip() for line in lines if line.startswith("stop now")]
        return "".join(found), json.loads(partbox("status", "--dsn", dsn, *options, "--json").out)["stop"]

    assert said() == ("", {"waits": 15.0, "again": 0})
    conn.execute(INSTANCE, ["node-a", "node-a", 4711, 0, False])
    assert said()[0] == "waits for running handlers, none older than 10 s; no event would run again"
    conn.execute(RUNNING, ["7"])
    assert said() == ("waits up to 15 s, 4 events would run again", {"waits": 15.0, "again": 4})
    conn.execute("update partbox.instance set running = running::jsonb - 1")
    assert said("--drain-timeout", "1m") == ("waits up to 60 s, 1 event would run again", {"waits": 60.0, "again": 1})


def test_two_supervisors_of_one_host_are_two_nodes(conn, partbox, dsn):
    for pid in (1, 2, 3):
        conn.execute(INSTANCE, ["web-1", "web-1", pid, 0, False])
    conn.execute("update partbox.instance set supervisor = lpad((pid % 2 + 1)::text, 32, '0')::uuid")
    lines = [line.split() for line in partbox("status", "--dsn", dsn).out.splitlines()]
    assert [line[:3] for line in lines[1:4]] == [
        ["web-1", "2", "working"],
        ["web-1", "(2)", "1"],
        ["web-1", "(2)", "3"],
    ]
    assert ["processes", "3", "on", "2", "nodes,"] in [line[:5] for line in lines]
