"""Parked rows: those that block their key, those ahead of a cursor, those that are due; and the form a save takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from partbox.db.delivery.proof import unfiltered
from partbox.db.sql import Conn, query


class Stored(NamedTuple):
    """A parked row as stored; `due` is seconds from now.

    `started`: it was charged, and its process may have died of it. `error` is told of dead ones only.
    """

    partition: int
    record_id: int
    aggregate_type: str
    aggregate_id: str | None
    state: str
    attempts: int
    due: float | None
    started: bool
    error: str | None


@dataclass(slots=True)
class Park:
    """One parked row as a save sends it: `delay` in seconds from the database's now, or `due` as an ISO timestamp.

    `trace` belongs to `error`: where that is None, what is stored of both stays; so it does where `is_wait` and there
    is one. `new`: there is no row yet. `charge`:
    it is about to be started. A `letter` changes the due time of a row that is still dead, no more.
    """

    partition: int
    record_id: int
    aggregate_type: str
    aggregate_id: str | None
    event_type: str
    state: str
    blocks: bool
    attempts: int
    delay: float | None = None
    due: str | None = None
    error: str | None = None
    trace: str | None = None
    new: bool = True
    charge: bool = False
    letter: bool = False
    is_wait: bool = False

    def wire(self) -> dict[str, Any]:
        """The JSON object that `save` takes."""
        return {
            "p": self.partition,
            "id": self.record_id,
            "at": self.aggregate_type,
            "ai": self.aggregate_id,
            "et": self.event_type,
            "s": self.state,
            "b": self.blocks,
            "n": self.attempts,
            "in": self.delay,
            "due": self.due,
            "e": self.error,
            "t": self.trace,
            "new": self.new,
            "c": self.charge,
            "l": self.letter,
            "w": self.is_wait,
        }


def blocking(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> list[Stored]:
    """The rows that block their key, in id order."""
    return [Stored(*row) for row in _rows(conn, "blocking", schema, subscription, partitions)]


def ahead(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """(partition, record id) of the rows that the saved cursor may not have passed."""
    return _rows(conn, "ahead", schema, subscription, partitions)


def open_rows(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> dict[int, int]:
    """The number of rows of each partition that count against its brake."""
    return dict(_rows(conn, "open_rows", schema, subscription, partitions))


def due(
    conn: Conn, schema: str, subscription: str, partitions: Sequence[int], taken: Sequence[int], room: int
) -> list[Stored]:
    """At most `room` rows that block nothing and are due, in id order, but for the `taken` ones."""
    return [Stored(*row) for row in _rows(conn, "due", schema, subscription, partitions, taken=list(taken), room=room)]


def _rows(conn: Conn, name: str, schema: str, subscription: str, partitions: Sequence[int], **more: Any) -> list[Any]:
    values = {"subscription": subscription, "partitions": list(partitions), **more}
    with unfiltered(conn):
        return conn.execute(query(name, schema), values).fetchall()
