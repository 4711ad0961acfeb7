"""`partbox init`: creates the schema."""

import typer

from partbox.cli.database import database
from partbox.cli.options import Dsn, Schema
from partbox.db.migrate import migrate
from partbox.settings import load


def init(dsn: Dsn = None, schema: Schema = None) -> None:
    """Create the outbox's schema in a database. Safe to repeat, and to run many times at once.

    Example: partbox init --dsn postgresql://localhost/shop
    """
    settings = load(flags={"dsn": dsn, "schema": schema})
    applied = migrate(database(settings), settings.schema_name)
    if applied:
        typer.echo(f"schema {settings.schema_name!r} is ready: applied {', '.join(applied)}")
    else:
        typer.echo(f"schema {settings.schema_name!r} is there already and up to date: nothing to do")
