"""Statements of change data capture: the state of the server, the SQL to prepare it, the statements of a connector."""

from typing import Literal, NamedTuple

from psycopg import sql as compose

from partbox.db.sql import Conn, compose_text, one_row, plain_query, sql_folder
from partbox.db.type_conversion import DEFAULTS


class CdcReadiness(NamedTuple):
    """The readiness of the server; `published`: the publication shows inserts into segments as those of `record`."""

    wal_level: str
    publication: bool
    published: bool


def load_readiness(conn: Conn, schema: str, publication: str) -> CdcReadiness:
    """Read how far the server is prepared for a connector of this `publication`."""
    return CdcReadiness(*one_row(conn, "cdc_server", schema, publication=publication))


def setup_script(schema: str, *, role: str, publication: str) -> str:
    """The SQL that prepares a database for Debezium, for psql."""
    text = (sql_folder() / "cdc" / "debezium.sql").read_text(encoding="utf-8")
    names = {"role": compose.Identifier(role), "publication": compose.Identifier(publication)}
    return compose_text(text, schema, role_name=compose.Literal(role), **names).as_string(DEFAULTS)


def connector_statement(use: Literal["snapshot", "heartbeat"], schema: str) -> str:
    """A statement of the connector, in one line: it reads what the log holds at the start, or runs with heartbeats."""
    lines = plain_query(f"cdc_{use}", schema).decode().splitlines()
    return " ".join(line for line in lines if not line.startswith("--"))
