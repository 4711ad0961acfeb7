"""Migrations as text that others run: psql, the driver of an application, a tool that has a transaction open.

Two forms. A script is what somebody reads and runs as a whole, for a schema of one version. Statements are for drivers
that take one at a time; each migration looks by itself whether it is needed, so they suit a schema of any version.
"""

from psycopg import sql as compose

from partbox.db.schema import grants, migrate
from partbox.db.schema.grants import NOBODY, Roles
from partbox.db.schema.migrate import Version
from partbox.db.sql import composed
from partbox.db.type_conversion import DEFAULTS
from partbox.errors import SchemaError


def script(schema: str = "partbox", roles: Roles = NOBODY, *, since: int = 0, transaction: bool = True) -> str:
    """The SQL that `migrate` runs on a schema of version `since` (0: there is none), as one script.

    Run on another version it changes nothing and says so. Without `transaction` it must be run in one.
    """
    _check(schema, roles, since)
    texts = [
        _text(migrate.fixed("begin", schema)),
        f"{_guard(schema, roles, since, since)};",
        *map(_text, migrate.steps(schema, Version(since, 0), roles)),
    ]
    whole = ["begin;", *texts, "commit;"] if transaction else [*texts, _text(migrate.fixed("restore", schema))]
    return "\n\n".join(whole) + "\n"


def statements(schema: str = "partbox", roles: Roles = NOBODY) -> list[str]:
    """The same for a schema of any version, as statements that are to be run one by one, in one transaction."""
    _check(schema, roles)
    *_, newest = migrate.migrations()
    rest = migrate.steps(schema, Version(newest.version, 0), roles)
    return [
        _as_one(migrate.fixed("begin", schema)),
        _guard(schema, roles, 0, newest.version),
        *(_pending(schema, each) for each in migrate.migrations()),
        *(_as_one(step) for step in rest),
        _as_one(migrate.fixed("restore", schema)),
    ]


def _check(schema: str, roles: Roles, since: int = 0) -> None:
    migrate.check_name(schema)
    grants.check(roles)
    versions = [0, *(each.version for each in migrate.migrations())]
    if since not in versions:
        known = ", ".join(map(str, versions))
        raise SchemaError(f"this program knows no version {since} of the schema: give one of {known}")


def _guard(schema: str, roles: Roles, least: int, most: int) -> str:
    baseline = migrate.migrations()[0].version
    named = {"publishers": list(roles.publishers), "workers": list(roles.workers)}
    return _do(migrate.fixed("guard", schema, least=least, most=most, baseline=baseline, **named))


def _pending(schema: str, migration: migrate.SchemaMigration) -> str:
    text = _text(composed(migration.text, schema))
    return _do(migrate.fixed("pending", schema, version=migration.version, text=text))


def _as_one(step: compose.Composable) -> str:
    return _do(compose.SQL("begin execute {}; end").format(_text(step)))


def _do(body: compose.Composable) -> str:
    return compose.SQL("do {}").format(_text(body)).as_string(DEFAULTS)


def _text(step: compose.Composable) -> str:
    return step.as_string(DEFAULTS).strip()
