"""Adapters and cursors that convert values as psycopg does by default, independent of an application's adapters.

An application may register adapters for the process (`psycopg.adapters`) or on the connection that it publishes on. A
dumper that turns a `list` into jsonb breaks every statement that takes an array, and a loader changes the types of
results. So partbox's own statements use `DEFAULTS`."""

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
    """A psycopg loader that returns timestamps (timestamptz) in UTC instead of the session's time zone."""

    def load(self, data: Buffer) -> datetime:
        return super().load(data).astimezone(UTC)


def _copy_defaults() -> AdaptersMap:
    """Return a fresh copy of psycopg's default type adapters, with times in UTC."""
    # Nothing is copied from `psycopg.adapters`, which may be changed before partbox is imported.
    # Psycopg's own functions make the copy. Changes by the application do not affect it.
    made = AdaptersMap()
    postgres.register_default_types(made.types)
    postgres.register_default_adapters(made)
    dbapi20.register_dbapi20_adapters(made)
    register_all_arrays(made)
    made.register_loader("timestamptz", UtcLoader)
    # Without the map, both functions change psycopg's own classes, which all maps share.
    set_json_loads(json.loads, made)
    set_json_dumps(json.dumps, made)
    # Psycopg finds the UUID class by name at first use and changes the map then, which is not safe for several threads.
    for wanted in PyFormat:
        made.get_dumper(UUID, wanted)
    return made


DEFAULTS: Final = _copy_defaults()


class OwnCursor(PlainCursor[Row]):
    """A cursor that uses psycopg's default type adapters, not the application's. Rows are tuples."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return DEFAULTS


class AsyncOwnCursor(AsyncPlainCursor[Row]):
    """An asyncio cursor that uses psycopg's default type adapters, not the application's. Rows are tuples."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return DEFAULTS
