"""Statements in the transactions of asyncio handlers, on a connection that an application's code uses too."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from partbox.db.delivery.cursors import build_save_values
from partbox.db.delivery.effects import ROLLBACK_EVENT
from partbox.db.delivery.server_incarnation import REPLACED_TEXT, NewIncarnationError
from partbox.db.sql import Conn, load_query
from partbox.db.type_conversion import AsyncOwnCursor
from partbox.protocol.rows import CursorSave, SaveEntry


async def run_script(conn: AsyncConnection[Any], script: bytes) -> tuple[str | None, ...]:
    """Run several SQL statements in one asyncio round trip. Return the first row of the last result, or ()."""
    cursor = await AsyncOwnCursor(conn).execute(script, prepare=False)
    while cursor.nextset():
        pass
    return await cursor.fetchone() or () if cursor.description else ()


async def rollback_event(conn: AsyncConnection[Any]) -> None:
    """Undo the changes of the current event on an asyncio connection by a rollback to its savepoint."""
    await AsyncOwnCursor(conn).execute(ROLLBACK_EVENT)


async def save(
    conn: AsyncConnection[Any],
    session: Conn,
    schema: str,
    subscription: str,
    me: UUID,
    saves: tuple[Sequence[CursorSave], Sequence[SaveEntry], Sequence[int]],
) -> tuple[set[int], float]:
    """Write a worker's progress (read positions, failed and finished events) in the open asyncio transaction.

    Return the partitions that are still owned, and the seconds that the server took. Raise `NewIncarnationError`, with
    `conn` closed, if the server crashed or was replaced since the session of the connection `session` began."""
    # The progress is cursors, parked rows (events set aside) and finished rows. `cursors.save` is the synchronous
    # counterpart.
    values = build_save_values(session, subscription, me, *saves) | {"durable": True}
    texts = {name: None if value is None else str(value) for name, value in values.items()}
    cursor = await AsyncOwnCursor(conn).execute(load_query("save", schema), texts, prepare=False)
    mine, took, same = await cursor.fetchone() or (None, 0.0, False)
    if not same:
        await conn.close()
        raise NewIncarnationError(REPLACED_TEXT)
    return set(mine or ()), took
