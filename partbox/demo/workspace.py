"""The demo's temporary folder and database schema, both of which are removed at the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from partbox.db.connect import connect_plain
from partbox.db.schema.migrate import migrate
from partbox.db.sql import Conn, load_query
from partbox.embedded import server_user
from partbox.embedded.server import Server
from partbox.errors import SettingsError

# The folder of the demo's own server.
DATA: Final = "db"


@contextmanager
def workspace(dsn: str | None, schema: str, options: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Create a temporary folder and a database schema for the block, and remove both at the end."""
    # The DSN and the folder are yielded, and the schema is migrated. Raise `SettingsError` if the schema exists in a
    # user's database.
    # Without `dsn`, the database is a server in the folder, with these `options`.
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("demo"))
        if dsn is None:
            server = Server(folder / DATA, options=options)
            stack.callback(server.stop, "immediate")
            dsn = server.start()
            # If the server has crashed, a start lets PostgreSQL release its shared memory.
            stack.callback(server.start)
        else:
            with connect_plain(dsn) as conn:
                refuse_existing(conn, schema, "demo")
            stack.callback(_remove_schema, dsn, schema)
        migrate(dsn, schema)
        yield dsn, folder


def refuse_existing(conn: Conn, schema: str, program: str) -> None:
    """Raise SettingsError if the schema exists already, so that `program` does not touch the data in it."""
    if conn.execute(load_query("workspace_found", schema), {"schema": schema}).fetchone() is not None:
        raise SettingsError(
            f"schema {schema!r} exists already in this database: wait for the {program} that runs there, or remove "
            f"the remains of an earlier one with `drop schema {schema} cascade`"
        )


def drop_schema(conn: Conn, schema: str) -> None:
    conn.execute(load_query("workspace_drop", schema), {})


def _remove_schema(dsn: str, schema: str) -> None:
    with connect_plain(dsn) as conn:
        drop_schema(conn, schema)


@contextmanager
def temporary_folder(program: str) -> Iterator[Path]:
    """Create a temporary folder for the block, and remove it at the end."""
    # The folder is named for the program. For root, the embedded server's user can enter it.
    places = server_user.list_temporary_folders()
    if not places:
        usual = tempfile.gettempdir()
        raise SettingsError(f"{usual} is closed to other users: set TMPDIR to a folder that they can enter")
    folder = Path(tempfile.mkdtemp(prefix=f"partbox-{program}-", dir=places[0]))
    try:
        if os.geteuid() == 0:
            folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
