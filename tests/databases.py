"""The database that the tests of a process take in turn: after each it is put back to what migrations left.

Putting rows back takes less of the processor than a clone, and none of its checkpoints. A database in which more than
rows has changed - tables, functions, statistics, settings, the marker - is dropped instead, and so is one that somebody
enters again; the next test gets a fresh clone. What has changed is told by PostgreSQL's own counts of written rows, the
system catalogs' above all: they begin anew with each test.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo
from waiting import eventually

USES = 200
"""Tests that one database serves: the system's tables grow a little with each."""

WRITTEN = """
select c.relname, c.relnamespace = 'pg_catalog'::regnamespace from pg_class c
 where c.relkind = 'r' and c.relnamespace in ('pg_catalog'::regnamespace, to_regnamespace('partbox'))
   and pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid) > 0
   and not c.relisshared
"""
COUNTED_SINCE = "select stats_reset from pg_stat_database where datname = current_database()"
TABLES = """
select relname, reltuples >= 0 from pg_class
 where relnamespace = 'partbox'::regnamespace and relkind = 'r' and relname <> 'meta'
"""
SEQUENCES = "select relname from pg_class where relnamespace = 'partbox'::regnamespace and relkind = 'S' order by 1"
SESSIONS = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
RUNS = "select from pg_stat_activity where pid = %s"
PREPARED = "select gid from pg_prepared_xacts where database = %s"
SETTINGS = """
select row(d.datdba, d.datallowconn, d.datconnlimit, d.datacl)::text,
       (select count(*) from pg_db_role_setting s where s.setdatabase = d.oid),
       (select count(*) from pg_prepared_xacts x where x.database = d.datname)
  from pg_database d where d.datname = %s
"""


@dataclass(frozen=True, slots=True)
class Migrated:
    """The rows of a database as migrations left them."""

    rows: dict[str, bytes]
    """What tables hold that are not empty, by name, in the form of COPY."""
    analysed: frozenset[str]
    """The tables that have been analysed."""
    sequences: dict[str, tuple[int, bool]]

    @classmethod
    def of(cls, conn: Connection[Any]) -> "Migrated":
        tables = dict(conn.execute(TABLES).fetchall())
        held = {name: _copied(conn, name) for name in tables}
        sequences = [name for (name,) in conn.execute(SEQUENCES).fetchall()]
        return cls(
            {name: rows for name, rows in held.items() if rows},
            frozenset(name for name, analysed in tables.items() if analysed),
            dict(zip(sequences, _sequences(conn, sequences), strict=True)),
        )

    def put_back(self, conn: Connection[Any]) -> bool:
        """Make the rows of every table what they were; False if more than rows has changed."""
        written = conn.execute(WRITTEN).fetchall()
        changed = sorted(name for name, _ in written)
        if any(catalog for _, catalog in written) or "meta" in changed:
            return False
        with conn.transaction():
            self._fill(conn, changed)
            self._set_sequences(conn)
        conn.execute("select pg_stat_force_next_flush()")  # else what is done here would count for the next test
        conn.execute("select pg_stat_reset()")
        return True

    def _fill(self, conn: Connection[Any], changed: list[str]) -> None:
        if changed:
            conn.execute(sql.SQL("truncate {}").format(_tables(changed)))
        for name in self.rows.keys() & set(changed):
            with conn.cursor().copy(sql.SQL("copy {} from stdin").format(_table(name))) as copy:
                copy.write(self.rows[name])
        if analysed := sorted(self.analysed & set(changed)):
            conn.execute(sql.SQL("analyze {}").format(_tables(analysed)))

    def _set_sequences(self, conn: Connection[Any]) -> None:
        for (name, then), now in zip(self.sequences.items(), _sequences(conn, list(self.sequences)), strict=True):
            if now != then:
                conn.execute("select setval(%s, %s, %s)", [f"partbox.{name}", *then])


@dataclass(slots=True)
class Lent:
    """A database, the tests that it still serves, and since when its rows are counted."""

    name: str
    settings: tuple[Any, ...] | None = None
    since: Any = None
    uses: int = USES


class Shelf:
    """Lends one database at a time, a clone of `template` on the server of `dsn`."""

    def __init__(self, dsn: str, template: str) -> None:
        self.dsn = dsn
        self.template = template
        self.clones = 0
        self._admin = psycopg.connect(dsn, autocommit=True)
        self._migrated: Migrated | None = None
        self._lent: Lent | None = None

    def lend(self) -> str:
        """The DSN of a database as migrations left it."""
        if self._lent is not None and self._sessions(self._lent):  # somebody of an earlier test is in it again
            self._discard()
        lent = self._lent = self._lent or self._clone()
        return self._dsn(lent)

    def take_back(self) -> None:
        """Put the database back as it was, without anybody in it, or drop it."""
        assert self._lent is not None
        self._lent.uses -= 1
        kept = False
        try:
            kept = self._lent.uses > 0 and self._put_back(self._lent)
        finally:  # also if it cannot be told: the next test gets another one
            if not kept:
                self._discard()

    def close(self) -> None:
        if self._lent is not None:
            self._discard()
        self._admin.close()

    def _dsn(self, lent: Lent) -> str:
        return make_conninfo(self.dsn, dbname=lent.name)

    def _clone(self) -> Lent:
        self.clones += 1
        lent = Lent(f"t_{uuid4().hex[:12]}")
        self._execute("create database {} template {}", lent.name, self.template)
        lent.settings = self._settings(lent)
        with self._session(lent) as conn:
            self._migrated = self._migrated or Migrated.of(conn)
            lent.since = _counted_since(conn)
        return lent

    def _put_back(self, lent: Lent) -> bool:
        """False if more than rows has changed."""
        self._empty(lent)
        if self._settings(lent) != lent.settings:
            return False
        assert self._migrated is not None
        with self._session(lent) as conn:
            if _counted_since(conn) != lent.since or not self._migrated.put_back(conn):
                return False
            lent.since = _counted_since(conn)
        return True

    @contextmanager
    def _session(self, lent: Lent) -> Iterator[Connection[Any]]:
        """A session in it that has ended, on the server too, when this does."""
        with psycopg.connect(self._dsn(lent), autocommit=True) as conn:
            pid = conn.info.backend_pid
            yield conn
        eventually(lambda: not self._ask(RUNS, pid), interval=0.001)

    def _empty(self, lent: Lent) -> None:
        """Wait until nobody is in it: sessions say at their end what they have written."""
        eventually(lambda: not self._sessions(lent), interval=0.001)

    def _sessions(self, lent: Lent) -> list[Any]:
        """Those that are in it, who are sent away."""
        return self._ask(SESSIONS, lent.name)

    def _settings(self, lent: Lent) -> tuple[Any, ...] | None:
        """What is changed by other means than rows of the database's own catalogs."""
        return next(iter(self._ask(SETTINGS, lent.name)), None)

    def _ask(self, question: LiteralString, about: object) -> list[tuple[Any, ...]]:
        return self._tried(question, [about]).fetchall()

    def _tried(self, statement: Any, values: list[object] | None = None) -> psycopg.Cursor[Any]:
        """Through a new connection if a test has ended this one."""
        try:
            return self._admin.execute(statement, values)
        except psycopg.OperationalError:
            self._admin.close()
            self._admin = psycopg.connect(self.dsn, autocommit=True)
            return self._admin.execute(statement, values)

    def _discard(self) -> None:
        assert self._lent is not None
        name, self._lent = self._lent.name, None
        for (transaction,) in self._ask(PREPARED, name):
            with psycopg.connect(make_conninfo(self.dsn, dbname=name), autocommit=True) as conn:
                conn.execute(sql.SQL("rollback prepared {}").format(transaction))
        self._execute("drop database if exists {} with (force)", name)

    def _execute(self, statement: LiteralString, *identifiers: str) -> None:
        self._tried(sql.SQL(statement).format(*map(sql.Identifier, identifiers)))


def _counted_since(conn: Connection[Any]) -> Any:
    ((since,),) = conn.execute(COUNTED_SINCE).fetchall()
    return since


def _copied(conn: Connection[Any], name: str) -> bytes:
    with conn.cursor().copy(sql.SQL("copy {} to stdout").format(_table(name))) as copy:
        return b"".join(map(bytes, copy))


def _sequences(conn: Connection[Any], names: list[str]) -> list[tuple[int, bool]]:
    each = sql.SQL(" union all ").join(sql.SQL("select last_value, is_called from {}").format(_table(n)) for n in names)
    return conn.execute(each).fetchall()


def _table(name: str) -> sql.Identifier:
    return sql.Identifier("partbox", name)


def _tables(names: list[str]) -> sql.Composed:
    return sql.SQL(",").join(map(_table, names))
