"""The schema is made and brought up to date by `manage.py migrate`."""

from pathlib import Path
from typing import Any

import next_migration
import psycopg

from partbox.db.schema.migrate import check_schema_version, migrations
from partbox.segments import maintain_segments
from partbox.settings import load

FOLDER = Path(__file__).resolve().parents[2] / "partbox/django/migrations"


def test_each_version_of_the_schema_has_a_migration() -> None:
    baseline, *later = migrations()
    names = sorted(path.stem for path in FOLDER.glob("0*.py"))
    assert names == ["0001_initial", *(each.name for each in later)], "a file with Upgrade(version) is missing there"
    for each, name in zip((baseline, *later), names, strict=True):
        assert f"Upgrade({each.version})" in (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def test_migrate_makes_the_schema_once(project: Any, empty_dsn: str) -> None:
    warned = project.manage("check", "--database", "default")
    assert "partbox.W002" in warned
    assert "manage.py migrate" in warned
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")

    printed = project.manage("migrate")

    assert "Applying partbox.0001_initial... OK" in printed
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        check_schema_version(conn)
    assert len(maintain_segments(lambda: empty_dsn, load()).made) == 3
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")
    assert "no issues" in project.manage("check", "--database", "default")
    assert "not reversible" in project.manage("migrate", "partbox", "zero", code=1)


UPGRADE = """
import next_migration
from django.db import connection
from partbox.db.schema import migrate as migrations
from partbox.django.operations import Upgrade

migrations.migrations = next_migration.known
with connection.schema_editor() as editor:
    Upgrade(next_migration.LATER.version).database_forwards("partbox", editor, None, None)
    Upgrade(next_migration.LATER.version).database_forwards("partbox", editor, None, None)
"""


def test_a_later_migration_upgrades_the_schema(migrated: Any, conn: psycopg.Connection[Any]) -> None:
    migrated.run(UPGRADE)
    found = conn.execute("select value from partbox.meta where key = 'schema_version'").fetchone()
    assert found == (str(next_migration.LATER.version),)


def test_other_databases_are_left_alone_and_databases_other_than_postgresql_are_refused(
    project: Any, empty_dsn: str
) -> None:
    project.databases["files"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(project.folder / "db.sqlite3")}
    project.manage("migrate", "-v", "0", "--database", "files")

    refused = project.manage("check", PARTBOX_APP='{"DATABASE": "files"}', code=1)
    assert "database 'files' uses sqlite, but partbox needs PostgreSQL" in refused
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regclass('partbox.meta')").fetchone() == (None,)


def test_a_refusal_of_migrate_is_one_line(project: Any) -> None:
    project.databases["files"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    where = {"PARTBOX_APP": '{"DATABASE": "files"}'}
    said = project.manage("migrate", "--skip-checks", "-v", "0", "--database", "files", "partbox", code=1, **where)
    (line,) = said.splitlines()
    assert line.startswith("CommandError: database 'files' uses sqlite")
