"""Subscriptions that want some event types only: the others are consumed there without a handler, at no row's cost."""

import threading

import psycopg
import pytest

from partbox import Outbox

TYPES = ("Placed", "Paid", "Failed")


@pytest.fixture
def outbox(dsn) -> Outbox:
    return Outbox(dsn, on_unroutable="dead")


@pytest.fixture
def got(outbox) -> list[tuple[str, int]]:
    """The events of the handler of `urgent`. It takes every type, so that a filtered one would be seen."""
    got: list[tuple[str, int]] = []
    lock = threading.Lock()

    @outbox.on("*", subscription="urgent")
    def note(event):
        with lock:
            got.append((event.event_type, event.payload))

    return got


def publish(outbox: Outbox, count: int, first: int = 0) -> None:
    with psycopg.connect(outbox.dsn) as conn:
        for number in range(first, first + count):
            outbox.publish(conn, TYPES[number % 3], number, aggregate_type="Order", aggregate_id=str(number % 20))


def left(conn) -> list[tuple]:
    query = "select status, count(*) from partbox.record_status where subscription = 'urgent' group by status"
    return conn.execute(query).fetchall()


def test_only_wanted_types_are_delivered_and_other_events_leave_no_trace(outbox, got, conn, drain):
    outbox.subscriptions.create("urgent", types=["Failed"])
    publish(outbox, 600)
    drain(outbox, "urgent")
    assert sorted(number for _, number in got) == list(range(2, 600, 3))
    assert {event_type for event_type, _ in got} == {"Failed"}
    for aggregate in range(20):
        of = [number for _, number in got if number % 20 == aggregate]
        assert of == sorted(of)
    assert left(conn) == [("done", 600)]
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)


def test_a_subscription_may_want_several_types_or_all_types(outbox, got, conn, drain):
    outbox.subscriptions.create("urgent", types=["Failed", "Paid"])
    publish(outbox, 30)
    drain(outbox, "urgent")
    assert sorted(number for _, number in got) == [number for number in range(30) if number % 3]


def test_a_log_of_unwanted_types_only_is_consumed(outbox, got, conn, drain):
    outbox.subscriptions.create("urgent", types=["Never"])
    publish(outbox, 2_000)
    drain(outbox, "urgent")
    assert got == []
    assert left(conn) == [("done", 2_000)]


def test_an_unwanted_event_is_not_parked_behind_a_failed_one_of_its_aggregate(dsn, conn, drain):
    outbox = Outbox(dsn)
    calls: list[int] = []

    @outbox.on("Failed", subscription="urgent", retry="fixed:3600")
    def fails(event):
        calls.append(event.payload)
        raise RuntimeError("no")

    outbox.subscriptions.create("urgent", types=["Failed"])
    with psycopg.connect(dsn) as publishing:
        for event_type in ("Placed", "Failed", "Placed", "Paid"):
            outbox.publish(publishing, event_type, 1, aggregate_type="Order", aggregate_id="7")
    drain(outbox, "urgent")
    assert sorted(left(conn)) == [("done", 3), ("retrying", 1)]
    assert calls == [1]


def test_a_delayed_event_of_an_unwanted_type_is_not_parked(outbox, got, conn, drain):
    outbox.subscriptions.create("urgent", types=["Failed"])
    with psycopg.connect(outbox.dsn) as publishing:
        outbox.publish(publishing, "Placed", 1, deliver_after=3600)
        outbox.publish(publishing, "Failed", 2)
    drain(outbox, "urgent")
    assert left(conn) == [("done", 2)]
    assert got == [("Failed", 2)]


def test_other_subscriptions_get_the_types_that_this_one_does_not_want(outbox, got, conn, drain):
    everything: list[int] = []

    @outbox.on("*")
    def note(event):
        everything.append(event.payload)

    outbox.subscriptions.create("urgent", types=["Failed"])
    publish(outbox, 30)
    drain(outbox)
    drain(outbox, "urgent")
    assert sorted(everything) == list(range(30))
    assert len(got) == 10
