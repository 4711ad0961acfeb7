"""`partbox dashboard`: the live page, by itself."""

import threading
from typing import Annotated

import typer

from partbox.cli.shell.flags import database
from partbox.cli.shell.options import DatabaseOptions, option, with_option_groups
from partbox.cli.shell.stopping import until_stopped
from partbox.db.connect import connect
from partbox.db.schema import migrate
from partbox.http.address import address
from partbox.http.server import check_installed

QUERY_TIMEOUT = 10.0  # seconds for the check at the start

Http = Annotated[str, option("HOST:PORT", "The address to serve it at; :0 is a free port of this machine alone.")]


@with_option_groups
def dashboard(*, http: Http = "127.0.0.1:9465", outbox: DatabaseOptions) -> None:
    """Serve a live page of the partitions, the processes, and what is blocked or dead; Ctrl-C ends it.

    The address that it prints carries a token (PARTBOX_HTTP_TOKEN, else a new one each time): whoever has it may
    replay, skip and discard. Without the token the page only shows, and on an address that others can reach not even
    that.

    Example: partbox dashboard --dsn postgresql://localhost/shop
    """
    settings, where = outbox.settings(), address(http)
    check_installed()
    from partbox.dashboard import standalone

    # What would otherwise show on the page is raised now.
    with connect(database(settings), lease=QUERY_TIMEOUT, pooler=settings.pooler, name="partbox dashboard") as conn:
        migrate.check(conn, settings.schema_name)
    with standalone(settings, lambda: database(settings), where, settings.http_token) as url, until_stopped():
        typer.echo(f"the live page of schema {settings.schema_name!r}: {url}")
        typer.echo("whoever has this address may replay, skip and discard; Ctrl-C ends it")
        threading.Event().wait()
