"""The idle check of the log, which is a fence too. It is a statement of its own or part of a tick."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from partbox.db.blocking import Row, array_literal, fetch
from partbox.db.delivery import bell, proof, server_incarnation
from partbox.db.sql import Conn
from partbox.protocol.bell import flag_seconds_left
from partbox.protocol.horizon import Fence, fence


class IdleCheck(NamedTuple):
    """The result of a cheap check whether new events may have been published."""

    fence: Fence  # a new fence
    ended: bool  # whether a transaction that the last snapshot listed has ended
    up: float  # seconds for which the flag of the bell stays up, 0 if it is down


def run(conn: Conn, schema: str, listed: Iterable[int]) -> IdleCheck:
    """Check cheaply whether the log may have new events since the last read."""
    # `listed` holds the transactions that were open in the last snapshot.
    (row,) = fetch(conn, "fence", schema, parameters(conn, listed))
    return result(conn, row)


def parameters(conn: Conn, listed: Iterable[int] = ()) -> Mapping[str, object]:
    """Return the query parameters of a cheap check for new events, for any statement that includes one."""
    # `listed` holds the transactions of the last snapshot.
    sequence, _ = server_incarnation.of(conn)
    return {"listed": array_literal(listed), "life": sequence, "bell": bell.of(conn)}


def result(conn: Conn, columns: Row) -> IdleCheck:
    """Build the result of a check for new events from the columns that a statement returned."""
    # Raise `NewIncarnationError` or `PartialReadError`, as in `check`, if the server or the log has changed.
    drawn, age, xmax, ended, alive, ahead, log = columns
    check(conn, alive, log)
    return IdleCheck(fence(proof.drawn(conn, drawn), age, int(xmax)), ended, flag_seconds_left(ahead))


def check(conn: Conn, alive: int | None, log: int) -> None:
    """Raise an error if the database server or the event log was replaced since this session began."""
    # Raise `NewIncarnationError` if the server is another one, `PartialReadError` if the log is.
    _, value = server_incarnation.of(conn)
    server_incarnation.check(conn, alive == value)
    proof.check_same_log(conn, log)
