"""What every sink promises, at every kind of broker."""

import asyncio
import re
import threading
from urllib.parse import unquote

import pytest
from arrivals import Flight, arrived, check, key_of, publish, states
from delivered import delivered
from waiting import eventually

from partbox import Outbox, UnrecoverableError
from partbox.sinks import sink_of


@pytest.fixture
def sink(place):
    return sink_of(place.broker.url, place.template)


@pytest.fixture
def outbox(dsn, sink) -> Outbox:
    """Everything goes to the broker, which takes it."""
    return relaying(dsn, sink)


@pytest.fixture
def in_flight(sink, monkeypatch) -> Flight:
    return Flight(sink, monkeypatch)


def relaying(dsn, sink) -> Outbox:
    outbox = Outbox(dsn, retry="fixed:0.1", max_payload=1 << 22)
    outbox.register(sink, "*", max_attempts=None)
    return outbox


def test_every_message_arrives_once_and_in_order(outbox: Outbox, conn, place):
    publish(outbox, conn, range(60))
    assert outbox.drain(timeout=60)
    found = place.all()
    assert len(found) == 60
    check(found, range(60))


def test_a_message_carries_the_payload_and_everything_else_known_of_the_event(outbox: Outbox, conn, place):
    text = '{"b": 1.10,  "a": "ü\\u0041"}'
    with conn.transaction():
        event_id = outbox.publish(
            conn,
            "Placed",
            text.encode(),
            content_type="application/json",
            aggregate_type="Order",
            aggregate_id="7 ü",
            tenant_id="t%1",
            headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "x-note": "plain"},
            idempotency_key="once",
        )
        outbox.publish(conn, "Raw", b"\x00\xff")
    assert outbox.drain(timeout=60)
    found = place.all()
    (placed,) = (each for each in found if each.attributes["type"] == "Placed")
    (raw,) = (each for each in found if each.attributes["type"] == "Raw")
    assert placed.value == text.encode()
    found_attributes = unquoted(placed.attributes) | {"time": ""}
    assert found_attributes.pop("partitionkey", "7 ü") == "7 ü"
    assert found_attributes == {
        "specversion": "1.0",
        "id": str(event_id),
        "source": "/partbox",
        "type": "Placed",
        "subject": "7 ü",
        "time": "",
        "aggregatetype": "Order",
        "tenantid": "t%1",
        "idempotencykey": "once",
    }
    headers = {name.lower(): text for name, text in placed.headers.items()}
    assert headers["content-type"] == "application/json"
    assert headers["traceparent"] == f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert headers["x-note"] == "plain"
    assert raw.value == b"\x00\xff"
    assert raw.key is None


def unquoted(attributes):
    """Some protocols have visible ASCII only."""
    return {name: unquote(text) if "%25" in text or "%C3" in text else text for name, text in attributes.items()}


@pytest.mark.thorough
@pytest.mark.usefixtures("faults")
def test_events_that_are_sent_while_the_broker_is_out_of_reach_arrive(outbox: Outbox, conn, place, sink):
    sink._timeout = 3.0  # librdkafka itself waits for a broker without end
    publish(outbox, conn, range(20))
    with outbox.worker() as worker:
        eventually(lambda: arrived(place) == 20)
        place.broker.go()
        try:
            publish(outbox, conn, range(20, 60))
            eventually(lambda: states(conn))
        finally:
            place.broker.come_back()
        eventually(lambda: arrived(place) == 60)
        assert worker.wait_until_empty(120)
    check(place.all(), range(60))
    assert "dead" not in states(conn)


@pytest.mark.thorough
def test_a_worker_that_ends_in_the_middle_of_sending_loses_and_reorders_nothing(outbox: Outbox, conn, place, in_flight):
    """Each ends when it has sent something."""
    for first in (0, 40, 80):
        publish(outbox, conn, range(first, first + 40))
        in_flight.expect()
        with outbox.worker():
            in_flight.wait()
    with outbox.worker():
        eventually(lambda: arrived(place) == 120, moves=lambda: arrived(place))
    check(place.all(), range(120))


def test_a_sink_serves_workers_one_after_the_other_each_with_its_own_event_loop(sink, place):
    async def lists(numbers: range) -> list[list[object]]:
        """Several at once, all of which find that there is no connection."""
        handled = await asyncio.gather(
            *(sink.handle([delivered(number, f"k{number}", b'{"n":%d}' % number)]) for number in numbers)
        )
        await sink.close()
        return handled

    for numbers in (range(4), range(4, 8)):
        assert asyncio.run(lists(numbers)) == [[None]] * 4
    assert arrived(place) == 8


def test_an_event_that_the_broker_refuses_permanently_is_dead_and_holds_up_no_other(dsn, conn, place):
    broker, poison = place.broker, (7, 21)
    outbox = relaying(dsn, sink_of(broker.small_url, place.template))
    publish(outbox, conn, range(40), dict.fromkeys(poison, "x" * broker.largest))
    with outbox.worker() as worker:
        eventually(lambda: arrived(place) == 38 and len(outbox.dead.list()) == 2)
        assert worker.wait_until_empty(120)
    check(place.all(), [number for number in range(40) if number not in poison])
    for number, dead in zip(poison, sorted(outbox.dead.list(), key=lambda each: each.record_id), strict=True):
        assert dead.aggregate_id == key_of(number)
        assert re.search(broker.words, dead.error)


def test_a_refused_message_does_not_fail_messages_that_another_list_has_in_flight(place):
    broker = place.broker
    sink = sink_of(broker.small_url, place.template)
    poison = delivered(1, "a", b"x" * (broker.largest + 1))
    others = [delivered(number, "b", b'{"n":%d}' % number) for number in range(2, 12)]

    async def both():
        outcomes = await asyncio.gather(*(sink.handle([each]) for each in (*others, poison)))
        again = [await sink.handle([each]) for each, (said,) in zip(others, outcomes, strict=False) if said is not None]
        await sink.close()
        return outcomes, again

    outcomes, again = asyncio.run(both())
    assert isinstance(outcomes[-1][0], UnrecoverableError)
    assert not any(isinstance(said, UnrecoverableError) for (said,) in outcomes[:-1])
    assert again == [[None]] * len(again)
    assert {each.value for each in place.all()} == {each.raw for each in others}


@pytest.mark.usefixtures("faults")
def test_a_message_that_is_acknowledged_late_is_not_given_up(outbox: Outbox, conn, place, sink, in_flight):
    publish(outbox, conn, range(20))
    with outbox.worker() as worker:
        eventually(lambda: arrived(place) == 20)
        place.broker.slow()
        in_flight.expect()
        try:
            publish(outbox, conn, range(20, 60))
            in_flight.wait()
            threading.Event().wait(0.5)
            assert states(conn) == set()
        finally:
            place.broker.quick()
        assert worker.wait_until_empty(120)
    assert len(place.all()) == 60
    check(place.all(), range(60))


@pytest.mark.thorough
@pytest.mark.usefixtures("faults")
def test_a_broker_that_never_answers_counts_as_out_of_reach_until_it_does(outbox: Outbox, conn, place, in_flight):
    """Only while it is held: what is slow for a second is no broker out of reach, and a busy machine is slow."""
    publish(outbox, conn, range(20))
    with outbox.worker() as worker:
        eventually(lambda: arrived(place) == 20)
        place.broker.hold()
        in_flight.at_most = 1.0
        try:
            publish(outbox, conn, range(20, 60))
            eventually(lambda: {"retry", "ready", "held"} & states(conn))
        finally:
            in_flight.at_most = None
            place.broker.release()
        eventually(lambda: arrived(place) == 60, 60, moves=lambda: arrived(place))
        assert worker.wait_until_empty(120)
    check(place.all(), range(60))
    assert "dead" not in states(conn)
