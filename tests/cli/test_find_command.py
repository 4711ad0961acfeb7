"""`partbox find`."""

import json
from uuid import UUID

import pytest
from planted_records import Planter

from partbox.cli.shell.output import format_time


@pytest.fixture
def plant(conn, dsn, monkeypatch) -> Planter:
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "250")
    return Planter(conn)


def befell(plant: Planter, record: int, outcome: str, **more: object) -> None:
    values = {"attempt": 1, "instance": None, "seconds": None, "error": None, "age": 30, **more}
    plant.conn.execute(
        "insert into partbox.attempt (subscription, record_id, at, attempt, outcome, instance, seconds, error)"
        " values ('default', %(record)s, clock_timestamp() - %(age)s * interval '1 s', %(attempt)s, %(outcome)s,"
        " %(instance)s, %(seconds)s, %(error)s)",
        {"record": record, "outcome": outcome, **values},
    )


def test_a_single_record_is_shown_with_its_whole_history(partbox, plant):
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "source": "web"}
    card = {"payload": {"card": "sesame"}, "tenant_id": "acme", "headers": headers}
    record = plant.park("a", "retrying", blocks=True, attempts=1, due=3_600, **card)
    befell(plant, record, "failed", instance="4711 on web-1", seconds=0.25, error="ValueError: boom")
    ran = partbox("find", "a")
    due = format_time(plant.row(record)["due_at"])
    for said in (
        f"{record} in partition 178",
        str(plant.event_id(record)),
        "Order a",
        "acme",
        "a" * 32,
        "source: web",
        "17 B",
        "attempt 1 failed after 250 ms in 4711 on web-1: ValueError: boom",
        f"failed after 1 attempt, next attempt {due}; no process owns partition 178: ValueError: boom",
    ):
        assert said in ran.out
    assert "sesame" not in ran.out
    assert (ran.code, ran.err) == (0, "")
    assert '{"card":"sesame"}' in partbox("find", "a", "--payload").out


def test_several_records_are_shown_as_a_table_with_the_state_of_each(partbox, plant):
    first = plant.park("a", "retrying", blocks=True, attempts=1, due=60)
    held = plant.park("a", "held", blocks=True, attempts=0, error=None)
    ran = partbox("find", "--aggregate", "a")
    header, *rows = ran.out.splitlines()
    assert header.split()[:4] == ["record", "published", "type", "aggregate"]
    assert [int(row.split()[0]) for row in rows] == [held, first]
    assert f"held, behind record {first} of its aggregate" in rows[0]


def test_an_aggregate_is_found_by_the_name_that_logs_print(partbox, plant):
    order, _, odd = plant.publish("28"), plant.publish("28", aggregate_type="Parcel"), plant.publish("a/b")

    def found(*options: str) -> list[UUID]:
        return [UUID(each["event_id"]) for each in json.loads(partbox("find", *options, "--json").out)["records"]]

    assert found("Order/28") == [order]
    assert found("Order/a/b") == found("a/b") == [odd]
    assert found("a/b", "--aggregate-type", "Order") == [odd]
    assert found("Order/28", "--aggregate-type", "Parcel") == found("Order/29") == []


@pytest.mark.parametrize("value", ["Order/29", "Order/", "/28", "Order 28", "/"])
def test_a_value_that_names_nothing_gets_one_line(partbox, plant, value):
    plant.publish("28")
    ran = partbox("find", value)
    assert ran.out.startswith(f"no record has {value!r} as its aggregate (TYPE/ID), aggregate id, ")
    assert ran.out.count("\n") == 1


def test_a_truncated_list_says_how_to_see_the_rest(partbox, plant):
    for _ in range(3):
        plant.publish("a")
    *_, last = partbox("find", "a", "--limit", "2").out.splitlines()
    assert last.startswith("the 2 newest: nothing from before ")
    assert last.endswith("--before 2 goes on")
    assert "1 in partition" in partbox("find", "a", "--before", "2").out


def test_the_json_output_includes_the_payload_only_when_asked(partbox, plant):
    plant.publish("a", payload={"card": "sesame"})
    (record,) = json.loads(partbox("find", "a", "--json").out)["records"]
    assert "payload" not in record
    assert record["standings"][0]["state"] == "waiting"
    (record,) = json.loads(partbox("find", "a", "--json", "--payload").out)["records"]
    assert record["payload"] == {"card": "sesame"}
    plant.publish("b", payload=b"sesame")
    (record,) = json.loads(partbox("find", "b", "--json", "--payload").out)["records"]
    assert record["payload_base64"] == "c2VzYW1l"


ENDED = {
    "discarded": "discarded",
    "skipped": "skipped",
    "replayed": "replayed",
    "ignored": "ignored",
    "repeated": "twice",
    "dead": "dead",
}


def test_records_that_ended_without_success_are_listed_by_time(partbox, plant):
    records = {outcome: plant.park(outcome, "ready") for outcome in ENDED}
    for outcome, record in records.items():
        befell(plant, record, outcome, age=1_800)
    plant.conn.execute("delete from partbox.parked")

    def listed(*options: str) -> list[int]:
        return [each["record_id"] for each in json.loads(partbox("find", *options, "--json").out)["records"]]

    for outcome, word in ENDED.items():
        assert listed("--ended", word, "--since", "1h") == [records[outcome]]
        assert listed("--ended", word, "--since", "10m") == []
        assert listed("--ended", word, "--until", "1h") == []
    assert set(listed("--failed-between", "1h", "10m")) == {records["dead"], records["ignored"]}
    assert listed("--failed-between", "10m", "1m") == []


def test_a_dead_or_discarded_record_is_never_shown_as_delivered(partbox, plant):
    for state in ("dead", "discarded"):
        record = plant.park(state, state)
        ran = partbox("find", "--record", str(record))
        assert state in ran.out
        assert "delivered" not in ran.out
        assert "done" not in ran.out


def test_an_empty_result_is_reported_and_wrong_options_are_refused(partbox, plant):
    assert (
        partbox("find", "nobody").out
        == "no record has 'nobody' as its aggregate (TYPE/ID), aggregate id, event id, idempotency key or record id\n"
    )
    assert 'give the earlier time first ("2h" is two hours ago)' in partbox("find", "--failed-between", "3", "4").error
    assert "--failed-between 'noon' is no time: write it in" in partbox("find", "--failed-between", "noon", "1h").error
    assert "--failed-between 2026-01-31 has no time zone" in (
        partbox("find", "--failed-between", "2h", "2026-01-31").error
    )
    assert "leave out --since" in partbox("find", "--failed-between", "2h", "1h", "--since", "1h").err
    assert "did you mean 'discarded'" in partbox("find", "--ended", "discard").error
    assert (
        "what and key" in partbox("find", "7", "--key", "8").error
        or "key and what" in partbox("find", "7", "--key", "8").error
    )
