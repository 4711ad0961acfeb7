"""The statements of a transaction of handlers on an asynchronous connection, which an application's code gets, too."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from partbox.db.delivery.cursors import limits, save_values
from partbox.db.delivery.server_incarnation import REPLACED, NewIncarnationError
from partbox.db.sql import Conn, query
from partbox.db.type_conversion import AsyncOwnCursor
from partbox.protocol.rows import Entry, Saving


async def begin_effects(conn: AsyncConnection[Any], schema: str) -> None:
    """See `cursors.begin_effects`."""
    await AsyncOwnCursor(conn).execute(query("begin_effects", schema), {})


async def end_effects(conn: AsyncConnection[Any], schema: str, limit: float) -> None:
    """See `cursors.end_effects`."""
    await AsyncOwnCursor(conn).execute(query("end_effects", schema), limits(limit))


async def save(
    conn: AsyncConnection[Any],
    session: Conn,
    schema: str,
    subscription: str,
    me: UUID,
    saves: tuple[Sequence[Saving], Sequence[Entry], Sequence[int]],
) -> tuple[set[int], float]:
    """See `cursors.save`: durable, of these cursors, parks and finished rows, in the session of `session`."""
    values = save_values(session, subscription, me, *saves) | {"durable": True}
    texts = {name: None if value is None else str(value) for name, value in values.items()}
    cursor = await AsyncOwnCursor(conn).execute(query("save", schema), texts, prepare=False)
    mine, took, same = await cursor.fetchone() or (None, 0.0, False)
    if not same:
        await conn.close()
        raise NewIncarnationError(REPLACED)
    return set(mine or ()), took
