"""A workspace that is removed after a run: a temporary folder, and a schema of its own in a database."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from partbox.db.schema.migrate import migrate
from partbox.db.sql import Conn
from partbox.db.type_conversion import DEFAULTS
from partbox.demo.workspace import DATA, drop_schema, refuse_existing, temporary_folder
from partbox.embedded.server import Server
from partbox.text.dsn import parse_dsn


@dataclass(slots=True)
class Workspace:
    """The folder and the database of one run."""

    dsn: str
    schema: str
    folder: Path
    server: Server | None  # None: the database is the user's
    keep: bool = False  # leave the schema and a copy of the folder

    def connect(self, role: str) -> Conn:
        """Open an autocommit connection that pg_stat_activity shows with `role`."""
        dsn = make_conninfo(self.dsn, application_name=self.named(role))
        return psycopg.connect(dsn, autocommit=True, context=DEFAULTS, prepare_threshold=None)

    def named(self, role: str) -> str:
        """Return the application name of a role's sessions, unique to this run."""
        return f"{self.folder.name} {role}"

    def move(self, server: Server) -> None:
        """Put another running server at the address of the workspace's server, which has ended."""
        address = _address(self.dsn)
        # The link of an earlier move. Without a move, the folder was removed with the server.
        address.unlink(missing_ok=True)
        address.symlink_to(_address(server.dsn))
        self.server = server

    @property
    def kept_folder(self) -> Path:
        """The copy of the folder that is left if `keep` is set."""
        return self.folder.with_name(f"{self.folder.name}-kept")


@contextmanager
def workspace(
    dsn: str | None,
    schema: str,
    *,
    program: str,
    options: Mapping[str, str],
    binaries: Path | None = None,
    clear: Callable[[Conn], None] | None = None,
    under: Callable[[Path], AbstractContextManager[None]] = lambda folder: nullcontext(),
) -> Iterator[Workspace]:
    """Hold a folder named after the program and a migrated schema, and remove both at the end.

    Without `dsn`, the database is an embedded server in the folder, with these `binaries` and `options`, after
    `under(folder)` has prepared its data folder. In the user's database, `clear(conn)` makes room for the schema or
    raises. By default an existing schema raises `SettingsError`.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder(program))
        if dsn is None:
            stack.enter_context(under(folder / DATA))
            server = Server(folder / DATA, binaries=binaries, options=options)
            made = stack.enter_context(_embedded(schema, folder, server))
        else:
            made = stack.enter_context(
                _borrowed(dsn, schema, folder, clear or partial(refuse_existing, schema=schema, program=program))
            )
        try:
            yield made
        finally:
            if made.keep:
                shutil.copytree(folder, made.kept_folder, ignore=shutil.ignore_patterns(DATA))


@contextmanager
def _embedded(schema: str, folder: Path, first: Server) -> Iterator[Workspace]:
    made = Workspace(first.dsn, schema, folder, first)
    try:
        first.start()
        try:
            migrate(made.dsn, schema)
            yield made
        finally:
            # After a crash, a start makes PostgreSQL release its shared memory.
            (made.server or first).start()
    finally:
        (made.server or first).stop("immediate")
        if (address := _address(made.dsn)).is_symlink():
            address.unlink()


def _address(dsn: str) -> Path:
    """Return the socket folder of an embedded server."""
    return Path(str(parse_dsn(dsn)["host"]))


@contextmanager
def _borrowed(dsn: str, schema: str, folder: Path, clear: Callable[[Conn], None]) -> Iterator[Workspace]:
    with psycopg.connect(dsn, autocommit=True, context=DEFAULTS) as conn:
        clear(conn)
    made = Workspace(dsn, schema, folder, None)
    try:
        migrate(dsn, schema)
        yield made
    finally:
        if not made.keep:
            with psycopg.connect(dsn, autocommit=True, context=DEFAULTS) as conn:
                drop_schema(conn, schema)
