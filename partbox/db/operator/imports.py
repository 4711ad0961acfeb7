"""Read the table of another outbox, and note which rows were imported. See `sql/queries/imports.sql`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import UUID

from psycopg import IsolationLevel, errors
from psycopg import sql as compose
from psycopg.rows import args_row

from partbox.db import sql
from partbox.db.deadline import allow_long_statements
from partbox.db.sql import Conn, fill_query, load_query
from partbox.errors import PartboxError

FETCH_SIZE = 100
"""Rows of one round trip. Each may be as large as a payload can be."""

ALIAS = "source_row"
COLUMN_SLOTS = (
    "event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload_json", "payload_text", "payload_bytes",
    "content_type", "headers_json", "headers_text", "event_id", "occurred_at", "available_at", "attempts", "error",
)  # fmt: skip
"""Slots of the query `import_rows` that an import fills with expressions."""

Kind = Literal["text", "bytes", "json"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table to import: its name, how its values are read, and whether they are integers."""

    name: str
    kind: Kind
    is_integer: bool


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of another outbox that can be imported, with its primary key and columns.

    - `name`: includes the schema and is quoted where needed"""

    oid: int
    schema: str
    relation: str
    name: str
    primary_key: tuple[str, ...]
    columns: Mapping[str, Column]


class SourceRow(NamedTuple):
    """An unchecked row of another outbox, to be imported as an event.

    - The payload is in one of three fields."""

    key: str  # the primary key as text
    has_failed: bool  # the status says that the other outbox gave the row up
    event_type: str | None
    aggregate_type: str | None
    aggregate_id: str | None
    tenant_id: str | None
    payload_json: str | None
    payload_text: str | None
    payload_bytes: bytes | None
    content_type: str | None
    headers: str | None
    event_id: str | None
    occurred_at: Any
    available_at: Any
    attempts: int | None
    error: str | None


class OpenWriter(NamedTuple):
    """An open transaction that wrote to the table to import, so that an import could miss rows.

    - `pid`: None if the transaction is prepared
    - `open_seconds`: how long the transaction has been open"""

    pid: int | None
    application: str
    open_seconds: float | None


class FailedRow(NamedTuple):
    """An imported event that the other outbox had given up, to be stored as a dead record.

    - The event was published in this transaction."""

    partition: int
    event_id: UUID
    attempts: int
    error: str


class SourceQuery(NamedTuple):
    """The table to import, and the SQL expressions that read its rows.

    - `parts`: the expressions by slot: `COLUMN_SLOTS`, `table`, `status`, `key`, `order`, `where`"""

    table: SourceTable
    parts: Mapping[str, compose.Composable]


def find_table(conn: Conn, name: str) -> SourceTable:
    """Find the table to import, with its key and columns. Raise `PartboxError` if it is missing or unreadable."""
    try:
        row = conn.execute(load_query("import_table", "partbox"), {"table": name}).fetchone()
    except (errors.InvalidName, errors.SyntaxError):
        raise PartboxError(f"{name!r} is not a table name: write it as in SQL, such as public.outbox") from None
    if row is None:
        raise PartboxError(f"table {name!r} does not exist in this database: give it with its schema, as in SQL")
    oid, schema, relation, full_name, is_table, readable, key = row
    if not is_table:
        raise PartboxError(f"{name!r} is neither a table nor a view")
    if not readable:
        raise PartboxError(
            f"table {name!r} cannot be read: grant select on the table to this role; no other privilege is needed"
        )
    columns = [Column(*each) for each in conn.execute(load_query("import_columns", "partbox"), {"oid": oid})]
    return SourceTable(oid, schema, relation, full_name, tuple(key or ()), {each.name: each for each in columns})


def list_writers(conn: Conn, found: SourceTable) -> list[OpenWriter]:
    """Return the open transactions that wrote to the table to import, the oldest first."""
    # Their rows may not be visible yet.
    return [OpenWriter(*row) for row in conn.execute(load_query("import_writers", "partbox"), {"oid": found.oid})]


@contextmanager
def read_transaction(conn: Conn, schema: str, source: str) -> Iterator[bool]:
    """Open a read-only transaction to read the table to import. Yield False if another process imports it."""
    # Each statement has a snapshot of its own, so the snapshot of the rows is younger than the lock.
    conn.isolation_level, conn.read_only = IsolationLevel.READ_COMMITTED, True
    with allow_long_statements(conn), conn.transaction():
        conn.execute(load_query("import_patience", schema), {})
        (alone,) = conn.execute(load_query("import_lock", schema), {"source": source}).fetchone() or (False,)
        yield alone


def count_by_status(conn: Conn, schema: str, choice: SourceQuery) -> dict[str, tuple[int, int]]:
    """Count the rows of the table to import, and the rows imported already, by status."""
    # The two counts are a pair.
    values = {"source": choice.table.name}
    rows = conn.execute(fill_query("import_counts", schema, **choice.parts), values).fetchall()
    return {status: (number, imported) for status, number, imported in rows}


def read_source_rows(
    conn: Conn, schema: str, choice: SourceQuery, *, pending: Sequence[str], failed: Sequence[str], error: int
) -> Iterator[SourceRow]:
    """Yield the rows of the other outbox that remain to be imported, in order."""
    # Their status is in `pending` or `failed`. At most `error` characters of an error are read.
    values = {"source": choice.table.name, "wanted": [*pending, *failed], "failed": [*failed], "error_limit": error}
    with conn.cursor(name="partbox_import", binary=True, row_factory=args_row(SourceRow)) as cursor:
        cursor.itersize = FETCH_SIZE
        cursor.execute(fill_query("import_rows", schema, **choice.parts), values)
        yield from cursor


def note_imported(conn: Conn, schema: str, source: str, keys: Sequence[str]) -> set[str]:
    """Store that these rows are imported, so that no row is imported twice. Return the new keys."""
    # The rows of the source table are imported by this transaction. The new keys were not noted before.
    return {key for (key,) in sql.fetch_rows(conn, "import_note", schema, source=source, keys=list(keys))}


def find_imported(conn: Conn, schema: str, source: str, keys: Sequence[str]) -> set[str]:
    """Return the given row keys that were imported earlier."""
    return {key for (key,) in sql.fetch_rows(conn, "import_known", schema, source=source, keys=list(keys))}


def find_present(
    conn: Conn, schema: str, partitions: Sequence[int], ids: Sequence[int], event_ids: Sequence[str]
) -> set[tuple[int, str]]:
    """Return the (id, event id) pairs of the given records that the log contains already."""
    # Ids alone may belong to another database.
    values = {"partitions": list(partitions), "ids": list(ids), "event_ids": list(event_ids)}
    return {(id, event_id) for id, event_id in conn.execute(load_query("import_present", schema), values)}


def read_clock_and_newest(conn: Conn, schema: str) -> tuple[int, int]:
    """Return the database's time in microseconds since 1970, and the newest record id."""
    return conn.execute(load_query("import_moment", schema), {}).fetchone() or (0, 0)


def bury_failed(conn: Conn, schema: str, failed: Sequence[FailedRow], after: int) -> None:
    """Mark imported events as dead if the other outbox had given them up."""
    # They become dead for all subscriptions that want them. The events are records with ids above `after` that this
    # transaction has published.
    partitions, event_ids, attempts, errors = (list(values) for values in zip(*failed, strict=True))
    values = {"partitions": partitions, "event_ids": event_ids, "attempts": attempts, "errors": errors, "after": after}
    conn.execute(load_query("import_dead", schema), values)
