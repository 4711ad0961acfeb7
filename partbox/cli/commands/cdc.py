"""`partbox cdc`: configures Debezium to read the log from the WAL, instead of workers that poll it."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import psycopg
import typer

from partbox.cdc import CONNECT_PASSWORD, Connector, ServerAddress, TopicRoute, connect, default_name, properties
from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import DatabaseOptions, flag, option, with_option_groups
from partbox.cli.shell.output import escape_unprintable, print_json
from partbox.db.connect import connect_plain
from partbox.db.operator import cdc as db
from partbox.db.operator.cdc import CdcReadiness
from partbox.db.schema import migrate
from partbox.text.dsn import parse_dsn
from partbox.text.wording import format_command

app = typer.Typer(
    help="Change data capture: Debezium reads the log from the WAL, without workers.", no_args_is_help=True
)


class ConfigFormat(StrEnum):
    CONNECT = "connect"
    PROPERTIES = "properties"


PASSWORDS = {
    ConfigFormat.CONNECT: f"{CONNECT_PASSWORD} stands for a variable of the Connect worker's environment, if the "
    "worker has config.providers=env; ${file:PATH:KEY} and others work as well",
    ConfigFormat.PROPERTIES: "the program that runs the engine sets database.password",
}


class SnapshotFrom(StrEnum):
    BEGINNING = "beginning"
    NOW = "now"


Format = Annotated[
    ConfigFormat, typer.Option("--format", help="JSON for Kafka Connect, or properties for Debezium's engine.")
]
Sql = Annotated[bool, flag("Print the SQL that prepares the database instead.", "--sql")]
Topic = Annotated[str, option("TEMPLATE", "Topic, with {aggregate_type} or {event_type} in its own spelling.")]
From = Annotated[
    SnapshotFrom, typer.Option("--from", help="Events to send first: all that the log holds, or new ones only.")
]
Name = Annotated[
    str | None, option("NAME", "Name of connector, slot and publication (else made from database and schema).")
]
Role = Annotated[str, option("ROLE", "The connector's own role in the database.")]


@app.command()
@with_option_groups
def debezium(
    *,
    form: Format = ConfigFormat.CONNECT,
    sql: Sql = False,
    topic: Topic = "{aggregate_type}-events",
    start: From = SnapshotFrom.BEGINNING,
    name: Name = None,
    role: Role = "debezium",
    outbox: DatabaseOptions,
) -> None:
    """Print a configuration of Debezium's PostgreSQL connector that sends every event by its EventRouter.

    Nothing is changed. First run the SQL that --sql prints, once. Then give the configuration to Kafka Connect.
    Anything still missing in the database is reported on the standard error output.

    Example: partbox cdc debezium --sql | psql shop

    Example: partbox cdc debezium --dsn postgresql://localhost/shop > connector.json
    """
    settings, route = outbox.load_settings(), TopicRoute(topic)
    schema = settings.schema_name
    with connect_plain(build_dsn(settings)) as conn:
        migrate.check_schema_version(conn, schema)
        made = _build_connector(conn, schema, route, start, name, role)
        state = db.load_readiness(conn, schema, made.name)
        by_socket = not _read_tcp_host(conn)
    if sql:
        typer.echo(db.setup_script(made.schema, role=made.role, publication=made.name), nl=False)
    elif form is ConfigFormat.CONNECT:
        print_json(connect(made.name, made.options()))
    else:
        typer.echo(properties(made.name, made.options()), nl=False)
    notes = _list_server_notes(state) if sql else _list_notes(made, state, form, settings.pooler, by_socket)
    for note in notes:
        typer.echo(f"partbox: {escape_unprintable(note)}", err=True)


def _build_connector(
    conn: psycopg.Connection, schema: str, route: TopicRoute, start: SnapshotFrom, name: str | None, role: str
) -> Connector:
    info = conn.info
    return Connector(
        name=default_name(info.dbname, schema) if name is None else name,
        schema=schema,
        role=role,
        address=ServerAddress(
            _read_tcp_host(conn) or "localhost", info.port, info.dbname, parse_dsn(info.dsn).get("sslmode")
        ),
        route=route,
        whole=start is SnapshotFrom.BEGINNING,
        snapshot=db.connector_statement("snapshot", schema),
        heartbeat=db.connector_statement("heartbeat", schema),
    )


def _read_tcp_host(conn: psycopg.Connection) -> str:
    # The text is empty if the connection uses a local socket.
    host = conn.info.host
    return "" if host.startswith(("/", "@")) else host


def _list_notes(
    made: Connector, state: CdcReadiness, form: ConfigFormat, pooler: bool, by_socket: bool
) -> Iterator[str]:
    # The notes are about values that are missing from the configuration, and about steps that remain.
    yield f"the password of role {made.role!r} is not printed: {PASSWORDS[form]}"
    if by_socket:
        yield "the DSN names a socket, and Debezium connects by TCP: replace localhost and the port by the server's"
    if pooler:
        yield "a pooler passes no replication: replace the pooler's host and port by the server's own"
    yield from _list_server_notes(state)
    options = ["--sql", "--name", made.name, "--role", made.role]
    prepare = f"{format_command('cdc debezium', made.schema, options=options)} prints the SQL that makes it"
    if not state.publication:
        yield f"publication {made.name!r} is not there, and no connector starts without it: {prepare}"
    elif not state.published:
        wrong = "does not publish inserts into the log by its root table, so no event would arrive"
        yield f"publication {made.name!r} {wrong}: drop it; {prepare}"


def _list_server_notes(state: CdcReadiness) -> Iterator[str]:
    if state.wal_level != "logical":
        remedy = "`alter system set wal_level = logical`, then restart the server"
        yield f"wal_level is {state.wal_level!r}, with which no connector starts: {remedy}"
