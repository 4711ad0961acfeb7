"""Dead records: what is listed, grouped and shown."""

from datetime import UTC, datetime, timedelta
from enum import Enum

import pytest

from partbox.db.operator import dead
from partbox.errors import PartboxError


def test_dead_records_are_listed_oldest_first_with_their_error_and_without_their_payload(plant, outbox):
    first = plant.park("a", age=10, event_type="Placed", tenant_id="t1", payload={"card": "sesame"})
    second = plant.park("b", age=7_200, attempts=3, error="shop.errors.Declined: no: money", aggregate_type="Cart")
    plant.park("c", "retrying", blocks=True, due=5)
    one, other = outbox.dead.list()
    assert (one.record_id, one.event_id, one.event_type) == (first, plant.event_id(first), "Placed")
    assert (one.aggregate_type, one.aggregate_id, one.tenant_id, one.attempts) == ("Order", "a", "t1", 10)
    assert (one.error_type, one.error, one.blocks) == ("ValueError", "boom", False)
    assert (other.record_id, other.error_type, other.error) == (second, "shop.errors.Declined", "no: money")
    assert abs(datetime.now(UTC) - other.died_at - timedelta(hours=2)) <= timedelta(minutes=1)
    assert abs(datetime.now(UTC) - one.published_at) <= timedelta(minutes=1)
    assert "sesame" not in repr([one, other])
    assert not hasattr(one, "payload")


@pytest.mark.parametrize(
    ("stored", "kind", "text"),
    [
        ("ValueError: boom", "ValueError", "boom"),
        ("ValueError: ", "ValueError", ""),
        ("a.b.<locals>.C: x: y\nz", "a.b.<locals>.C", "x: y\nz"),
        ("out of stock", None, "out of stock"),
        ("out of stock: 3", None, "out of stock: 3"),
        ("address: unknown", None, "address: unknown"),
        ("skipped: by hand; E: x", "skipped", "by hand; E: x"),
        ("", None, ""),
        (None, None, None),
    ],
)
def test_an_error_is_its_type_and_its_text(stored, kind, text):
    assert dead.split_error(stored) == (kind, text)


def test_filters_can_be_combined_and_mean_the_same_for_list_and_count(plant, outbox):
    class Kind(Enum):
        placed = "Placed"
        Paid = 2

    old = plant.park("a", age=7_200)
    young = plant.park("a", age=10)
    paid = plant.park("b", age=7_200, event_type="Paid", aggregate_type="Invoice")
    for filters, expected in [
        ({}, [old, young, paid]),
        ({"event_type": "Placed"}, [old, young]),
        ({"event_type": Kind.Paid}, [paid]),
        ({"event_type": Kind.placed, "older_than": timedelta(hours=1)}, [old]),
        ({"aggregate_type": "Invoice"}, [paid]),
        ({"aggregate_id": "a"}, [old, young]),
        ({"older_than": 3_600}, [old, paid]),
        ({"older_than": "1h", "aggregate_id": "b"}, [paid]),
        ({"older_than": 1e200}, []),
        ({"event_type": "placed"}, []),
    ]:
        assert [each.record_id for each in outbox.dead.list(**filters)] == expected, filters
        assert outbox.dead.count(**filters) == len(expected), filters
    assert [each.record_id for each in outbox.dead.list(limit=2)] == [old, young]


def test_subscriptions_have_dead_records_of_their_own(plant, outbox, conn):
    conn.execute("insert into partbox.subscription (name) values ('audit')")
    conn.execute(
        "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
        " select 'audit', partition, snapshot, last_id, floor_id from partbox.partition"
    )
    record = plant.park("a", subscription="audit")
    assert (outbox.dead.count(), outbox.dead.count(subscription="audit")) == (0, 1)
    with pytest.raises(PartboxError, match="no dead record"):
        outbox.dead.replay(record)
    assert outbox.dead.replay_all() == 0
    assert outbox.dead.replay_all(subscription="audit") == 1
    assert plant.row(record, "audit")["state"] == "ready"


def test_a_record_is_shown_with_headers_and_times_and_its_payload_only_when_asked(plant, outbox):
    occurred = datetime(2020, 5, 4, tzinfo=UTC)
    record = plant.park("a", headers={"trace": "abc"}, payload={"secret": 1}, occurred_at=occurred)
    shown = outbox.dead.show(record)
    assert (shown.record_id, shown.headers, shown.occurred_at, shown.content_type) == (
        record,
        {"trace": "abc"},
        occurred,
        None,
    )
    assert shown.payload is None
    with_payload = outbox.dead.show(plant.event_id(record), payload=True)
    assert with_payload.payload == '{"secret":1}'
    assert "secret" not in repr(with_payload)
    raw = plant.park("a", payload=b"\x00\xff", content_type="application/x-thing")
    assert outbox.dead.show(str(raw), payload=True).payload == b"\x00\xff"
    assert outbox.dead.show(raw).headers == {}


def test_times_outside_the_range_of_python_are_shown_as_its_last_or_first_time(plant, outbox, conn):
    record = plant.park("a")
    conn.execute("update partbox.record set occurred_at = 'infinity', created_at = '4711-01-01 BC'")
    shown = outbox.dead.show(record)
    assert (shown.occurred_at.year, shown.published_at.year) == (9999, 1)
    assert outbox.dead.list()[0].published_at.year == 1


def test_a_dead_record_whose_event_somebody_deleted_is_still_there(plant, outbox, conn):
    record = plant.park("a")
    conn.execute("delete from partbox.record")
    assert [(each.record_id, each.event_id) for each in outbox.dead.list()] == [(record, None)]
    assert outbox.dead.show(record, payload=True).payload is None
    assert outbox.dead.discard(record) == 1


def test_a_record_has_the_traceback_of_its_error_and_a_replay_keeps_both(plant, outbox):
    record = plant.park("a", trace="Traceback: there")
    other = plant.park("b")
    assert [each.traceback for each in outbox.dead.list()] == ["Traceback: there", None]
    assert outbox.dead.show(record).traceback == "Traceback: there"
    assert outbox.dead.show(other).traceback is None
    outbox.dead.replay(record)
    assert (plant.row(record)["last_error"], plant.row(record)["traceback"]) == ("ValueError: boom", "Traceback: there")


def test_dead_records_that_are_alike_are_one_group_the_largest_first(plant, outbox):
    carriers = [plant.park(name, error=f"ConnectionError: carrier-{name}9.example:443: refused") for name in "ab"]
    orders = [
        plant.park("c", error="ValueError: no order 4711 for 'Ann'\nsecond line 1", age=7_200),
        plant.park("d", error="ValueError: no order 12 for 'Bob B.'\nother line", age=60),
        plant.park("e", error="ValueError: no order 7f3-aa for 'C'", age=10, blocks=True),
    ]
    lone = [
        plant.park("f", error=None),
        plant.park("g", event_type="Paid", error="ConnectionError: carrier-9: refused"),
    ]
    groups = outbox.dead.groups()
    assert [each.records for each in groups] == [3, 2, 1, 1]
    first = groups[0]
    assert first.newest == outbox.dead.list()[4]
    assert (first.newest.record_id, first.blocking) == (orders[2], 1)
    assert abs(first.died_to - first.died_from - timedelta(seconds=7_190)) <= timedelta(seconds=60)
    assert [each.record_id for each in outbox.dead.list(group=first.group)] == orders
    assert [each.record_id for each in outbox.dead.list(group=groups[1].group)] == carriers
    assert [each.newest.record_id for each in groups[2:]] == lone[::-1]
    assert [each.group for each in outbox.dead.groups(limit=1)] == [first.group]
    assert [each.records for each in outbox.dead.groups(older_than="1h")] == [1]
    assert outbox.dead.count(group=first.group) == 3
    assert outbox.dead.groups(group=first.group) == groups[:1]


def test_a_dead_record_is_shown_with_its_traceback(plant, outbox):
    record, other = plant.park("a", trace='File "shop.py", line 7, in ship'), plant.park("b")
    assert outbox.dead.show(record).traceback == 'File "shop.py", line 7, in ship'
    assert outbox.dead.show(other).traceback is None
