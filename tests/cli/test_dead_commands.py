"""`partbox dead`."""

import json
import os
import pty
import signal
import sys
from contextlib import contextmanager
from typing import IO, Any

import psycopg
import pytest
from planted_records import Planter
from waiting import eventually

from partbox.db.operator import dead

HOSTILE = "x\x1b[31m\x1b]0;owned\x07\r\x9b2J[red]\u202egnp.exe\u2066\x00".replace("\x00", "")


@pytest.fixture
def plant(conn, dsn, monkeypatch) -> Planter:
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    return Planter(conn)


@pytest.fixture
def at_a_terminal(monkeypatch):
    """Standard input is a terminal at which this is typed."""

    def typed(answer: str) -> None:
        controller, terminal = pty.openpty()
        os.write(controller, answer.encode())
        opened.append(os.fdopen(terminal))
        opened.append(os.fdopen(controller, "wb"))
        monkeypatch.setattr(sys, "stdin", opened[-2])

    opened: list[IO[Any]] = []
    yield typed
    monkeypatch.undo()
    for file in opened:
        file.close()


def test_list_shows_dead_records_oldest_first(partbox, plant):
    first = plant.park("a", error="shop.Declined: no money\nin the bank", payload={"card": "sesame"})
    second = plant.park(None, event_type="Paid", attempts=3, error=None)
    ran = partbox("dead", "list")
    header, *rows = ran.out.splitlines()
    assert header.split() == ["record", "error", "died", "type", "aggregate", "attempts"]
    assert rows[0].split()[0] == str(first)
    assert "Placed  Order a" in rows[0]
    assert "shop.Declined: no money in the bank" in rows[0]
    assert rows[1].split()[0] == str(second)
    assert "Paid" in rows[1]
    assert "sesame" not in ran.out
    assert (ran.code, ran.err) == (0, "")


def test_a_list_of_80_columns_shows_the_whole_error(partbox, plant, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    error = "ConnectionRefusedError: mail.example.org:25 does not answer"
    plant.park("an-aggregate-with-a-long-id", event_type="OrderPlacedByCustomer", error=error)
    header, *rows = partbox("dead", "list").out.splitlines()
    assert max(map(len, (header, *rows))) <= 80
    column = slice(header.index("error"), header.index("died"))
    assert "".join(row[column] for row in rows).replace(" ", "") == error.replace(" ", "")


def test_list_groups_dead_records_that_failed_alike(partbox, plant, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for number in range(3):
        newest = plant.park(f"{number}", blocks=number == 0, error=f"KeyError: 'order {number}'")
    plant.park("9", event_type="Paid", error="no such card")
    header, first, second = partbox("dead", "list", "--group").out.splitlines()
    assert header.split()[:2] == ["records", "blocking"]
    assert first.split()[:2] == ["3", "1"]
    assert first.rstrip().endswith(f"Placed  {newest:>6}  KeyError: 'order 2'")
    assert (second.split()[0], second.rstrip()[-12:]) == ("1", "no such card")
    groups = json.loads(partbox("dead", "list", "--group", "--type", "Placed", "--json").out)
    assert [(each["records"], each["newest"]["record_id"]) for each in groups] == [(3, newest)]


def test_every_command_filters_by_since_and_until(partbox, plant):
    old, middle, young = (plant.park("a", age=age) for age in (7_200, 1_800, 60))
    died = plant.row(middle)["parked_at"].isoformat()

    def listed(*filters: str) -> list[int]:
        return [each["record_id"] for each in json.loads(partbox("dead", "list", *filters, "--json").out)]

    assert listed("--since", "1h") == [middle, young]
    assert listed("--until", "10m") == [old, middle]
    assert listed("--since", "1h", "--until", "10m") == [middle]
    assert listed("--since", died) == [middle, young]
    assert listed("--until", died) == [old]
    assert json.loads(partbox("dead", "count", "--since", "1h", "--json").out) == {"dead": 2}
    assert "no dead record with since '1m' in" in partbox("dead", "list", "--since", "1m").out.replace('"', "'")
    assert partbox("dead", "replay", "--all", "--since", "10m", "--yes").code == 0
    assert partbox("dead", "discard", "--all", "--until", "1h", "--yes").code == 0
    assert plant.states() == {old: "discarded", middle: "dead", young: "ready"}
    assert "since 'soon' is no time" in partbox("dead", "list", "--since", "soon").error


def test_list_as_json_and_its_filters(partbox, plant):
    old = plant.park("a", age=7_200)
    plant.park("a", age=10)
    plant.park("b", age=7_200, event_type="Paid")
    plant.park("b", age=7_200, aggregate_type="Cart")
    filters = ("--type", "Placed", "--aggregate-type", "Order", "--aggregate-id", "a", "--older-than", "1h")
    (shown,) = json.loads(partbox("dead", "list", *filters, "--json").out)
    assert (shown["record_id"], shown["error_type"], shown["error"]) == (old, "ValueError", "boom")
    assert json.loads(partbox("dead", "count", *filters, "--json").out) == {"dead": 1}
    said = "with event type 'Placed' and aggregate type 'Order' and aggregate id 'a' and older than '1h'"
    assert partbox("dead", "count", *filters).out == f"1 dead record {said} in subscription 'default'\n"
    limited = partbox("dead", "list", "--limit", "2").out
    assert "the 2 oldest: --limit shows more" in limited
    assert len(json.loads(partbox("dead", "list", "--json", "--limit", "3").out)) == 3


def test_show_prints_a_whole_record_but_its_payload_only_when_asked(partbox, plant):
    record = plant.park("a", headers={"trace": "abc"}, payload={"card": "sesame"}, tenant_id="t1", blocks=True)
    ran = partbox("dead", "show", str(record))
    lines = [line.strip().split(maxsplit=1) for line in ran.out.splitlines()]
    assert ["aggregate", "Order a, which waits for it"] in lines
    assert ["header", "trace: abc"] in lines
    assert ["error", "ValueError: boom"] in lines
    assert ["tenant", "t1"] in lines
    assert "sesame" not in ran.out
    by_event = partbox("dead", "show", str(plant.event_id(record)), "--payload").out
    assert '{"card":"sesame"}' in by_event
    plain = json.loads(partbox("dead", "show", str(record), "--json").out)
    assert "payload" not in plain
    assert plain["headers"] == {"trace": "abc"}
    assert json.loads(partbox("dead", "show", str(record), "--payload", "--json").out)["payload"] == {"card": "sesame"}
    raw = plant.park("a", payload=b"\x00\xff")
    assert "2 bytes: --json prints them" in partbox("dead", "show", str(raw), "--payload").out
    assert json.loads(partbox("dead", "show", str(raw), "--payload", "--json").out)["payload_base64"] == "AP8="


def test_show_prints_the_traceback_of_the_handler(partbox, plant):
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 7, in confirm\n    raise ValueError("boom")'
    record = str(plant.park("a", trace=trace + "\x1b[31m"))
    lines = partbox("dead", "show", record).out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[:1] == ["traceback"])
    assert [line.strip().removeprefix("traceback").strip() for line in lines[at : at + 3]] == [
        "Traceback (most recent call last):",
        'File "shop.py", line 7, in confirm',
        r'raise ValueError("boom")\x1b[31m',
    ]
    assert json.loads(partbox("dead", "show", record, "--json").out)["traceback"] == trace + "\x1b[31m"
    assert "traceback" not in partbox("dead", "show", str(plant.park("b"))).out


def test_one_record_is_replayed_or_discarded_without_asking(partbox, plant):
    one, other = plant.park("a"), plant.park("a")
    ran = partbox("dead", "replay", str(one))
    assert ran.out.startswith(
        "replayed 1 dead record: workers deliver them before the waiting events of their aggregates"
    )
    assert partbox("dead", "discard", str(plant.event_id(other)), "--json").out == '{\n  "discarded": 1\n}\n'
    assert plant.states() == {one: "ready", other: "discarded"}


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_without_a_terminal_all_is_refused_unless_yes_is_given(partbox, plant, command):
    records = [plant.park("a", age=7_200), plant.park("b", age=7_200)]
    young = plant.park("b", age=1)
    error = partbox("dead", command, "--all", "--older-than", "1h").error
    assert f"{command} 2 dead records with older than '1h'" in error
    assert "repeat the command with --yes" in error
    assert plant.states() == dict.fromkeys([*records, young], "dead")
    ran = partbox("dead", command, "--all", "--older-than", "1h", "--yes")
    assert (ran.code, ran.out.startswith(f"{command}ed 2 dead records")) == (0, True)
    assert plant.states() == dict.fromkeys(records, "discarded" if command == "discard" else "ready") | {young: "dead"}


def test_at_a_terminal_all_asks_for_confirmation_with_the_count(partbox, plant, at_a_terminal):
    record = plant.park("a")
    at_a_terminal("n\n")
    ran = partbox("dead", "replay", "--all")
    assert (ran.code, ran.out.strip()) == (1, "")
    assert "Replay 1 dead record? [y/N]" in ran.err
    assert "nothing was changed" in ran.err
    assert plant.states() == {record: "dead"}
    at_a_terminal("y\n")
    assert partbox("dead", "replay", "--all").code == 0
    assert plant.states() == {record: "ready"}


def test_a_filter_that_matches_nothing_is_reported_and_exits_with_0(partbox, plant):
    plant.park("a")
    for command, said in [
        (("list", "--type", "Paid"), "no dead record with event type 'Paid' in subscription 'default'\n"),
        (("count", "--type", "Paid"), "0 dead records with event type 'Paid' in subscription 'default'\n"),
        (("replay", "--all", "--type", "Paid"), "no dead record with event type 'Paid' in subscription 'default': "),
        (("discard", "--all", "--type", "Paid"), "no dead record with event type 'Paid' in subscription 'default': "),
    ]:
        ran = partbox("dead", *command)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith(said), command
    assert json.loads(partbox("dead", "replay", "--all", "--type", "Paid", "--json").out) == {"replayed": 0, "left": 0}
    assert partbox("dead", "list", "--type", "Paid", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "0"), "0 is neither a record id"),
        (("show", "no"), "'no' is neither a record id, such as 42, nor an event id"),
        (("show", "4711"), "no dead record 4711 in subscription 'default': `partbox dead list` shows"),
        (("replay", "4711"), "no dead record 4711"),
        (("discard", "00000000-0000-0000-0000-000000000000"), "no dead record of event 00000000"),
        (("replay",), "which records? name one, `partbox dead replay 42`, or say --all"),
        (("discard", "--type", "Placed"), "which records?"),
        (("replay", "42", "--all"), "ID '42' is one record: leave out --all"),
        (("discard", "42", "--older-than", "1h"), "ID '42' is one record"),
        (("list", "--older-than", "soon"), "--older-than 'soon' is no length of time: give seconds, or a text such as"),
        (("count", "--older-than", "-1"), "--older-than '-1' is no length of time"),
        (("list", "--limit", "0"), "limit 0 must be a whole number above 0"),
        (("list", "--type", ""), "--type is empty: name it"),
        (("list", "--aggregate-id", "\udcff"), "lone surrogate"),
        (
            ("count", "--subscription", "audit"),
            "subscription 'audit' does not exist in schema 'partbox': there is 'default'",
        ),
        (("count", "--schema", "nowhere"), "run `partbox init --schema nowhere`"),
        (("replay", "--all", "--yes", "--subscription", "\x1b[31m"), "subscription '\\x1b[31m' does not exist"),
    ],
)
def test_wrong_input_is_one_line_and_changes_nothing(partbox, plant, arguments, said):
    record = plant.park("a")
    assert said in partbox("dead", *arguments).error
    assert (plant.states(), plant.versions()) == ({record: "dead"}, {})


@pytest.mark.parametrize("command", [("list",), ("count",), ("replay", "--all", "--yes"), ("discard", "1")])
def test_an_unreachable_database_is_an_error_and_not_an_empty_list(partbox, command):
    error = partbox("dead", *command, "--dsn", "postgresql://shop:s3cret@127.0.0.1:1/shop").error
    assert "cannot use the database" in error
    assert "s3cret" not in error


def test_control_characters_in_records_are_never_printed(partbox, plant):
    hostile = {"aggregate_type": HOSTILE, "event_type": HOSTILE, "headers": {HOSTILE: HOSTILE}, "payload": HOSTILE}
    record = plant.park(HOSTILE, error=f"E: {HOSTILE}\nsecond line", tenant_id=HOSTILE, **hostile)
    for command in (("list",), ("show", str(record)), ("show", str(record), "--payload")):
        for options in ((), ("--json",)):
            out = partbox("dead", *command, *options).out
            assert all(each.isprintable() for line in out.splitlines() for each in line), (command, options)
    table = "".join(line.strip() for line in partbox("dead", "show", str(record)).out.splitlines())
    assert r"\x1b[31m\x1b]0;owned\x07\r\x9b2J[red]\u202egnp.exe\u2066" in table
    (shown,) = json.loads(partbox("dead", "list", "--json").out)
    assert (shown["aggregate_id"], shown["aggregate_type"]) == (HOSTILE, HOSTILE)
    ran = partbox("dead", "replay", "--all", "--aggregate-id", HOSTILE)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.strip().isprintable()


def test_an_interrupted_replay_says_how_many_records_were_done_and_exits_with_130(partbox, plant, monkeypatch):
    monkeypatch.setattr(dead, "CHUNK_SIZE", 2)
    for key in "aabbc":
        plant.park(key)
    replay, calls = dead.replay, []

    def interrupted(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(arguments)
        return replay(*arguments)

    monkeypatch.setattr(dead, "replay", interrupted)
    ran = partbox("dead", "replay", "--all", "--yes")
    assert (ran.code, ran.out) == (130, "")
    said = "interrupted: replayed 4 of 5 dead records; the same command continues with the others"
    assert ran.err == f"partbox: {said}\n"
    assert sorted(plant.states().values()) == ["dead", *["ready"] * 4]
    calls.clear()
    assert partbox("dead", "replay", "--all", "--yes").out.startswith("replayed 1 dead record")


@contextmanager
def locked(dsn):
    """Every partition is being saved."""
    with psycopg.connect(dsn) as saving:
        saving.execute("select from partbox.partition for no key update")
        yield


def test_ctrl_c_ends_a_replay_that_waits_for_a_lock(plant, dsn, conn, forks):
    """A real process, a real signal."""
    plant.park("a")
    waits = "select 1 from pg_stat_activity where application_name = 'partbox dead' and wait_event_type = 'Lock'"
    with locked(dsn):
        replaying = forks.start("partbox", "dead", "replay", "--all", "--yes")
        try:
            eventually(lambda: replaying.poll() is not None or conn.execute(waits).fetchone())
            assert replaying.poll() is None, replaying.communicate()
            replaying.send_signal(signal.SIGINT)
            out, err = replaying.communicate(timeout=120)
        finally:
            replaying.kill()
    assert (replaying.returncode, out) == (130, "")
    assert err == "partbox: interrupted: replayed 0 of 1 dead records; the same command continues with the others\n"
    assert list(plant.states().values()) == ["dead"]


@pytest.mark.parametrize("command", ["list", "show", "count", "replay", "discard"])
def test_help_teaches_with_an_example(partbox, command):
    ran = partbox("dead", command, "--help")
    assert ran.code == 0
    assert f"Example: partbox dead {command}" in " ".join(ran.out.split())
