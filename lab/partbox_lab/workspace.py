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
from partbox.demo.workspace import DATA, drop, refuse_existing, temporary_folder
from partbox.embedded.server import Server
from partbox.text.dsn import parts


@dataclass(slots=True)
class Workspace:

    dsn: str
    schema: str
    folder: Path
    server: Server | None
    keep: bool = False

    def connect(self, role: str) -> Conn:
        dsn = make_conninfo(self.dsn, application_name=self.named(role))
        return psycopg.connect(dsn, autocommit=True, context=DEFAULTS, prepare_threshold=None)

    def named(self, role: str) -> str:
        return f"{self.folder.name} {role}"

    def move(self, server: Server) -> None:
        address = _address(self.dsn)
        address.unlink(missing_ok=True)
        address.symlink_to(_address(server.dsn))
        self.server = server

    @property
    def kept_folder(self) -> Path:
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
            (made.server or first).start()
    finally:
        (made.server or first).stop("immediate")
        if (address := _address(made.dsn)).is_symlink():
            address.unlink()


def _address(dsn: str) -> Path:
    return Path(str(parts(dsn)["host"]))


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
                drop(conn, schema)
