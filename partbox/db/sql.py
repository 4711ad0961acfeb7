"""Loads the SQL of `sql/`: files of named queries, numbered migrations, one function a file.

Another distribution has a folder of named queries of its own, and passes it as `queries`.

Statements are composed, never formatted: `{schema}` becomes an identifier, `{sequence}` and `{bell}` literals naming
sequences, `{channel}` a literal naming the channel of rings, all through `psycopg.sql`, and the name of another query
that query, without its comment; everything else travels as a bound value. Only an import reads a table whose names it
is told: see `sql/queries/imports.sql`.
"""

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
from partbox.protocol.bell import channel

Conn = Connection[Any]  # rows of any kind
T = TypeVar("T")

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"\A(--.*\n)+")


def sql_folder() -> Path:
    """The folder `sql/`: inside the package when installed from a wheel, beside it in a checkout."""
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
                raise ValueError(f"query {name!r} stands twice in {path.parent}")
            texts[name] = text.strip()
    return texts


def compose_text(text: str, schema: str, /, **more: compose.Composable) -> compose.Composed:
    """`text` with the names that a schema brings, `more`, and the queries that are parts of others, put in."""
    return _composed(text, {**_schema_names(schema, "%"), **more})


def _composed(text: str, names: dict[str, compose.Composable]) -> compose.Composed:
    parts = {field for _, field, _, _ in Formatter().parse(text) if field in _load_queries()}
    queries = {part: _composed(_COMMENT.sub("", _load_queries()[part]), names) for part in parts}
    return compose.SQL(text).format(**names, **queries)


def _schema_names(schema: str, percent: str) -> dict[str, compose.Composable]:
    """The names that a schema brings; a % in them becomes `percent`."""

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
        "bell": compose.Literal(put(f"{quoted}.bell")),
        "channel": compose.Literal(put(channel(schema))),
        "channel_name": compose.Identifier(put(channel(schema))),
    }


@cache
def plain_query(name: str, schema: str) -> bytes:
    """The named query for a COPY, which takes no parameters."""
    return compose_text(_load_queries()[name], schema).as_bytes(DEFAULTS)


def script(name: str, **parts: compose.Composable) -> bytes:
    """The named query, or several statements, for one message without parameters."""
    return compose_text(_load_queries()[name], "partbox", **parts).as_bytes(DEFAULTS)


@cache
def query(name: str, schema: str, queries: Path | None = None) -> bytes:
    """The named query, composed for `schema`, to be executed with parameters: a % in the name is doubled for those."""
    return _composed(_load_queries(queries)[name], _schema_names(schema, "%%")).as_bytes(DEFAULTS)


@cache
def wrap_query(outer: str, name: str, schema: str) -> bytes:
    """The named query `outer` around another, which is its part `act`, to be executed with parameters."""
    names = _schema_names(schema, "%%")
    act = _composed(_COMMENT.sub("", _load_queries()[name]), names)
    return _composed(_load_queries()[outer], {**names, "act": act}).as_bytes(DEFAULTS)


def rows(conn: Conn, name: str, schema: str, **values: object) -> list[tuple[Any, ...]]:
    """The rows of a named query as tuples, whatever rows the connection makes."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query(name, schema), values).fetchall()


def records(conn: Conn, kind: Callable[..., T], name: str, schema: str, **values: object) -> list[T]:
    """The rows of a named query, each made a `kind` of its columns in order."""
    with conn.cursor(row_factory=args_row(kind)) as cursor:
        return cursor.execute(query(name, schema), values).fetchall()


def own_rows(conn: Conn, name: str, schema: str, **values: object) -> list[tuple[Any, ...]]:
    """`rows` on a connection whose adapters may be an application's."""
    with OwnCursor(conn) as cursor:
        return cursor.execute(query(name, schema), values).fetchall()


def row(conn: Conn, name: str, schema: str, **values: object) -> tuple[Any, ...] | None:
    """The first row of a named query; None without one."""
    return next(iter(rows(conn, name, schema, **values)), None)


def one_row(conn: Conn, name: str, schema: str, **values: object) -> tuple[Any, ...]:
    """The row of a named query that always has one."""
    return rows(conn, name, schema, **values)[0]


def filled_query(name: str, schema: str, **parts: compose.Composable) -> bytes:
    """The named query for one that names more than the schema, to be executed with parameters."""
    put = {slot: compose.SQL(part.as_string(DEFAULTS).replace("%", "%%")) for slot, part in parts.items()}
    return _composed(_load_queries()[name], {**_schema_names(schema, "%%"), **put}).as_bytes(DEFAULTS)
