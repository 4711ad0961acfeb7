"""Loads the SQL of `sql/`: files of named queries, numbered migrations, one function a file.

Statements are composed, never formatted: `{schema}` becomes an identifier and `{sequence}` a literal naming the
id sequence, both through `psycopg.sql`, and `{light}` the columns of a page; everything else travels as a bound
value. Only an import reads a table whose names it is told: see `sql/queries/imports.sql`.
"""

import re
from functools import cache
from pathlib import Path

from psycopg import sql as compose

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def folder() -> Path:
    """The folder `sql/`: inside the package when installed from a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "sql"
    return inside if inside.is_dir() else package.parent / "sql"


@cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in sorted((folder() / "queries").glob("*.sql")):
        _, *parts = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in texts:
                raise ValueError(f"query {name!r} stands twice in sql/queries")
            texts[name] = text.strip()
    return texts


def composed(text: str, schema: str) -> compose.Composed:
    """`text` with the schema, the id sequence and the columns of a page put in."""
    sequence = f'"{schema.replace(chr(34), chr(34) * 2)}".record_id_seq'
    return compose.SQL(text).format(
        schema=compose.Identifier(schema),
        schema_name=compose.Literal(schema),
        sequence=compose.SQL("{}::regclass").format(compose.Literal(sequence)),
        light=compose.SQL(_texts()["light"]),
    )


@cache
def bare(name: str, schema: str) -> bytes:
    """The named query for a COPY, which takes no parameters."""
    return composed(_texts()[name], schema).as_bytes()


@cache
def query(name: str, schema: str) -> bytes:
    """The named query, composed for `schema`, to be executed with parameters: a % in the name is doubled for those."""
    return composed(_texts()[name], schema.replace("%", "%%")).as_bytes()


def template(name: str) -> compose.SQL:
    """The named query as it stands, for one that names more than the schema, to be executed with parameters.

    Its parts must have gone through `escaped`.
    """
    return compose.SQL(_texts()[name])


def escaped(part: compose.Composable) -> compose.Composable:
    """`part` of a query that is executed with parameters: a % in it is doubled."""
    return compose.SQL(part.as_string(None).replace("%", "%%"))
