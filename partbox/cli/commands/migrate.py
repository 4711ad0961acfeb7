"""`partbox migrate`: brings the schema to this program's version."""

from typing import Annotated

import typer

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import DatabaseOptions, RoleOptions, flag, option, print_granted, with_option_groups
from partbox.db.connect import connect_plain
from partbox.db.schema import migrate as migrations
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import schema_exists
from partbox.db.schema.scripts import build_script
from partbox.errors import PartboxError, SchemaError
from partbox.text.wording import format_command

Sql = Annotated[bool, flag("Print the SQL instead; no database is touched.", "--sql")]
Since = Annotated[
    int | None, option("VERSION", "With --sql: upgrade from this version, instead of creating a schema.", "--from")
]
NoTransaction = Annotated[
    bool, flag("With --sql: leave out begin and commit, for a tool that has its own.", "--no-transaction")
]

Check = Annotated[bool, flag("Change nothing; exit with 1 if there is something to do.", "--check")]


@with_option_groups
def migrate(
    *,
    outbox: DatabaseOptions,
    sql: Sql = False,
    from_: Since = None,
    no_transaction: NoTransaction = False,
    check: Check = False,
    granted: RoleOptions,
) -> None:
    """Bring an outbox's schema to the version of this program. Roles of earlier calls are granted the new privileges.

    Example: partbox migrate --dsn postgresql://localhost/shop

    Example: partbox migrate --check

    Example: partbox migrate --sql --from 14 | psql -v ON_ERROR_STOP=1 shop
    """
    settings, roles = outbox.load_settings(), granted.roles
    name = settings.schema_name
    if check and sql:
        raise PartboxError("--check looks at a database and --sql at none: give one of them")
    if sql:
        typer.echo(build_script(name, roles, since=from_ or 0, transaction=not no_transaction), nl=False)
        return
    if from_ is not None or no_transaction:
        option = "--no-transaction" if from_ is None else "--from"
        raise PartboxError(
            f"{option} works only with --sql: without --sql the command reads the version and opens a transaction"
        )
    _require_schema(build_dsn(settings), name)
    if check:
        _report_outdated(build_dsn(settings), name, roles)
        return
    applied = migrations.migrate(build_dsn(settings), name, roles=roles)
    typer.echo(f"schema {name!r}: {'applied ' + ', '.join(applied) if applied else 'up to date, nothing to do'}")
    print_granted(roles)


def _report_outdated(dsn: str, schema: str, roles: Roles) -> None:
    outdated = migrations.find_outdated(dsn, schema, roles=roles)
    if outdated:
        raise PartboxError(f"schema {schema!r} lacks {', '.join(outdated)}: run {format_command('migrate', schema)}")
    typer.echo(f"schema {schema!r}: up to date, nothing to do")


def _require_schema(dsn: str, schema: str) -> None:
    # A mistyped name must not create another outbox, so an error is raised if the schema does not exist.
    with connect_plain(dsn) as conn:
        if not schema_exists(conn, schema):
            raise migrations.build_missing_error(conn, schema)
        if migrations.is_inbox_only(conn, schema):
            raise SchemaError(
                f"schema {schema!r} holds nothing but an inbox: `partbox init --inbox-only` brings the inbox up to "
                "date, `partbox init` makes the schema a whole outbox"
            )
