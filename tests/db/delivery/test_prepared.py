"""Prepared statements: their plans hold whatever becomes of the log, and losing them costs nothing but speed."""

import re
from collections.abc import Callable, Iterator

import pytest
from ownership import DEFAULT, SCHEMA, Conn, join, saving, seize, worker
from polling import MILLION, ask, poll, write
from psycopg import sql
from psycopg.errors import InvalidSqlStatementName, UndefinedTable

from partbox.db.blocking import PREPARED_LIMIT
from partbox.db.connect import connect
from partbox.db.delivery import cursors, idle_check, records
from partbox.db.sql import load_query
from partbox.protocol.cursor import STRETCH
from partbox.protocol.horizon import Page
from partbox.protocol.quick_poll import to_bits

pytestmark = pytest.mark.every_version("plans")

NAMED = re.compile(r"%\((\w+)\)s")


def fill(conn: Conn) -> None:
    write(conn, 3_000)


def empty(conn: Conn) -> None:
    conn.execute("truncate partbox.record")


def vacuum(conn: Conn) -> None:
    conn.execute("vacuum (analyze) partbox.record")


@pytest.fixture
def prepared(dsn: str) -> Iterator[Conn]:
    with worker(dsn) as conn:
        yield conn


def plan(conn: Conn, name: str) -> str:
    """The generic plan of a query that this connection has prepared, for a range of ids with one segment."""
    text = load_query(name, SCHEMA).decode()
    first_line = text.splitlines()[0]
    held = conn.execute("select name, statement from pg_prepared_statements").fetchall()
    (named,) = [named for named, sent in held if sent.splitlines()[0] == first_line]
    range_of_ids = {"hi": sql.Literal(MILLION)}
    parameters = [each for each in NAMED.findall(text) if each not in ("above", "end")]  # numbers in the text
    values = sql.SQL(", ").join([range_of_ids.get(parameter, sql.NULL) for parameter in parameters])
    explained = conn.execute(sql.SQL("explain (costs off) execute {} ({})").format(sql.Identifier(named), values))
    return "\n".join(line for (line,) in explained)


@pytest.mark.parametrize("first", [fill, empty, vacuum])
def test_a_prepared_poll_reads_the_log_by_an_index_whatever_was_there_when_it_was_planned(
    conn: Conn, prepared: Conn, first: Callable[[Conn], None]
) -> None:
    first(conn)
    poll(prepared, ask())
    for step in (vacuum, fill, vacuum, empty, vacuum, fill, fill, vacuum, empty):
        step(conn)
        poll(prepared, ask())
        told = plan(prepared, "poll")
        assert "Seq Scan" not in told, step
        assert "Bitmap" not in told, step
        assert re.search(r"Index Scan using record_1_pkey on record_1\b", told), told
    assert prepared.execute("select custom_plans from pg_prepared_statements").fetchone() == (0,)


def test_a_prepared_quick_poll_scans_the_index_by_id_and_a_full_poll_never_does(conn: Conn, prepared: Conn) -> None:
    """By that one a full poll would read each partition, and with it the records of all others."""
    for step in (empty, fill, vacuum, fill, empty, vacuum, fill):
        step(conn)
        records.read_new_records(prepared, SCHEMA, Page("1:1:", 0), to_bits({5}))
        poll(prepared, ask())
        told = plan(prepared, "quick")
        assert re.search(r"Index Scan using record_1_id_idx on record_1\b", told), told
        assert "Seq Scan" not in told, step
        assert "Sort\n" not in told, step
        assert "id_idx" not in plan(prepared, "poll"), step


def test_idle_check_tick_save_poll_and_bodies_are_each_prepared_once(prepared: Conn) -> None:
    (me,) = join(prepared)
    owned = seize(prepared, me)
    write(prepared)
    for _ in range(3):
        idle_check.run_check(prepared, SCHEMA, [])
        poll(prepared, ask())
        records.load_bodies(prepared, SCHEMA, [(5, 1)])
        cursors.run_tick(prepared, SCHEMA, DEFAULT, me, [])
        cursors.save(prepared, SCHEMA, DEFAULT, me, [saving(owned[5])])
    assert prepared.execute("select count(*) from pg_prepared_statements").fetchone() == (5,)


def names(conn: Conn) -> set[str]:
    """Of what the connection has prepared."""
    return {name for (name,) in conn.execute("select name from pg_prepared_statements")}


def test_polls_are_prepared_anew_once_in_a_million_ids(prepared: Conn) -> None:
    counts = []
    for at in (0, 5, STRETCH - 1, STRETCH, 2 * STRETCH - 1, 3 * STRETCH, 5):
        records.read_new_records(prepared, SCHEMA, Page("1:1:", at), to_bits({5}))
        poll(prepared, ask(last_id=at, floor=at), lo=at)
        counts.append(len(names(prepared)))
    assert counts == [2, 2, 2, 4, 4, 6, 6]


def test_a_connection_keeps_a_limited_number_of_prepared_statements_including_those_in_use(prepared: Conn) -> None:
    idle_check.run_check(prepared, SCHEMA, [])
    in_use = names(prepared)
    for number in range(3 * PREPARED_LIMIT):
        records.read_new_records(prepared, SCHEMA, Page("1:1:", number * STRETCH), to_bits({5}))
        idle_check.run_check(prepared, SCHEMA, [])
    assert len(names(prepared)) == PREPARED_LIMIT
    assert in_use < names(prepared)


def test_a_poll_that_cannot_be_prepared_once_is_prepared_the_next_time(prepared: Conn) -> None:
    prepared.execute("alter table partbox.record rename to aside")
    with pytest.raises(UndefinedTable):
        records.read_new_records(prepared, SCHEMA, Page("1:1:", 0), to_bits({5}))
    prepared.execute("alter table partbox.aside rename to record")
    records.read_new_records(prepared, SCHEMA, Page("1:1:", 0), to_bits({5}))
    assert len(names(prepared)) == 1


def test_behind_a_pooler_nothing_is_prepared(dsn: str) -> None:
    with connect(dsn, lease=20.0, pooler=True, prepared=True) as conn:
        idle_check.run_check(conn, SCHEMA, [])
        assert conn.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


def test_nothing_is_prepared_where_the_settings_of_the_session_did_not_arrive(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that takes options and forgets them."""
    monkeypatch.setattr("partbox.db.connect.PLAN_OPTIONS", "")
    with connect(dsn, lease=20.0, prepared=True) as conn:
        idle_check.run_check(conn, SCHEMA, [])
        assert conn.prepared is None


def test_a_connection_that_has_lost_its_prepared_statements_goes_on_without_them(dsn: str) -> None:
    with worker(dsn) as conn:
        idle_check.run_check(conn, SCHEMA, [])
        conn.execute("deallocate all")
        with pytest.raises(InvalidSqlStatementName):
            idle_check.run_check(conn, SCHEMA, [])
        assert idle_check.run_check(conn, SCHEMA, []).fence.drawn_id == 0
