"""`partbox init`: creates the schema."""

from typing import Annotated

import typer

from partbox.cli.shell.flags import database, load
from partbox.cli.shell.options import Dsn, PublisherRoles, Schema, WorkerRoles
from partbox.cli.shell.output import print_granted
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import migrate, migrate_inbox
from partbox.errors import PartboxError

WriterOnly = Annotated[
    bool, typer.Option("--writer-only", help="Create no subscription: events are published here and read by others.")
]
InboxOnly = Annotated[
    bool, typer.Option("--inbox-only", help="Create the inbox only, for consumers whose events come from elsewhere.")
]


def init(
    dsn: Dsn = None,
    schema: Schema = None,
    writer_only: WriterOnly = False,
    inbox_only: InboxOnly = False,
    publisher_role: PublisherRoles = None,
    worker_role: WorkerRoles = None,
) -> None:
    """Create the outbox's schema in a database. Safe to repeat, and to run many times at once.

    Example: partbox init --dsn postgresql://localhost/shop
    """
    if writer_only and inbox_only:
        raise PartboxError("--writer-only makes a log and --inbox-only makes none: give one of them")
    roles = Roles(tuple(publisher_role or ()), tuple(worker_role or ()))
    if inbox_only and roles:
        raise PartboxError(
            "--inbox-only has no roles of its own: grant usage on the schema, and insert on its table inbox, to the "
            "role that consumes"
        )
    settings = load(flags={"dsn": dsn, "schema": schema})
    name = settings.schema_name
    if inbox_only:
        _inbox(database(settings), name)
        return
    applied = migrate(database(settings), name, writer_only=writer_only, roles=roles)
    if applied:
        shape = ", writer-only: without a subscription" if writer_only else ""
        steps = applied[0] if len(applied) == 1 else f"{applied[0]} to {applied[-1]}"
        typer.echo(f"schema {name!r} is ready{shape}: applied {steps}")
    else:
        typer.echo(f"schema {name!r} is there already and up to date: nothing to do")
    print_granted(roles)


def _inbox(dsn: str, schema: str) -> None:
    if migrate_inbox(dsn, schema):
        typer.echo(f"schema {schema!r} is ready: it holds nothing but an inbox")
    else:
        typer.echo(f"schema {schema!r} is a whole outbox already, which has an inbox: nothing to do")
