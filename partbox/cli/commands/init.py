"""`partbox init`: creates the schema."""

from typing import Annotated

import typer

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import DatabaseOptions, RoleOptions, flag, print_granted, with_option_groups
from partbox.db.schema.migrate import migrate, migrate_inbox
from partbox.errors import PartboxError

WriterOnly = Annotated[
    bool, flag("Create no subscription: events are published here and read by others.", "--writer-only")
]
InboxOnly = Annotated[
    bool, flag("Create the inbox only, for consumers whose events come from elsewhere.", "--inbox-only")
]


@with_option_groups
def init(
    *, outbox: DatabaseOptions, writer_only: WriterOnly = False, inbox_only: InboxOnly = False, granted: RoleOptions
) -> None:
    """Create the outbox's schema in a database. Safe to repeat, and to run many times at once.

    Example: partbox init --dsn postgresql://localhost/shop
    """
    if writer_only and inbox_only:
        raise PartboxError("--writer-only makes a log and --inbox-only makes none: give one of them")
    roles = granted.roles
    if inbox_only and roles:
        raise PartboxError(
            "--inbox-only has no roles of its own: grant usage on the schema, and insert on its table inbox, to the "
            "role that consumes"
        )
    settings = outbox.load_settings()
    name = settings.schema_name
    if inbox_only:
        is_new = migrate_inbox(build_dsn(settings), name)
        said = "is ready: it holds nothing but an inbox"
        there = "is a whole outbox already, which has an inbox: nothing to do"
        typer.echo(f"schema {name!r} {said if is_new else there}")
        return
    applied = migrate(build_dsn(settings), name, writer_only=writer_only, roles=roles)
    if applied:
        shape = ", writer-only: without a subscription" if writer_only else ""
        steps = applied[0] if len(applied) == 1 else f"{applied[0]} to {applied[-1]}"
        typer.echo(f"schema {name!r} is ready{shape}: applied {steps}")
    else:
        typer.echo(f"schema {name!r} is there already and up to date: nothing to do")
    print_granted(roles)
