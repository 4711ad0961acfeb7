"""Ids: whatever the form of the INSERT, the transaction id is drawn before the record id. Fences rest on it."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

COLUMNS = "partition, event_id, event_type, payload"
VALUES = "1, gen_random_uuid(), 'T', 'null'::json"

FORMS = {
    "one row": f"insert into {{log}} ({COLUMNS}) values ({VALUES})",
    "several rows": f"insert into {{log}} ({COLUMNS}) values ({VALUES}), ({VALUES})",
    "DEFAULT in one row": f"insert into {{log}} (id, {COLUMNS}, xid) values (default, {VALUES}, default)",
    "DEFAULT for the id in several rows":
        f"insert into {{log}} (id, {COLUMNS}) values (default, {VALUES}), (default, {VALUES})",
    "DEFAULT for the id behind the rest, in several rows":
        f"insert into {{log}} ({COLUMNS}, id) values ({VALUES}, default), ({VALUES}, default)",
    "DEFAULT for both in several rows":
        f"insert into {{log}} (id, {COLUMNS}, xid) values (default, {VALUES}, default), (default, {VALUES}, default)",
    "SELECT": f"insert into {{log}} ({COLUMNS}) select {VALUES} from generate_series(1, 3)",
    "SELECT sorted": f"insert into {{log}} ({COLUMNS}) select {VALUES} from generate_series(1, 3) n order by n desc",
    "SELECT grouped": f"insert into {{log}} ({COLUMNS}) select {VALUES} from generate_series(1, 3) n group by n",
    "SELECT limited": f"insert into {{log}} ({COLUMNS}) select {VALUES} from generate_series(1, 9) n limit 2",
    "UNION": f"insert into {{log}} ({COLUMNS}) select {VALUES} union all select {VALUES}",
    "CTE": f"with new as (insert into {{log}} ({COLUMNS}) values ({VALUES}) returning partition) select * from new",
    "MERGE": f"merge into {{log}} r using (select 1) s on false when not matched then insert ({COLUMNS}) "
             f"values ({VALUES})",
}  # fmt: skip

LOGS = ["record", "record_1"]

WATCHED = """
    create function public.watched(ids regclass) returns bigint language plpgsql volatile as $$ begin
        if pg_current_xact_id_if_assigned() is null then
            raise 'an id was drawn before the xid';
        end if;
        return nextval(ids);
    end $$
"""


@pytest.mark.parametrize("log", LOGS)
def test_the_xid_is_drawn_before_the_id(conn: psycopg.Connection[Any], log: str) -> None:
    _watch(conn, log)
    wrong = []
    for form, statement in FORMS.items():
        before = len(_drawn(conn))
        try:
            conn.execute(sql.SQL(statement).format(log=sql.Identifier("partbox", log)))  # type: ignore[arg-type]
        except psycopg.errors.RaiseException as error:
            wrong.append((form, str(error)))
        else:
            assert len(_drawn(conn)) > before, form
    assert wrong == []


@pytest.mark.parametrize("log", LOGS)
def test_the_xid_is_drawn_before_the_id_in_copy(conn: psycopg.Connection[Any], log: str) -> None:
    _watch(conn, log)
    statement = sql.SQL("copy {} (partition, event_id, event_type, payload) from stdin")
    with conn.cursor().copy(statement.format(sql.Identifier("partbox", log))) as copy:
        for n in range(3):
            copy.write_row((n, "00000000-0000-7000-8000-000000000000", "T", "{}"))
    assert _drawn(conn) == [1, 2, 3]


def test_the_xid_is_drawn_before_the_id_by_the_function(conn: psycopg.Connection[Any]) -> None:
    _watch(conn, "record")
    conn.execute("select partbox.publish('T', null)")
    assert _drawn(conn) == [1]


def test_the_check_notices_an_id_that_is_drawn_before_the_xid(conn: psycopg.Connection[Any]) -> None:
    _watch(conn, "record")
    conn.execute("alter table partbox.record alter id set default public.watched('partbox.record_id_seq')")
    with pytest.raises(psycopg.errors.RaiseException, match="an id was drawn before the xid"):
        conn.execute(f"insert into partbox.record (id, {COLUMNS}) values (default, {VALUES}), (default, {VALUES})")


def _watch(conn: psycopg.Connection[Any], log: str) -> None:
    """From now on an id drawn in a transaction without an xid is an error; the default is otherwise as it was."""
    conn.execute(WATCHED)
    ((default,),) = conn.execute(
        "select pg_get_expr(d.adbin, d.adrelid) from pg_attrdef d"
        " join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum"
        " where d.adrelid = %s::regclass and a.attname = 'id'",
        (f"partbox.{log}",),
    ).fetchall()
    assert default.count("nextval(") == 1
    conn.execute(f"alter table partbox.{log} alter id set default {default.replace('nextval(', 'public.watched(')}")


def _drawn(conn: psycopg.Connection[Any]) -> list[int]:
    return [each for (each,) in conn.execute("select id from partbox.record order by id")]


def test_a_fresh_sequence_has_no_value_yet_and_the_first_event_is_number_one(conn: psycopg.Connection[Any]) -> None:
    value = "select coalesce(pg_sequence_last_value('partbox.record_id_seq'), 0)"
    assert conn.execute(value).fetchone() == (0,)
    with conn.transaction():
        conn.execute("select partbox.publish('T', '{}')")
    assert conn.execute("select id from partbox.record").fetchone() == (1,)
    assert conn.execute(value).fetchone() == (1,)


def test_emptying_the_log_does_not_restart_its_ids(conn: psycopg.Connection[Any]) -> None:
    conn.execute("select partbox.publish('T', '{}')")
    conn.execute("truncate partbox.record restart identity")
    conn.execute("select partbox.publish('T', '{}')")
    assert conn.execute("select id from partbox.record").fetchone() == (2,)


def test_an_event_beyond_the_first_segment_falls_into_the_default_segment(conn: psycopg.Connection[Any]) -> None:
    conn.execute("select setval('partbox.record_id_seq', 9999999, false)")
    conn.execute(f"insert into partbox.record ({COLUMNS}) select {VALUES} from generate_series(1, 2)")
    found = conn.execute("select tableoid::regclass::text, id from partbox.record order by id").fetchall()
    assert found == [("partbox.record_1", 9_999_999), ("partbox.record_default", 10_000_000)]
