"""Many events at once: in order, all or none, whatever the way they go."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from reading import count, delivered

from partbox import Event, Outbox
from partbox.errors import PublishError
from partbox.publish.writing import COPY_FROM_BYTES, COPY_FROM_EVENTS

SIZES = [1, COPY_FROM_EVENTS - 1, COPY_FROM_EVENTS, 1_000]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.mark.parametrize("size", SIZES)
def test_ids_and_records_are_in_the_order_of_the_list(outbox: Outbox, conn: psycopg.Connection[Any], size: int) -> None:
    events = [Event("T", n, aggregate_type="A", aggregate_id=str(n % 7)) for n in range(size)]
    with conn.transaction():
        ids = outbox.publish_many(conn, iter(events))
    assert ids == [event.event_id for event in events]
    records = delivered(conn)
    assert [record.event_id for record in records] == ids
    assert [record.payload for record in records] == [*range(size)]
    assert [record.id for record in records] == [*range(1, size + 1)]


def test_an_empty_list_publishes_nothing(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        assert outbox.publish_many(conn, []) == []
    assert count(conn) == 0


@pytest.mark.parametrize("bad", [Event("T", float("nan")), Event("T", "x" * 200), "no event"])
@pytest.mark.parametrize("size", [3, COPY_FROM_EVENTS])
def test_one_invalid_event_fails_the_call_before_anything_is_written(
    dsn: str, conn: psycopg.Connection[Any], bad: Any, size: int
) -> None:
    outbox = Outbox(dsn, max_payload=100)
    with conn.transaction():
        with pytest.raises(PublishError, match=f"^event {size} of the list: "):
            outbox.publish_many(conn, [*(Event("T", n) for n in range(size)), bad])
        assert conn.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
        outbox.publish(conn, Event("T", "the transaction goes on"))
    assert count(conn) == 1


@pytest.mark.parametrize("size", SIZES)
def test_delays_count_from_the_database_clock(outbox: Outbox, conn: psycopg.Connection[Any], size: int) -> None:
    with conn.transaction():
        before = _clock(conn)
        outbox.publish_many(conn, [Event("T", n, deliver_after=timedelta(hours=n + 1)) for n in range(size)])
        after = _clock(conn)
    rows = conn.execute("select available_at, occurred_at from partbox.record order by id").fetchall()
    for n, (available_at, occurred_at) in enumerate(rows):
        assert before <= available_at - timedelta(hours=n + 1) <= after
        assert before <= occurred_at <= after


@pytest.mark.parametrize("size", [1, 3, COPY_FROM_EVENTS])
def test_each_event_keeps_its_own_times(outbox: Outbox, conn: psycopg.Connection[Any], size: int) -> None:
    odd = timezone(-timedelta(hours=7, minutes=52, seconds=58))  # as zones had before 1900
    then = datetime(2020, 2, 29, 12, 30, 15, 123456, tzinfo=odd)
    later = then + timedelta(days=1)
    timed = [Event("T", n, occurred_at=then, available_at=later) for n in range(size)]
    with conn.transaction():
        outbox.publish_many(conn, [*timed, Event("T", "untimed")])
    *own, untimed = conn.execute("select occurred_at, available_at from partbox.record order by id").fetchall()
    assert own == [(then, later)] * size
    assert untimed[1] is None
    assert datetime.now(UTC) - untimed[0] < timedelta(minutes=5)


@pytest.mark.parametrize("size", [1, 3, COPY_FROM_EVENTS])
def test_every_field_is_stored_whether_the_list_goes_by_insert_or_by_copy(
    outbox: Outbox, conn: psycopg.Connection[Any], size: int
) -> None:
    odd = "tab\t newline\n return\r backslash\\ \\N quote' ünï 🎈 {brace} %s"
    event = Event(
        odd, {odd: odd}, aggregate_type=odd, aggregate_id=odd * 40, tenant_id=odd, headers={odd: odd, "n": ""}
    )
    raw = Event("Raw", b"\x00\xff\\N\n", content_type="image/png", headers={"a": "b"})
    with conn.transaction():
        outbox.publish_many(conn, [event, raw] * size)
    for stored in delivered(conn)[::2]:
        assert (stored.event_type, stored.payload, stored.aggregate_type) == (odd, {odd: odd}, odd)
        assert (stored.aggregate_id, stored.tenant_id, stored.headers) == (odd * 40, odd, {odd: odd, "n": ""})
    for stored in delivered(conn)[1::2]:
        assert (stored.payload, stored.content_type, stored.headers) == (raw.payload, "image/png", {"a": "b"})
        assert stored.idempotency_key is None


def test_the_payload_limit_counts_bytes(dsn: str, conn: psycopg.Connection[Any]) -> None:
    outbox = Outbox(dsn, max_payload=12)
    with conn.transaction():
        outbox.publish(conn, "T", "é" * 5)
        outbox.publish(conn, "T", b"x" * 12)
        with pytest.raises(PublishError, match="the payload of 'T' has 14 bytes, above max_payload = 12: "):
            outbox.publish(conn, "T", "é" * 6)
        with pytest.raises(PublishError, match="13 bytes"):
            outbox.publish(conn, "T", b"x" * 13)
    assert count(conn) == 2


def _clock(conn: psycopg.Connection[Any]) -> datetime:
    ((clock,),) = conn.execute("select clock_timestamp()").fetchall()
    assert isinstance(clock, datetime)
    return clock


VERBATIM = [
    b'"\\u00e9\\/"',
    b'{"b": 1,  "a": [1.0, 1e2]}',
    b'"\\\\u0000"',
    b"null",
    b'"null"',
    '"\u2028 é 😀"'.encode(),
    b'""',
]


@pytest.mark.parametrize("size", [1, 3, COPY_FROM_EVENTS])
def test_json_stays_as_it_is_written(outbox: Outbox, conn: psycopg.Connection[Any], size: int) -> None:
    ready = [Event("T", text, content_type="application/json") for text in VERBATIM]
    with conn.transaction():
        for begin in range(0, len(ready) * size, size):
            outbox.publish_many(conn, (ready * size)[begin : begin + size])
    stored = [text for (text,) in conn.execute("select payload::text from partbox.record order by id")]
    assert stored == [text.decode() for text in VERBATIM] * size


@pytest.mark.parametrize("pipelined", [False, True])
def test_large_events_go_in_pieces_and_stay_in_order(
    outbox: Outbox, conn: psycopg.Connection[Any], pipelined: bool
) -> None:
    """Each is larger than a piece, or two of them are, or there are more than fit into one by their number."""
    sizes = [
        COPY_FROM_BYTES + 1,
        10,
        COPY_FROM_BYTES - 20,
        10,
        10,
        COPY_FROM_BYTES // 2,
        *[1] * (2 * COPY_FROM_EVENTS),
        3 * COPY_FROM_BYTES,
    ]
    events = [Event("T", [n, "x" * size]) for n, size in enumerate(sizes)]
    with conn.pipeline() if pipelined else nullcontext(), conn.transaction():
        ids = outbox.publish_many(conn, events)
        outbox.publish_many(conn, events[:1])
    assert [(each.event_id, each.payload) for each in delivered(conn)] == [
        *zip(ids, [event.payload for event in events], strict=True),
        (events[0].event_id, events[0].payload),
    ]
