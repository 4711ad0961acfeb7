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
THROWN_AWAY: Final = {"fsync": "off"}


class Stage:
    """The files of the demo: the deliveries, and the log of the worker processes and their supervisor."""

    def __init__(self, place: Workspace) -> None:
        self.dsn = place.dsn
        self.deliveries = place.folder / "deliveries"
        self.log = place.folder / "log"

    def last_words(self, lines: int = 15) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def stage(dsn: str | None) -> Iterator[Stage]:
    """Set it up, with the standard error in its log, and remove it; SettingsError if the schema exists already."""
    found = None if dsn is None else resolve(dsn)
    with workspace(found, SCHEMA, prefix="partbox-demo-", options=THROWN_AWAY, clear=_refuse) as place:
        made = Stage(place)
        with stderr_to(made.log):
            yield made


def _refuse(conn: Connection[Any]) -> None:
    if is_there(conn, SCHEMA):
        raise SettingsError(
            f"schema {SCHEMA!r} exists already in this database: wait for the demo that runs there, or remove what "
            f"one has left with `drop schema {SCHEMA} cascade`"
        )
