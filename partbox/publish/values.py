"""Convert statements and values into the forms that drivers other than psycopg take. Ids, times, JSON and arrays are
sent as text that PostgreSQL casts, because an application can change how its driver sends such values."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

CHUNK_CHARS = 1 << 16  # characters

_PARAMETER = re.compile(r"%\((\w+)\)s(?:::(\w+)(\[\])?)?|%%")
_AS_TEXT = ("uuid", "json", "timestamptz")
_QUOTED = re.compile(r'["\\]')
_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPED = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def to_plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ids, times and arrays of SQL parameters to text, for drivers other than psycopg."""
    # An application can change how its driver sends them (`set_type_codec` of asyncpg, `register_adapter` of psycopg2).
    # A payload would then be encoded twice, or a list would become jsonb.
    return {
        name: _array_literal(value) if isinstance(value, list) else _to_plain_value(value)
        for name, value in parameters.items()
    }


def _array_literal(values: list[Any]) -> str:
    quoted = (_QUOTED.sub(r"\\\g<0>", str(_to_plain_value(value))) for value in values)
    return "{" + ",".join(f'"{each}"' for each in quoted) + "}"


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value


@lru_cache(maxsize=256)
def numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """Convert %(name)s parameters of an SQL statement into $1, $2 …, and return it with the names in order."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name, kind, array = match.groups()
        if name is None:
            return "%"
        place = f"${names.setdefault(name, len(names) + 1)}"
        if kind is None:
            return place
        array = array or ""
        return f"{place}::text::{kind}{array}" if array or kind in _AS_TEXT else f"{place}::{kind}"

    return _PARAMETER.sub(number, statement), tuple(names)


def render_copy_lines(rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield rows in the text format of PostgreSQL's COPY, in pieces of at least `CHUNK_CHARS` characters."""
    # Only the last piece may be shorter.
    piece: list[str] = []
    size = 0
    for row in rows:
        line = "\t".join(map(_escape_copy_field, row)) + "\n"
        piece.append(line)
        size += len(line)
        if size >= CHUNK_CHARS:
            yield "".join(piece)
            piece, size = [], 0
    if piece:
        yield "".join(piece)


def _escape_copy_field(value: Any) -> str:
    if value is None:
        return r"\N"
    if isinstance(value, bytes):
        return rf"\\x{value.hex()}"
    text = value if isinstance(value, str) else str(_to_plain_value(value))
    return _SPECIAL.sub(lambda match: _ESCAPED[match[0]], text)
