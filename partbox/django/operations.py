"""The operation of this app's migrations."""

from typing import Any

from django.core.management.base import CommandError
from django.db import router
from django.db.migrations.operations.base import Operation

from partbox.db.schema.migrate import migrate_in
from partbox.django.conf import config
from partbox.errors import SchemaError


class Upgrade(Operation):
    """A Django migration operation that upgrades an older partbox schema to the installed version.

    The operation upgrades a schema below `version`, on the alias of PARTBOX only. The schema gets this program's
    version, because the functions are those of that version. Later migrations find nothing to do."""

    reduces_to_sql = False
    reversible = False

    def __init__(self, version: int) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: Any) -> None: ...

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        conn, schema = schema_editor.connection, config().schema
        if conn.alias != config().database or not router.allow_migrate(conn.alias, app_label):
            return
        if schema_editor.collect_sql:
            schema_editor.collected_sql.append("-- partbox migrate --sql prints what this runs")
            return
        if conn.vendor != "postgresql":
            raise CommandError(
                f"database {conn.alias!r} uses {conn.vendor}, but partbox needs PostgreSQL: name another alias as "
                'PARTBOX["DATABASE"]'
            )
        if conn.savepoint_ids:
            raise CommandError("the schema of partbox cannot be made within a savepoint: migrate outside of `atomic`")
        conn.ensure_connection()
        try:
            migrate_in(conn.connection, schema, below=self.version)
        except SchemaError as error:
            raise CommandError(str(error)) from None

    def describe(self) -> str:
        return f"Bring the schema of partbox to version {self.version}"

    @property
    def migration_name_fragment(self) -> str:
        return f"partbox_{self.version}"
