"""Where the demo takes place: a temporary folder with a database in it, or a schema in a user's; removed at the end."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from partbox.db import server_user
from partbox.db.connect import resolve
from partbox.db.embedded import Server
from partbox.db.migrate import migrate
from partbox.db.sql import query
from partbox.errors import SettingsError

SCHEMA: Final = "partbox_demo"
THROWN_AWAY: Final = {"fsync": "off"}


@dataclass(frozen=True, slots=True)
class Stage:
    """A database with the schema `partbox_demo`, and a folder."""

    dsn: str
    folder: Path

    @property
    def deliveries(self) -> Path:
        return self.folder / "deliveries"

    @property
    def log(self) -> Path:
        """What the worker processes and their supervisor say."""
        return self.folder / "log"

    def last_words(self, lines: int = 15) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def stage(dsn: str | None) -> Iterator[Stage]:
    """Set it up, and take it down; SettingsError if the schema is there already."""
    with new_folder("partbox-demo-") as folder, _embedded(folder / "db") if dsn is None else _borrowed(dsn) as database:
        yield Stage(database, folder)


@contextmanager
def aside(log: Path) -> Iterator[None]:
    """Meanwhile this process and those that it starts write their errors there, not into the picture."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def new_folder(prefix: str) -> Iterator[Path]:
    """A new one. Root lends the server a user who must be able to pass through it."""
    root = os.geteuid() == 0
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    open_ones = [place for place in places if place.is_dir() and not (root and server_user.closed(place))]
    if not open_ones:
        raise SettingsError(f"{places[0]} is closed to other users: set TMPDIR to a folder that they can enter")
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=open_ones[0]))
    try:
        if root:
            folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _embedded(data: Path) -> Iterator[str]:
    server = Server(data, options=THROWN_AWAY)
    try:
        dsn = server.start()
        migrate(dsn, SCHEMA)
        yield dsn
    finally:
        server.stop("immediate")


@contextmanager
def _borrowed(dsn: str) -> Iterator[str]:
    dsn = resolve(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        if conn.execute(query("demo_found", SCHEMA), {"schema": SCHEMA}).fetchone() is not None:
            raise SettingsError(
                f"schema {SCHEMA!r} exists already in this database: wait for the demo that runs there, or remove what "
                f"one has left with `drop schema {SCHEMA} cascade`"
            )
    try:
        migrate(dsn, SCHEMA)
        yield dsn
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(query("demo_drop", SCHEMA), {})
