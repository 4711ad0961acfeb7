"""Dead records: what is listed, and what a replay and a discard change."""

import logging
from datetime import UTC, datetime, timedelta
from enum import Enum

import psycopg
import pytest
from effort import examples
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from ownership import background
from planting import Planter
from waiting import eventually

from partbox import Outbox
from partbox.db.operator import dead
from partbox.db.operator.dead import Filters
from partbox.errors import PartboxError

EVERYTHING = Filters()


@pytest.fixture
def plant(conn) -> Planter:
    return Planter(conn)


@pytest.fixture
def outbox(dsn) -> Outbox:
    return Outbox(dsn)


def test_dead_records_are_listed_oldest_first_with_their_error_and_without_their_payload(plant, outbox):
    first = plant.park("a", age=10, event_type="Placed", tenant_id="t1", payload={"card": "4711"})
    second = plant.park("b", age=7_200, attempts=3, error="shop.errors.Declined: no: money", aggregate_type="Cart")
    plant.park("c", "retrying", blocks=True, due=5)
    one, other = outbox.dead.list()
    assert (one.record_id, one.event_id, one.event_type) == (first, plant.event_id(first), "Placed")
    assert (one.aggregate_type, one.aggregate_id, one.tenant_id, one.attempts) == ("Order", "a", "t1", 10)
    assert (one.error_type, one.error, one.blocks) == ("ValueError", "boom", False)
    assert (other.record_id, other.error_type, other.error) == (second, "shop.errors.Declined", "no: money")
    assert datetime.now(UTC) - other.died_at == pytest.approx(timedelta(hours=2), abs=timedelta(minutes=1))
    assert datetime.now(UTC) - one.published_at == pytest.approx(timedelta(0), abs=timedelta(minutes=1))
    assert "4711" not in repr([one, other])
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
    assert dead.typed(stored) == (kind, text)


def test_filters_hold_together_and_for_list_and_count_alike(plant, outbox):
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


def test_times_beyond_pythons_are_shown_as_the_last_and_first_there_are(plant, outbox, conn):
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


def test_a_replayed_record_is_ready_again_with_all_its_attempts_and_its_last_error(plant, outbox, caplog):
    record = plant.park("a", due=0, started=True)
    with caplog.at_level(logging.INFO, "partbox.commands"):
        assert outbox.dead.replay(record) == 1
    row = plant.row(record)
    assert (row["state"], row["blocks"], row["attempts"]) == ("ready", True, 0)
    assert (row["due_at"], row["started_at"], row["last_error"]) == (None, None, "ValueError: boom")
    assert plant.versions() == {row["partition"]: 1}
    assert f"replayed dead record {record} of subscription 'default'" in caplog.text
    assert "may have been delivered meanwhile" in caplog.text


def test_a_replayed_record_without_aggregate_blocks_nothing_and_is_due(plant, outbox):
    record = plant.park(None)
    assert outbox.dead.replay(plant.event_id(record)) == 1
    row = plant.row(record)
    assert (row["state"], row["blocks"], row["is_due"]) == ("ready", False, True)


def test_replay_all_takes_what_matches_and_nothing_that_is_not_dead(plant, outbox, caplog):
    ids = [plant.park(str(number % 3)) for number in range(9)]
    waiting = plant.park("0", "retrying", blocks=True, due=60, attempts=2)
    other = plant.park("0", event_type="Paid")
    seen: list[tuple[int, int]] = []
    with caplog.at_level(logging.INFO, "partbox.commands"):
        assert outbox.dead.replay_all(event_type="Placed", progress=lambda *done: seen.append(done)) == 9
    assert seen == [(9, 9)]
    assert plant.states() == dict.fromkeys(ids, "ready") | {waiting: "retrying", other: "dead"}
    assert plant.row(waiting)["attempts"] == 2
    assert set(plant.versions().values()) == {1}
    assert "replayed 9 of 9 dead records of subscription 'default'" in caplog.text
    assert outbox.dead.replay_all(event_type="Placed") == 0


def test_what_dies_again_during_a_replay_is_not_replayed_again(plant, outbox, conn, monkeypatch):
    monkeypatch.setattr(dead, "CHUNK", 1)
    for number in range(3):
        plant.park(str(number))
    calls: list[int] = []

    def kill(done: int, _: int) -> None:
        calls.append(done)
        conn.execute("update partbox.parked set state = 'dead', blocks = false, parked_at = clock_timestamp()")

    assert outbox.dead.replay_all(progress=kill) == 3
    assert calls == [1, 2, 3]


@hypothesis_settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(keys=st.lists(st.sampled_from([None, "a", "b", "c", "d"]), max_size=40), size=st.integers(1, 12))
def test_chunks_hold_whole_keys_in_id_order_and_about_as_many_as_asked_for(conn, keys, size):
    conn.execute("truncate partbox.parked")
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,"
        " state, blocks) select 'default', i, 0, 'Order', key, 'Placed', 'dead', false"
        " from unnest(%s::text[]) with ordinality as k (key, i)",
        [keys],
    )
    chunks = dead.chunks(conn, "partbox", "default", EVERYTHING, size)
    key_of = {number: key or number for number, key in enumerate(keys, 1)}
    assert sorted(id for chunk in chunks for id in chunk) == list(key_of)
    assert all(chunk == sorted(chunk) for chunk in chunks)
    where: dict[object, int] = {}
    for number, chunk in enumerate(chunks):
        for id in chunk:
            assert where.setdefault(key_of[id], number) == number, "a key stands in two chunks"
    lowest = [min(ids) for ids in chunks]
    assert lowest == sorted(lowest)
    for chunk in chunks:  # without its last key it is smaller than asked for
        last = max({key_of[id] for id in chunk}, key=lambda key: min(id for id in chunk if key_of[id] == key))
        assert sum(key_of[id] != last for id in chunk) < size


def test_a_replay_that_is_interrupted_has_replayed_whole_keys_and_can_go_on(plant, outbox, monkeypatch, caplog):
    monkeypatch.setattr(dead, "CHUNK", 4)
    ids = {id: key for key in "abc" * 3 for id in [plant.park(key)]}

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with caplog.at_level(logging.INFO, "partbox.commands"), pytest.raises(KeyboardInterrupt):
        outbox.dead.replay_all(progress=interrupt)
    assert "replayed 6 of 9 dead records" in caplog.text
    states = plant.states()
    assert {key: {states[id] for id in ids if ids[id] == key} for key in "abc"} == {
        "a": {"ready"},
        "b": {"ready"},
        "c": {"dead"},
    }
    assert outbox.dead.replay_all() == 3


def test_a_discarded_record_is_done_and_its_key_goes_on(plant, outbox, conn, caplog):
    record = plant.park("a", blocks=True, due=0)
    follower = plant.park("a", "held", blocks=True, attempts=0, error=None)
    with caplog.at_level(logging.INFO, "partbox.commands"):
        assert outbox.dead.discard(record) == 1
    assert plant.states() == {follower: "held"}
    assert len(plant.versions()) == 1
    status = conn.execute("select status from partbox.record_status where id = %s", [record]).fetchone()
    assert status == ("done",)
    assert f"discarded dead record {record}" in caplog.text


def test_discard_all_leaves_what_does_not_match(plant, outbox):
    for _ in range(3):
        plant.park("a", age=7_200)
    young = plant.park("a", age=1)
    assert outbox.dead.discard_all(older_than="1h") == 3
    assert plant.states() == {young: "dead"}


def test_what_no_saved_cursor_has_passed_cannot_be_discarded_yet_for_it_would_be_delivered_again(plant, outbox, conn):
    passed = plant.park("a")
    ahead = plant.park("a", consumed=False)
    with pytest.raises(PartboxError, match=f"dead record {ahead} lies ahead .*: try again when a worker has gone on"):
        outbox.dead.discard(ahead)
    assert outbox.dead.discard_all() == 1
    assert plant.states() == {ahead: "dead"}
    plant.consume()
    assert outbox.dead.discard_all() == 1
    assert passed not in plant.states()


def test_a_record_below_the_cursor_that_had_not_committed_at_its_snapshot_is_not_passed(plant, outbox, conn):
    ahead = plant.park("a", consumed=False)
    ((snapshot,),) = conn.execute("select pg_current_snapshot()::text").fetchall()
    conn.execute("update partbox.partition set snapshot = '1:1:', last_id = 1000, floor_id = 0")
    with pytest.raises(PartboxError, match="ahead"):
        outbox.dead.discard(ahead)
    conn.execute("update partbox.partition set snapshot = %s::pg_snapshot", [snapshot])
    assert outbox.dead.discard(ahead) == 1


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_a_command_waits_for_a_save_of_the_partition_before_it_looks(plant, outbox, dsn, conn, command):
    """The partition row is locked first: what a save unparks at the same moment is not brought back to life."""
    record = plant.park("a")
    with psycopg.connect(dsn, autocommit=True) as saving, background() as run:
        with saving.transaction():
            saving.execute("select from partbox.partition where subscription = 'default' for no key update")
            saving.execute("update partbox.parked set state = 'retrying'")
            acting = run(getattr(outbox.dead, command), record)
            with psycopg.connect(dsn, autocommit=True) as watch:
                waits(watch, "partbox dead")
        with pytest.raises(PartboxError, match="it is retrying"):
            acting.result()
    assert plant.states() == {record: "retrying"}


def waits(watch, name: str) -> None:
    def blocked():
        found = watch.execute(
            "select cardinality(pg_blocking_pids(pid)) from pg_stat_activity"
            " where application_name = %s and datname = current_database()",
            [name],
        ).fetchone()
        return bool(found and found[0])

    eventually(blocked)


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
    assert first.died_to - first.died_from == pytest.approx(timedelta(seconds=7_190), abs=timedelta(seconds=60))
    assert [each.record_id for each in outbox.dead.list(group=first.group)] == orders
    assert [each.record_id for each in outbox.dead.list(group=groups[1].group)] == carriers
    assert [each.newest.record_id for each in groups[2:]] == lone[::-1]
    assert [each.group for each in outbox.dead.groups(limit=1)] == [first.group]
    assert [each.records for each in outbox.dead.groups(older_than="1h")] == [1]
    assert outbox.dead.count(group=first.group) == 3
    assert outbox.dead.groups(group=first.group) == groups[:1]


def test_a_group_is_replayed_or_discarded_without_the_others(plant, outbox):
    alike = [plant.park(name, error=f"ValueError: {name}1") for name in "ab"]
    other = plant.park("c", error="KeyError: 1")
    group = next(each.group for each in outbox.dead.groups() if each.records == 2)
    assert outbox.dead.replay_all(group=str(group)) == 2
    assert plant.states() == dict.fromkeys(alike, "ready") | {other: "dead"}
    (left,) = outbox.dead.groups()
    assert outbox.dead.discard_all(group=left.group) == 1
    assert plant.states() == dict.fromkeys(alike, "ready")


def test_a_dead_record_is_shown_with_its_traceback(plant, outbox):
    record, other = plant.park("a", trace='File "shop.py", line 7, in ship'), plant.park("b")
    assert outbox.dead.show(record).traceback == 'File "shop.py", line 7, in ship'
    assert outbox.dead.show(other).traceback is None
