"""`partbox migrate`: brings the schema to this program's version."""

from typing import Annotated

import psycopg
import typer

from partbox.cli.database import database
from partbox.cli.flags import load
from partbox.cli.init import tell_grants
from partbox.cli.options import Dsn, PublisherRoles, Schema, WorkerRoles
from partbox.db import migrate as migrations
from partbox.db.grants import Roles
from partbox.db.sql import query
from partbox.errors import SchemaError

Sql = Annotated[bool, typer.Option("--sql", help="Print the whole schema as SQL instead; no database is touched.")]


def migrate(
    dsn: Dsn = None,
    schema: Schema = None,
    sql: Sql = False,
    publisher_role: PublisherRoles = None,
    worker_role: WorkerRoles = None,
) -> None:
    """Bring an outbox's schema to the version of this program. Roles of earlier calls are granted what it adds.

    Example: partbox migrate --dsn postgresql://localhost/shop

    Example: partbox migrate --sql | psql shop
    """
    settings = load(flags={"dsn": dsn, "schema": schema})
    name = settings.schema_name
    roles = Roles(tuple(publisher_role or ()), tuple(worker_role or ()))
    if sql:
        typer.echo(migrations.script(name, roles), nl=False)
        return
    _require(database(settings), name)
    applied = migrations.migrate(database(settings), name, roles=roles)
    typer.echo(f"schema {name!r}: {'applied ' + ', '.join(applied) if applied else 'up to date, nothing to do'}")
    tell_grants(roles)


def _require(dsn: str, schema: str) -> None:
    """A mistyped name must not create another outbox."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        if conn.execute(query("migrate_found", schema), {}).fetchone() == (False,):
            raise migrations.missing(conn, schema)
        if migrations.is_inbox_only(conn, schema):
            raise SchemaError(
                f"schema {schema!r} holds nothing but an inbox: `partbox init --inbox-only` brings that up to date, "
                "`partbox init` makes it a whole outbox"
            )
