"""`partbox dashboard`: the live page, by itself."""

import threading
from typing import Annotated

import typer

from partbox.cli.shell.flags import database, load
from partbox.cli.shell.options import Dsn, Schema
from partbox.cli.shell.stopping import until_stopped
from partbox.db.connect import connect
from partbox.db.schema import migrate
from partbox.http.address import address
from partbox.http.server import check_installed
from partbox.settings import Settings

PATIENCE = 10.0  # seconds for the check at the start

Http = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="The address to serve it at; :0 is a free port of this machine alone.")
]


def dashboard(http: Http = "127.0.0.1:9465", dsn: Dsn = None, schema: Schema = None) -> None:
    """Serve a live page of the partitions, the processes, and what is blocked or dead; Ctrl-C ends it.

    The address that it prints carries a token (PARTBOX_HTTP_TOKEN, else a new one each time): whoever has it may
    replay, skip and discard. Without the token the page only shows, and on an address that others can reach not even
    that.

    Example: partbox dashboard --dsn postgresql://localhost/shop
    """
    settings, where = load(flags={"dsn": dsn, "schema": schema}), address(http)
    check_installed()
    from partbox.dashboard import standalone

    _check(settings)
    with standalone(settings, lambda: database(settings), where, settings.http_token) as url, until_stopped():
        typer.echo(f"the live page of schema {settings.schema_name!r}: {url}")
        typer.echo("whoever has this address may replay, skip and discard; Ctrl-C ends it")
        threading.Event().wait()


def _check(settings: Settings) -> None:
    """Raise now what would otherwise show on the page."""
    with connect(database(settings), lease=PATIENCE, pooler=settings.pooler, name="partbox dashboard") as conn:
        migrate.check(conn, settings.schema_name)
