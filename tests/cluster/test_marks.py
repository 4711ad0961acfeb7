"""Which schemas are of this cluster, whatever rewrote their tables, and which are copies."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from copying import dump, restore
from psycopg.conninfo import make_conninfo
from roles import cast_of
from servers import OwnServer, execute, new_database, new_folder, new_standby, promote

from partbox import Outbox
from partbox.db.connect import check_server
from partbox.errors import SchemaError

pytestmark = pytest.mark.every_version("what a rewrite and a copy do to rows and to the catalog")

MARKED = "select xmin = xid::xid from partbox.meta where key = 'marker'"
WITNESSED = "select split_part(value, ' ', 3) = xmin::text from partbox.meta where key = 'marker_witness'"
CATALOG_ANEW = "update pg_attribute set attname = attname where attrelid = 'partbox.meta'::regclass and attname = 'xid'"
REPACKED = """
create temp table kept as select * from partbox.meta;
delete from partbox.meta;
insert into partbox.meta select * from kept;
drop table kept;
"""
REWRITES = {
    "row by row": REPACKED,
    "every row updated": "update partbox.meta set value = value",
    "by ALTER TABLE": "alter table partbox.meta alter column value type text using value || ''",
    "truncated and filled": REPACKED.replace("delete from", "truncate"),
}
KEPT = {"vacuum full": "vacuum full partbox.meta", "cluster": "cluster partbox.meta using meta_pkey"}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_a_rewritten_table_is_not_taken_for_a_copy_and_is_marked_anew(
    conn: psycopg.Connection[Any], rewrite: str
) -> None:
    for _ in range(3):
        with conn.transaction():
            conn.execute(rewrite)
        assert conn.execute(WITNESSED).fetchone() == (False,)
        check_server(conn, "partbox")
        assert conn.execute(WITNESSED).fetchone() == (True,)
        check_server(conn, "partbox")


@pytest.mark.parametrize("rewrite", KEPT.values(), ids=KEPT)
def test_a_rewrite_that_keeps_transaction_ids_keeps_the_marks(conn: psycopg.Connection[Any], rewrite: str) -> None:
    conn.execute(rewrite)
    check_server(conn, "partbox")
    assert conn.execute(MARKED).fetchone() == (True,)


def test_a_recreated_catalog_is_not_taken_for_a_copy_even_after_a_rewrite(conn: psycopg.Connection[Any]) -> None:
    """As by pg_upgrade, and in the other order too."""
    for change in (CATALOG_ANEW, REPACKED, CATALOG_ANEW, CATALOG_ANEW, REPACKED, REPACKED):
        conn.execute(change)
        check_server(conn, "partbox")


def test_a_database_that_has_lost_all_witnesses_is_refused_until_it_is_rebased(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(CATALOG_ANEW)
    conn.execute(REPACKED)
    for _ in range(2):
        with pytest.raises(SchemaError, match="is a logical copy"):
            check_server(conn, "partbox")
        conn.execute("select partbox.mark()")
    Outbox(dsn).rebase()
    check_server(conn, "partbox")
    conn.execute(REPACKED)
    check_server(conn, "partbox")


def test_a_marker_other_than_the_one_that_the_witnesses_name_is_a_copy(conn: psycopg.Connection[Any]) -> None:
    conn.execute("update partbox.meta set xid = '3' where key = 'marker'")
    conn.execute("select partbox.mark()")
    with pytest.raises(SchemaError, match="is a logical copy"):
        check_server(conn, "partbox")


def test_a_marker_that_alone_was_written_is_not_taken_for_a_rewrite(conn: psycopg.Connection[Any]) -> None:
    conn.execute("update partbox.meta set value = value where key = 'marker'")
    conn.execute("select partbox.mark()")
    with pytest.raises(SchemaError, match="is a logical copy"):
        check_server(conn, "partbox")


def _into_another_database(dsn: str, conn: psycopg.Connection[Any], file: Path, server_dsn: str) -> str:
    name = f"copy_of_{conn.info.dbname}"
    execute(server_dsn, "create database {}", name)
    restore(there := make_conninfo(dsn, dbname=name), file)
    return there


def _into_its_own_place(dsn: str, conn: psycopg.Connection[Any], file: Path, server_dsn: str) -> str:
    conn.execute("drop schema partbox cascade")
    restore(dsn, file)
    return dsn


@pytest.mark.parametrize("put", [_into_another_database, _into_its_own_place])
@pytest.mark.parametrize("repacked", [False, True])
def test_a_dump_restored_in_the_same_cluster_is_a_copy_even_after_a_rewrite(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path, put: Callable[..., str], repacked: bool
) -> None:
    file = tmp_path / "shop.dump"
    if repacked:
        conn.execute(REPACKED)
    dump(dsn, file)
    server_dsn = make_conninfo(dsn, dbname="postgres")
    there = put(dsn, conn, file, server_dsn)
    try:
        with psycopg.connect(there, autocommit=True) as copy:
            copy.execute("select partbox.mark()")
            with pytest.raises(SchemaError, match="is a logical copy"):
                check_server(copy, "partbox")
            _make_marks_right_by_chance(copy)
            copy.execute("select partbox.mark()")
            with pytest.raises(SchemaError, match="is a logical copy"):
                check_server(copy, "partbox")
            copy.execute(REPACKED)
            copy.execute("select partbox.mark()")
            with pytest.raises(SchemaError, match="is a logical copy"):
                check_server(copy, "partbox")
            Outbox(there).rebase()
            check_server(copy, "partbox")
    finally:
        if there != dsn:
            execute(server_dsn, "drop database {} with (force)", f"copy_of_{conn.info.dbname}")


def _make_marks_right_by_chance(copy: psycopg.Connection[Any]) -> None:
    """The transactions are those that are named, as where a fresh cluster has come just as far."""
    with copy.transaction():
        copy.execute("update partbox.meta set xid = pg_current_xact_id() where key = 'marker'")
        copy.execute("""
            update partbox.meta set value = concat_ws(' ', pg_current_xact_id(), a.xmin,
                                                       pg_current_xact_id()::xid, pg_current_xact_id()::xid)
              from pg_attribute a
             where key = 'marker_witness' and a.attrelid = 'partbox.meta'::regclass and a.attname = 'xid'
        """)
    assert copy.execute(MARKED).fetchone() == copy.execute(WITNESSED).fetchone() == (True,)


@pytest.mark.parametrize("repacked", [False, True])
def test_a_database_created_from_ours_as_a_template_keeps_the_marks(fresh_dsn: str, repacked: bool) -> None:
    if repacked:
        with psycopg.connect(fresh_dsn, autocommit=True) as conn:
            conn.execute(REPACKED)
    server_dsn = make_conninfo(fresh_dsn, dbname="postgres")
    with (
        new_database(server_dsn, str(psycopg.conninfo.conninfo_to_dict(fresh_dsn)["dbname"])) as there,
        psycopg.connect(there, autocommit=True) as clone,
    ):
        check_server(clone, "partbox")
        clone.execute(REPACKED)
        check_server(clone, "partbox")


def test_a_promoted_standby_keeps_the_marks_even_after_a_rewrite(own_server: OwnServer) -> None:
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute(REPACKED)
    with new_folder() as folder, new_standby(own_server.server, folder) as standby:
        promote(standby)
        with psycopg.connect(make_conninfo(own_server.dsn, host=str(standby)), autocommit=True) as promoted:
            check_server(promoted, "partbox")
            assert promoted.execute(WITNESSED).fetchone() == (True,)


def test_a_worker_of_the_least_privileges_may_mark_anew_and_other_roles_may_not(dsn: str) -> None:
    with cast_of(dsn) as cast, psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(REPACKED)
        for name in ("publisher", "stranger"):
            with (
                psycopg.connect(cast.of(name), autocommit=True) as other,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                other.execute("select partbox.mark()")
        with psycopg.connect(cast.of("worker"), autocommit=True) as worker:
            check_server(worker, "partbox")
        assert owner.execute(WITNESSED).fetchone() == (True,)


def test_a_session_that_cannot_write_still_learns_that_the_database_is_no_copy(conn: psycopg.Connection[Any]) -> None:
    conn.execute(REPACKED)
    conn.execute("set default_transaction_read_only = on")
    check_server(conn, "partbox")


def test_any_number_of_sessions_mark_anew_at_once(dsn: str, conn: psycopg.Connection[Any]) -> None:
    def session(_: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as each:
            check_server(each, "partbox")

    with ThreadPoolExecutor(8) as sessions:
        for _ in range(4):
            conn.execute(REPACKED)
            list(sessions.map(session, range(8)))
            assert conn.execute(WITNESSED).fetchone() == (True,)
