"""Idempotency keys: of the events with one key only the first is published, whoever publishes them, however."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from reading import count, delivered
from waiting import eventually

from partbox import Event, Outbox
from partbox.events.checks import IDEMPOTENCY_HEADER
from partbox.publish.writing import COPY_FROM_EVENTS

SIZES = [2, COPY_FROM_EVENTS, 2 * COPY_FROM_EVENTS]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


def keyed(key: str | None, payload: Any = None, **fields: Any) -> Event:
    return Event("T", payload, idempotency_key=key, **fields)


def keys(conn: psycopg.Connection[Any]) -> dict[str, Any]:
    return dict(conn.execute("select key, event_id from partbox.idempotency order by key").fetchall())


def test_the_first_event_of_a_key_is_published_and_the_next_gives_none(
    outbox: Outbox, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "partbox")
    with conn.transaction():
        first = outbox.publish(conn, "OrderPlaced", {"id": 1}, idempotency_key="order-1", headers={"a": "b"})
        assert outbox.publish(conn, keyed("order-1")) is None  # in the same transaction
    second = keyed("order-1")
    with conn.transaction():
        assert outbox.publish(conn, second) is None
        assert outbox.publish(conn, keyed("order-2")) is not None
    event, other = delivered(conn)
    assert (event.event_id, event.idempotency_key, event.headers) == (first, "order-1", {"a": "b"})
    assert other.idempotency_key == "order-2"
    assert keys(conn) == {"order-1": first, "order-2": other.event_id}
    lines = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert lines[-1] == (
        f"event {second.event_id} of type 'T' is not published: its idempotency key 'order-1' was used before"
    )


def test_sql_and_python_share_their_keys(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select partbox.publish('T', 'null', idempotency_key => 'a')")
    with conn.transaction():
        assert outbox.publish(conn, keyed("a")) is None
        outbox.publish(conn, keyed("b"))
    assert conn.execute("select partbox.publish('T', 'null', idempotency_key => 'b')").fetchone() == (None,)
    assert [event.idempotency_key for event in delivered(conn)] == ["a", "b"]


def test_every_field_of_an_event_with_a_key_is_stored(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    odd = "tab\t quote' ünï 🎈 {brace} %s \\N"
    with conn.transaction():
        outbox.publish(
            conn, odd, b"\x00\xff", content_type="image/png", aggregate_type="A", aggregate_id="7", tenant_id="t",
            headers={odd: odd}, deliver_after=3600, idempotency_key=odd,
        )  # fmt: skip
    (event,) = delivered(conn)
    assert (event.event_type, event.payload, event.content_type) == (odd, b"\x00\xff", "image/png")
    assert (event.aggregate_type, event.aggregate_id, event.tenant_id) == ("A", "7", "t")
    assert (event.headers, event.idempotency_key) == ({odd: odd}, odd)
    delay = "select extract(epoch from available_at - occurred_at)::integer from partbox.record"
    assert conn.execute(delay).fetchone() == (3600,)


@pytest.mark.parametrize("size", SIZES)
def test_a_list_gives_none_where_a_key_was_used_before(
    outbox: Outbox, conn: psycopg.Connection[Any], size: int
) -> None:
    events = [keyed(None if n % 3 == 0 else f"key-{n % (size // 2 + 1)}", n) for n in range(size)]
    with conn.transaction():
        outbox.publish(conn, keyed("key-1", "before"))
        ids = outbox.publish_many(conn, events)
    seen, wanted = {"key-1"}, []
    for event in events:
        wanted.append(None if event.idempotency_key in seen else event.event_id)
        seen |= {event.idempotency_key} - {None}
    assert ids == wanted
    assert [event.event_id for event in delivered(conn)[1:]] == [each for each in ids if each]
    assert set(keys(conn)) == seen


@pytest.mark.parametrize("size", SIZES)
def test_the_first_event_of_a_key_in_a_list_wins_and_a_list_of_used_keys_writes_nothing(
    outbox: Outbox, conn: psycopg.Connection[Any], size: int
) -> None:
    with conn.transaction():
        events = [keyed("z"), *(keyed("a", n) for n in range(size))]
        assert outbox.publish_many(conn, events) == [events[0].event_id, events[1].event_id, *[None] * (size - 1)]
    with conn.transaction():
        assert outbox.publish_many(conn, [keyed("a", n) for n in range(size)]) == [None] * size
        assert outbox.publish_many(conn, [keyed("a")]) == [None]
    assert [event.payload for event in delivered(conn)] == [None, 0]


def test_delays_of_a_copied_list_with_keys_count_for_the_right_events(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    with conn.transaction():
        outbox.publish(conn, keyed("used"))
        outbox.publish_many(conn, [keyed("used", 0), *(keyed(str(n), n, deliver_after=n * 3600) for n in range(1, 20))])
    rows = conn.execute(
        "select (payload #>> '{}')::integer, round(extract(epoch from available_at - occurred_at) / 3600)::integer"
        "  from partbox.record where available_at is not null order by id"
    ).fetchall()
    assert rows == [(n, n) for n in range(1, 20)]


def test_a_rolled_back_savepoint_frees_the_key(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        with conn.transaction(force_rollback=True):
            outbox.publish_many(conn, [keyed("a"), keyed("b")])
        assert outbox.publish(conn, keyed("a")) is not None
    assert (list(keys(conn)), count(conn)) == (["a"], 1)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("commits", [True, False])
def test_a_concurrent_holder_of_a_key_is_waited_for(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], commits: bool, many: bool
) -> None:
    results: list[Any] = []

    def publish(waiter: psycopg.Connection[Any]) -> None:
        with waiter.transaction():
            events = [keyed("k"), keyed("other")]
            results.extend(outbox.publish_many(waiter, events) if many else [outbox.publish(waiter, events[0])])

    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as waiter:
        outbox.publish(holder, keyed("k"))
        with running(lambda: publish(waiter)):
            eventually(lambda: waits(conn, waiter))
            holder.commit() if commits else holder.rollback()
    assert (results[0] is None) == commits
    assert count(conn) == 1 + many


def test_a_repeatable_read_transaction_that_cannot_see_the_holder_has_to_be_tried_again(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(dsn) as app:
        app.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        app.execute("select 1 from partbox.meta")
        with conn.transaction():
            outbox.publish(conn, keyed("k"))
        with pytest.raises(psycopg.errors.SerializationFailure):
            outbox.publish(app, keyed("k"))
        app.rollback()
        assert outbox.publish(app, keyed("k")) is None
    assert count(conn) == 1


def test_publishers_of_the_same_keys_in_any_order_do_not_deadlock(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    names = [f"key-{n}" for n in range(50)]
    published: list[Any] = []

    def publish(order: list[str]) -> None:
        with psycopg.connect(dsn) as app:
            for round_ in range(20):
                published.extend(outbox.publish_many(app, [keyed(f"{round_}-{name}") for name in order]))
                app.commit()

    with running(*(lambda order=order: publish(order) for order in (names, names[::-1], names[25:] + names[:25]))):
        pass
    assert count(conn) == len([each for each in published if each]) == 20 * 50


def test_a_key_is_taken_in_one_order_whatever_the_order_of_the_list(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    """Who holds `b` and then wants `a` must not meet one who holds `a` and waits for `b`."""
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as waiter:
        outbox.publish(holder, keyed("B"))

        def publish() -> None:
            with waiter.transaction():
                outbox.publish_many(waiter, [keyed("a"), keyed("ä"), keyed("B")])  # "B" < "a" < "ä" by code point

        with running(publish):
            eventually(lambda: waits(conn, waiter))
            assert outbox.publish_many(holder, [keyed("a"), keyed("ä")]) != [None, None]
            holder.commit()
    assert set(keys(conn)) == {"B", "a", "ä"}
    assert count(conn) == 3


@pytest.mark.parametrize("encoding", ["utf8", "sql_ascii"])
def test_any_setting_of_the_connection_works(outbox: Outbox, dsn: str, encoding: str) -> None:
    rows, cursors = [dict_row, namedtuple_row, scalar_row], [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor]
    for done, (row_factory, cursor_factory) in enumerate(product(rows, cursors), 1):
        with psycopg.connect(
            dsn, row_factory=row_factory, cursor_factory=cursor_factory, client_encoding=encoding, prepare_threshold=0
        ) as app:
            for _ in range(2):
                single = outbox.publish(app, keyed(f"a{done}"))
                several = outbox.publish_many(app, [keyed(f"a{done}"), *(keyed(f"b{done}-{n}") for n in range(20))])
            assert single is None, (row_factory, cursor_factory)
            assert several == [None] * 21, (row_factory, cursor_factory)
            assert count(app) == 21 * done, (row_factory, cursor_factory)


@pytest.mark.parametrize("autocommit", [True, False])
def test_pipeline_mode_works(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], autocommit: bool) -> None:
    with psycopg.connect(dsn, autocommit=autocommit) as app:
        with app.pipeline(), app.transaction():
            app.execute("select 1")
            assert outbox.publish(app, keyed("a")) is not None
            assert outbox.publish(app, keyed("a")) is None
            ids = outbox.publish_many(app, [keyed("a"), *(keyed(f"b{n}") for n in range(20)), Event("T", "last")])
            assert [each is None for each in ids] == [True, *[False] * 21]
        app.commit() if not autocommit else None
    assert count(conn) == 22


async def test_keys_work_the_same_with_asynchronous_calls(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as app:
        first = await outbox.publish_async(app, keyed("a"))
        assert await outbox.publish_async(app, keyed("a")) is None
        ids = await outbox.publish_many_async(app, [keyed("a"), *(keyed(f"b{n}") for n in range(20)), keyed("b0")])
        assert [each is None for each in ids] == [True, *[False] * 20, True]
        async with app.pipeline():
            assert await outbox.publish_async(app, keyed("a")) is None
            assert await outbox.publish_many_async(app, [keyed("a"), keyed("c")]) != [None, None]
    assert (keys(conn)["a"], count(conn)) == (first, 22)


def test_the_privileges_of_a_publisher_suffice(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]) -> None:
    columns = (
        "partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, payload_bytes, "
        "content_type, headers, available_at, occurred_at"
    )
    conn.execute("create role keyed_publisher")
    try:
        conn.execute("grant usage on schema partbox to keyed_publisher")
        conn.execute("grant usage on sequence partbox.record_id_seq to keyed_publisher")
        conn.execute(f"grant insert ({columns}) on partbox.record to keyed_publisher")
        conn.execute("grant insert (key, event_id), select (key) on partbox.idempotency to keyed_publisher")
        outbox.after_commit(lambda events: None)
        with psycopg.connect(dsn, autocommit=True) as app:
            app.execute("set role keyed_publisher")
            with outbox.transaction(app):
                assert outbox.publish(app, keyed("a")) is not None
                assert outbox.publish(app, keyed("a")) is None
                assert outbox.publish_many(app, [keyed(f"b{n}", deliver_after=1) for n in range(20)])[0] is not None
    finally:
        conn.execute("drop owned by keyed_publisher")
        conn.execute("drop role keyed_publisher")
    assert count(conn) == 21


def test_the_header_of_the_key_is_reserved_and_not_counted_among_those_of_the_publisher(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    with conn.transaction():
        outbox.publish(conn, keyed("k" * 255, headers={"h": "x" * 65_535}))
    (row,) = conn.execute("select headers ->> %s from partbox.record", [IDEMPOTENCY_HEADER]).fetchall()
    assert row == ("k" * 255,)


def test_the_key_of_a_suppressed_publish_stays_free(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        with pytest.raises(Exception, match="event 1 of the list"):
            outbox.publish_many(conn, [keyed("a"), keyed("b", float("nan"))])
        assert outbox.publish_many(conn, [keyed("a"), keyed("b")]) != [None, None]


@contextmanager
def running(*calls: Callable[[], None]) -> Iterator[None]:
    """Runs each in a thread of its own; joins them, and raises what one raised."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    for error in errors:
        raise error


def waits(conn: psycopg.Connection[Any], waiter: psycopg.Connection[Any]) -> bool:
    """Whether the other connection waits for a lock."""
    row = conn.execute("select wait_event_type from pg_stat_activity where pid = %s", [waiter.info.backend_pid])
    return row.fetchone() == ("Lock",)
