"""`partbox dashboard`: serves the live page without a worker."""

import threading
from typing import Annotated

import typer

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import DatabaseOptions, option, with_option_groups
from partbox.cli.shell.stopping import until_stopped
from partbox.db.connect import connect
from partbox.db.schema import migrate
from partbox.http.address import parse_address
from partbox.http.server import check_installed

QUERY_TIMEOUT = 10.0  # seconds for the check at the start

Http = Annotated[str, option("HOST:PORT", "The address of the page; :0 is a free port, for this machine alone.")]


@with_option_groups
def dashboard(*, http: Http = "127.0.0.1:9465", outbox: DatabaseOptions) -> None:
    """Serve a live page of the partitions, the processes, and the blocked and dead records. Ctrl-C ends it.

    The printed address carries a token (PARTBOX_HTTP_TOKEN, else a new one each time). Everybody with the token may
    replay, skip and discard. Without the token the page is read-only, and not shown at all on an address that other
    machines can reach.

    Example: partbox dashboard --dsn postgresql://localhost/shop
    """
    settings, where = outbox.load_settings(), parse_address(http)
    check_installed()
    from partbox.dashboard import serve_standalone

    # Errors of the database are raised here, at the start, instead of being shown on the page.
    with connect(build_dsn(settings), lease=QUERY_TIMEOUT, pooler=settings.pooler, name="partbox dashboard") as conn:
        migrate.check_schema_version(conn, settings.schema_name)
    with serve_standalone(settings, lambda: build_dsn(settings), where, settings.http_token) as url, until_stopped():
        typer.echo(f"the live page of schema {settings.schema_name!r}: {url}")
        typer.echo("everybody with this address may replay, skip and discard; Ctrl-C ends the page")
        threading.Event().wait()
