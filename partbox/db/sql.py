"""Load the SQL of `sql/` (named queries, numbered migrations, one function per file), fill in names, and run queries.

Another distribution passes the folder of its own named queries as `queries`.

Statements are composed by `psycopg.sql`, never formatted. `{schema}` becomes an identifier, `{sequence}` and `{bell}`
literals with names of sequences, `{channel}` a literal with the channel of rings. The name of another query becomes
that query, without its comment. Everything else is a bound parameter. Only an import reads a table with a given name:
see `sql/queries/imports.sql`."""

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
    """Return the folder `sql/`: inside the package if installed from a wheel, beside it in a checkout."""
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
    """Return a text with the schema's names, other queries and `more` filled in."""
    return _composed(text, {**_schema_names(schema, "%"), **more})


def _composed(text: str, names: dict[str, compose.Composable]) -> compose.Composed:
    parts = {field for _, field, _, _ in Formatter().parse(text) if field in _load_queries()}
    queries = {part: _composed(_COMMENT.sub("", _load_queries()[part]), names) for part in parts}
    return compose.SQL(text).format(**names, **queries)


def _schema_names(schema: str, percent: str) -> dict[str, compose.Composable]:
    """Return the names that a query may refer to. `percent` replaces percent signs, which psycopg gives a meaning."""

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
    """Return a query for a COPY, which takes no parameters."""
    return compose_text(_load_queries()[name], schema).as_bytes(DEFAULTS)


def script(name: str, **parts: compose.Composable) -> bytes:
    """Return a query, or several statements, for one message without parameters. The schema is the default one."""
    return compose_text(_load_queries()[name], "partbox", **parts).as_bytes(DEFAULTS)


@cache
def query(name: str, schema: str, queries: Path | None = None) -> bytes:
    """Return a query with the schema's names filled in, ready for parameters: percent signs in names are doubled."""
    return _composed(_load_queries(queries)[name], _schema_names(schema, "%%")).as_bytes(DEFAULTS)


@cache
def wrap_query(outer: str, name: str, schema: str) -> bytes:
    """Return the query `outer` with the query `name` in the place of `{act}`."""
    names = _schema_names(schema, "%%")
    act = _composed(_COMMENT.sub("", _load_queries()[name]), names)
    return _composed(_load_queries()[outer], {**names, "act": act}).as_bytes(DEFAULTS)


def rows(conn: Conn, name: str, schema: str, **values: object) -> list[tuple[Any, ...]]:
    """Run a query and return its rows as tuples. The connection's row factory is not used."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query(name, schema), values).fetchall()


def records(conn: Conn, kind: Callable[..., T], name: str, schema: str, **values: object) -> list[T]:
    """Run a query and return one `kind` per row, made from the columns in their order."""
    with conn.cursor(row_factory=args_row(kind)) as cursor:
        return cursor.execute(query(name, schema), values).fetchall()


def own_rows(conn: Conn, name: str, schema: str, **values: object) -> list[tuple[Any, ...]]:
    """Run a query on a connection whose adapters may be an application's, and return its rows as tuples."""
    with OwnCursor(conn) as cursor:
        return cursor.execute(query(name, schema), values).fetchall()


def row(conn: Conn, name: str, schema: str, **values: object) -> tuple[Any, ...] | None:
    """Run a query and return its first row, or None."""
    return next(iter(rows(conn, name, schema, **values)), None)


def one_row(conn: Conn, name: str, schema: str, **values: object) -> tuple[Any, ...]:
    """Run a query that always returns a row, and return the first row."""
    return rows(conn, name, schema, **values)[0]


def filled_query(name: str, schema: str, **parts: compose.Composable) -> bytes:
    """Return a query with `parts` filled in for names beyond the schema's, ready for parameters."""
    put = {slot: compose.SQL(part.as_string(DEFAULTS).replace("%", "%%")) for slot, part in parts.items()}
    return _composed(_load_queries()[name], {**_schema_names(schema, "%%"), **put}).as_bytes(DEFAULTS)
