"""`partbox blocked`."""

import json

import pytest
from planted_records import Planter


@pytest.fixture
def plant(conn, dsn, monkeypatch) -> Planter:
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "200")
    return Planter(conn)


def test_list_shows_each_blocked_aggregate_and_the_record_that_it_waits_for(partbox, plant):
    head = plant.park(
        "a", "retrying", blocks=True, due=60, attempts=2, error="TimeoutError: slow", trace="Traceback: there"
    )
    plant.park("a", "held", blocks=True, attempts=0, error=None)
    ran = partbox("blocked", "list")
    header, row = ran.out.splitlines()
    assert header.split()[:4] == ["aggregate", "head", "type", "state"]
    cells = row.split()
    assert cells[:5] == ["Order", "a", str(head), "Placed", "retrying"]
    assert row.rstrip().endswith("none    TimeoutError: slow")
    assert (ran.code, ran.err) == (0, "")
    (shown,) = json.loads(partbox("blocked", "list", "--json").out)
    assert (shown["record_id"], shown["followers"], shown["owner"]) == (head, 1, None)
    assert shown["traceback"] == "Traceback: there"
    assert "the 1 that are blocked the longest" in partbox("blocked", "list", "--limit", "1").out


def test_no_blocked_aggregate_is_said(partbox, plant):
    plant.park("a")
    assert partbox("blocked", "list").out == "no blocked aggregate in subscription 'default'\n"
    assert partbox("blocked", "list", "--json").out == "[]\n"


def test_retry_says_what_it_did(partbox, plant):
    late = plant.park("a", "retrying", blocks=True, due=3_600)
    dead = plant.park("b", blocks=True)
    held = plant.park("c", "held", blocks=True)
    assert partbox("blocked", "retry", "Order", "a").out == f"record {late}, which was retrying, is due now\n"
    assert partbox("blocked", "retry", "Order", "b").out.startswith(f"record {dead} was dead and is replayed")
    assert partbox("blocked", "retry", "Order", "c").out == (
        f"nothing to do: record {held} is held and waits only for a worker\n"
    )
    assert json.loads(partbox("blocked", "retry", "Order", "c", "--json").out) == {
        "record_id": held,
        "state": "held",
        "changed": False,
    }
    assert plant.row(late)["is_due"]
    assert plant.row(dead)["state"] == "ready"


def test_skip_says_how_it_is_undone(partbox, plant):
    head = plant.park("-7", "retrying", blocks=True, due=60)
    ran = partbox("blocked", "skip", "--reason", "gone", "--", "Order", "-7")
    assert f"skipped record {head}, which was retrying" in ran.out
    assert f"`partbox dead replay {head}` brings it back" in ran.out
    assert plant.row(head)["last_error"] == "skipped: gone; ValueError: boom"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("retry", "Order", "b"), "aggregate 'Order' / 'b' is not blocked in subscription 'default': `partbox blocked"),
        (("skip", "Cart", "a"), "aggregate 'Cart' / 'a' is not blocked"),
        (("skip", "", "a"), "AGGREGATE_TYPE is empty: name it"),
        (("skip", "Order", "\udcff"), "lone surrogate"),
        (("skip", "Order", "a", "--reason", "\udcff"), "lone surrogate"),
        (("list", "--limit", "0"), "limit 0 must be a whole number above 0"),
        (("list", "--subscription", "audit"), "subscription 'audit' does not exist"),
        (("retry", "Order", "\x1b[2J"), "'Order' / '\\x1b[2J' is not blocked"),
        (("list", "--dsn", "postgresql://127.0.0.1:1/shop"), "cannot use the database"),
    ],
)
def test_wrong_input_is_one_line_and_changes_nothing(partbox, plant, arguments, said):
    head = plant.park("a", "retrying", blocks=True, due=60)
    assert said in partbox("blocked", *arguments).error
    assert (plant.states(), plant.versions()) == ({head: "retrying"}, {})


def test_control_characters_in_records_are_never_printed(partbox, plant):
    hostile = "\x1b[2J[bold]\x9b\u202e"
    plant.park(hostile, "retrying", blocks=True, due=60, aggregate_type=hostile, error=f"E: {hostile}")
    for arguments in (("list",), ("list", "--json"), ("retry", hostile, hostile), ("skip", hostile, hostile)):
        out = partbox("blocked", *arguments).out
        assert out
        assert all(each.isprintable() for line in out.splitlines() for each in line), arguments


@pytest.mark.parametrize("command", ["list", "retry", "skip"])
def test_help_teaches_with_an_example(partbox, command):
    assert f"Example: partbox blocked {command}" in " ".join(partbox("blocked", command, "--help").out.split())


def test_list_groups_aggregates_that_wait_for_the_same_reason_and_filters_by_time(partbox, plant):
    for number in range(3):
        plant.park(f"{number}", "retrying", blocks=True, age=600, error=f"TimeoutError: no answer in {number} s")
    plant.park("0", "held", blocks=True, attempts=0, age=600, error=None)
    plant.park("9", "deferred", blocks=True, age=7_200, event_type="Paid", error="bank is closed")
    header, first, second = partbox("blocked", "list", "--group").out.splitlines()
    assert header.split()[:3] == ["aggregates", "followers", "since"]
    assert first.split()[:2] == ["3", "1"]
    assert first.rstrip().endswith("Placed  retrying  Order 0  TimeoutError: no answer in 0 s")
    assert second.split()[:2] == ["1", "0"]
    (group,) = json.loads(partbox("blocked", "list", "--group", "--until", "1h", "--json").out)
    assert (group["keys"], group["event_type"], group["error_type"], group["error"]) == (
        1,
        "Paid",
        None,
        "bank is closed",
    )
    listed = json.loads(partbox("blocked", "list", "--since", "1h", "--json").out)
    assert [each["aggregate_id"] for each in listed] == ["0", "1", "2"]
    none = partbox("blocked", "list", "--since", "2026-01-31T09:00Z", "--until", "2026-01-31T10:00Z").out
    assert none == (
        "no blocked aggregate since '2026-01-31T09:00Z' until '2026-01-31T10:00Z' in subscription 'default'\n"
    )
    assert "since 'soon' is no time: write it in ISO 8601, or" in partbox("blocked", "list", "--since", "soon").error
    assert "has no time zone" in partbox("blocked", "list", "--until", "2026-01-31T09:00").error
