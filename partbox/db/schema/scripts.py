"""Write migrations as SQL that others run: psql, an application's driver, or a tool that has a transaction open.

A script is run as a whole, for a schema of one version. Statements are for drivers that take one at a time: each
migration checks whether it is needed, so statements suit a schema of any version."""

from psycopg import sql as compose

from partbox.db.schema import grants, migrate
from partbox.db.schema.grants import NO_ROLES, Roles
from partbox.db.schema.migrate import SchemaVersion
from partbox.db.sql import compose_text
from partbox.db.type_conversion import DEFAULTS
from partbox.errors import SchemaError


def build_script(schema: str = "partbox", roles: Roles = NO_ROLES, *, since: int = 0, transaction: bool = True) -> str:
    """Return an SQL script that creates the schema, or migrates it from the version `since`.

    - The script does the same as `migrate`.
    - `since`: 0 for no schema. On a schema of another version the script changes nothing and says so.
    - `transaction`: without this, the caller must run the script in a transaction"""
    _check_arguments(schema, roles, since)
    texts = [
        _render_text(migrate.fixed_script("begin", schema)),
        f"{_build_guard(schema, roles, since, since)};",
        *map(_render_text, migrate.build_steps(schema, SchemaVersion(since, 0), roles)),
    ]
    whole = (
        ["begin;", *texts, "commit;"]
        if transaction
        else [*texts, _render_text(migrate.fixed_script("restore", schema))]
    )
    return "\n\n".join(whole) + "\n"


def build_statements(schema: str = "partbox", roles: Roles = NO_ROLES) -> list[str]:
    """Return the SQL statements that migrate a schema of any version."""
    # The schema may have any migrations. The statements must run one by one, in one transaction.
    _check_arguments(schema, roles)
    *_, newest = migrate.migrations()
    rest = migrate.build_steps(schema, SchemaVersion(newest.version, 0), roles)
    return [
        _build_execute_block(migrate.fixed_script("begin", schema)),
        _build_guard(schema, roles, 0, newest.version),
        *(_build_pending_block(schema, each) for each in migrate.migrations()),
        *(_build_execute_block(step) for step in rest),
        _build_execute_block(migrate.fixed_script("restore", schema)),
    ]


def _check_arguments(schema: str, roles: Roles, since: int = 0) -> None:
    migrate.check_schema_name(schema)
    grants.check_roles(roles)
    versions = [0, *(each.version for each in migrate.migrations())]
    if since not in versions:
        known = ", ".join(map(str, versions))
        raise SchemaError(f"this program knows no version {since} of the schema: give one of {known}")


def _build_guard(schema: str, roles: Roles, least: int, most: int) -> str:
    """Return SQL that stops a migration script unless the schema has an expected version."""
    # The version must be between `least` and `most`. Otherwise there is an error.
    baseline = migrate.migrations()[0].version
    named = {"publishers": list(roles.publishers), "workers": list(roles.workers)}
    return _build_do_block(migrate.fixed_script("guard", schema, least=least, most=most, baseline=baseline, **named))


def _build_pending_block(schema: str, migration: migrate.SchemaMigration) -> str:
    text = _render_text(compose_text(migration.text, schema))
    return _build_do_block(migrate.fixed_script("pending", schema, version=migration.version, text=text))


def _build_execute_block(step: compose.Composable) -> str:
    return _build_do_block(compose.SQL("begin execute {}; end").format(_render_text(step)))


def _build_do_block(body: compose.Composable) -> str:
    return compose.SQL("do {}").format(_render_text(body)).as_string(DEFAULTS)


def _render_text(step: compose.Composable) -> str:
    return step.as_string(DEFAULTS).strip()
