"""`partbox actions`."""

import getpass
import json
import socket

import pytest
from planted_records import Planter


@pytest.fixture
def plant(conn, dsn, monkeypatch) -> Planter:
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "200")
    return Planter(conn)


def test_changes_made_by_commands_are_listed_with_the_person_who_made_them(partbox, plant, conn):
    ids = [plant.park(key) for key in "abc"]
    partbox("dead", "replay", str(ids[0]), "--reason", "INC-4711")
    partbox("dead", "discard", "--all", "--aggregate-id", "b", "--yes")
    partbox("subscription", "pause", "default")
    partbox("subscription", "pause", "default")
    ran = partbox("actions")
    header, *rows = ran.out.splitlines()
    assert header.split() == ["at", "who", "action", "subscription", "count", "reason", "on"]
    who = f"{getpass.getuser()}@{socket.gethostname()} as {conn.info.user}"
    assert [row.split(who)[1].split() for row in rows] == [
        ["subscription", "pause", "default", "1", "-"],
        ["dead", "discard", "default", "1", "-", "aggregate", "id", "b,", "record", "ids", str(ids[1])],
        ["dead", "replay", "default", "1", "INC-4711", "record", "ids", str(ids[0])],
    ]
    assert (ran.code, ran.err) == (0, "")
    newest, discard, replay = json.loads(partbox("actions", "--json").out)
    assert (newest["action"], newest["who"], newest["count"], newest["target"]) == ("subscription pause", who, 1, {})
    assert (newest["reason"], replay["reason"]) == (None, "INC-4711")
    assert discard["target"] == {"record_ids": [ids[1]], "filters": {"aggregate_id": "b"}}


def test_a_command_takes_no_blank_reason_and_changes_nothing(partbox, plant):
    ran = partbox("dead", "discard", "--all", "--yes", "--reason", " ")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "partbox: reason ' ' must be a text that says why, such as 'INC-4711: a bad deploy'\n"


@pytest.mark.parametrize(
    "command",
    [
        "cancel", "import", "purge", "rebase", "dead replay", "dead discard", "blocked retry", "blocked skip",
        "limit set", "limit reset", "subscription create", "subscription pause", "subscription resume",
        "subscription replay", "subscription drop",
    ],
)  # fmt: skip
def test_every_command_whose_changes_are_listed_takes_a_reason(partbox, command):
    assert "--reason" in partbox(*command.split(), "--help").out


def test_filters_select_actions_and_a_truncated_list_says_that_more_exist(partbox, plant):
    for key in "abc":
        plant.park(key)
    partbox("dead", "discard", "--all", "--yes")
    partbox("subscription", "pause", "default")
    assert "discard" not in partbox("actions", "--action", "pause").out
    assert "pause" not in partbox("actions", "--action", "dead discard", "--subscription", "default").out
    assert partbox("actions", "--limit", "1").out.endswith("\nthe 1 newest: --limit shows more\n")
    assert "the 2 newest" not in partbox("actions", "--limit", "3").out
    assert partbox("actions", "--until", "1h").out == "no action with until '1h'\n"
    assert partbox("actions", "--action", "rebase").out == "no action with action 'rebase'\n"
    assert partbox("actions", "--until", "1h", "--json").out == "[]\n"


def test_an_action_on_many_records_names_only_the_first_ones(partbox, plant):
    ids = [plant.park(str(key)) for key in range(12)]
    partbox("dead", "replay", "--all", "--yes")
    assert f"record ids {', '.join(map(str, ids[:8]))} and 4 more" in partbox("actions").out
    (told,) = json.loads(partbox("actions", "--json").out)
    assert told["target"]["record_ids"] == ids
