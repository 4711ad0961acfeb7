"""`partbox dashboard`: the live page, by itself."""

import threading
from contextlib import closing
from typing import Annotated

import typer

from partbox.cli.shell.database import database
from partbox.cli.shell.flags import load
from partbox.cli.shell.options import Dsn, Schema
from partbox.cli.shell.stopping import until_stopped
from partbox.db.connect import connect
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.db.schema import migrate
from partbox.http.address import address
from partbox.http.server import Asgi, HttpServer, check_installed
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
    from partbox.dashboard import access

    _check(settings)
    allowed = access(where, settings.http_token, new=True)
    with closing(CachedOverview(settings, lambda: database(settings))) as glance:
        server = HttpServer(_app(glance, settings, allowed), *where)
        server.start()
        with until_stopped():
            typer.echo(f"the live page of schema {settings.schema_name!r}: {server.address}/#token={allowed.token}")
            typer.echo("whoever has this address may replay, skip and discard; Ctrl-C ends it")
            threading.Event().wait()
        server.stop()


def _check(settings: Settings) -> None:
    """Raise now what would otherwise show on the page."""
    with connect(database(settings), lease=PATIENCE, pooler=settings.pooler, name="partbox dashboard") as conn:
        migrate.check(conn, settings.schema_name)


def _app(glance: CachedOverview, settings: Settings, allowed: object) -> Asgi:
    from starlette.applications import Starlette

    from partbox.dashboard import Access, routes

    assert isinstance(allowed, Access)
    return Starlette(routes=routes(glance, lambda: database(settings), settings, allowed))
