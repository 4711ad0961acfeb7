"""The database that the tests of a process use in turn, restored after each test to the state after migrations.

Restoring rows takes less CPU than cloning a database. If more than rows has changed, such as tables or settings, the
database is dropped and the next test gets a fresh clone. Changes are found by PostgreSQL's counts of written rows, also
those of the system catalogs. Without the rights to reset the counts, every test gets a clone."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from partbox.db.connect import connect_plain
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.testing.sessions import Sessions

# The system catalogs grow a little with each test, so a database is dropped after this many.
MAX_USES = 200
# The first server version whose sessions can report at once which rows they have written.
# Seconds for terminated sessions to end.
DISCONNECT_TIMEOUT = 30.0
CHECK_PAUSE = 0.001

COUNTED_SINCE = "select stats_reset from pg_stat_database where datname = current_database()"
SESSIONS = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> all (%s)"
RUNS = "select from pg_stat_activity where pid = %s"
PREPARED = "select gid from pg_prepared_xacts where database = %s"
SETTINGS = """
select row(d.datdba, d.datallowconn, d.datconnlimit, d.datacl)::text,
       (select count(*) from pg_db_role_setting s where s.setdatabase = d.oid),
       (select count(*) from pg_prepared_xacts x where x.database = d.datname)
  from pg_database d where d.datname = %s
"""

WRITTEN = """
select c.oid::regclass::text, c.relnamespace = 'pg_catalog'::regnamespace or c.relkind = 'm', c.oid
  from pg_class c
 where c.relkind in ('r', 'm') and not c.relisshared
       and c.relnamespace not in (select n.oid from pg_namespace n
                                   where n.nspname = 'information_schema' or n.nspname ~ '^pg_(toast|temp)')
       and pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid)
           + pg_stat_get_tuples_deleted(c.oid) > 0
"""
TABLES = """
select c.oid::regclass::text, c.reltuples >= 0
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind = 'r' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
"""
SEQUENCES = """
select c.oid::regclass::text
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind = 'S' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_' order by 1
"""
# A copy of the marker's rows would be the marker of another cluster.
MARKERS = """
select c.oid::regclass::text
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'xid' and a.atttypid = 'xid8'::regtype
 where c.relkind = 'r' and c.relname = 'meta'
"""
REFERRING = """
with recursive changed (oid) as (
    select unnest(%s::oid[])
    union
    select k.conrelid from pg_constraint k join changed on k.confrelid = changed.oid where k.contype = 'f'
)
select oid::regclass::text from changed
"""
# Makes PostgreSQL write table names with their schema, even if the role has another search path.
ANYWHERE = "set search_path = pg_catalog"
# Foreign keys hold again once all rows are back.
UNCHECKED = "set local session_replication_role = replica"


@dataclass(frozen=True, slots=True)
class DatabaseSnapshot:
    """The content of a test database, by which the database is restored after a test.

    It has the rows of all tables, the names of analysed tables, and the values of sequences. Names are quoted for
    SQL."""

    # Contents of the tables that are not empty, in the text form of COPY.
    rows: dict[str, bytes]
    analysed: frozenset[str]
    sequences: dict[str, tuple[int, bool]]
    markers: frozenset[str]
    # True if there are foreign keys.
    refers: bool

    @classmethod
    def capture(cls, conn: Conn) -> "DatabaseSnapshot":
        conn.execute(ANYWHERE)
        tables = dict(conn.execute(TABLES).fetchall())
        markers = frozenset(name for (name,) in conn.execute(MARKERS).fetchall())
        rows: dict[str, bytes] = {}
        for name in tables.keys() - markers:
            with conn.cursor().copy(_compose_statement("copy {} to stdout", name)) as copy:
                if held := b"".join(map(bytes, copy)):
                    rows[name] = held
        sequences = [name for (name,) in conn.execute(SEQUENCES).fetchall()]
        return cls(
            rows,
            frozenset(name for name, analysed in tables.items() if analysed),
            dict(zip(sequences, _read_sequences(conn, sequences), strict=True)),
            markers,
            bool(conn.execute("select from pg_constraint where contype = 'f' limit 1").fetchall()),
        )

    def restore(self, conn: Conn) -> bool:
        """Restore the rows of all tables to the snapshot. Return False if more than rows has changed, such as the
        schema."""
        conn.execute(ANYWHERE)
        written = conn.execute(WRITTEN).fetchall()
        if any(catalog or name in self.markers for name, catalog, _ in written):
            return False
        with conn.transaction():
            self._refill_tables(conn, [oid for _, _, oid in written])
            for (name, before), now in zip(
                self.sequences.items(), _read_sequences(conn, list(self.sequences)), strict=True
            ):
                if now != before:
                    conn.execute("select setval(%s, %s, %s)", [name, *before])
        # Otherwise the writes of this restore would count for the next test.
        conn.execute("select pg_stat_force_next_flush()")
        conn.execute("select pg_stat_reset()")
        return True

    def _refill_tables(self, conn: Conn, changed: list[int]) -> None:
        names = sorted(name for (name,) in conn.execute(REFERRING, [changed]).fetchall()) if changed else []
        if names:
            conn.execute(_compose_statement("truncate {}", *names))
        if names and self.refers:
            conn.execute(UNCHECKED)
        for name in self.rows.keys() & set(names):
            with conn.cursor().copy(_compose_statement("copy {} from stdin", name)) as copy:
                copy.write(self.rows[name])
        if analysed := sorted(self.analysed & set(names)):
            conn.execute(_compose_statement("analyze {}", *analysed))


@dataclass(slots=True)
class LentDatabase:
    """A test database in use by a test, with the number of tests that it may still serve.

    The number is `uses`, and `since` is the time since when the database's written rows are counted."""

    name: str
    settings: tuple[Any, ...] | None = None
    since: Any = None
    uses: int = MAX_USES


class Shelf:
    """A provider of clean test databases, one at a time, cloned from a template database.

    The database `template` is on the server of `dsn`. The connections of `sessions` may stay in the test database, if
    their owner keeps them idle between two tests."""

    def __init__(self, dsn: str, template: str, sessions: Sessions | None = None) -> None:
        self.dsn = dsn
        self.template = template
        self.clones = 0
        self._kept_sessions = sessions
        self._admin = connect_plain(dsn)
        self._snapshot: DatabaseSnapshot | None = None
        self._database: LentDatabase | None = None

    def lend(self) -> str:
        """Return the DSN of a clean test database, in the state after migrations."""
        # The database was restored after the test before, or is newly cloned.
        # A session of an earlier test has entered the database again.
        if self._database is not None and self._end_sessions(self._database):
            self._discard()
        database = self._database = self._database or self._clone()
        return self._dsn(database)

    def take_back(self) -> None:
        """Clean the test database after a test by restoring its rows, or drop the database if that is not possible."""
        # The rows are restored once nobody is connected.
        assert self._database is not None
        self._database.uses -= 1
        kept = False
        try:
            # The role may not reset the counts.
            with suppress(InsufficientPrivilege):
                kept = self._database.uses > 0 and self._restore(self._database)
        # Also after an error, so that the next test gets another database.
        finally:
            if not kept:
                self._discard()

    def close(self) -> None:
        if self._database is not None:
            self._discard()
        self._admin.close()

    def _dsn(self, database: LentDatabase) -> str:
        return make_conninfo(self.dsn, dbname=database.name)

    def _clone(self) -> LentDatabase:
        self.clones += 1
        database = LentDatabase(f"t_{uuid4().hex[:12]}")
        self._execute("create database {} template {}", database.name, self.template)
        database.settings = self._settings(database)
        with self._session(database) as conn:
            self._snapshot = self._snapshot or DatabaseSnapshot.capture(conn)
            database.since = _read_counted_since(conn)
        return database

    def _restore(self, database: LentDatabase) -> bool:
        """Restore the test database's rows. Return False if it cannot be used again."""
        # That is so if more than rows has changed.
        self._wait_disconnected(database)
        if self._settings(database) != database.settings:
            return False
        assert self._snapshot is not None
        if self._kept_sessions is not None:
            self._kept_sessions.flush()
        with self._session(database) as conn:
            if _read_counted_since(conn) != database.since or not self._snapshot.restore(conn):
                return False
            database.since = _read_counted_since(conn)
        return True

    @contextmanager
    def _session(self, database: LentDatabase) -> Iterator[Conn]:
        # The connection is kept, or has ended on the server too when the block is over.
        if self._kept_sessions is not None:
            yield self._kept_sessions.own(self._dsn(database))
            return
        with connect_plain(self._dsn(database)) as conn:
            pid = conn.info.backend_pid
            yield conn
        while self._query(RUNS, pid):
            time.sleep(CHECK_PAUSE)

    def _wait_disconnected(self, database: LentDatabase) -> None:
        # Sessions report only at their end which rows they have written.
        until = time.monotonic() + DISCONNECT_TIMEOUT
        while self._end_sessions(database):
            if time.monotonic() > until:
                raise PartboxError(
                    f"sessions in the test's database {database.name} do not end within {DISCONNECT_TIMEOUT:g} s"
                )
            time.sleep(CHECK_PAUSE)

    def _end_sessions(self, database: LentDatabase) -> list[Any]:
        """Terminate all sessions in the test database except kept connections, and return a row for each ended
        session."""
        kept_pids: Sequence[int] = [] if self._kept_sessions is None else self._kept_sessions.pids()
        return self._query(SESSIONS, database.name, list(kept_pids))

    def _settings(self, database: LentDatabase) -> tuple[Any, ...] | None:
        """Return the test database's owner, privileges and other settings, for noticing that a test has changed
        them."""
        # They are the state that is not in the database's own catalogs.
        return next(iter(self._query(SETTINGS, database.name)), None)

    def _query(self, question: LiteralString, *about: object) -> list[tuple[Any, ...]]:
        return self._execute_reconnecting(question, list(about)).fetchall()

    def _execute_reconnecting(self, statement: Any, values: list[object] | None = None) -> psycopg.Cursor[Any]:
        """Execute an SQL statement, on a new connection if the present one was terminated."""
        # A test may have terminated it.
        try:
            return self._admin.execute(statement, values)
        except psycopg.OperationalError:
            self._admin.close()
            self._admin = connect_plain(self.dsn)
            return self._admin.execute(statement, values)

    def _discard(self) -> None:
        assert self._database is not None
        name, self._database = self._database.name, None
        if self._kept_sessions is not None:
            self._kept_sessions.close()
        for (transaction,) in self._query(PREPARED, name):
            with connect_plain(make_conninfo(self.dsn, dbname=name)) as conn:
                conn.execute(sql.SQL("rollback prepared {}").format(transaction))
        self._execute("drop database if exists {} with (force)", name)

    def _execute(self, statement: LiteralString, *identifiers: str) -> None:
        self._execute_reconnecting(sql.SQL(statement).format(*map(sql.Identifier, identifiers)))


def _read_counted_since(conn: Conn) -> Any:
    ((since,),) = conn.execute(COUNTED_SINCE).fetchall()
    return since


def _read_sequences(conn: Conn, names: list[str]) -> list[tuple[int, bool]]:
    if not names:
        return []
    each = sql.SQL(" union all ").join(
        _compose_statement("select last_value, is_called from {}", name) for name in names
    )
    return conn.execute(each).fetchall()


def _compose_statement(text: LiteralString, *names: str) -> sql.Composed:
    # Names in the text come from the database, which has quoted them already.
    written = sql.SQL(", ").join(map(sql.SQL, names))  # pyright: ignore[reportArgumentType]
    return sql.SQL(text).format(written)
