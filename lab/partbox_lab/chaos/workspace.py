"""The workspace of a chaos run: a folder, and a schema of its own in an embedded database or the user's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection
from psycopg.conninfo import make_conninfo

from partbox.db.connect import resolve_dsn
from partbox.demo.workspace import drop_schema
from partbox.errors import SettingsError
from partbox.text.dsn import parse_dsn
from partbox_lab.chaos import statements
from partbox_lab.chaos.faults import LEASE
from partbox_lab.chaos.full_disk import OwnDisk
from partbox_lab.workspace import Workspace, workspace

OPTIONS: Final = {
    "fsync": "off",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    # Recycled WAL files would still have room on a full disk.
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
}
CONNECT_TIMEOUT: Final = 10  # seconds
QUIET = 3 * LEASE  # seconds without a heartbeat after which a schema is abandoned


@contextmanager
def chaos_workspace(dsn: str | None, schema: str, keep: bool, disk: OwnDisk) -> Iterator[Workspace]:
    """Hold the workspace of a run, its server on `disk` if that can be had. Raise `SettingsError` if the schema exists
    already and no earlier run has left it."""
    found = None if dsn is None else _with_timeout(resolve_dsn(dsn))
    with workspace(
        found,
        schema,
        program="chaos",
        options=OPTIONS,
        clear=lambda conn: _clear(conn, schema),
        under=disk.under,
    ) as made:
        made.keep = keep
        with made.connect("chaos") as conn:
            statements.make_accounts(conn, schema)
        yield made


def _clear(conn: Connection[Any], schema: str) -> None:
    """Drop a schema that an earlier run has left. Refuse any other, and one in use."""
    found, ours = statements.is_there(conn, schema)
    if not found:
        return
    if not ours:
        raise SettingsError(
            f"schema {schema!r} exists already and `partbox chaos` did not make it: name another one by --schema"
        )
    if statements.has_living(conn, schema, QUIET):
        raise SettingsError(
            f"another `partbox chaos` runs in schema {schema!r}: wait for its end, or name another one by --schema"
        )
    drop_schema(conn, schema)


def _with_timeout(dsn: str) -> str:
    return make_conninfo("", **{"connect_timeout": str(CONNECT_TIMEOUT), **parse_dsn(dsn)})
