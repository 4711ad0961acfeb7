"""A server that crashed gives ids and xids out again that a worker has seen; what it remembers of them is wrong."""

import os
import signal
import threading
from typing import Any

import psycopg
import pytest
from stopped_backend import stop_at_rest
from waiting import eventually

from partbox import Outbox
from partbox.events import DeliveredEvent

pytestmark = pytest.mark.every_version("what a snapshot sees, and what a crash takes back")

Conn = psycopg.Connection[Any]


def test_events_that_reuse_the_ids_of_a_lost_tail_are_delivered(own_server: Any) -> None:
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        # Nothing flushes the tail: neither a heartbeat's commit, nor the WAL writer, which stands still.
        conn.execute("alter system set synchronous_commit = off")
        conn.execute("select pg_reload_conf()")
        (wal_writer,) = conn.execute("select pid from pg_stat_activity where backend_type = 'walwriter'").fetchone()
    outbox = Outbox(own_server.dsn)
    delivered: list[str] = []
    outbox.register(lambda event: delivered.append(str(event.event_id)), "Counted")
    with outbox.worker():
        publish(outbox, own_server.dsn, 20, durable=True)
        eventually(lambda: len(delivered) == 20)
        stop_at_rest(wal_writer)
        publish(outbox, own_server.dsn, 300, durable=False)
        eventually(lambda: len(delivered) == 320)
        os.kill(wal_writer, signal.SIGKILL)
        own_server.server.kill()
        own_server.server.start()
        assert len(existing(own_server.dsn)) < 320, "the crash lost nothing, so this test shows nothing"
        publish(outbox, own_server.dsn, 400, durable=True)
        there = existing(own_server.dsn)
        eventually(lambda: there <= set(delivered))


def test_an_event_that_reuses_the_id_of_a_done_event_is_delivered(dsn: str, conn: Conn) -> None:
    """The first event holds the cursor, so the second is done and not saved when the connections are lost."""
    outbox = Outbox(dsn)
    release, started = threading.Event(), []

    def handle(event: DeliveredEvent) -> None:
        started.append(event.event_id)
        if event.id == 1:
            assert release.wait(120)

    outbox.register(handle, "Written")
    write(conn, 2)
    with outbox.worker(concurrency=2):
        eventually(lambda: len(started) == 2)
        with conn.transaction():
            conn.execute("delete from partbox.record where id = 2")
            conn.execute("select setval('partbox.record_id_seq', 1)")
            write(conn)
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'partbox %%'"
        )
        release.set()
        there = {id for (id,) in conn.execute("select event_id from partbox.record")}
        eventually(lambda: there <= set(started))
    assert len(started) == len(set(started)) == 3


def test_a_fence_of_a_lost_tail_bounds_nothing_after_it(dsn: str, conn: Conn) -> None:
    """It says that whoever draws an xid later draws an id above 50; after the crash that is wrong."""
    outbox = Outbox(dsn)
    delivered: list[int] = []
    outbox.register(lambda event: delivered.append(event.id), "Written")
    with outbox.worker():
        write(conn, 50)
        eventually(lambda: len(delivered) == 50)
        eventually(
            lambda: conn.execute("select min(last_id) = 50 from partbox.partition where partition = 5").fetchone()[0]
        )
        with conn.transaction():  # what a server has that has lost the last 40
            conn.execute("update partbox.partition set last_id = least(last_id, 10), floor_id = least(floor_id, 10)")
            conn.execute("delete from partbox.record where id > 10")
            conn.execute("select setval('partbox.record_id_seq', 10)")
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'partbox %%'"
        )
        delivered.clear()
        with psycopg.connect(dsn) as late:
            write(late)
            write(conn)
            eventually(lambda: delivered == [12])
            late.execute("commit")
        eventually(lambda: delivered == [12, 11])


def publish(outbox: Outbox, dsn: str, count: int, *, durable: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"set synchronous_commit = {'on' if durable else 'off'}")
        for number in range(count):
            with conn.transaction():
                outbox.publish(conn, "Counted", {"n": number}, aggregate_type="Key", aggregate_id=str(number % 50))


def existing(dsn: str) -> set[str]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return {str(id) for (id,) in conn.execute("select event_id from partbox.record")}


def write(conn: Conn, count: int = 1) -> None:
    """Publish so many events, each of an aggregate of its own."""
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select 5, gen_random_uuid(), 'Written', '{}' from generate_series(1, %s)",
        [count],
    )
