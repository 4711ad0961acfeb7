"""Large records: memory and statements are bounded by bytes, and reading goes on."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from large import slow_line, write_bytes, write_large
from owner import Owner, write

KB, MB = 1_000, 1_000_000
WINDOW = 2**20
Conn = psycopg.Connection[Any]
Making = Callable[..., Owner]


@pytest.fixture
def owner(owner_with: Making) -> Owner:
    return owner_with(range(16), window_bytes=WINDOW)


def held(owner: Owner) -> int:
    """Bytes of the events that were handed over and are not done."""
    return sum(len(event.raw) for event in owner.events.values())


def consume(owner: Owner, steps: int = 150) -> tuple[list[int], int]:
    """Read, and finish one event after each time, until nothing comes; what came in order, and the most bytes that were
    held."""
    got: list[int] = []
    most = 0
    idle = 0
    for _ in range(steps):
        new = owner.read()
        got += new
        most = max(most, held(owner))
        idle = 0 if new or owner.events else idle + 1
        if owner.events:
            owner.done(min(owner.events))
            owner.save()
        if idle == 10:
            break
    assert len(got) == len({*got})
    return got, most


@pytest.mark.parametrize("writing", [write_large, write_bytes])
def test_a_backlog_of_large_events_is_held_in_memory_up_to_the_window_plus_one_event(
    conn: Conn, owner: Owner, writing: Any
) -> None:
    writing(conn, 40, 150 * KB)
    got, most = consume(owner)
    assert got == [*range(1, 41)]
    assert WINDOW / 4 < most <= WINDOW + 150 * KB
    assert owner.partition().payload_bytes.total == 0


def test_late_records_that_are_large_come_in_pieces_as_there_is_room(dsn: str, conn: Conn, owner: Owner) -> None:
    with psycopg.connect(dsn) as late:
        write_large(late, 40, 150 * KB)
        write(conn, 2)
        assert owner.read_all(5) == [41, 42]
        late.commit()
    write(conn, 2)
    got, most = consume(owner)
    assert got == [*range(1, 41), 43, 44]
    assert most <= WINDOW + 150 * KB


def test_a_restart_in_the_middle_of_a_large_late_transaction_loses_no_event(
    dsn: str, conn: Conn, owner_with: Making
) -> None:
    first = owner_with(range(16), window_bytes=WINDOW)
    with psycopg.connect(dsn) as late:
        write_large(late, 20, 150 * KB)
        write(conn, 2)
        first.read_all(5)
        late.commit()
    done = {*consume(first, 7)[0], 21, 22} - {*first.events}
    assert 0 < len(done) < 22
    assert {*consume(owner_with(range(16), window_bytes=WINDOW))[0]} >= {*range(1, 23)} - done


def test_an_event_larger_than_the_window_passes_when_nothing_else_is_in_memory(conn: Conn, owner: Owner) -> None:
    write_large(conn, 1, 300 * KB)
    write_large(conn, 1, 5 * MB)
    write_large(conn, 1, 300 * KB)
    assert consume(owner, 10)[0] == [1, 2, 3]


def test_an_event_larger_than_the_window_does_not_stop_other_partitions(conn: Conn, owner: Owner) -> None:
    write_large(conn, 3, 3 * MB, partition=1)
    write_large(conn, 3, 3 * MB, partition=2)
    for number in range(3, 16):
        write(conn, 3, partition=number)
    assert len(consume(owner)[0]) == 45


def test_a_backlog_of_large_events_leaves_room_for_those_of_others(conn: Conn, owner: Owner) -> None:
    write_large(conn, 40, 150 * KB, partition=1)
    owner.read_all(10)
    assert owner.partition(1).payload_bytes.total <= WINDOW / 2 + 150 * KB
    write_large(conn, 2, 100 * KB, partition=2)
    write(conn, 2, partition=3)
    assert sorted(owner.read_all(10)) == [41, 42, 43, 44]


def test_every_partition_gets_its_turn_when_the_byte_budget_is_used_up(conn: Conn, owner_with: Making) -> None:
    """As in a process with a very small window: one event at a time, and none waits for the backlog of another."""
    owner = owner_with(range(16), window_bytes=100)
    for number in range(16):
        write(conn, 4, partition=number)
    partitions = []
    for _ in range(200):
        owner.read()
        for id, event in owner.events.items():
            partitions.append(event.partition)
            owner.done(id)
        owner.save()
        if len(partitions) >= 64 and not owner.read_all(3):
            break
    assert len(partitions) == 64
    assert {*partitions[:32]} == {*range(16)}


def test_a_delayed_large_event_is_parked_without_being_fetched(conn: Conn, owner: Owner) -> None:
    write_large(conn, 5, MB)
    conn.execute("update partbox.record set available_at = now() + interval '1 hour'")
    owner.database.payloads = None  # type: ignore[assignment, method-assign]
    assert owner.read_all(3) == []
    assert len(owner.partition().parked.pending_parks) == 5


def test_a_large_record_that_is_deleted_while_it_is_read_is_skipped(conn: Conn, owner: Owner) -> None:
    write_large(conn, 3, 100 * KB)
    payloads = owner.database.payloads

    def deleting(*args: Any) -> Any:
        conn.execute("delete from partbox.record where id = 2")
        return payloads(*args)

    owner.database.payloads = deleting  # type: ignore[method-assign]
    assert owner.read_all(3) == [1, 3]


def test_large_headers_come_whole(conn: Conn, owner: Owner) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload, headers)"
        " select 5, gen_random_uuid(), 'T', '{}', json_build_object('h', repeat('x', 50000)) from generate_series(1, 2)"
    )
    assert owner.read_all(3) == [1, 2]
    assert [len(event.headers["h"]) for event in owner.events.values()] == [50_000, 50_000]


@pytest.mark.parametrize(
    ("count", "size", "rate"), [(60, 100 * KB, 8 * MB), (1_000, 1_500, 2 * MB)], ids=["large", "small"]
)
def test_a_connection_too_slow_for_a_whole_page_reads_fewer_records_at_a_time(
    dsn: str, conn: Conn, owner_with: Making, count: int, size: int, rate: int
) -> None:
    write_large(conn, count, size)
    with slow_line(dsn, rate) as slow:
        owner = owner_with(dsn=slow)
        owner.conn.execute("set statement_timeout = '250ms'")  # a part of all that
        got: list[int] = []
        for _ in range(100):
            got += owner.read()
            if len(got) == count:
                break
        assert got == [*range(1, count + 1)]
