"""`partbox subscription …`."""

import io
import json
import sys

import pytest

from partbox import Outbox


@pytest.fixture
def command(partbox, dsn, monkeypatch):
    """Runs `partbox subscription …` on the test's database."""
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    return lambda *arguments: partbox("subscription", *arguments)


@pytest.fixture
def published(dsn, conn) -> None:
    """Three events, which the default subscription has consumed."""
    outbox = Outbox(dsn)
    with conn.transaction():
        for number in range(3):
            outbox.publish(conn, "Step", number, aggregate_type="A", aggregate_id=str(number))
    conn.execute("update partbox.partition set snapshot = pg_current_snapshot(), last_id = 3, floor_id = 3")


@pytest.fixture
def terminal(monkeypatch):
    """Somebody sits at a terminal and types this."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    return lambda typed: monkeypatch.setattr(sys, "stdin", Terminal(typed))


def names(conn) -> list[str]:
    return [name for (name,) in conn.execute("select name from partbox.subscription order by name")]


def last_ids(conn, subscription: str = "default") -> set[int]:
    rows = conn.execute("select last_id from partbox.partition where subscription = %s", [subscription])
    return {last_id for (last_id,) in rows}


def instance(conn, subscription: str) -> None:
    conn.execute(
        "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
        " values (%s, 'node-a', 'h', 4711, '0', '60 s')",
        [subscription],
    )


def test_a_subscription_is_made_shown_paused_resumed_and_dropped(command, conn, published):
    made = command("create", "audit")
    assert made.out == "created subscription audit: partbox worker MODULE:OUTBOX --subscription audit delivers\n"
    command("create", "urgent", "--from", "now", "--type", "Paid", "--type", "Failed")
    assert command("pause", "audit").out == (
        "paused subscription audit: `partbox subscription resume audit` resumes it\n"
    )
    assert command("pause", "audit").out == "subscription audit is paused already: nothing to do\n"
    head, *lines = [line.split() for line in command("list").out.splitlines()]
    assert head == ["name", "created", "paused", "since", "types", "instances", "pending", "parked", "dead"]
    assert [(line[0], line[-5:]) for line in lines] == [
        ("audit", ["all", "0", "3", "0", "0"]),
        ("default", ["all", "0", "0", "0", "0"]),
        ("urgent", ["Paid", "0", "0", "0", "0"]),
    ]
    assert command("resume", "audit").out == "resumed subscription audit: its workers go on within a heartbeat\n"
    assert command("resume", "audit").out == "subscription audit is not paused: nothing to do\n"
    assert command("drop", "audit", "--yes").out == "dropped subscription audit\n"
    assert names(conn) == ["default", "urgent"]


def test_every_subscription_command_prints_json(command, conn, published):
    assert json.loads(command("create", "audit", "--type", "Paid", "--json").out) == {"created": "audit"}
    assert json.loads(command("pause", "audit", "--json").out) == {"paused": True}
    audit, default = json.loads(command("list", "--json").out)
    assert (audit["name"], audit["types"], audit["pending"]) == ("audit", ["Paid"], 3)
    assert audit["paused_at"] is not None
    assert default == default | {"name": "default", "types": None, "paused_at": None, "instances": 0, "exact": True}
    assert json.loads(command("resume", "audit", "--json").out) == {"resumed": True}
    assert json.loads(command("replay", "default", "--from", "2", "--yes", "--json").out) == {"partitions": 256}
    assert json.loads(command("drop", "audit", "--yes", "--json").out) == {"dropped": "audit"}


def test_a_subscription_can_be_created_from_a_given_time(command, conn, published):
    (since,) = conn.execute("select created_at from partbox.record where id = 3").fetchone()
    command("create", "audit", "--from", since.isoformat())
    assert json.loads(command("list", "--json").out)[0]["pending"] == 1


def test_replay_starts_from_a_given_record_id_or_time(command, conn, published):
    said = "256 partitions of 256 set back: from record 3 on everything is delivered again\n"
    assert command("replay", "default", "--from", "3", "--yes").out == said
    assert last_ids(conn) == {2}
    (since,) = conn.execute("select created_at from partbox.record where id = 2").fetchone()
    ran = command("replay", "default", "--from", since.isoformat(), "--yes")
    assert (ran.code, "is delivered again" in ran.out) == (0, True)
    assert last_ids(conn) == {1, 2}
    ran = command("replay", "default", "--from", "3", "--yes")
    assert ran.out == "nothing was delivered from record 3 on: nothing to replay\n"


def test_without_a_terminal_a_replay_and_a_drop_need_a_yes(command, conn, published):
    for arguments in (["replay", "default", "--from", "1"], ["drop", "default"]):
        assert "there is no terminal to ask on: repeat the command with --yes" in command(*arguments).error
    assert (names(conn), last_ids(conn)) == (["default"], {3})


def test_at_a_terminal_replay_and_drop_ask_for_confirmation(command, conn, published, terminal):
    command("create", "audit")
    terminal("n\n")
    refused = command("drop", "audit")
    assert (refused.code, "nothing was changed" in refused.err) == (1, True)
    assert "Drop subscription 'audit' with its progress and its parked and dead records, for good?" in refused.err
    assert names(conn) == ["audit", "default"]
    terminal("n\n")
    assert command("replay", "default", "--from", "1").code == 1
    assert last_ids(conn) == {3}
    terminal("y\n")
    assert command("replay", "default", "--from", "1").code == 0
    assert last_ids(conn) == {0}
    terminal("y\n")
    assert command("drop", "audit").code == 0
    assert names(conn) == ["default"]


@pytest.mark.parametrize(("typed", "left"), [("y\n", ["default"]), ("drop default\n", [])])
def test_the_default_subscription_is_dropped_only_after_drop_default_is_typed(command, conn, terminal, typed, left):
    terminal(typed)
    ran = command("drop", "default")
    assert "belongs to 'default' and gets no event any more" in ran.err
    assert (ran.code == 0, names(conn)) == (not left, left)
    assert ("nothing was changed" in ran.err) == bool(left)


def test_with_the_option_yes_the_default_subscription_is_dropped_without_a_question(command, conn):
    assert command("drop", "default", "--yes").code == 0
    assert command("list").out == "no subscription: `partbox subscription create NAME` makes one\n"


def test_a_drop_or_replay_that_times_out_names_the_obstacle_and_the_subscription_goes_on(command, conn, published):
    command("create", "audit")
    instance(conn, "audit")
    error = command("drop", "audit", "--yes", "--timeout", "100ms").error
    assert "after 0.1 s worker processes are still running: node-a 4711. Stop them" in error
    assert error.endswith("; nothing was changed, and delivery goes on")
    conn.execute("update partbox.partition p set owner = instance_id from partbox.instance where p.partition < 7")
    error = command("replay", "default", "--from", "1", "--yes", "--timeout", "100ms").error
    assert "7 partitions are still owned by a dead process" in error or "node-a 4711" in error
    assert not any(each["paused_at"] for each in json.loads(command("list", "--json").out))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "default"], "'default' exists already in schema 'partbox': choose another name, or drop it"),
        (["create", ""], "NAME is empty: name it"),
        (["create", "x" * 200], "has 200 characters, above 100: shorten it"),
        (["create", "a\x1b[31m"], "control characters: rename it"),
        (["create", "a", "--from", "yesterday"], "--from 'yesterday' is no time: write it in ISO 8601, such as"),
        (["create", "a", "--from", "2026-01-31T09:00"], "has no time zone: give it one, such as 2026-01-31T09:00:00Z"),
        (["create", "a", "--from", "2999-01-01T00:00Z"], "lies in the future"),
        (["create", "a", "--type", ""], "--type is empty: name it"),
        (["pause", "audit"], "'audit' does not exist in schema 'partbox': there is 'default'"),
        (["resume", "audit"], "'audit' does not exist in schema 'partbox': there is 'default'"),
        (["drop", "audit", "--yes"], "'audit' does not exist in schema 'partbox': there is 'default'"),
        (["drop", "default", "--yes", "--timeout", "soon"], "timeout 'soon' is no length of time"),
        (["replay", "audit", "--from", "1", "--yes"], "'audit' does not exist"),
        (["replay", "default", "--from", "0", "--yes"], "--from 0 is no record id"),
        (["replay", "default", "--from", "9" * 5000, "--yes"], "is no record id: record ids are whole numbers from 1"),
        (["replay", "default", "--from", "4", "--yes"], "record 4 does not exist yet: the newest is record 3"),
        (["replay", "default", "--from", "-1", "--yes"], "--from '-1' is no time: write it in ISO 8601"),
        (["replay", "default", "--from", "2026-01-31", "--yes"], "has no time zone: give it one"),
        (["replay", "default", "--from", "2999-01-01T00:00Z", "--yes"], "lies in the future"),
        (["replay", "default", "--from", "1", "--yes", "--timeout", "soon"], "timeout 'soon' is no length of time"),
    ],
)
def test_wrong_input_is_refused_in_one_line_and_changes_nothing(command, conn, published, arguments, said):
    before = conn.execute("select * from partbox.partition order by partition").fetchall()
    assert said in command(*arguments).error
    assert names(conn) == ["default"]
    assert conn.execute("select * from partbox.partition order by partition").fetchall() == before
    assert conn.execute("select paused_at from partbox.subscription").fetchall() == [(None,)]


@pytest.mark.parametrize("arguments", [["create"], ["replay", "default", "--yes"], ["pause"]])
def test_missing_arguments_exit_with_code_2(command, arguments):
    assert command(*arguments).code == 2


@pytest.mark.parametrize("name", ["create", "list", "pause", "resume", "replay", "drop"])
def test_every_command_explains_itself_by_an_example(command, name):
    assert f"partbox subscription {name}" in command(name, "--help").out


def test_a_database_that_cannot_be_reached_is_one_line(partbox):
    ran = partbox("subscription", "list", "--dsn", "host=/nowhere dbname=x")
    assert "cannot use the database" in ran.error
