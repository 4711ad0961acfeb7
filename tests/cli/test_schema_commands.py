"""`partbox init` and `partbox migrate`."""

import psycopg
import pytest
from next_migration import LATER, NEWEST, known

from partbox.db.schema import migrate as migrations
from partbox.db.schema.migrate import check_schema_version


def test_init_creates_the_schema_and_says_so_and_repeats_harmlessly(partbox, empty_dsn):
    first = partbox("init", "--dsn", empty_dsn)
    assert (first.code, first.err) == (0, "")
    assert "schema 'partbox' is ready: applied 0014_baseline" in first.out
    with psycopg.connect(empty_dsn) as conn:
        check_schema_version(conn)
    again = partbox("init", "--dsn", empty_dsn)
    assert (again.code, again.out) == (0, "schema 'partbox' is there already and up to date: nothing to do\n")


def test_several_outboxes_live_in_one_database(partbox, dsn, monkeypatch):
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    assert partbox("init", "--schema", "Orders & more").code == 0
    monkeypatch.setenv("PARTBOX_SCHEMA", "Orders & more")
    assert "subscription  default in schema Orders & more" in partbox("status").out


def test_migrate_refuses_a_schema_that_does_not_exist(partbox, empty_dsn):
    assert "run `partbox init`" in partbox("migrate", "--dsn", empty_dsn).error
    assert "run `partbox init`" in partbox("status", "--dsn", empty_dsn).error
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regnamespace('partbox')").fetchone() == (None,)


def test_migrate_on_a_current_schema_has_nothing_to_do(partbox, dsn):
    assert partbox("migrate", "--dsn", dsn).out == "schema 'partbox': up to date, nothing to do\n"


def test_migrate_sql_prints_a_script_that_creates_the_schema(partbox, empty_dsn):
    script = partbox("migrate", "--sql", "--schema", "orders")
    assert script.code == 0
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(script.out.encode())
        check_schema_version(conn, "orders")


@pytest.mark.parametrize("command", ["init", "migrate", "status"])
def test_a_database_that_cannot_be_reached_is_one_line_without_the_password(partbox, command):
    for dsn in ("postgresql://shop:s3cret@127.0.0.1:1/shop", "host=127.0.0.1 port=1 user=shop password=s3cret"):
        error = partbox(command, "--dsn", dsn).error
        assert "cannot use the database" in error
        assert "check --dsn or PARTBOX_DSN" in error
        assert "s3cret" not in error


@pytest.mark.parametrize("command", ["init", "migrate", "status"])
def test_an_invalid_dsn_is_reported_in_one_line_without_the_password(partbox, command):
    error = partbox(command, "--dsn", "postgresqll://shop:s3cret@localhost").error
    assert "the DSN cannot be read" in error
    assert "s3cret" not in error
    assert "PARTBOX_DSN" in partbox(command).error


def test_a_role_without_privileges_gets_a_permission_error_in_one_line(partbox, server, dsn):
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create role stranger login")
        try:
            stranger = psycopg.conninfo.make_conninfo(dsn, user="stranger")
            assert "permission denied" in partbox("status", "--dsn", stranger).error
        finally:
            conn.execute("drop role stranger")


def test_migrate_sql_from_a_version_prints_only_the_later_migrations(partbox, dsn, monkeypatch):
    monkeypatch.setattr(migrations, "migrations", known)
    whole, rest = partbox("migrate", "--sql").out, partbox("migrate", "--sql", "--from", f"{NEWEST}").out
    assert "parked_due" in whole
    assert "parked_due" not in rest
    assert "record_of_tests" in rest
    bare = partbox("migrate", "--sql", "--no-transaction").out
    assert (whole.count("begin;\n\n"), bare.count("begin;\n\n"), bare.count("\ncommit;")) == (1, 0, 0)
    for options in (("--from", f"{NEWEST}"), ("--no-transaction",)):
        assert f"{options[0]} works only with --sql" in partbox("migrate", *options, "--dsn", dsn).error
    assert "knows no version 99 of the schema" in partbox("migrate", "--sql", "--from", "99").error


@pytest.mark.parametrize("breaking", [False, True])
def test_migrate_check_names_what_is_missing_changes_nothing_and_fails_until_it_is_there(
    partbox, dsn, monkeypatch, breaking
):
    up_to_date = "schema 'partbox': up to date, nothing to do\n"
    assert partbox("migrate", "--check", "--dsn", dsn).out == up_to_date
    monkeypatch.setattr(migrations, "migrations", lambda: known(breaking=breaking))
    lacking = f"schema 'partbox' lacks {LATER.name}{' (breaking)' * breaking}: run `partbox migrate`"
    assert lacking in partbox("migrate", "--check", "--dsn", dsn).error
    assert lacking in partbox("migrate", "--check", "--dsn", dsn).error
    assert partbox("migrate", "--dsn", dsn).out == f"schema 'partbox': applied {LATER.name}\n"
    assert partbox("migrate", "--check", "--dsn", dsn).out == up_to_date
    # What a program that was rolled back says of the newer schema.
    monkeypatch.undo()
    rolled_back = partbox("migrate", "--check", "--dsn", dsn)
    assert "upgrade partbox" in rolled_back.error if breaking else rolled_back.out == up_to_date
    assert "upgrade partbox" in partbox("migrate", "--dsn", dsn).error


def test_migrate_check_sees_functions_that_are_not_of_this_version_and_roles_without_privileges(partbox, server, dsn):
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create role checked login")
        try:
            assert (
                "lacks functions or privileges"
                in partbox("migrate", "--check", "--worker-role", "checked", "--dsn", dsn).error
            )
        finally:
            conn.execute("drop role checked")
        assert partbox("migrate", "--check", "--dsn", dsn).code == 0
        conn.execute("drop function partbox.ring")
    assert "lacks functions or privileges" in partbox("migrate", "--check", "--dsn", dsn).error
    assert "--check looks at a database" in partbox("migrate", "--check", "--sql").error


def test_migrate_check_refuses_a_schema_that_does_not_exist(partbox, empty_dsn):
    assert "run `partbox init`" in partbox("migrate", "--check", "--dsn", empty_dsn).error
