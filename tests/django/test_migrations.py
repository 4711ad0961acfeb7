"""The schema is made and brought up to date by `manage.py migrate`."""

from pathlib import Path
from typing import Any

import psycopg

from partbox.db.schema.migrate import check, migrations
from partbox.segments import tend
from partbox.settings import load

FOLDER = Path(__file__).resolve().parents[2] / "partbox/django/migrations"


def test_each_version_of_the_schema_has_a_migration_of_the_same_name() -> None:
    names = sorted(path.stem for path in FOLDER.glob("0*.py"))
    assert names == [each.name for each in migrations()], "a file with Upgrade(version) is missing there"
    for version, name in enumerate(names, 1):
        assert f"Upgrade({version})" in (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def test_migrate_makes_the_schema_once_and_upgrades_it_later(project: Any, empty_dsn: str) -> None:
    warned = project.manage("check", "--database", "default")
    assert "partbox.W002" in warned
    assert "manage.py migrate" in warned
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")

    printed = project.manage("migrate")

    assert "Applying partbox.0013_longer_naps... OK" in printed
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        check(conn)
        _look_like_version_4(conn)
        assert "partbox.W002" in project.manage("check", "--database", "default")
        project.manage("migrate", "-v", "0")
        check(conn)
    assert len(tend(lambda: empty_dsn, load()).made) == 3
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")
    assert "no issues" in project.manage("check", "--database", "default")
    assert "not reversible" in project.manage("migrate", "partbox", "zero", code=1)


def _look_like_version_4(conn: psycopg.Connection[Any]) -> None:
    """As if a program of that version had made it."""
    conn.execute("update partbox.meta set value = '4' where key = 'schema_version'")
    conn.execute("drop view partbox.dead")
    conn.execute("alter table partbox.parked drop column traceback")
    conn.execute("alter table partbox.instance drop column running, drop column supervisor, drop column sinks")
    conn.execute("drop table partbox.imported")
    conn.execute("drop index partbox.record_id, partbox.partition_assignee, partbox.partition_owner")
    conn.execute("drop sequence if exists partbox.bell")
    conn.execute("delete from django_migrations where app = 'partbox' and name > '0005'")


def test_other_databases_are_left_alone_and_other_kinds_refused(project: Any, empty_dsn: str) -> None:
    project.databases["files"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(project.folder / "db.sqlite3")}
    project.manage("migrate", "-v", "0", "--database", "files")

    refused = project.manage("check", PARTBOX_APP='{"DATABASE": "files"}', code=1)
    assert "database 'files' is one of sqlite, and partbox needs PostgreSQL" in refused
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regclass('partbox.meta')").fetchone() == (None,)


def test_what_migrate_refuses_is_one_line(project: Any) -> None:
    project.databases["files"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    where = {"PARTBOX_APP": '{"DATABASE": "files"}'}
    said = project.manage("migrate", "--skip-checks", "-v", "0", "--database", "files", "partbox", code=1, **where)
    (line,) = said.splitlines()
    assert line.startswith("CommandError: database 'files' is one of sqlite")
