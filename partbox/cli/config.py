"""`partbox config`: every setting, its value and where it comes from."""

from typing import Annotated

import typer

from partbox.cli.options import Dsn, Json, Schema
from partbox.cli.output import console, print_json, table
from partbox.cli.settings_page import page
from partbox.settings import load, names

Markdown = Annotated[bool, typer.Option("--markdown", help="Print the documentation of all settings instead.")]


def config(dsn: Dsn = None, schema: Schema = None, json: Json = False, markdown: Markdown = False) -> None:
    """Show every setting with its value and where that comes from; passwords are masked.

    Example: PARTBOX_LEASE=10s partbox config
    """
    if markdown:
        typer.echo(page(), nl=False)
        return
    settings = load(flags={"dsn": dsn, "schema": schema})
    shown = {name: (settings.shown(name), settings.origins[name]) for name in names()}
    if json:
        print_json({name: {"value": value, "origin": origin} for name, (value, origin) in shown.items()})
    else:
        console().print(table(("setting", "value", "from"), ((name, *rest) for name, rest in shown.items())))
