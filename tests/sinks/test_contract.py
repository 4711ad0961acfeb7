"""What every sink promises, at every kind of broker."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import unquote

import pytest
from brokers import Received
from waiting import eventually

from partbox import Outbox
from partbox.sinks import sink_of

KEYS = 5


@pytest.fixture
def outbox(dsn, place) -> Outbox:
    """Everything goes to the broker, which takes it."""
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(sink_of(place.broker.url, place.template), "*", max_attempts=None)
    return outbox


def publish(outbox: Outbox, conn, events: range) -> None:
    with conn.transaction():
        for number in events:
            key = f"order/{number % KEYS} ü"
            outbox.publish(conn, "Placed", {"n": number}, aggregate_type="Order", aggregate_id=key)


def check(found: Sequence[Received], events: range) -> None:
    """Nothing is lost, those of a key are in order, and what came twice has the same id."""
    ids: dict[bytes, set[str]] = defaultdict(set)
    firsts: dict[str | None, list[bytes]] = defaultdict(list)
    for each in found:
        if not ids[each.value]:
            firsts[each.key].append(each.value)
        ids[each.value].add(each.id)
    assert sorted(ids) == sorted(b'{"n":%d}' % number for number in events)
    assert all(len(each) == 1 for each in ids.values())
    for values in firsts.values():
        assert all(int(one[5:-1]) < int(two[5:-1]) for one, two in pairwise(values))


def test_everything_arrives_once_and_in_order(outbox: Outbox, conn, place):
    publish(outbox, conn, range(60))
    assert outbox.drain(timeout=60)
    found = place.all()
    assert len(found) == 60
    check(found, range(60))


def test_a_message_is_the_payload_and_what_else_is_known(outbox: Outbox, conn, place):
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


def test_what_is_sent_while_the_broker_is_restarted_arrives(outbox: Outbox, conn, place):
    if not place.broker.durable:
        pytest.skip("it keeps nothing: its connections are cut instead")
    publish(outbox, conn, range(20))
    with outbox.worker() as worker:
        eventually(lambda: len(place.all()) == 20)
        place.broker.kill()
        publish(outbox, conn, range(20, 60))
        eventually(lambda: conn.execute("select count(*) from partbox.parked").fetchone() > (0,))
        place.broker.start()
        eventually(lambda: len({each.id for each in place.all()}) == 60, 60)
        assert worker.wait_until_empty(60)
    check(place.all(), range(60))
    assert conn.execute("select count(*) from partbox.parked where state = 'dead'").fetchone() == (0,)


def test_a_worker_that_ends_in_the_middle_loses_and_reorders_nothing(outbox: Outbox, conn, place):
    publish(outbox, conn, range(200))
    for _ in range(3):
        with outbox.worker():
            threading.Event().wait(0.1)
    assert outbox.drain(timeout=60)
    check(place.all(), range(200))
