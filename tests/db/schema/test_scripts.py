"""Migrations as text: run by psql, by a driver, by a tool with its own transaction, they do what `migrate` does."""

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import psycopg2
import pytest
from next_migration import ALL, LATER, NEWEST, known
from servers import binaries, new_database

from partbox.db.schema import migrate as migrations
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import check_schema_version, migrate
from partbox.db.schema.scripts import build_script, build_statements
from partbox.embedded.server import Server
from partbox.errors import SchemaError

HOSTILE = "o'x\"; drop schema partbox; -- %s {x} \\"
META = (
    "select key, case when key like 'marker%' or key in ('tables', 'migrated') then null else value end"
    " from partbox.meta order by key"
)


def dumped(dsn: str) -> str:
    """Every object of the schema with its owner and grants, and what migrations wrote into tables."""
    command = [binaries() / "pg_dump", "--schema-only", "--schema=partbox", dsn]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with psycopg.connect(dsn) as conn:
        meta = conn.execute(META).fetchall()
        small = conn.execute("select count(*) from partbox.partition").fetchone()
    return re.sub(r"^(--|\\).*\n", "", text, flags=re.MULTILINE) + f"{meta} {small}"


def by_psql(dsn: str, text: str, *options: str) -> str:
    """What psql says of errors."""
    command = [binaries() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn, *options]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return ran.stderr


def by_psycopg(dsn: str, text: str) -> None:
    """In the transaction that psycopg opens."""
    with psycopg.connect(dsn) as conn:
        conn.cursor().execute(text.encode())


def by_psycopg2(dsn: str, text: str) -> None:
    """In the transaction that psycopg2 opens."""
    conn = psycopg2.connect(dsn)
    with conn:
        conn.cursor().execute(text)
    conn.close()


def by_psql_in_one(dsn: str, text: str) -> None:
    assert by_psql(dsn, text, "--single-transaction") == ""


@pytest.fixture(params=[0, *(each.version for each in known())])
def since(request: pytest.FixtureRequest, empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of the database, whose program knows one more than the newest, and what it may have."""
    version = int(request.param)
    for count, newest in enumerate(known(), start=1):
        if newest.version <= version:
            monkeypatch.setattr(migrations, "migrations", lambda count=count: known()[:count])
            migrate(empty_dsn)
    monkeypatch.setattr(migrations, "migrations", known)
    return version


@pytest.fixture
def migrated(dsn: str, since: int) -> str:
    """A database that `migrate` has brought to that version."""
    migrate(dsn)
    return dsn


def test_a_script_from_any_version_ends_where_migrate_does(migrated: str, empty_dsn: str, since: int) -> None:
    assert by_psql(empty_dsn, build_script(since=since)) == ""
    assert dumped(empty_dsn) == dumped(migrated)
    with psycopg.connect(empty_dsn) as conn:
        check_schema_version(conn)
        assert conn.execute("select xmin = xid::xid from partbox.meta where key = 'marker'").fetchone() == (True,)


@pytest.mark.thorough
@pytest.mark.parametrize("run", [by_psycopg, by_psycopg2, by_psql_in_one])
def test_a_script_without_begin_and_commit_runs_through_a_driver(
    migrated: str, empty_dsn: str, since: int, run: Callable[[str, str], None]
) -> None:
    text = build_script(since=since, transaction=False)
    assert not re.search(r"^(begin|commit);$", text, re.MULTILINE)
    run(empty_dsn, text)
    assert dumped(empty_dsn) == dumped(migrated)


@pytest.mark.usefixtures("since")
def test_a_script_runs_statement_by_statement_from_any_version(migrated: str, empty_dsn: str) -> None:
    for _ in range(2):
        with psycopg.connect(empty_dsn) as conn:
            for each in build_statements():
                conn.execute(each.encode(), prepare=True)  # one that is prepared is but one statement
            settings = "select current_setting('check_function_bodies'), current_setting('client_min_messages')"
            assert conn.execute(settings.encode()).fetchone() == ("on", "notice")
    assert dumped(empty_dsn) == dumped(migrated)


def test_a_script_of_another_version_changes_nothing_and_names_the_right_one(
    dsn: str, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dumped(dsn)
    monkeypatch.setattr(migrations, "migrations", known)
    other = LATER.version
    said = by_psql(dsn, build_script(since=other))
    assert f"schema partbox is at version {NEWEST}, and this text is for version {other}: print it by" in said
    assert f"--from {NEWEST}" in said
    assert f"schema partbox is at version {NEWEST}" in by_psql(dsn, build_script())
    assert dumped(dsn) == before
    assert "schema partbox is at version 0" in by_psql(empty_dsn, build_script(since=other))


def test_a_newer_schema_is_left_alone(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("update partbox.meta set value = %s where key = 'schema_version'", [str(NEWEST + 1)])
    with pytest.raises(psycopg.errors.RaiseException, match=f"is for versions up to {NEWEST}: upgrade partbox"):
        by_psycopg(dsn, ";\n".join(build_statements()))


@pytest.mark.parametrize(
    "text", [build_script(transaction=False), ";\n".join(build_statements())], ids=["script", "statements"]
)
def test_a_script_outside_of_a_transaction_stops_before_it_changes_anything(empty_dsn: str, text: str) -> None:
    assert "these statements must run in one transaction" in by_psql(empty_dsn, text)
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regnamespace('partbox')").fetchone() == (None,)


def test_a_script_within_a_savepoint_is_refused_because_its_marker_would_be_invalid(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("savepoint ours")
        with pytest.raises(psycopg.errors.RaiseException, match="cannot be made within a savepoint"):
            conn.execute(build_script(transaction=False).encode())
        conn.rollback()
        assert conn.execute("select to_regnamespace('partbox')").fetchone() == (None,)


def test_concurrent_scripts_wait_for_each_other_and_only_one_migrates(dsn: str, empty_dsn: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda text: by_psql(empty_dsn, text), [build_script()] * 4))
    assert sum(not each for each in said) == 1
    assert all("is at version" in each for each in said if each)
    assert dumped(empty_dsn) == dumped(dsn)


def test_a_script_must_name_the_roles_granted_before_so_that_they_get_new_rights(
    server: Server, template: str, empty_dsn: str
) -> None:
    publisher, worker = "o'pub $$ %", 'w"orker'
    roles = Roles((publisher,), (worker,))
    with psycopg.connect(empty_dsn, autocommit=True) as conn, new_database(server.dsn, template) as other:
        for role in (publisher, worker):
            conn.execute(psycopg.sql.SQL("create role {}").format(psycopg.sql.Identifier(role)))
        try:
            by_psycopg(empty_dsn, build_script(roles=roles, transaction=False))
            migrate(other, roles=roles)
            assert dumped(empty_dsn) == dumped(other)
            assert f"role {publisher} was granted" in by_psql(empty_dsn, build_script(since=NEWEST))
            assert f"role {worker} was granted" in by_psql(
                empty_dsn, build_script(roles=Roles((publisher,)), since=NEWEST)
            )
            assert by_psql(empty_dsn, build_script(roles=roles, since=NEWEST)) == ""
            assert dumped(empty_dsn) == dumped(other)
        finally:
            for database in (empty_dsn, other):
                with psycopg.connect(database, autocommit=True) as owner:
                    owner.execute(
                        psycopg.sql.SQL("drop owned by {}, {}").format(
                            *map(psycopg.sql.Identifier, (publisher, worker))
                        )
                    )
            for role in (publisher, worker):
                conn.execute(psycopg.sql.SQL("drop role {}").format(psycopg.sql.Identifier(role)))


def test_a_script_can_be_for_a_schema_of_any_name(empty_dsn: str) -> None:
    by_psycopg(empty_dsn, build_script(HOSTILE, transaction=False))
    with psycopg.connect(empty_dsn) as conn:
        check_schema_version(conn, HOSTILE)
        for each in build_statements(HOSTILE):
            conn.execute(each.encode())
        check_schema_version(conn, HOSTILE)
    assert by_psql(empty_dsn, build_script(HOSTILE, since=NEWEST)) == ""


def test_a_schema_with_nothing_but_an_inbox_is_left_to_init(empty_dsn: str) -> None:
    migrations.migrate_inbox(empty_dsn)
    with pytest.raises(psycopg.errors.RaiseException, match="holds nothing but an inbox: partbox init makes"):
        by_psycopg(empty_dsn, build_script(transaction=False))


@pytest.mark.parametrize("version", [-1, 1, ALL[0].version - 1, NEWEST + 1])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    versions = ", ".join(str(each.version) for each in ALL)
    with pytest.raises(SchemaError, match=f"knows no version {version} of the schema: give one of 0, {versions}"):
        build_script(since=version)
