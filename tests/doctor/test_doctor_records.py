"""Records that do not come through, each kind provoked in a real database: named, and a remedy that is SQL ends it."""

from datetime import UTC, datetime, timedelta

import pytest
from waiting import eventually

from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import Limits
from partbox.settings import load

pytestmark = pytest.mark.usefixtures("brisk")

AWAY = "ConnectionError: refused"
WAITS = "ship waits for its downstream: "


def test_a_dead_record_that_blocks_its_key_is_a_finding(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id from partbox.instance")
    head = clinic.plant.park("7", "dead", blocks=True)
    clinic.plant.park("7", "held", blocks=True)
    found = clinic.one("blocked-by-dead")
    assert found["evidence"][0].startswith(f"Order 7: record {head} (Placed) dead, 10 attempts, 1 event behind it")
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


def test_a_key_that_has_only_just_failed_is_not_reported_as_blocked(clinic):
    clinic.plant.park("7", "retrying", blocks=True, attempts=2, due=1, age=1)
    assert "blocked-key" not in clinic.causes()
    clinic.plant.park("8", "retrying", blocks=True, attempts=2, due=1, age=90)
    assert clinic.one("blocked-key")["evidence"][0].startswith("Order 8: ")
    clinic.conn.execute("update partbox.parked set attempts = 3, parked_at = now()")
    (both,) = clinic.one("blocked-key")["evidence"]
    assert both.startswith("2 aggregates for the same reason, such as Order 7: record 1 ")


def test_aggregates_that_are_blocked_for_one_reason_are_one_row_of_the_finding(clinic):
    for number in range(9):
        clinic.plant.park(
            str(number), "retrying", blocks=True, error=f"ValueError: no customer {number}", age=900 - number
        )
    clinic.plant.park("x", "retrying", blocks=True, error="KeyError: 'vat'", age=5)
    found = clinic.one("blocked-key")
    assert found["summary"] == (
        "10 aggregates wait for an event that fails, Placed: ValueError: no customer 0, and 1 other reason"
    )
    first, second = found["evidence"]
    assert first.startswith("9 aggregates for the same reason, such as Order 0: record 1 (Placed) retrying")
    assert first.endswith("ValueError: no customer 0")
    assert second.startswith("Order x: ")


def test_an_open_circuit_is_one_finding_however_many_aggregates_wait_for_it(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id from partbox.instance")
    for number in range(44):
        clinic.plant.park(
            str(number), "deferred", blocks=True, attempts=0, due=5, age=300, error=f"{WAITS if number else ''}{AWAY}"
        )
    found = clinic.one("deferred")
    assert clinic.causes() == ["deferred"]
    assert (found["severity"], found["summary"]) == (
        "problem",
        f"44 events deferred, the circuit of handler {WAITS.split(maxsplit=1)[0]} is open: {AWAY}",
    )
    assert found["evidence"] == [
        f"44 of type Placed, for 5 m: {AWAY}",
        "44 aggregates blocked by these events, for up to 5 m, 0 events behind them",
    ]


def test_a_title_names_the_event_that_fails_its_handler_and_its_error(clinic):
    cause = 'Traceback (most recent call last):\n  File "/srv/http.py", line 3, in get\n    raise OSError\nOSError\n'
    trace = (
        f"{cause}\nwhich caused:\n\nTraceback (most recent call last):\n"
        '  File "/srv/shop.py", line 7, in ship\n    book(order)\n  File "/srv/shop.py", line 9, in book\n    raise\n'
        "BookingError: no carrier"
    )
    fails = {"error": "BookingError: no carrier", "trace": trace}
    clinic.plant.park("7", "retrying", blocks=True, **fails)
    clinic.plant.park("8", blocks=True, event_type="Paid", **fails)
    clinic.plant.park("9", event_type="Paid", error="KeyError: 'vat'")
    titles = {each["cause"]: each["summary"] for each in clinic.findings()}
    said = "in ship(): BookingError: no carrier"
    assert titles["blocked-key"] == f"1 aggregate waits for an event that fails, Placed {said}"
    assert titles["blocked-by-dead"] == f"1 aggregate waits for a dead event, Paid {said}"
    assert titles["dead"] == f"2 dead events, 1 of them Paid {said}"


def test_a_few_dead_records_are_reported_as_waiting_for_a_decision(clinic):
    clinic.plant.park("7", error="SmtpError: to ada@example.org", age=600)
    clinic.plant.park("8", error="SmtpError: to bob@example.org", age=9_000)
    clinic.plant.park("9", error="no such customer", event_type="-Odd type", age=600)
    found = clinic.one("dead")
    assert found["severity"] == "warning"
    since = datetime.now(UTC) - datetime.fromisoformat(found["since"])
    assert timedelta(seconds=9_000) <= since < timedelta(seconds=10_000)  # of the oldest
    assert found["evidence"] == [
        "1 of type Placed: SmtpError: to bob@example.org (the newest is record 2, 10 m ago)",
        "1 of type -Odd type: no such customer (the newest is record 3, 10 m ago)",
    ]
    assert clinic.doctor()[0] == 0
    assert clinic.doctor("--strict")[0] == 1
    clinic.follow(found["remedy"][2])
    assert clinic.number("select count(*) from partbox.parked where state = 'dead'") == 2


def test_a_braked_partition_is_a_finding(clinic, monkeypatch):
    monkeypatch.setenv("PARTBOX_MAX_PARKED", "10")
    clinic.plant.park("7", "retrying", blocks=True, attempts=1, due=3_600, age=1)
    for _ in range(7):
        clinic.plant.park("7", "held", blocks=True, age=1)
    clinic.plant.park("7", "dead")
    assert "braked" not in clinic.causes()
    clinic.plant.park("7", "held", blocks=True, age=1)
    assert "braked" not in clinic.causes()  # all is read
    clinic.plant.publish("7")
    found = clinic.one("braked")
    assert found["summary"] == "1 partition braked: nothing new is read there"
    assert found["evidence"] == ["up to 9 open parked records in one partition; max_parked = 10"]


def test_waiting_events_brake_no_partition_and_are_reported_at_half_of_their_maximum(clinic, monkeypatch):
    monkeypatch.setenv("PARTBOX_MAX_PARKED", "10")
    monkeypatch.setenv("PARTBOX_MAX_WAITING", "40")
    clinic.plant.park("7", "deferred", blocks=True, due=3_600, age=1, error=None)
    for _ in range(17):
        clinic.plant.park("7", "held", blocks=True, age=1)
    clinic.plant.park(None, "scheduled", due=3_600)
    assert not {"braked", "waiting"} & set(clinic.causes())
    clinic.plant.park(None, "scheduled", due=3_600)
    found = clinic.one("waiting")
    assert found["severity"] == "warning"
    assert found["summary"] == "20 events parked and not finished: reading stops at 40"
    for _ in range(16):
        clinic.plant.park(None, "scheduled", due=3_600)
    assert clinic.one("waiting")["severity"] == "problem"


def test_many_deferred_events_are_a_finding(clinic):
    clinic.work()
    clinic.owned()
    for number in range(60):
        clinic.plant.publish(str(number), event_type="Sent")
    eventually(lambda: clinic.number("select count(*) from partbox.parked where state = 'deferred'") >= 50)
    found = clinic.one("deferred")
    assert " of type Sent, for " in found["evidence"][0]
    assert "DownstreamUnavailable: the mail server is down" in found["evidence"][0]


@pytest.mark.parametrize("attempts", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_a_record_that_kills_its_process_is_a_finding(clinic, attempts):
    """The one node of processes without `--soak`: threads would take the tests with them."""
    clinic.node(max_attempts=attempts, retry="fixed:0.1")
    clinic.owned()
    clinic.plant.publish("7", event_type="Deadly")
    seen: dict[str, dict] = {}

    def known() -> bool:
        seen.update({each["cause"]: each for each in clinic.findings()})
        return "dead" in seen

    eventually(known, interval=0.2)
    assert "crashes" in seen
    assert f"the process died {attempts} times handling the event" in seen["dead"]["evidence"][0]


def test_a_growing_backlog_is_a_finding(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id, claimed_at = now() from partbox.instance")
    clinic.old(1_200)
    clinic.conn.execute("update partbox.record set created_at = now() - interval '2 min'")
    settings, publish = load(), lambda seconds: clinic.old(300)
    (found,) = [
        each
        for each in examine_outbox(lambda: clinic.dsn, settings, Limits(), wait=publish).findings
        if each.cause == "backlog-grows"
    ]
    assert found.evidence[0].startswith("1,500 pending, ")
    again = examine_outbox(lambda: clinic.dsn, settings, Limits(), wait=lambda seconds: None)
    assert "backlog-grows" not in [each.cause for each in again.findings]
