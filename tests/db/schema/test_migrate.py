"""Migrations: forward only, any number at once, and what they cannot know is refused."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from next_migration import ALL, LATER, NEWEST, known
from psycopg import sql
from psycopg.conninfo import make_conninfo

from partbox.db.schema import migrate as migrations
from partbox.db.schema.migrate import check_schema_version, migrate
from partbox.db.schema.scripts import build_script, build_statements
from partbox.embedded.server import Server
from partbox.errors import SchemaError

NAMES = [each.name for each in ALL]
HOSTILE = "o'x\"; drop schema partbox; -- %s {x} \\"


def test_a_fresh_database_gets_every_migration_and_a_second_run_nothing(empty_dsn: str) -> None:
    assert migrate(empty_dsn) == NAMES
    assert migrate(empty_dsn) == []
    with psycopg.connect(empty_dsn) as conn:
        check_schema_version(conn)


def test_a_migration_that_finds_nothing_to_do_writes_nothing(empty_dsn: str) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        before = conn.execute("select pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())").fetchone()
        functions = conn.execute(
            "select oid, xmin from pg_proc where pronamespace = 'partbox'::regnamespace"
        ).fetchall()
        assert migrate(empty_dsn) == []
        assert (
            conn.execute("select oid, xmin from pg_proc where pronamespace = 'partbox'::regnamespace").fetchall()
            == functions
        )
        # Nobody else writes to this database, but the server's own processes may: no transaction has an id.
        assert conn.execute("select pg_snapshot_xmax(pg_current_snapshot())").fetchone() == before[1:]


@pytest.mark.parametrize(
    "damage",
    [
        "drop function partbox.life_anew()",
        "create or replace function partbox.drawn() returns bigint language sql as 'select 1'",
        "delete from partbox.meta where key = 'lock purge'",
        "delete from partbox.meta where key = 'marker_witness'",
        "revoke all on schema partbox from public; grant usage on schema partbox to public",
    ],
)
def test_a_migration_repairs_a_schema_of_its_own_version_that_was_changed(empty_dsn: str, damage: str) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        state = "select value from partbox.meta where key = 'migrated'"
        first = conn.execute(state).fetchone()
        conn.execute(damage.encode())
        assert migrate(empty_dsn) == []
        repaired = conn.execute(state).fetchone()
        assert repaired != first
        assert migrate(empty_dsn) == []
        assert conn.execute(state).fetchone() == repaired


def test_twenty_runs_at_once_apply_each_migration_once(empty_dsn: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        applied = list(pool.map(migrate, [empty_dsn] * 20))
    assert sorted(applied) == [[]] * 19 + [NAMES]


@pytest.mark.parametrize(
    "schema", [HOSTILE, "a" * 63, *(pytest.param(name, marks=pytest.mark.soak) for name in ("Ünï cödé", "select"))]
)
def test_any_name_can_be_a_schema(empty_dsn: str, schema: str) -> None:
    migrate(empty_dsn)
    assert migrate(empty_dsn, schema) == NAMES
    assert migrate(empty_dsn, schema) == []
    with psycopg.connect(empty_dsn) as conn:
        check_schema_version(conn, schema)
        check_schema_version(conn, "partbox")
        names = conn.execute("select nspname from pg_namespace where nspname in ('partbox', %s)", (schema,)).fetchall()
    assert sorted(names) == sorted([("partbox",), (schema,)])


def test_a_name_that_postgresql_would_cut_or_refuse_is_refused(empty_dsn: str) -> None:
    for schema in ("", "a" * 64, "é" * 32, "a\0b"):
        with pytest.raises(SchemaError, match="1 to 63 bytes"):
            pytest.fail(f"{schema!r} is taken: {migrate(empty_dsn, schema)}")
    with pytest.raises(SchemaError, match=r"the schema name 'shop\\n' begins or ends with white space: remove it"):
        migrate(empty_dsn, "shop\n")


@pytest.mark.parametrize("schema", ["partbox", HOSTILE])
def test_the_script_does_what_migrate_does(empty_dsn: str, schema: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(build_script(schema).encode())
        check_schema_version(conn, schema)
    assert migrate(empty_dsn, schema) == []


def test_the_error_for_a_missing_schema_names_init(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        with pytest.raises(SchemaError, match=r"does not exist .* `partbox init`$"):
            check_schema_version(conn)
        with pytest.raises(SchemaError, match=r"`partbox init --schema 'my shop'`$"):
            check_schema_version(conn, "my shop")


def test_the_error_for_an_older_schema_names_migrate(
    conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "migrations", known)
    with pytest.raises(SchemaError, match=f"at version {NEWEST}, .* needs {LATER.version}: run `partbox migrate`$"):
        check_schema_version(conn)


def test_a_schema_of_before_the_first_release_is_left_alone(dsn: str, conn: psycopg.Connection[Any]) -> None:
    _set_versions(conn, newest=ALL[0].version - 1, breaking=1)
    for refused in (lambda: check_schema_version(conn), lambda: migrate(dsn)):
        with pytest.raises(SchemaError, match=f"before partbox 0.1.0: bring it to version {ALL[0].version}"):
            refused()
    for text in (build_script(), ";".join(build_statements())):
        with pytest.raises(psycopg.errors.RaiseException, match=r"which was made before partbox 0\.1\.0"):
            conn.execute(text.encode())
        conn.execute("rollback")


def test_the_error_for_a_newer_breaking_schema_names_the_upgrade(conn: psycopg.Connection[Any]) -> None:
    _set_versions(conn, newest=NEWEST + 2, breaking=NEWEST + 1)
    with pytest.raises(SchemaError, match="upgrade partbox"):
        check_schema_version(conn)


def test_a_newer_schema_that_does_not_break_is_accepted(conn: psycopg.Connection[Any]) -> None:
    _set_versions(conn, newest=NEWEST + 2, breaking=NEWEST)
    check_schema_version(conn)


def test_an_older_program_does_not_migrate_a_newer_schema(dsn: str, conn: psycopg.Connection[Any]) -> None:
    _set_versions(conn, newest=NEWEST + 1, breaking=NEWEST)
    before = conn.execute("select key, value, xmin from partbox.meta order by key").fetchall()
    with pytest.raises(SchemaError, match="upgrade partbox; nothing was changed"):
        migrate(dsn)
    assert conn.execute("select key, value, xmin from partbox.meta order by key").fetchall() == before


@pytest.mark.parametrize("columns", ["id int", "key text, value text"])
def test_a_schema_of_somebody_else_is_left_alone(empty_dsn: str, columns: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("create schema theirs")
        conn.execute(sql.SQL("create table theirs.meta ({})").format(sql.SQL(columns)))
        with pytest.raises(SchemaError, match="choose another schema name"):
            migrate(empty_dsn, "theirs")
        assert conn.execute("select relname from pg_class where relnamespace = 'theirs'::regnamespace").rowcount == 1


def test_a_migration_that_fails_leaves_nothing(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("create schema partbox")
        conn.execute("create view partbox.record_status as select 1 as one")
        with pytest.raises(SchemaError, match=r"holds an object that partbox did not make .*: choose another name"):
            migrate(empty_dsn)
        tables = conn.execute("select 1 from pg_class where relnamespace = 'partbox'::regnamespace and relkind = 'r'")
        assert tables.fetchall() == []


def test_a_function_that_was_changed_is_put_back(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "create or replace function partbox.partition_of(key text) returns smallint language sql immutable strict"
        " as 'select 7::smallint'"
    )
    assert migrate(dsn) == []
    assert conn.execute("select partbox.partition_of('a')").fetchone() == (178,)


def test_later_migrations_do_not_touch_the_marker_of_the_schema(dsn: str, conn: psycopg.Connection[Any]) -> None:
    migrate(dsn)
    healthy = conn.execute("select xmin = xid::xid from partbox.meta where key = 'marker'").fetchone()
    assert healthy == (True,)


def test_the_small_tables_have_statistics_from_the_start(empty_dsn: str) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as conn:
        found = conn.execute("select reltuples from pg_class where oid = 'partbox.partition'::regclass").fetchone()
    assert found == (256.0,)


def test_a_database_with_serializable_as_default_is_migrated(empty_dsn: str) -> None:
    dsn = psycopg.conninfo.make_conninfo(empty_dsn, options="-c default_transaction_isolation=serializable")
    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(migrate, [dsn] * 5)) == [[]] * 4 + [NAMES]


def _set_versions(conn: psycopg.Connection[Any], newest: int, breaking: int) -> None:
    conn.execute("update partbox.meta set value = %s where key = 'schema_version'", (str(newest),))
    conn.execute("update partbox.meta set value = %s where key = 'breaking_version'", (str(breaking),))


def test_a_server_that_is_too_old_is_refused_in_one_line(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partbox.db.schema.migrate._OLDEST_SERVER", 99)
    with pytest.raises(SchemaError, match=r"^partbox needs PostgreSQL 99 or newer, this server is \d\d$"):
        migrate(dsn, "other")


def test_a_database_that_is_not_utf8_is_refused(server: Server) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
        try:
            with pytest.raises(SchemaError, match="encoding UTF8"):
                migrate(make_conninfo(server.dsn, dbname="latin"))
        finally:
            conn.execute("drop database latin with (force)")
