"""`partbox import`: another outbox's table becomes records, each row once, while it is written to."""

import json
import os
import signal
from contextlib import contextmanager

import psycopg
import pytest
from forked_commands import Command
from psycopg.conninfo import make_conninfo
from waiting import eventually

from partbox import Outbox

TABLE = """
create table outbox (
    id         bigserial   primary key,
    kind       text        not null,
    entity_id  text        not null,
    body       jsonb       not null,
    status     text        not null default 'new',
    error      text,
    tries      integer     not null default 0,
    created_at timestamptz not null default now()
)
"""
PLAN = (
    "--table", "public.outbox",
    "--map", "event_type=kind", "--map", "payload=body", "--map", "aggregate_id=entity_id",
    "--map", "occurred_at=created_at", "--map", "error=error", "--map", "attempts=tries",
    "--set", "aggregate_type=Order",
    "--status", "status", "--pending", "new,retry", "--failed", "failed", "--done", "sent",
)  # fmt: skip
ROWS = """
insert into outbox (kind, entity_id, body, status, error, tries, created_at)
select 'Placed', g %% 3, jsonb_build_object('n', g),
       (array['new', 'retry', 'sent', 'new', 'failed'])[g %% 5 + 1],
       case when g %% 5 = 4 then 'ValueError: no card' end, g %% 5, timestamptz '2026-01-01 00:00Z' + g * interval '1 s'
  from generate_series(1, %s) as g
"""
MANY = """
insert into outbox (kind, entity_id, body) select 'Placed', g %% 7, jsonb_build_object('n', g)
  from generate_series(1, %s) as g
"""


@pytest.fixture
def run(partbox, conn, monkeypatch, dsn):
    """Runs `partbox import` on the table of the tests."""
    conn.execute(TABLE)
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    return lambda *more: partbox("import", *PLAN, *more)


@pytest.fixture
def started(conn, dsn, forks):
    """Starts the same as a process, ended with the test."""
    conn.execute(TABLE)
    processes: list[Command] = []

    def start(*more: str) -> Command:
        processes.append(forks.start("partbox", "import", *PLAN, *more, env=os.environ | {"PARTBOX_DSN": dsn}))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def numbers(conn, where="true") -> list[int]:
    """The payloads of the log, in the order of its ids."""
    rows = conn.execute(f"select (payload ->> 'n')::int from partbox.record where {where} order by id")
    return [number for (number,) in rows]


def test_pending_rows_become_records_in_order_failed_ones_dead_and_done_ones_are_left(run, conn, dsn):
    conn.execute(ROWS, [10])
    done = run()
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "imported 6 pending records and 2 dead ones from public.outbox; left: 2 done\n"
        "nothing is left in public.outbox\n"
    )
    assert numbers(conn) == [1, 3, 4, 5, 6, 8, 9, 10]
    record = conn.execute(
        "select event_type, aggregate_type, aggregate_id, occurred_at = '2026-01-01 00:00:01Z',"
        " partition = partbox.partition_of('1') from partbox.record order by id limit 1"
    ).fetchone()
    assert record == ("Placed", "Order", "1", True, True)
    dead = Outbox(dsn).dead.list()
    assert [(each.error_type, each.error, each.attempts, each.aggregate_id) for each in dead] == [
        ("ValueError", "no card", 4, "1"),
        ("ValueError", "no card", 4, "0"),
    ]


def test_a_repeated_import_takes_only_new_rows(run, conn):
    conn.execute(ROWS, [5])
    run()
    again = run()
    assert again.out.startswith("imported 0 pending records from public.outbox; left: 1 done, 4 imported before\n")
    # A row that is changed is no new row.
    conn.execute("update outbox set status = 'retry', tries = tries + 1 where status <> 'sent'")
    conn.execute(MANY, [2])
    assert run().out.startswith("imported 2 pending records")
    assert len(numbers(conn)) == 6


def test_workers_deliver_imported_pending_rows_in_order_and_failed_rows_only_after_a_replay(run, conn, dsn):
    conn.execute(ROWS, [50])
    outbox, seen = Outbox(dsn), []
    outbox.on("Placed")(lambda event: seen.append((event.aggregate_id, event.payload["n"])))
    with outbox.worker() as worker:
        owned = "select from partbox.partition where owner is not null and subscription = 'default'"
        eventually(lambda: conn.execute(owned).rowcount == 256)  # so it has read which rows were parked before
        assert run().code == 0
        assert worker.wait_until_empty(120)
    assert len(seen) == 30
    for key in "012":
        of_key = [number for each, number in seen if each == key]
        assert of_key == sorted(of_key)
    assert not {number for _, number in seen if number % 5 in (2, 4)}
    assert outbox.dead.count() == 10
    assert outbox.dead.replay_all() == 10
    assert outbox.drain()
    assert len(seen) == 40
    assert outbox.dead.count() == 0


def test_a_record_imported_as_dead_cannot_be_replayed_before_a_worker_has_passed_it(run, conn, dsn, partbox):
    conn.execute(ROWS, [4])
    run()
    outbox = Outbox(dsn)
    (dead,) = outbox.dead.list()
    error = partbox("dead", "replay", str(dead.record_id)).error
    assert "no saved cursor has passed it yet" in error
    said = partbox("dead", "replay", "--all", "--yes").out
    assert said.startswith("replayed 0 dead records")
    assert "1 dead record left, which no saved cursor has passed yet" in said
    outbox.on("Placed")(lambda event: None)
    assert outbox.drain()
    assert [each.record_id for each in outbox.dead.list()] == [dead.record_id]
    assert outbox.dead.replay(dead.record_id) == 1
    assert outbox.drain()
    assert outbox.dead.count() == 0


@pytest.mark.parametrize("letters", [1, 9_999])
def test_a_later_subscription_from_the_beginning_also_gets_failed_rows_as_dead(run, conn, dsn, letters):
    """However large its headers are, which say so."""
    conn.execute(ROWS, [4])
    run()
    large = "jsonb_build_object('a', (select string_agg(md5(n::text), '') from generate_series(1, %s) n))"
    conn.execute(f"update partbox.record set headers = coalesce(headers::jsonb, '{{}}') || {large}", [letters])
    outbox, seen = Outbox(dsn), []
    outbox.subscriptions.create("audit", start="beginning")
    outbox.on("*", subscription="audit")(lambda event: seen.append(event.payload["n"]))
    assert outbox.drain(subscription="audit")
    assert sorted(seen) == [1, 3]
    (dead,) = outbox.dead.list(subscription="audit")
    assert dead.error == (
        "the event had failed in the table that it was imported from, before this subscription reached it"
    )
    assert outbox.dead.replay(dead.record_id, subscription="audit") == 1
    assert outbox.drain(subscription="audit")
    assert sorted(seen) == [1, 3, 4]


def test_a_row_that_commits_late_with_a_lower_id_is_imported_by_the_next_run(run, conn, dsn):
    with psycopg.connect(dsn, application_name="slow writer") as slow:
        slow.execute(MANY, [1])
        conn.execute(MANY, [3])
        first = run()
        assert first.out.startswith("imported 3 pending records")
        assert f"the transaction of pid {slow.info.backend_pid} (slow writer), open for " in first.out
        assert "nothing is left" not in first.out
    second = run()
    assert second.out == (
        "imported 1 pending record from public.outbox; left: 3 imported before\nnothing is left in public.outbox\n"
    )
    assert len(numbers(conn)) == 4
    assert run("--json", "--dry-run").code == 0


def test_a_dry_run_shows_the_first_rows_and_what_is_wrong_and_writes_nothing(run, conn):
    conn.execute(ROWS, [5])
    conn.execute("insert into outbox (kind, entity_id, body) values ('', 1, '{}')")
    dry = run("--dry-run")
    assert dry.code == 0
    said, header, *rows = dry.out.splitlines()
    assert said == (
        "would import 3 pending records and 1 dead one from public.outbox; left: 1 done, 1 that cannot be records"
    )
    assert header.split() == ["row", "becomes", "type", "aggregate", "occurred", "payload"]
    assert rows[0].split() == ["1", "pending", "Placed", "Order", "1", "2026-01-01", "00:00:01Z", "JSON,", "8", "bytes"]
    assert dry.err == "row 6: event_type is empty: name it\n"
    assert numbers(conn) == []
    assert conn.execute("select from partbox.imported").rowcount == 0
    found = json.loads(run("--dry-run", "--json").out)
    assert (found["pending"], found["dead"], found["bad"], found["first"][2]["becomes"]) == (3, 1, 1, "dead")


def test_a_row_that_cannot_become_a_record_is_named_and_can_be_skipped(run, conn):
    conn.execute(MANY, [2])
    conn.execute("insert into outbox (kind, entity_id, body) values ('', 1, '{}')")
    error = run().error
    assert "row 3 of public.outbox cannot be imported: event_type is empty: name it; 0 rows before" in error
    assert numbers(conn) == []
    skipped = run("--skip-bad")
    assert skipped.code == 0
    assert skipped.out == "imported 2 pending records from public.outbox; left: 1 that cannot be records\n"
    assert skipped.err == "row 3: event_type is empty: name it\n"
    conn.execute("update outbox set kind = 'Placed' where kind = ''")
    assert run().out.startswith("imported 1 pending record from")


def test_a_row_that_a_trigger_keeps_out_of_the_log_is_not_taken_for_imported(run, conn):
    conn.execute(ROWS, [20])
    conn.execute(
        "create function partbox.drops() returns trigger language plpgsql as"
        " $$ begin return case when new.payload ->> 'n' <> '13' then new end; end $$;"
        "create trigger drops before insert on partbox.record for each row execute function partbox.drops()"
    )
    done = run()
    assert (done.code, numbers(conn)) == (1, [])
    assert "keeps out what is published: nothing was" in done.err
    conn.execute("drop trigger drops on partbox.record")
    assert (run().code, numbers(conn)) == (0, [n for n in range(1, 21) if n % 5 != 2])


def test_an_import_with_rows_of_an_unknown_status_is_refused(run, conn):
    conn.execute(MANY, [2])
    conn.execute("update outbox set status = 'parked' where id = 2")
    assert "there are rows with status 'parked', which the command does not name" in run().error
    assert numbers(conn) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--map", "event_typ=kind"), "'event_typ' is not a field of an event: is 'event_type' meant?"),
        (("--map", "created_at=created_at"), "map occurred_at"),
        (("--map", "tenant_id=tenent"), "has no column 'tenent'"),
        (("--map", "tenant_id"), "must be FIELD=COLUMN"),
        (("--set", "payload=1"), "payload is both a column and a constant"),
        (("--where", "nonsense = 1"), 'column "nonsense" does not exist'),
        (("--where", "true) --"), "syntax error"),
        (("--done", "new"), "status 'new' is named twice"),
        (("--table", "nowhere"), "table 'nowhere' does not exist in this database"),
        (("--table", "a.b.c.d"), "'a.b.c.d' is not a table name"),
    ],
)
def test_wrong_import_options_are_refused_in_one_line(run, conn, options, said):
    conn.execute(MANY, [1])
    assert said in run(*options).error
    assert numbers(conn) == []


def test_an_import_with_a_key_that_is_not_unique_is_refused_and_loses_no_row(run, conn):
    conn.execute(MANY, [20])
    error = run("--key", "entity_id", "--order", "id").error
    assert "several rows of public.outbox have the key" in error
    assert numbers(conn) == []
    conn.execute("create table keyless (kind text, body json)")
    said = run("--table", "keyless").error
    assert "has no column 'entity_id'" in said or "has no primary key" in said


def test_table_and_column_names_that_look_like_sql_are_quoted(partbox, conn, dsn):
    conn.execute("""create schema "My %s" """)
    conn.execute(
        """create table "My %s"."Out; drop table x --" ("Id %" uuid primary key, "a ""{b}" text, at timestamptz,
           text jsonb, key int)"""
    )
    conn.execute(
        """insert into "My %s"."Out; drop table x --" values (gen_random_uuid(), 'Second', now(), '1', 1),
           (gen_random_uuid(), 'First', now() - interval '1 h', '{"a": "100% {sure}"}', 2)"""
    )
    done = partbox(
        "import", "--dsn", dsn, "--table", '"My %s"."Out; drop table x --"', "--map", 'event_type=a "{b}',
        "--map", "payload=text", "--map", "event_id=Id %", "--order", "at",
        "--where", """text::text not like 'x%' and '{' <> '}'""",
    )  # fmt: skip
    assert done.out.startswith('imported 2 pending records from "My %s"."Out; drop table x --"')
    assert conn.execute("select event_type, payload::text from partbox.record order by id").fetchall() == [
        ("First", '{"a": "100% {sure}"}'),
        ("Second", "1"),
    ]


def test_a_role_that_may_only_read_the_table_can_import_it(run, conn, dsn, partbox):
    conn.execute(MANY, [2])
    name = f"importer_{os.getpid()}"
    conn.execute(f"create role {name} login")
    try:
        limited = make_conninfo(dsn, user=name)
        assert partbox("init", "--dsn", dsn, "--publisher-role", name, "--worker-role", name).code == 0
        assert "cannot be read: grant select" in run("--dsn", limited).error
        conn.execute(f"grant select on outbox to {name}")
        conn.execute("insert into outbox (kind, entity_id, body, status) values ('Placed', 1, '{}', 'failed')")
        assert run("--dsn", limited).out.startswith("imported 2 pending records and 1 dead one")
    finally:
        conn.execute(f"drop owned by {name}")
        conn.execute(f"drop role {name}")


def test_an_import_of_failed_rows_into_an_outbox_without_subscriptions_is_refused(partbox, conn, dsn, monkeypatch):
    conn.execute(TABLE)
    conn.execute(ROWS, [5])
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    partbox("init", "--schema", "written", "--writer-only")
    error = partbox("import", *PLAN, "--schema", "written").error
    assert "schema 'written' has no subscription in which a failed row could become a dead record" in error


@contextmanager
def held_up(dsn, moment: str):
    """While it lasts, whoever notes `moment` as imported waits; gives what tells whether somebody does."""
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as watcher:
        holder.execute("insert into partbox.imported values ('public.outbox', %s)", [moment])

        def waited_for() -> bool:
            text = "select from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
            return watcher.execute(text, [holder.info.backend_pid]).rowcount > 0

        yield waited_for
        holder.rollback()


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.thorough) for each in (signal.SIGTERM, signal.SIGINT))],
)
def test_an_import_that_was_stopped_or_killed_continues_without_importing_a_row_twice(started, conn, dsn, number):
    conn.execute(MANY, [12_000])
    with held_up(dsn, "7000") as waited_for:  # a row of the second batch
        process = started()
        eventually(waited_for)
        os.kill(process.pid, number)
        if number == signal.SIGKILL:
            process.wait()
    out, err = process.communicate()
    there = numbers(conn)
    if number == signal.SIGKILL:
        assert there == [*range(1, 5_001)]
    else:
        assert process.wait() == 130
        assert "interrupted: the same command continues with the rest" in err
        assert there == [*range(1, 10_001)]
    again = started()
    out, err = again.communicate()
    assert "nothing is left in public.outbox" in out, err
    assert numbers(conn) == [*range(1, 12_001)]


def test_a_second_import_of_the_same_table_is_refused_while_the_first_runs(started, conn, dsn):
    conn.execute(MANY, [10])
    with held_up(dsn, "1") as waited_for:
        first = started()
        eventually(waited_for)
        second = started()
        _, err = second.communicate()
        assert "another import of public.outbox is running" in err
        assert second.wait() == 1
    first.communicate()
    assert numbers(conn) == [*range(1, 11)]


def test_an_import_that_follows_takes_newly_committed_rows_until_it_is_stopped(started, conn, dsn):
    process = started("--follow")
    with psycopg.connect(dsn) as slow:
        slow.execute(MANY, [1])
        conn.execute(MANY, [2])
        eventually(lambda: len(numbers(conn)) == 2)
        slow.commit()
    eventually(lambda: len(numbers(conn)) == 3)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate()
    assert process.wait() == 0
    assert "imported 1 pending record from public.outbox; left: 2 imported before" in out.splitlines()
