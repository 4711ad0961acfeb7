"""A migration that only tests have, after the newest: what is promised of those to come.

`python next_migration.py DSN` migrates by a program that knows it.
"""

import sys
from dataclasses import replace

from partbox.db.schema import migrate as migrations
from partbox.db.schema.migrate import SchemaMigration, migrate

TEXT = """
alter table {schema}.parked add column of_tests text;
create index record_of_tests on {schema}.record (event_id);
"""
ALL = migrations.migrations()
NEWEST = ALL[-1].version
LATER = SchemaMigration(NEWEST + 1, f"{NEWEST + 1:04}_of_tests", breaking=False, text=TEXT)


def known(*, breaking: bool = False) -> tuple[SchemaMigration, ...]:
    """All migrations, and that one."""
    return (*ALL, replace(LATER, breaking=breaking))


if __name__ == "__main__":
    migrations.migrations = known  # type: ignore[assignment]
    assert migrate(sys.argv[1]) == [LATER.name]
