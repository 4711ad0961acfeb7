"""Parked rows: those that block their key, those ahead of a cursor, those that are due; and the form a save takes."""

from collections.abc import Sequence
from typing import Any

from partbox.db.delivery.proof import without_row_security
from partbox.db.sql import Conn, query
from partbox.protocol.rows import LooseRows, StoredRow


def blocking(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> list[StoredRow]:
    """The rows that block their key, in id order."""
    return [StoredRow(*row) for row in _rows(conn, "blocking", schema, subscription, partitions)]


def ahead(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """(partition, record id) of the rows that the saved cursor may not have passed."""
    return _rows(conn, "ahead", schema, subscription, partitions)


def loose_rows(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> dict[int, LooseRows]:
    """Return the rows that block nothing, counted by partition."""
    rows = _rows(conn, "loose_rows", schema, subscription, partitions)
    return {number: LooseRows(*counts) for number, *counts in rows}


def due(  # noqa: PLR0917  as the statement has them
    conn: Conn,
    schema: str,
    subscription: str,
    partitions: Sequence[int],
    taken: Sequence[int],
    early: Sequence[int],
    room: int,
    letters: int,
) -> list[StoredRow]:
    """Return at most `room` rows that block nothing and are not `taken`: first the `early` ones that wait for a permit,
    then those that are due, in id order. Behind them come at most `letters` dead ones that are owed to the hook."""
    more = {"taken": list(taken), "early": list(early), "room": room, "letters": letters}
    return [StoredRow(*row) for row in _rows(conn, "due", schema, subscription, partitions, **more)]


def may_start(conn: Conn, schema: str, subscription: str, record_ids: Sequence[int]) -> set[int]:
    """The ids of those scheduled records that are due and nobody cancels; gives up the cancelled ones."""
    values = {"subscription": subscription, "record_ids": list(record_ids)}
    return {id for (id,) in conn.execute(query("may_start", schema), values)}


def _rows(conn: Conn, name: str, schema: str, subscription: str, partitions: Sequence[int], **more: Any) -> list[Any]:
    values = {"subscription": subscription, "partitions": list(partitions), **more}
    with without_row_security(conn):
        return conn.execute(query(name, schema), values).fetchall()
