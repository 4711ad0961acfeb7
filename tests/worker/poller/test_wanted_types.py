"""A subscription of some event types: the server leaves out the payloads of other types, and rarely wakes its workers
for them."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import connect
from partbox.db.delivery import bell, proof, records, server_incarnation
from partbox.events.record import EVENT_TYPE, HEADERS, PAYLOAD, PAYLOAD_BYTES, list_incomplete
from partbox.protocol.cursor import ReadRequest
from partbox.protocol.horizon import Page
from partbox.protocol.quick_poll import to_bits
from partbox.protocol.sweep import Sweep

ALL = Page("1:1:", 0)  # sees nothing
SCHEMA, TOP = "partbox", 2**62
Conn = psycopg.Connection[Any]
WANTED, OTHER = 'Wanted "by, {name}\\', "Other"


@pytest.fixture
def raw(dsn: str) -> Iterator[Conn]:
    """A session as a worker has it."""
    with connect(dsn, lease=6) as session:
        use_raw_loaders(session)
        server_incarnation.note_incarnation(session, server_incarnation.read_incarnation(session, SCHEMA))
        proof.begin_baseline(session, SCHEMA)
        yield session


@pytest.fixture
def log(conn: Conn) -> None:
    """Two records of each type: one in JSON, and one in bytes."""
    for event_type in (WANTED, OTHER):
        conn.execute(
            "insert into partbox.record"
            " (partition, event_id, event_type, aggregate_id, payload, payload_bytes, headers)"
            " values (5, gen_random_uuid(), %(type)s, 'a', '{\"n\": 1}', null, '{\"h\": 1}'),"
            "        (5, gen_random_uuid(), %(type)s, 'a', null, 'bytes', '{\"h\": 1}')",
            {"type": event_type},
        )


def contents(rows):
    return {(row[EVENT_TYPE], row[PAYLOAD], row[PAYLOAD_BYTES], row[HEADERS]) for row in rows}


DELIVERED = {(WANTED, b'{"n": 1}', None, b'{"h": 1}'), (WANTED, None, b"bytes", b'{"h": 1}')}
SKIPPED = {(OTHER, b"null", None, None)}


@pytest.mark.every_version("a list of types")
@pytest.mark.parametrize("swept", [None, Sweep(0, TOP, 10, {5: 0})], ids=["full poll", "sweep"])
def test_a_poll_returns_no_payload_and_no_headers_of_other_types(raw, log, swept):
    polled = records.poll_page(
        raw, SCHEMA, [ReadRequest(5, 0, 100, ALL, None, None)], None, lo=0, hi=TOP, sweep=swept, types=[WANTED]
    )
    assert contents(polled.rows) == DELIVERED | {(OTHER, b"null", None, None)}
    assert list_incomplete(polled.rows) == []


def test_a_quick_poll_returns_no_payload_and_no_headers_of_other_types(raw, log):
    polled = records.read_new_records(raw, SCHEMA, ALL, to_bits([5]), [WANTED])
    assert contents(polled.rows) == DELIVERED | SKIPPED
    everything = records.read_new_records(raw, SCHEMA, ALL, to_bits([5]))
    assert len(contents(everything.rows)) == 4


def test_a_large_payload_of_another_type_is_not_fetched(conn, raw):
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, aggregate_id, payload)"
        " values (5, gen_random_uuid(), 'Other', 'a', to_json(repeat('x', 100000)))"
    )
    polled = records.read_new_records(raw, SCHEMA, ALL, to_bits([5]), [WANTED])
    assert list_incomplete(polled.rows) == []


@pytest.fixture
def heard(dsn: str) -> Iterator[Callable[[], list[str]]]:
    """Return the payloads of the notifications that a worker of the subscription of some types has received."""
    with psycopg.connect(dsn, autocommit=True) as listening:
        bell.listen(listening, SCHEMA, [WANTED])

        def hear() -> list[str]:
            listening.execute("select 1")  # notifications of earlier commits come with its answer
            return [each.payload for each in listening.notifies(timeout=0)]

        yield hear


def test_a_worker_of_one_type_is_woken_for_it_and_for_what_is_not_about_one_type(conn, heard):
    # The hash of this type differs from that of the wanted type.
    other = conn.execute(
        "select n::text from generate_series(1, 100) n where hashtext(n::text) & 15 <> hashtext(%s) & 15", [WANTED]
    ).fetchone()[0]
    conn.execute("select setval('partbox.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + 2900)")
    conn.execute("select partbox.publish(%s, '1'::json, 'A', 'a')", [other])
    assert heard() == []
    conn.execute("select partbox.publish(%s, '1'::json, 'A', 'a')", [WANTED])
    assert len(heard()) == 1
    conn.execute("select partbox.ring(7)")
    conn.execute("select partbox.ring()")
    assert heard() == ["7", "*"]
    bell.notify_listeners(conn, SCHEMA, "probe")
    assert heard() == ["probe"]


def test_the_saved_cursor_passes_events_of_other_types_soon(dsn, conn):
    outbox = Outbox(dsn)
    got = []
    outbox.on("*", subscription="urgent")(got.append)
    outbox.subscriptions.create("urgent", types=[WANTED])

    def publish(event_type):
        for key in range(20):
            conn.execute("select partbox.publish(%s, '1'::json, 'A', %s)", [event_type, str(key)])

    def pending():
        query = "select count from partbox.backlog where subscription = 'urgent'"
        return conn.execute(query).fetchone()[0]

    with outbox.worker(subscription="urgent"):
        publish(WANTED)
        eventually(lambda: len(got) == 20 and pending() == 0)
        publish(OTHER)
        eventually(lambda: pending() == 0)
        publish(WANTED)
        eventually(lambda: len(got) == 40 and pending() == 0)
    assert {event.event_type for event in got} == {WANTED}
