"""Payloads of every size: memory and statements are bounded by bytes, and reading goes on."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from desk import Desk
from large import slow_line, write_bytes, write_large
from psycopg.errors import QueryCanceled
from rig import PARTITION, Rig, write
from waiting import eventually

from partbox.worker.engine.engine import Engine

KB, MB = 1_000, 1_000_000
WINDOW = 2**20
Conn = psycopg.Connection[Any]


@pytest.fixture
def rig(dsn: str) -> Iterator[Rig]:
    with closing(Rig(dsn, range(16), window_bytes=WINDOW)) as rig:
        yield rig


def held(rig: Rig) -> int:
    """Bytes of the events that were handed over and are not done."""
    return sum(len(event.raw) for event in rig.events.values())


def consume(rig: Rig, steps: int = 150) -> tuple[list[int], int]:
    """Read, and finish one event after each time, until nothing comes; what came in order, and the most bytes that were
    held."""
    got: list[int] = []
    most = 0
    idle = 0
    for _ in range(steps):
        new = rig.read()
        got += new
        most = max(most, held(rig))
        idle = 0 if new or rig.events else idle + 1
        if rig.events:
            rig.done(min(rig.events))
            rig.save()
        if idle == 10:
            break
    assert len(got) == len({*got})
    return got, most


@pytest.mark.parametrize("writing", [write_large, write_bytes])
@pytest.mark.every_version("the sizes of values")
def test_a_backlog_of_large_events_is_held_up_to_the_window_and_one_more(conn: Conn, rig: Rig, writing: Any) -> None:
    writing(conn, 40, 150 * KB)
    got, most = consume(rig)
    assert got == [*range(1, 41)]
    assert WINDOW / 4 < most <= WINDOW + 150 * KB
    assert rig.partition().payload_bytes.total == 0


@pytest.mark.every_version("the sizes of values")
def test_late_records_that_are_large_come_in_pieces_as_there_is_room(dsn: str, conn: Conn, rig: Rig) -> None:
    with psycopg.connect(dsn) as late:
        write_large(late, 40, 150 * KB)
        write(conn, 2)
        assert rig.read_all(5) == [41, 42]
        late.commit()
    write(conn, 2)
    got, most = consume(rig)
    assert got == [*range(1, 41), 43, 44]
    assert most <= WINDOW + 150 * KB


def test_nothing_of_a_large_late_transaction_is_lost_by_a_restart_in_the_middle(dsn: str, conn: Conn) -> None:
    with closing(Rig(dsn, range(16), window_bytes=WINDOW)) as first:
        with psycopg.connect(dsn) as late:
            write_large(late, 20, 150 * KB)
            write(conn, 2)
            first.read_all(5)
            late.commit()
        done = {*consume(first, 7)[0], 21, 22} - {*first.events}
        assert 0 < len(done) < 22
    with closing(Rig(dsn, range(16), window_bytes=WINDOW)) as second:
        assert {*consume(second)[0]} >= {*range(1, 23)} - done


@pytest.mark.every_version("the sizes of values")
def test_an_event_larger_than_the_window_passes_when_nothing_else_is_in_memory(conn: Conn, rig: Rig) -> None:
    write_large(conn, 1, 300 * KB)
    write_large(conn, 1, 5 * MB)
    write_large(conn, 1, 300 * KB)
    assert consume(rig, 10)[0] == [1, 2, 3]


def test_an_event_larger_than_the_window_does_not_stop_other_partitions(conn: Conn, rig: Rig) -> None:
    write_large(conn, 3, 3 * MB, partition=1)
    write_large(conn, 3, 3 * MB, partition=2)
    for number in range(3, 16):
        write(conn, 3, partition=number)
    assert len(consume(rig)[0]) == 45


def test_a_backlog_of_large_events_leaves_room_for_those_of_others(conn: Conn, rig: Rig) -> None:
    write_large(conn, 40, 150 * KB, partition=1)
    rig.read_all(10)
    assert rig.partition(1).payload_bytes.total <= WINDOW / 2 + 150 * KB
    write_large(conn, 2, 100 * KB, partition=2)
    write(conn, 2, partition=3)
    assert sorted(rig.read_all(10)) == [41, 42, 43, 44]


def test_where_bytes_are_used_up_every_partition_gets_its_turn(conn: Conn, dsn: str) -> None:
    """As in a process with a very small window: one event at a time, and none waits for the backlog of another."""
    with closing(Rig(dsn, range(16), window_bytes=100)) as rig:
        for number in range(16):
            write(conn, 4, partition=number)
        partitions = []
        for _ in range(200):
            rig.read()
            for id in list(rig.events):
                partitions.append(rig.events[id].partition)
                rig.done(id)
            rig.save()
            if len(partitions) >= 64 and not rig.read_all(3):
                break
        assert len(partitions) == 64
        assert {*partitions[:32]} == {*range(16)}


def test_a_delayed_large_event_is_parked_without_being_fetched(conn: Conn, rig: Rig, monkeypatch: Any) -> None:
    write_large(conn, 5, MB)
    conn.execute("update partbox.record set available_at = now() + interval '1 hour'")
    monkeypatch.setattr("partbox.db.delivery.records.payloads", None)
    assert rig.read_all(3) == []
    assert len(rig.partition().parked.pending) == 5


def test_a_large_record_that_is_deleted_while_it_is_read_is_passed(conn: Conn, rig: Rig, monkeypatch: Any) -> None:
    from partbox.db.delivery import records

    write_large(conn, 3, 100 * KB)
    payloads = records.payloads

    def deleting(*args: Any) -> Any:
        conn.execute("delete from partbox.record where id = 2")
        return payloads(*args)

    monkeypatch.setattr(records, "payloads", deleting)
    assert rig.read_all(3) == [1, 3]


@pytest.mark.every_version("the sizes of values")
def test_large_headers_come_whole(conn: Conn, rig: Rig) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload, headers)"
        " select 5, gen_random_uuid(), 'T', '{}', json_build_object('h', repeat('x', 50000)) from generate_series(1, 2)"
    )
    assert rig.read_all(3) == [1, 2]
    assert [len(event.headers["h"]) for event in rig.events.values()] == [50_000, 50_000]


def test_a_line_too_slow_for_a_page_of_large_events_brings_fewer_at_a_time(dsn: str, conn: Conn) -> None:
    write_large(conn, 60, 100 * KB)
    with slow_line(dsn, 8 * MB) as slow, closing(Rig(slow, [PARTITION])) as rig:
        rig.conn.execute("set statement_timeout = '250ms'")  # 2 MB
        got: list[int] = []
        for _ in range(100):
            got += patient(rig)
            if len(got) == 60:
                break
        assert got == [*range(1, 61)]


def test_a_line_too_slow_for_a_page_of_small_events_brings_fewer_at_a_time(dsn: str, conn: Conn) -> None:
    write_small(conn, 1_000)
    with slow_line(dsn, 2 * MB) as slow, closing(Rig(slow, [PARTITION])) as rig:
        rig.conn.execute("set statement_timeout = '250ms'")  # 500 kB
        got: list[int] = []
        for _ in range(60):
            got += patient(rig)
            if len(got) == 1_000:
                break
        assert got == [*range(1, 1_001)]


def write_small(conn: Conn, count: int) -> None:
    """Events of 1,500 bytes each, 1.5 kB of which are sent with the page."""
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select %s, gen_random_uuid(), 'Small', to_json(repeat('x', 1500)) from generate_series(1, %s)",
        [PARTITION, count],
    )


def patient(rig: Rig) -> list[int]:
    """Read as the poller does, which tries again what was cancelled."""
    try:
        return rig.read()
    except QueryCanceled:
        return []


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


def test_the_end_of_an_outage_with_large_events_over_a_slow_line(dsn: str, conn: Conn) -> None:
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


def test_parked_events_that_run_again_are_held_up_to_the_window(desk_with: Any, conn: Conn) -> None:
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
def test_a_handler_that_hangs_over_all_the_bytes_does_not_stop_the_other_partitions(
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


def test_a_backlog_larger_than_the_memory_of_the_process_is_delivered(dsn: str, conn: Conn) -> None:
    """As under the limit of a cgroup, whose processes would be killed, started again and killed again."""
    for number in range(30):
        write_large(conn, 2, MB, partition=number, key=f"k{number}")
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, dsn], capture_output=True, text=True, env=environment, timeout=100, check=False
    )
    assert run.stdout == "all\n", run.stderr[-2_000:]
