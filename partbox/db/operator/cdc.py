"""SQL of change data capture: the state of the server, its preparation, and the statements of a connector."""

from typing import Literal, NamedTuple

from psycopg import sql as compose

from partbox.db.sql import Conn, compose_text, fetch_one_row, load_plain_query, sql_folder
from partbox.db.type_conversion import DEFAULTS


class CdcReadiness(NamedTuple):
    """The server's readiness for change data capture: its WAL level and publication.

    - `published`: the publication shows inserts into segments as inserts into `record`"""

    wal_level: str
    publication: bool
    published: bool


def load_readiness(conn: Conn, schema: str, publication: str) -> CdcReadiness:
    """Check how far the server is prepared for change data capture with this publication."""
    # A connector uses the publication.
    return CdcReadiness(*fetch_one_row(conn, "cdc_server", schema, publication=publication))


def setup_script(schema: str, *, role: str, publication: str) -> str:
    """Return a psql script that prepares a database for the change data capture tool Debezium."""
    # An administrator runs it.
    text = (sql_folder() / "cdc" / "debezium.sql").read_text(encoding="utf-8")
    names = {"role": compose.Identifier(role), "publication": compose.Identifier(publication)}
    return compose_text(text, schema, role_name=compose.Literal(role), **names).as_string(DEFAULTS)


def connector_statement(use: Literal["snapshot", "heartbeat"], schema: str) -> str:
    """Return a one-line SQL statement to put into the configuration of a change data capture connector."""
    # `use` is "snapshot", the connector's read of the log at the start, or "heartbeat".
    lines = load_plain_query(f"cdc_{use}", schema).decode().splitlines()
    return " ".join(line for line in lines if not line.startswith("--"))
