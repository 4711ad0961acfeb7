"""From the first version of the schema to the newest: what it holds stays, and a program of before goes on or stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked import shared
from planting import Planter
from psycopg import sql
from waiting import eventually

from partbox import Event, Outbox
from partbox.db import blocking, connect
from partbox.db.delivery import instances
from partbox.db.schema import migrate as migrations
from partbox.db.sql import composed, query
from partbox.errors import PartboxError, SchemaError

Conn = psycopg.Connection[Any]
STATES = ("retrying", "deferred", "scheduled", "held", "dead", "ready")
KEPT = ("record", "partition", "subscription", "parked", "idempotency", "inbox")
ALL = migrations.migrations()
MARKER = """
select pg_is_in_recovery(),
       coalesce((select m.xmin = m.xid::xid from {schema}.meta m where m.key = 'marker'), false)
       and not exists (select from {schema}.partition p
                        where pg_snapshot_xmax(p.snapshot) > pg_snapshot_xmax(pg_current_snapshot())),
       has_sequence_privilege({sequence}, 'SELECT') or has_sequence_privilege({sequence}, 'USAGE')
"""
"""What programs before version 3 ask on each new connection."""
REGISTER = """
insert into {schema}.instance (subscription, node, hostname, pid, version, lease)
select %(subscription)s, %(node)s, %(hostname)s, pid, %(version)s, %(lease)s * interval '1 second'
  from unnest(%(pids)s::integer[]) as pid
returning instance_id, pid
"""
"""What programs before version 5 say of a process."""
WATCH = (b"i.lease, i.supervisor", b"i.lease, i.node as supervisor")
"""What a look at the others says about a column that the first version does not have, and what does for it."""
SINCE = {
    "save.sql": {
        "due_at, last_error, traceback)": "due_at, last_error)",
        "j.e, j.t": "j.e",
        "traceback = case when j.e is null or j.w then k.traceback else j.t end,": "",
    },
}
"""What functions of today say about columns that the first version does not have, and what they said then."""


@pytest.fixture
def first(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the schema of the first version, in a process whose program knows no other."""
    old = {name: composed(text, "partbox").as_bytes() for name, text in (("marker", MARKER), ("register", REGISTER))}
    watch, names = blocking._positional("watch", "partbox", ())
    assert WATCH[0] in watch
    positional = blocking._positional
    monkeypatch.setattr(
        blocking,
        "_positional",
        lambda name, *of: (watch.replace(*WATCH), names) if name == "watch" else positional(name, *of),
    )
    monkeypatch.setattr(migrations, "migrations", lambda: ALL[:1])
    monkeypatch.setattr(migrations, "_function", lambda path, schema: composed(then(path), schema))
    for asking in (connect, instances):
        monkeypatch.setattr(asking, "query", lambda name, schema: old.get(name) or query(name, schema))
    assert migrations.migrate(empty_dsn) == [ALL[0].name]
    return empty_dsn


def then(function: Path) -> str:
    """The text of a function as the first version had it, as far as its columns are concerned."""
    text = function.read_text(encoding="utf-8")
    for now, before in SINCE.get(function.name, {}).items():
        assert text.count(now) == 1, now
        text = text.replace(now, before)
    return text


@pytest.fixture
def filled(first: str) -> Iterator[Conn]:
    """With records that are done, parked in every state, and not read."""
    with psycopg.connect(first, autocommit=True) as conn:
        planter = Planter(conn)
        for state in STATES:
            due = 3_600.0 if state in ("retrying", "deferred", "scheduled") else None
            blocks = state not in ("scheduled", "dead")
            planter.park(state, state, blocks=blocks, attempts=1, due=due, started=state == "ready")
        for number in range(20):
            planter.publish(str(number), idempotency_key=f"key {number}")
        conn.execute("insert into partbox.inbox (consumer, event_id) values ('mail', gen_random_uuid())")
        yield conn


def newest(dsn: str) -> None:
    """Migrate, by the program of today, in a process of its own."""
    process = shared().start("partbox", "migrate", "--dsn", dsn)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert f"applied {', '.join(each.name for each in ALL[1:])}" in out


def contents(conn: Conn) -> dict[str, list[Any]]:
    statement = "select jsonb_strip_nulls(to_jsonb(t)) from {} t order by 1"  # columns that are new are null
    return {name: conn.execute(sql.SQL(statement).format(sql.Identifier("partbox", name))).fetchall() for name in KEPT}


def cut(conn: Conn) -> None:
    """End every connection but this one, so that workers look at the schema again."""
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and application_name like 'partbox %%'"
    )


@contextmanager
def application(dsn: str) -> Iterator[Conn]:
    with psycopg.connect(dsn) as conn, conn.transaction():
        yield conn


def test_a_migration_keeps_all_that_the_first_version_held(
    first: str, filled: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(filled)
    assert len(before["parked"]) == len(STATES)
    newest(first)
    assert contents(filled) == before
    monkeypatch.undo()
    migrations.check(filled)


def test_an_original_stays_one(first: str, filled: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    connect.check(filled, "partbox")
    newest(first)
    monkeypatch.undo()
    connect.check(filled, "partbox")
    with pytest.raises(PartboxError, match="is healthy"):
        Outbox(first).rebase()


def test_a_copy_stays_one_until_it_is_rebased(first: str, filled: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.execute("update partbox.meta set xid = '3' where key = 'marker'")
    newest(first)
    monkeypatch.undo()
    with pytest.raises(SchemaError, match="`partbox rebase` adopts it"):
        connect.check(filled, "partbox")
    Outbox(first).rebase()
    connect.check(filled, "partbox")


def test_a_copy_that_an_old_program_has_rebased_is_to_be_rebased_again(
    first: str, filled: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest(first)
    monkeypatch.undo()
    filled.execute("update partbox.meta set value = '16384 16385' where key = 'marker_oids'")
    filled.execute("delete from partbox.meta where key = 'marker'")
    filled.execute("insert into partbox.meta (key, value) values ('marker', '4711')")
    with pytest.raises(SchemaError, match="logical copy"):
        connect.check(filled, "partbox")
    Outbox(first).rebase()
    connect.check(filled, "partbox")


def test_a_program_of_today_refuses_the_first_version_and_names_the_remedy(
    first: str, filled: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    before, outbox = contents(filled), Outbox(first)
    outbox.register(print, "*")
    with pytest.raises(SchemaError, match="run `partbox migrate`"), outbox.worker():
        pass
    assert contents(filled) == before


@pytest.mark.skipif(any(each.breaking for each in ALL[1:]), reason="a worker of the first version has to stop")
def test_an_old_worker_goes_on_while_the_schema_is_migrated_and_nothing_is_lost(first: str, filled: Conn) -> None:
    outbox, delivered = Outbox(first), []
    outbox.register(lambda event: delivered.append(str(event.event_id)), "*")
    (waiting,) = filled.execute(
        "select count(*) from partbox.parked where due_at is null and state <> 'dead'"
    ).fetchone()
    with outbox.worker():
        eventually(lambda: len(delivered) == 20 + waiting)
        newest(first)
        with application(first) as conn:
            outbox.publish_many(conn, [_event(number) for number in range(50)])
        eventually(lambda: len(delivered) == 70 + waiting)
        cut(filled)
        with application(first) as conn:
            outbox.publish_many(conn, [_event(number) for number in range(50)])
        eventually(lambda: len(set(delivered)) == 120 + waiting)
    left = filled.execute("select state from partbox.parked order by state").fetchall()
    assert left == [("dead",), ("deferred",), ("retrying",), ("scheduled",)]
    assert filled.execute("select count(*) from partbox.record_status where status = 'pending'").fetchone() == (0,)


def test_an_old_worker_stops_with_the_remedy_when_a_migration_breaks_it_and_nothing_is_lost(
    first: str, filled: Conn
) -> None:
    outbox, delivered = Outbox(first), []
    outbox.register(lambda event: delivered.append(event.id), "*")
    with outbox.worker() as worker:
        assert worker.wait_until_empty(30)
        newest(first)
        filled.execute("update partbox.meta set value = '99' where key in ('schema_version', 'breaking_version')")
        cut(filled)
        with pytest.raises(SchemaError, match=r"programs older than 99 cannot work with; .*: upgrade partbox"):
            eventually(lambda: worker.wait_until_empty(1) is None)
    seen = len(delivered)
    with application(first) as conn:
        outbox.publish(conn, _event(1))
    assert filled.execute("select count(*) from partbox.record_status where status = 'pending'").fetchone() == (1,)
    assert len(delivered) == seen


def _event(number: int) -> Event:
    return Event("Counted", number, aggregate_type="Key", aggregate_id=str(number % 7))
