"""The existence of a schema, and its subscriptions."""

from typing import Any

from psycopg import Connection

from partbox.db.adapters import OwnCursor
from partbox.db.sql import query


def is_there(conn: Connection[Any], schema: str) -> bool:
    """True if `schema` has a table meta, of partbox or of somebody else."""
    with OwnCursor(conn) as cursor:
        return cursor.execute(query("migrate_found", schema), {}).fetchone() != (False,)


def subscriptions(conn: Connection[Any], schema: str) -> list[str]:
    """The names of all subscriptions; none of a writer-only outbox."""
    with OwnCursor(conn) as cursor:
        return [name for (name,) in cursor.execute(query("stats_subscriptions", schema), {})]
