"""`partbox purge`, and the schemas that need it: writer-only ones, and those with nothing but an inbox."""

import json
import os
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest
from forked_commands import Command
from waiting import eventually

from partbox.db.schema.migrate import migrate

PLANT = """
insert into partbox.record (partition, event_id, event_type, payload, created_at)
select g %% 256, gen_random_uuid(), 'Placed', '{}', now() - interval '8 days' from generate_series(1, %s) g
"""


@pytest.fixture
def plant(conn) -> Callable[[int], None]:
    """Plants so many old records that everybody is through with."""

    def plant(count: int) -> None:
        conn.execute(PLANT, [count])
        conn.execute(
            "update partbox.partition set last_id = g, floor_id = g, snapshot = pg_current_snapshot()"
            " from (select max(id) g from partbox.record) r"
        )

    return plant


@pytest.fixture
def started(dsn, forks) -> Iterator[Callable[..., Command]]:
    """Starts `partbox purge …` as a process; it is ended with the test."""
    processes: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        processes.append(
            forks.start("partbox", "purge", *arguments, env=os.environ | {"PARTBOX_DSN": dsn} | environment)
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def left(conn) -> int:
    return conn.execute("select count(*) from partbox.record").fetchone()[0]


def test_purge_says_what_it_would_delete_and_what_it_deleted(partbox, dsn, conn, plant):
    plant(1_200)
    conn.execute("insert into partbox.idempotency select 'k', gen_random_uuid(), now() - interval '8 days'")
    dry = partbox("purge", "--dry-run", "--dsn", dsn)
    assert (dry.code, dry.out, dry.err) == (0, "would purge 1,200 records, 1 idempotency key\n", "")
    assert left(conn) == 1_200
    assert partbox("purge", "--dsn", dsn).out == "purged 1,200 records, 1 idempotency key\n"
    assert left(conn) == 0
    assert partbox("purge", "--dsn", dsn).out == "nothing has expired\n"


def test_purge_speaks_json(partbox, dsn, plant):
    plant(3)
    went = {"records": 3, "dead": 0, "keys": 0, "history": 0, "inbox": 0}
    went |= {"segments": 0, "freed": 0, "complete": True}
    went |= {"archived": 0, "files": 0, "unarchived": None, "waiting": None, "untended": None}
    asked = json.loads(partbox("purge", "--json", "--dry-run", "--dsn", dsn).out)
    assert asked == went | {"dry_run": True, "held": {}}
    assert json.loads(partbox("purge", "--json", "--dsn", dsn).out) == went | {"dry_run": False}


def test_purge_follows_the_settings(partbox, dsn, conn, plant, monkeypatch):
    plant(3)
    monkeypatch.setenv("PARTBOX_RETAIN_DONE", "9d")
    assert partbox("purge", "--dsn", dsn).out == "nothing has expired\n"
    monkeypatch.setenv("PARTBOX_RETAIN_DONE", "soon")
    assert "setting retain_done = soon (from PARTBOX_RETAIN_DONE) is invalid" in partbox("purge", "--dsn", dsn).error
    assert left(conn) == 3


def test_a_purge_that_a_subscription_keeps_from_everything_says_so_and_ends_with_1(partbox, dsn, conn, plant):
    plant(3)
    conn.execute("update partbox.partition set last_id = 0")
    ran = partbox("purge", "--dsn", dsn)
    assert (ran.code, ran.out.splitlines()[0]) == (1, "nothing was purged")
    assert "subscription 'default' has not consumed it yet: partition 0 is at id 0" in ran.out
    assert partbox("purge", "--dry-run", "--dsn", dsn).code == 0


def test_a_purge_while_another_one_runs_says_so(partbox, dsn, conn, plant):
    plant(3)
    with psycopg.connect(dsn) as other:
        other.execute("select partbox.locked('purge')")
        ran = partbox("purge", "--dsn", dsn)
        assert (ran.code, ran.out) == (0, "nothing was purged\n")
        assert "not complete: another purge, or a change of subscriptions, is running" in ran.err
        assert left(conn) == 3


@pytest.mark.parametrize("every", ["soon", "", "-1", "nan", "1x", "0"])
def test_an_invalid_interval_is_refused_and_nothing_is_purged(partbox, dsn, conn, plant, every):
    plant(3)
    error = partbox("purge", "--every", every, "--dsn", dsn).error
    assert f"--every {every!r}" in error
    assert left(conn) == 3


def test_contradictory_options_are_refused_and_nothing_goes(partbox, dsn, conn, plant):
    plant(3)
    assert "leave --every out" in partbox("purge", "--every", "1m", "--dry-run", "--dsn", dsn).error
    assert "give one of them" in partbox("init", "--writer-only", "--inbox-only", "--dsn", dsn).error
    assert partbox("purge", "--bogus").code == 2
    assert left(conn) == 3


@pytest.mark.parametrize("arguments", [[], ["--dry-run"], ["--every", "1h"]])
def test_a_purge_that_is_not_possible_is_refused_in_one_line(partbox, empty_dsn, arguments):
    assert "run `partbox init`" in partbox("purge", *arguments, "--dsn", empty_dsn).error
    assert "cannot use the database" in partbox("purge", *arguments, "--dsn", "host=127.0.0.1 port=1").error
    assert "PARTBOX_DSN" in partbox("purge", *arguments).error
    assert "does not exist" in partbox("purge", *arguments, "--dsn", empty_dsn, "--schema", "nowhere").error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_purge_after_the_current_batch_and_reports_what_was_deleted(started, conn, plant, number):
    plant(5_000)
    process = started("--json", PARTBOX_PURGE_BATCH="1")
    eventually(lambda: left(conn) < 4_900)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    went = json.loads(out)
    assert went["records"] == 5_000 - left(conn) < 5_000
    assert went["complete"] is False
    assert err == "partbox: interrupted: the same command continues with the rest\n"


def test_a_purge_shows_its_progress_on_a_terminal(started, plant):
    plant(600)
    out, err = started(PARTBOX_PURGE_BATCH="1", FORCE_COLOR="1").communicate(timeout=120)
    assert out == "purged 600 records\n"
    assert "records so far" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_purge_with_an_interval_repeats_until_it_is_stopped(started, conn, plant, number):
    plant(10)
    process = started("--every", "100ms")
    eventually(lambda: left(conn) == 0)
    plant(20)
    eventually(lambda: left(conn) == 0)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == ["purged 10 records", "purged 20 records"]


def test_a_purge_with_an_interval_goes_on_after_a_later_failure(started, conn, plant):
    plant(10)
    process = started("--every", "50ms", "--json")
    first = process.stdout.readline()  # what the first purge raises would end it
    conn.execute("alter schema partbox rename to away")
    line = process.stderr.readline()
    assert "purge failed, expired data stays until the next purge in 50ms: schema 'partbox' does not exist" in line
    conn.execute("alter schema away rename to partbox")
    plant(20)
    eventually(lambda: left(conn) == 0)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert sum(json.loads(line)["records"] for line in [first, *out.splitlines()]) == 30


def test_a_writer_only_outbox_is_made_shown_and_purged(partbox, empty_dsn):
    made = partbox("init", "--writer-only", "--dsn", empty_dsn)
    assert "schema 'partbox' is ready, writer-only: without a subscription: applied 0014_baseline" in made.out
    shown = partbox("status", "--dsn", empty_dsn)
    assert shown.code == 0
    assert "schema partbox is writer-only: it has no subscription" in shown.out
    plain = json.loads(partbox("status", "--json", "--dsn", empty_dsn).out)
    assert plain == {"schema": "partbox", "subscription": None, "writer_only": True}
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(PLANT, [7])
    assert partbox("purge", "--dsn", empty_dsn).out == "purged 7 records\n"
    assert "nothing to do" in partbox("init", "--writer-only", "--dsn", empty_dsn).out


def test_an_outbox_with_subscriptions_does_not_become_writer_only(partbox, dsn, conn):
    error = partbox("init", "--writer-only", "--dsn", dsn).error
    assert "has subscriptions (default)" in error
    assert "nothing was changed" in error
    assert conn.execute("select name from partbox.subscription").fetchall() == [("default",)]


def test_a_worker_of_a_writer_only_outbox_is_refused_in_one_line_and_begins_after_the_remedy(partbox, empty_dsn, here):
    migrate(empty_dsn, writer_only=True)
    quiet = 'from partbox import Outbox\n\noutbox = Outbox()\noutbox.register(print, "Placed")\n'
    (here / "quiet.py").write_text(quiet)
    ran = partbox("worker", "quiet:outbox", "--processes", "1", "--dsn", empty_dsn)
    assert ran.code == 1
    assert "`partbox subscription create default`" in ran.err
    assert partbox("subscription", "create", "default", "--dsn", empty_dsn).code == 0
    ended = partbox("worker", "quiet:outbox", "--processes", "1", "--until-empty", "--dsn", empty_dsn)
    assert ended.code == 0, ended.err


def test_an_inbox_only_schema_can_be_created_purged_and_completed_to_an_outbox(partbox, empty_dsn):
    made = partbox("init", "--inbox-only", "--dsn", empty_dsn)
    assert made.out == "schema 'partbox' is ready: it holds nothing but an inbox\n"
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("insert into partbox.inbox select 'c', gen_random_uuid(), now() - interval '31 days'")
    assert partbox("purge", "--dsn", empty_dsn).out == "purged 1 inbox row\n"
    for command in (["status"], ["migrate"]):
        assert "`partbox init`" in partbox(*command, "--dsn", empty_dsn).error
    assert "is ready: applied 0014_baseline" in partbox("init", "--dsn", empty_dsn).out
    assert partbox("status", "--dsn", empty_dsn).code == 0
    assert "is a whole outbox already, which has an inbox" in partbox("init", "--inbox-only", "--dsn", empty_dsn).out


def test_help_teaches_with_an_example(partbox):
    shown = partbox("purge", "--help")
    assert "Example: partbox purge --dry-run" in shown.out
    assert "--every" in shown.out
