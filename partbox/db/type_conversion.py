"""Cursors and connections that convert values as psycopg does by itself, whatever an application has it do.

Adapters belong to the application: for the whole process (`psycopg.adapters`), or on the very connection that it
publishes on. A `list` that becomes jsonb there breaks every statement that takes an array, and a loader changes what an
answer is. So our statements never go by a connection's own adapters, and nothing is copied from `psycopg.adapters`,
which may be changed before partbox is imported.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection, Connection, dbapi20, postgres
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, PyFormat
from psycopg.rows import tuple_row
from psycopg.types.array import register_all_arrays
from psycopg.types.datetime import TimestamptzBinaryLoader
from psycopg.types.json import set_json_dumps, set_json_loads

from partbox.db.driver import AsyncPlainCursor, PlainCursor

Row = tuple[Any, ...]


class UtcLoader(TimestamptzBinaryLoader):
    """Loads times in UTC, not in the time zone of the session."""

    def load(self, data: Buffer) -> datetime:
        return super().load(data).astimezone(UTC)


def _defaults() -> AdaptersMap:
    """The map that psycopg makes when it is imported, made once more by its own functions; times are in UTC."""
    made = AdaptersMap()
    postgres.register_default_types(made.types)
    postgres.register_default_adapters(made)
    dbapi20.register_dbapi20_adapters(made)
    register_all_arrays(made)
    made.register_loader("timestamptz", UtcLoader)
    set_json_loads(json.loads, made)  # a global one is put into psycopg's classes, which all maps share
    set_json_dumps(json.dumps, made)
    for wanted in PyFormat:  # it is found by its name at first, and threads must not do that at once
        made.get_dumper(UUID, wanted)
    return made


DEFAULTS: Final = _defaults()


class OwnCursor(PlainCursor[Row]):
    """A cursor for our statements on any connection: rows are tuples, converted by psycopg's defaults."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return DEFAULTS


class AsyncOwnCursor(AsyncPlainCursor[Row]):
    """`OwnCursor` on an asynchronous connection."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return DEFAULTS
