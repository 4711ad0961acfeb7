"""The kit beside its drains: what was published, what fails, sinks, and the outbox that is given back as it was."""

import asyncio
from enum import Enum
from typing import Any

import psycopg
import pytest

from partbox import DownstreamUnavailable, Event, Outbox, PartboxError
from partbox.events import DeliveredEvent
from partbox.sinks import Sink
from partbox.testing import Kit, RecordingSink, delivered
from partbox.testing.statements import find_psycopg


class Kind(Enum):
    PLACED = "Noted"


@pytest.fixture
def orders(kit: Kit) -> Kit:
    kit.publish("Noted", {"total": 1}, aggregate_type="Order", aggregate_id="7", tenant_id="acme")
    kit.publish("Noted", {"total": 2}, aggregate_type="Order", aggregate_id="8")
    kit.publish("Awaited", b"raw", aggregate_id="7")
    return kit


def test_published_events_are_found_by_their_fields_and_in_order(orders):
    assert orders.published("Noted").payloads == [{"total": 1}, {"total": 2}]
    assert orders.published(Kind.PLACED, aggregate_id=7).one().tenant_id == "acme"
    assert [event.event_type for event in orders.published(aggregate_id="7")] == ["Noted", "Awaited"]
    assert orders.published(aggregate_type="Order", tenant_id="acme").payloads == [{"total": 1}]
    assert orders.published("Awaited").payloads == [b"raw"]
    assert len(orders.published().all) == 3


def test_published_events_are_still_found_after_their_delivery(orders):
    orders.drain()
    assert len(orders.published()) == 3


def test_a_connection_sees_events_published_in_its_open_transaction(kit, shop, dsn):
    with psycopg.connect(dsn) as conn:
        shop.outbox.publish(conn, "Noted", 1)
        assert kit.published("Noted", conn=conn).payloads == [1]
        assert kit.published("Noted") == []
        conn.rollback()
        assert kit.published("Noted", conn=conn) == []


async def test_an_asynchronous_connection_sees_events_published_in_its_open_transaction(kit, shop, dsn):
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        await shop.outbox.publish_async(conn, "Noted", 1)
        assert (await kit.published_async("Noted", conn=conn)).payloads == [1]
        with pytest.raises(PartboxError, match=r"asynchronous: use `await kit\.published_async"):
            kit.published(conn=conn)
        await conn.rollback()


def test_a_failing_assertion_lists_what_was_published_instead(orders):
    with pytest.raises(AssertionError) as failed:
        orders.published("Noted").one()
    assert str(failed.value).splitlines() == [
        "2 event with event_type='Noted', not one; published:",
        "  Noted of Order/7, tenant 'acme': {'total': 1}",
        "  Noted of Order/8: {'total': 2}",
        "  Awaited of __GLOBAL__/7: b'raw'",
    ]
    assert repr(orders.published("Paid", aggregate_id=9)).startswith(
        "<no event with event_type='Paid', aggregate_id='9'; published:\n  Noted of Order/7"
    )
    assert repr(orders.published("Awaited")).startswith("<1 event with event_type='Awaited':\n  Awaited of")
    orders.forget()
    with pytest.raises(AssertionError, match="no event, not one; nothing was published; only the publishing"):
        orders.published().one()


def test_the_next_deliveries_fail_with_the_error_that_a_test_wants(kit, shop):
    kit.fail_next("Noted", ConnectionError("down"), times=2)
    kit.fail_next(None, OSError)
    kit.publish("Noted", 1)
    kit.publish("Awaited", 2)
    first, second = kit.drain()
    assert (first.state, str(first.error)) == ("retrying", "down")
    assert (second.state, type(second.error)) == ("retrying", OSError)
    kit.advance("1m")
    assert kit.drain().states == ["retrying", "done"]
    kit.advance("1m")
    kit.drain().assert_done()
    assert shop.seen == [2, 1]


@pytest.mark.parametrize(
    ("error", "times", "said"),
    [
        ("no", 1, "is not an exception"),
        (OSError(), 0, "times must be 1"),
        (OSError(), "2", "times must be 1 or more, not '2'"),
    ],
)
def test_an_object_that_cannot_be_raised_is_refused_as_an_error(kit, error, times, said):
    with pytest.raises((TypeError, ValueError), match=said):
        kit.fail_next("Noted", error, times)


def test_a_recording_sink_keeps_messages_and_fails_when_it_is_told_to(kit, shop):
    sink = RecordingSink("orders.{event_type}")
    shop.outbox.on("Sent")(sink)
    kit.publish("Sent", {"a": 1}, aggregate_id="7", headers={"x": "y"})
    kit.drain().assert_done()
    (message,) = sink.sent("orders.sent", key=7)
    assert (message.value, message.headers) == (b'{"a":1}', {"x": "y"})

    sink.fail_next(DownstreamUnavailable("no broker"))
    kit.publish("Sent", 2, aggregate_id="7")
    assert kit.drain().states == ["deferred"]
    kit.advance("1h")
    kit.drain().assert_done()
    sink.reject_next()
    kit.publish("Sent", 3, aggregate_id="7")
    (refused,) = kit.drain()
    assert (refused.state, str(refused.error)) == ("dead", "the broker refuses it")
    assert [message.value for message in sink.messages] == [b'{"a":1}', b"2"]
    sink.clear()
    assert sink.messages == []


def test_a_recording_sink_can_imitate_a_slow_broker(kit, shop, monkeypatch):
    naps = []
    monkeypatch.setattr("partbox.testing.kit.asyncio.sleep", lambda seconds: naps.append(seconds) or _nothing())
    shop.outbox.on("Sent")(RecordingSink(delay=3))
    kit.publish("Sent", 1)
    kit.drain().assert_done()
    assert naps == [3]


async def _nothing() -> None: ...


class Broker(Sink):
    async def send(self, messages: Any) -> Any:
        raise AssertionError("a test must not come here")


def test_sinks_of_an_application_are_recorded_with_their_topics_and_restored_afterwards(shop, dsn):
    shop.outbox.on("Sent")(Broker("orders"))
    shop.outbox.on("Billed")(Broker("bills"))
    with Kit(shop.outbox, dsn) as kit:
        sink = kit.record_sinks()
        kit.publish("Sent", 1)
        kit.publish("Billed", 2)
        kit.drain().assert_done()
        assert [(message.topic, message.value) for message in sink.messages] == [("orders", b"1"), ("bills", b"2")]
    with Kit(shop.outbox, dsn) as kit:
        kit.publish("Sent", 1)
        assert kit.drain().states == ["retrying"]


def test_recording_the_sinks_of_an_outbox_without_sinks_is_refused(kit):
    with pytest.raises(PartboxError, match="no sink is registered with this outbox"):
        kit.record_sinks()


def test_the_kit_restores_the_outbox_as_it_was(shop, dsn):
    before = dict(vars(shop.outbox))
    with Kit(shop.outbox, dsn) as kit:
        shop.outbox.on("OfThisTest")(print)
        shop.outbox.intercept(lambda event: None)
        shop.outbox.after_publish(shop.seen.append)
        shop.outbox.on_dead_letter(print)
        kit.publish("Noted", 1)
        assert [each.payload for each in shop.seen.pop()] == [1]
    assert vars(shop.outbox) == before
    assert [row.event_type for row in shop.outbox.handlers.build_table()].count("OfThisTest") == 0
    assert (shop.outbox.handlers.interceptors, shop.outbox.handlers.dead_letter_hook) == ((), None)
    with Kit(shop.outbox, dsn) as kit:
        kit.publish("Noted", 2)
    assert shop.seen == []
    kit.close()
    with pytest.raises(PartboxError, match="this kit is closed"):
        kit.published()


def test_a_kit_without_a_dsn_uses_the_database_of_the_outbox(dsn):
    outbox = Outbox(dsn)
    with Kit(outbox) as kit:
        kit.publish("Noted", 1)
    with Kit(outbox) as kit:
        assert kit.published().payloads == [1]


def test_forget_empties_the_outbox_which_then_goes_on_working(kit, conn):
    kit.publish("Noted", 1, aggregate_id="7", idempotency_key="once")
    kit.publish("Failing", 1, aggregate_id="8")
    kit.drain()
    kit.outbox.blocked.skip("__GLOBAL__", "8")
    assert (len(kit.outbox.actions.list()), len(kit.outbox.records.find(ended="skipped").records)) == (1, 1)
    kit.forget()
    assert kit.outbox.actions.list() == []
    assert conn.execute("select from partbox.attempt union all select from partbox.progress_note").fetchall() == []
    assert kit.published() == []
    assert kit.drain() == []
    assert kit.publish("Noted", 2, aggregate_id="7", idempotency_key="once") is not None
    kit.publish("Noted", 2, aggregate_id="8")
    assert kit.drain().states == ["done", "done"]


def test_the_kit_works_with_another_schema(server, empty_dsn):
    from partbox.db.schema.migrate import migrate

    migrate(empty_dsn, 'ship"ped')
    outbox = Outbox(schema='ship"ped')
    outbox.on("Noted")(lambda event: None)
    with Kit(outbox, empty_dsn) as kit:
        kit.publish("Noted", 1, deliver_after=9)
        assert kit.drain() == []
        kit.advance(9)
        kit.drain().assert_done()
        kit.forget()
        assert kit.published() == []


def test_events_can_be_passed_to_their_handlers_without_the_log(kit, shop, dsn):
    kit.fail_next("Noted", OSError("no"))
    events = [
        delivered(kind, number) for number, kind in enumerate(["Noted", "Noted", "Awaited", "Listed", "Later"], 1)
    ]
    handed = kit.handle(*events, delivered("Failing", 6, attempt=3), delivered("Unknown", 7))
    assert handed.states == ["retrying", "done", "done", "done", "deferred", "dead", "dead"]
    assert shop.seen == [2, 3, [4], 5, 6]
    with pytest.raises(PartboxError, match="effected is transactional: pass the connection"):
        kit.handle(delivered("Effected", 1))
    with psycopg.connect(dsn) as conn:
        shop.outbox.publish(conn, "Effected", 1)
        kit.handle(*kit.published(conn=conn), conn=conn).assert_done()
        assert conn.execute("select count(*) from effect").fetchone() == (1,)
        conn.rollback()
    shop.outbox.on("Ending")(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        kit.handle(delivered("Ending", 1))


def test_events_that_handlers_publish_follow_each_once(kit, shop, dsn):
    @shop.outbox.on("Shared", transactional=True)
    def share(event: DeliveredEvent, conn: Any) -> None:
        shop.outbox.publish(conn, "Chained", event.payload)
        shop.outbox.publish(conn, "Noted", "tomorrow", deliver_after="1d")
        if event.payload == 13:
            raise ValueError("13")

    with psycopg.connect(dsn) as conn:
        for number in (1, 13):
            shop.outbox.publish(conn, "Shared", number)
        first, second = kit.published("Shared", conn=conn)
        handed = kit.handle(first, second, conn=conn)
        assert [(each.event.event_type, each.state) for each in handed] == [
            ("Shared", "done"),
            ("Shared", "retrying"),
            ("Chained", "done"),
            ("Noted", "done"),
        ]
        assert shop.seen == [1]
        assert [kit.has_handled(each) for each in (first, second, delivered("Noted", 1))] == [True, True, False]
        assert kit.handle(second, conn=conn).states == ["retrying"]
        conn.rollback()
    kit.handle(delivered("Chained", 2)).assert_done()
    assert shop.seen == [1, 2]
    assert kit.handle() == []


def test_events_follow_in_the_subscriptions_of_the_first_ones(kit, shop):
    seen = []
    shop.outbox.on("Noted", subscription="audit")(lambda event: seen.append(event.subscription))

    @shop.outbox.on("Placed", subscription="audit")
    def place(event: DeliveredEvent) -> None:
        kit.publish("Noted", 1)

    kit.handle(delivered("Placed", 1, subscription="audit")).assert_done()
    assert (seen, shop.seen) == (["audit"], [])


def test_handlers_that_publish_without_end_are_stopped_by_one_error(kit, shop, monkeypatch):
    monkeypatch.setattr("partbox.testing.kit.MOST_FOLLOWED", 20)
    shop.outbox.on("Endless")(lambda event: kit.publish("Endless", event.payload + 1) and None)
    with pytest.raises(
        PartboxError, match=r"has followed 20 events .* the next of type 'Endless': a handler publishes"
    ):
        kit.handle(delivered("Endless", 1))
    assert len(kit.published("Endless")) == 21


def _interrupt(event: DeliveredEvent) -> None:
    raise KeyboardInterrupt


def test_the_psycopg_connection_is_found_within_connections_of_other_libraries(conn):
    class Wrapper:
        def __init__(self, **inner: Any) -> None:
            vars(self).update(inner)

    sqlalchemy = Wrapper(connection=lambda: Wrapper(connection=Wrapper(driver_connection=conn)))
    assert find_psycopg(sqlalchemy) is conn
    django = Wrapper(connection=conn, ensure_connection=lambda: None)
    assert find_psycopg(django) is conn
    with pytest.raises(PartboxError, match=r"there is no psycopg connection in this .*Wrapper: pass one"):
        find_psycopg(Wrapper())


def test_an_async_handler_can_be_given_an_event_without_a_running_event_loop(kit, shop):
    kit.handle(delivered("Awaited", Event("Awaited", 1).payload)).assert_done()
    assert shop.seen == [1]
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_state_given_by_the_test_replaces_the_lifespan_until_the_kit_is_closed(kit, shop):
    entered, states = [], []

    @shop.outbox.lifespan
    def lifespan():
        entered.append("entered")
        yield "of the shop"

    shop.outbox.on("Stated")(lambda event: states.append(event.state))
    kit.publish("Stated", 1)
    kit.give_state("of the test")
    kit.drain().assert_done()
    assert (entered, states) == ([], ["of the test"])
