"""The rows of a database after migrations, an application's own tables included."""

from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection, sql

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
# The marker of the cluster: a copy of its rows would be another's.
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
ANYWHERE = "set search_path = pg_catalog"  # so that the names of tables say their schema, whatever the role's path is
UNCHECKED = "set local session_replication_role = replica"  # foreign keys hold when all rows are back


@dataclass(frozen=True, slots=True)
class Migrated:
    """Contents of tables, those that were analysed, and values of sequences; names are quoted for SQL."""

    rows: dict[str, bytes]
    """The contents of tables that are not empty, in the text form of COPY."""
    analysed: frozenset[str]
    sequences: dict[str, tuple[int, bool]]
    markers: frozenset[str]
    refers: bool
    """There are foreign keys."""

    @classmethod
    def of(cls, conn: Connection[Any]) -> "Migrated":
        conn.execute(ANYWHERE)
        tables = dict(conn.execute(TABLES).fetchall())
        markers = frozenset(name for (name,) in conn.execute(MARKERS).fetchall())
        rows: dict[str, bytes] = {}
        for name in tables.keys() - markers:
            with conn.cursor().copy(_statement("copy {} to stdout", name)) as copy:
                if held := b"".join(map(bytes, copy)):
                    rows[name] = held
        sequences = [name for (name,) in conn.execute(SEQUENCES).fetchall()]
        return cls(
            rows,
            frozenset(name for name, analysed in tables.items() if analysed),
            dict(zip(sequences, _sequences(conn, sequences), strict=True)),
            markers,
            bool(conn.execute("select from pg_constraint where contype = 'f' limit 1").fetchall()),
        )

    def put_back(self, conn: Connection[Any]) -> bool:
        """Restore the rows of every table; False if more than rows has changed."""
        conn.execute(ANYWHERE)
        written = conn.execute(WRITTEN).fetchall()
        if any(catalog or name in self.markers for name, catalog, _ in written):
            return False
        with conn.transaction():
            self._fill(conn, [oid for _, _, oid in written])
            self._set_sequences(conn)
        conn.execute("select pg_stat_force_next_flush()")  # else what is done here would count for the next test
        conn.execute("select pg_stat_reset()")
        return True

    def _fill(self, conn: Connection[Any], changed: list[int]) -> None:
        names = sorted(name for (name,) in conn.execute(REFERRING, [changed]).fetchall()) if changed else []
        if names:
            conn.execute(_statement("truncate {}", *names))
        if names and self.refers:
            conn.execute(UNCHECKED)
        for name in self.rows.keys() & set(names):
            with conn.cursor().copy(_statement("copy {} from stdin", name)) as copy:
                copy.write(self.rows[name])
        if analysed := sorted(self.analysed & set(names)):
            conn.execute(_statement("analyze {}", *analysed))

    def _set_sequences(self, conn: Connection[Any]) -> None:
        for (name, then), now in zip(self.sequences.items(), _sequences(conn, list(self.sequences)), strict=True):
            if now != then:
                conn.execute("select setval(%s, %s, %s)", [name, *then])


def _sequences(conn: Connection[Any], names: list[str]) -> list[tuple[int, bool]]:
    if not names:
        return []
    each = sql.SQL(" union all ").join(_statement("select last_value, is_called from {}", name) for name in names)
    return conn.execute(each).fetchall()


def _statement(text: LiteralString, *names: str) -> sql.Composed:
    """With names that the database itself has written, quoted where they must be."""
    written = sql.SQL(", ").join(map(sql.SQL, names))  # pyright: ignore[reportArgumentType]
    return sql.SQL(text).format(written)
