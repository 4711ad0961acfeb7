"""Load the SQL of `sql/` (named queries, numbered migrations, one function per file), fill in names, and run queries.

Statements are composed by `psycopg.sql`, never formatted. `{schema}` becomes an identifier, `{sequence}`, `{bell}` and
`{channel}` become literals, and the name of a query becomes that query. Everything else is a bound parameter."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

from psycopg import Connection
from psycopg import sql as compose
from psycopg.rows import args_row, tuple_row

from partbox.db.type_conversion import DEFAULTS, OwnCursor
from partbox.protocol.bell import build_channel_name, build_type_channels_stem

Conn = Connection[Any]  # rows of any kind
T = TypeVar("T")

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"\A(--.*\n)+")


def sql_folder() -> Path:
    """Return the folder with the SQL files of partbox."""
    # `sql/` is inside the package if installed from a wheel, beside it in a checkout.
    package = Path(__file__).resolve().parent.parent
    inside = package / "sql"
    return inside if inside.is_dir() else package.parent / "sql"


@cache
def _load_queries(queries: Path | None = None) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in sorted((queries or sql_folder() / "queries").glob("*.sql")):
        _, *parts = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in texts:
                raise ValueError(f"query {name!r} is defined twice in {path.parent}")
            texts[name] = text.strip()
    return texts


def compose_text(text: str, schema: str, /, **more: compose.Composable) -> compose.Composed:
    """Fill in the placeholders of an SQL text with object names, other queries and the values in `more`."""
    # The names refer to the schema's objects.
    return _compose_parts(text, {**_schema_names(schema, "%"), **more})


def _compose_parts(text: str, names: dict[str, compose.Composable]) -> compose.Composed:
    parts = {field for _, field, _, _ in Formatter().parse(text) if field in _load_queries()}
    queries = {part: _compose_parts(_COMMENT.sub("", _load_queries()[part]), names) for part in parts}
    return compose.SQL(text).format(**names, **queries)


def _schema_names(schema: str, percent: str) -> dict[str, compose.Composable]:
    """Return the SQL names of the schema's objects, to fill in the placeholders of a query."""
    # `percent` replaces percent signs, which have a meaning for psycopg.

    def put(text: str) -> str:
        return text.replace("%", percent)

    def relation(name: str) -> compose.Composed:
        return compose.SQL("{}::regclass").format(compose.Literal(put(f"{quoted}.{name}")))

    quoted = f'"{schema.replace(chr(34), chr(34) * 2)}"'
    return {
        "schema": compose.Identifier(put(schema)),
        "schema_name": compose.Literal(put(schema)),
        "sequence": relation("record_id_seq"),
        "log": relation("record"),
        "partition": relation("partition"),
        "parked": relation("parked"),
        "spill": relation("spill"),
        "bell": compose.Literal(put(f"{quoted}.bell")),
        "channel": compose.Literal(put(build_channel_name(schema))),
        "type_channels": compose.Literal(put(build_type_channels_stem(schema))),
    }


@cache
def load_plain_query(name: str, schema: str) -> bytes:
    """Return the SQL of a named query for a statement without parameters, such as COPY."""
    # Percent signs are not doubled.
    return compose_text(_load_queries()[name], schema).as_bytes(DEFAULTS)


def load_script(name: str, **parts: compose.Composable) -> bytes:
    """Return the SQL of one or several statements, to send in one message without parameters."""
    # The text is that of the named query.
    # Names refer to the default schema.
    return compose_text(_load_queries()[name], "partbox", **parts).as_bytes(DEFAULTS)


@cache
def load_query(name: str, schema: str, queries: Path | None = None) -> bytes:
    """Return the SQL of the query `name` for a schema, to be run with parameters."""
    # Another distribution passes the folder of its own named queries as `queries`.
    # The schema's names are filled in, and percent signs in names are doubled.
    return _compose_parts(_load_queries(queries)[name], _schema_names(schema, "%%")).as_bytes(DEFAULTS)


@cache
def wrap_query(outer: str, name: str, schema: str) -> bytes:
    """Return the SQL of the query `outer` with the query `name` inserted at its placeholder `{act}`."""
    names = _schema_names(schema, "%%")
    act = _compose_parts(_COMMENT.sub("", _load_queries()[name]), names)
    return _compose_parts(_load_queries()[outer], {**names, "act": act}).as_bytes(DEFAULTS)


def fetch_rows(conn: Conn, name: str, schema: str, **values: object) -> list[tuple[Any, ...]]:
    """Run a named query and return all its rows as tuples."""
    # The connection's row factory is not used.
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(load_query(name, schema), values).fetchall()


def fetch_records(conn: Conn, kind: Callable[..., T], name: str, schema: str, **values: object) -> list[T]:
    """Run a named query and return one object of the class `kind` per row."""
    # The object is made from the columns in their order.
    with conn.cursor(row_factory=args_row(kind)) as cursor:
        return cursor.execute(load_query(name, schema), values).fetchall()


def fetch_own_rows(conn: Conn, name: str, schema: str, **values: object) -> list[tuple[Any, ...]]:
    """Run a named query with psycopg's default type adapters. Return its rows as tuples."""
    # The application may have changed the adapters of the connection.
    with OwnCursor(conn) as cursor:
        return cursor.execute(load_query(name, schema), values).fetchall()


def fetch_first_row(conn: Conn, name: str, schema: str, **values: object) -> tuple[Any, ...] | None:
    """Run a named query and return its first row as a tuple, or None if there are no rows."""
    return next(iter(fetch_rows(conn, name, schema, **values)), None)


def fetch_one_row(conn: Conn, name: str, schema: str, **values: object) -> tuple[Any, ...]:
    """Run a named query that always returns at least one row, and return the first row as a tuple."""
    return fetch_rows(conn, name, schema, **values)[0]


def fill_query(name: str, schema: str, **parts: compose.Composable) -> bytes:
    """Return the SQL of the query `name` with its placeholders replaced by `parts`, to be run with parameters."""
    # Only an import uses this, because it reads a table with a given name: see `sql/queries/imports.sql`.
    # The parts are for placeholders other than the schema's names.
    put = {slot: compose.SQL(part.as_string(DEFAULTS).replace("%", "%%")) for slot, part in parts.items()}
    return _compose_parts(_load_queries()[name], {**_schema_names(schema, "%%"), **put}).as_bytes(DEFAULTS)
