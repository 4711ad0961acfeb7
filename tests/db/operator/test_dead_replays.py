"""Replaying and discarding dead records."""

import logging

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from ownership import background
from run_size import examples
from waiting import eventually

from partbox import Outbox
from partbox.db.operator import dead
from partbox.db.operator.dead import DeadFilters
from partbox.errors import PartboxError


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


def test_a_record_that_dies_again_during_a_replay_is_not_replayed_again(plant, outbox, conn, monkeypatch):
    monkeypatch.setattr(dead, "CHUNK_SIZE", 1)
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
def test_chunks_hold_all_records_of_a_key_in_id_order_and_have_about_the_wanted_size(conn, keys, size):
    conn.execute("truncate partbox.parked")
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,"
        " state, blocks) select 'default', i, 0, 'Order', key, 'Placed', 'dead', false"
        " from unnest(%s::text[]) with ordinality as k (key, i)",
        [keys],
    )
    id_chunks = dead.list_id_chunks(conn, "partbox", "default", DeadFilters(), size)
    key_of = {number: key or number for number, key in enumerate(keys, 1)}
    assert sorted(id for chunk in id_chunks for id in chunk) == list(key_of)
    assert all(chunk == sorted(chunk) for chunk in id_chunks)
    where: dict[object, int] = {}
    for number, chunk in enumerate(id_chunks):
        for id in chunk:
            assert where.setdefault(key_of[id], number) == number, "a key stands in two chunks"
    lowest = [min(ids) for ids in id_chunks]
    assert lowest == sorted(lowest)
    for chunk in id_chunks:  # without its last key it is smaller than asked for
        last = max({key_of[id] for id in chunk}, key=lambda key: min(id for id in chunk if key_of[id] == key))
        assert sum(key_of[id] != last for id in chunk) < size


def test_a_replay_that_is_interrupted_has_replayed_whole_keys_and_can_go_on(plant, outbox, monkeypatch, caplog):
    monkeypatch.setattr(dead, "CHUNK_SIZE", 4)
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


def test_a_discarded_record_is_distinguished_from_a_done_one_and_its_key_goes_on(plant, outbox, conn, caplog):
    record = plant.park("a", blocks=True, due=0)
    follower = plant.park("a", "held", blocks=True, attempts=0, error=None)
    with caplog.at_level(logging.INFO, "partbox.commands"):
        assert outbox.dead.discard(record) == 1
    assert plant.states() == {record: "discarded", follower: "held"}
    row = plant.row(record)
    assert (row["blocks"], row["due_at"], row["last_error"]) == (False, None, "ValueError: boom")
    assert len(plant.versions()) == 1
    status = conn.execute("select status from partbox.record_status where id = %s", [record]).fetchone()
    assert status == ("discarded",)
    assert f"discarded dead record {record}" in caplog.text


def test_discard_all_leaves_what_does_not_match(plant, outbox):
    for _ in range(3):
        plant.park("a", age=7_200)
    young = plant.park("a", age=1)
    assert outbox.dead.discard_all(older_than="1h") == 3
    assert sorted(plant.states().values()) == ["dead", *3 * ["discarded"]]
    assert plant.states()[young] == "dead"


def test_a_discarded_record_is_counted_as_such_and_as_nothing_else(plant, outbox, conn):
    records = [plant.park("a"), plant.park("b")]
    plant.publish("c")
    plant.consume()
    assert outbox.dead.discard_all() == 2
    conn.execute("analyze")
    cluster = outbox.stats.cluster()
    assert (cluster.parked, cluster.waiting, cluster.blocked_keys) == ({"discarded": 2}, {}, 0)
    assert cluster.unfinished_age is None
    assert outbox.stats.records()["discarded"] == 2
    assert [each.id for each in outbox.stats.completed()] == [3]
    assert [each.status for each in outbox.stats.parked()] == ["discarded"] * 2
    assert outbox.stats.failed() == []
    (listed,) = outbox.subscriptions.list()
    assert (listed.parked, listed.dead) == (0, 0)
    for act in (outbox.dead.show, outbox.dead.replay, outbox.dead.discard):
        with pytest.raises(PartboxError, match=f"no dead record {records[0]} in .*; it is discarded: "):
            act(records[0])


def test_a_record_that_no_saved_cursor_has_passed_can_be_discarded_and_is_not_delivered(plant, conn):
    """The row stays: whoever reads the record finds it."""
    seen = []
    outbox = Outbox(conn.info.dsn)
    outbox.register(seen.append, "Placed")
    ahead = plant.park("a", consumed=False)
    after = plant.publish("a")
    assert outbox.dead.discard(ahead) == 1
    outbox.drain()
    assert [each.event_id for each in seen] == [after]
    statuses = conn.execute("select status from partbox.record_status order by id").fetchall()
    assert statuses == [("discarded",), ("done",)]


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


def test_a_group_is_replayed_or_discarded_without_the_others(plant, outbox):
    alike = [plant.park(name, error=f"ValueError: {name}1") for name in "ab"]
    other = plant.park("c", error="KeyError: 1")
    group = next(each.group for each in outbox.dead.groups() if each.records == 2)
    assert outbox.dead.replay_all(group=str(group)) == 2
    assert plant.states() == dict.fromkeys(alike, "ready") | {other: "dead"}
    (left,) = outbox.dead.groups()
    assert outbox.dead.discard_all(group=left.group) == 1
    assert plant.states() == dict.fromkeys(alike, "ready") | {other: "discarded"}
