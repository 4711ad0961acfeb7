"""The demo's workspace: a temporary folder with a database in it, or a schema in a user's; removed at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection

from partbox.db.connect import resolve
from partbox.db.harness.workspace import Workspace, is_there, workspace
from partbox.errors import SettingsError
from partbox.terminal.streams import stderr_to

SCHEMA: Final = "partbox_demo"
LOG: Final = "log"  # of the worker processes and their supervisor
THROWN_AWAY: Final = {"fsync": "off"}


@contextmanager
def stage(dsn: str | None) -> Iterator[Workspace]:
    """Set it up, and remove it; SettingsError if the schema exists already. Errors that are printed go to its log."""
    found = None if dsn is None else resolve(dsn)
    with (
        workspace(found, SCHEMA, prefix="partbox-demo-", options=THROWN_AWAY, clear=_refuse) as place,
        stderr_to(place.folder / LOG),
    ):
        yield place


def last_words(place: Workspace, lines: int = 15) -> str:
    """The end of the log."""
    return "\n".join((place.folder / LOG).read_text(errors="replace").splitlines()[-lines:])


def _refuse(conn: Connection[Any]) -> None:
    if is_there(conn, SCHEMA):
        raise SettingsError(
            f"schema {SCHEMA!r} exists already in this database: wait for the demo that runs there, or remove what "
            f"one has left with `drop schema {SCHEMA} cascade`"
        )
