"""Payloads of every size: memory and statements are bounded by bytes, and reading goes on."""

import os
import subprocess
import sys
import threading
from contextlib import closing
from typing import Any

import psycopg
import pytest
from desk import Desk
from large import slow_line, write_large
from linux import reads_proc
from waiting import eventually

from partbox.worker.engine.engine import Engine

KB, MB = 1_000, 1_000_000
WINDOW = 2**20
Conn = psycopg.Connection[Any]


def park_all(conn: Conn) -> None:
    """As at the end of an outage: every record of the log is parked, and may run."""
    with conn.transaction():
        conn.execute(
            "insert into partbox.parked"
            " (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks, attempts)"
            " select 'default', id, partition, aggregate_type, aggregate_id, event_type, 'ready', true, 1"
            " from partbox.record"
        )
        conn.execute("update partbox.partition set (last_id, floor_id) = (select max(id), max(id) from partbox.record)")
    conn.execute("update partbox.partition set snapshot = pg_current_snapshot()")


def test_parked_large_events_are_delivered_in_order_over_a_slow_connection_after_an_outage(
    dsn: str, conn: Conn
) -> None:
    for number in range(10):
        write_large(conn, 10, 40 * KB, partition=number, key=f"k{number}")
    park_all(conn)
    seen: list[int] = []
    with slow_line(dsn, 1.5 * MB) as slow:  # all of it takes nearly 3 s
        desk = Desk(slow, lease="1500ms", heartbeat="400ms")
        desk.outbox.register(lambda event: seen.append(event.id), "Large")
        with closing(desk.conn), desk.outbox.worker():
            eventually(lambda: len({*seen}) == 100)
    per_key = [[id for id in seen if (id - 1) // 10 == number] for number in range(10)]
    assert all([*dict.fromkeys(ids)] == sorted({*ids}) for ids in per_key)


def test_parked_events_that_run_again_are_held_in_memory_up_to_the_window(desk_with: Any, conn: Conn) -> None:
    for number in range(10):
        write_large(conn, 20, 100 * KB, partition=number, key=f"k{number}")
    park_all(conn)
    desk, seen, most = desk_with(window_bytes=WINDOW), [], []
    workers = []

    def handler(event: Any) -> None:
        most.append(waiting(workers[0]._worker.engine))
        seen.append(event.id)

    desk.outbox.register(handler, "Large")
    workers.append(desk.outbox.worker(concurrency=2))
    with workers[0]:
        eventually(lambda: len({*seen}) == 200)
    assert len(seen) == 200
    assert 100 * KB < max(most) <= WINDOW + 100 * KB


def waiting(engine: Engine) -> int:
    """Bytes of all events that wait in lanes."""
    with engine.lock:
        lanes = [lane for partition in engine.partitions.values() for lane in partition.lanes.values()]
        return sum(len(event.raw) for lane in lanes for event in list(lane.queue))


@pytest.mark.parametrize("parked", [False, True])
def test_a_hanging_handler_that_uses_up_all_the_bytes_does_not_stop_the_other_partitions(
    desk_with: Any, conn: Conn, parked: bool
) -> None:
    write_large(conn, 40, 100 * KB, partition=1, key="hog")
    write_large(conn, 1, 3 * MB, partition=2, key="hog of its own")
    if parked:
        park_all(conn)
    desk, go, others = desk_with(window_bytes=WINDOW), threading.Event(), []

    def handler(event: Any) -> None:
        if "hog" in event.aggregate_id:
            go.wait()
        else:
            others.append(event.id)

    desk.outbox.register(handler, "Large")
    with desk.outbox.worker(concurrency=4):
        holding = "select count(*) from partbox.parked where state in ('held', 'ready')"
        for number in range(30):
            write_large(conn, 1, 100 * KB, partition=3 + number, key=f"other {number}")
        eventually(lambda: len(others) == 30)
        assert conn.execute(holding).fetchone() != (0,)
        go.set()
        eventually(desk.all_done)


LIMITED = """
import resource, sys, threading
from partbox import Outbox
threading.stack_size(2**19)
outbox, seen = Outbox(sys.argv[1], window_bytes="16MiB"), set()
outbox.register(lambda event: seen.add((event.id, len(event.payload))), "Large")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 80_000_000,) * 2)
with outbox.worker(concurrency=1):
    while len(seen) < 60:
        threading.Event().wait(0.02)
print("all")
"""


@reads_proc
def test_a_backlog_larger_than_the_memory_of_the_process_is_delivered(dsn: str, conn: Conn) -> None:
    """As under the limit of a cgroup, whose processes would be killed, started again and killed again."""
    for number in range(30):
        write_large(conn, 2, MB, partition=number, key=f"k{number}")
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, dsn], capture_output=True, text=True, env=environment, timeout=100, check=False
    )
    assert run.stdout == "all\n", run.stderr[-2_000:]
