"""The idle check of the log, which is a fence too. It is a statement of its own or part of a tick."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from partbox.db.blocking import Row, fetch, integer_array
from partbox.db.delivery import bell, proof, server_incarnation
from partbox.db.sql import Conn
from partbox.protocol.bell import flag_seconds_left
from partbox.protocol.horizon import Fence, build_fence


class IdleCheck(NamedTuple):
    """The result of a cheap check whether new events may have been published."""

    fence: Fence  # a new fence
    has_ended: bool  # whether a transaction that the last snapshot listed has ended
    flag_up_for: float  # seconds for which the flag of the bell stays up, 0 if it is down


def run_check(conn: Conn, schema: str, open_xids: Iterable[int]) -> IdleCheck:
    """Check cheaply whether the log may have new events since the last read."""
    # `open_xids` holds the transactions that were open in the last snapshot.
    (row,) = fetch(conn, "fence", schema, build_parameters(conn, open_xids))
    return build_result(conn, row)


def is_drawn_unchanged(conn: Conn, schema: str, drawn: int) -> bool:
    """Return True if `drawn` is still the highest record id drawn, as the cheapest statement of all says."""
    # The statement does not notice another server, and cannot tell whether no id is drawn yet or the role may not read
    # the sequence. The next tick does. Until then a wrong answer delays events, and no cursor moves by it.
    ((now,),) = fetch(conn, "still", schema, {})
    return (now or 0) == drawn


def build_parameters(conn: Conn, open_xids: Iterable[int] = ()) -> Mapping[str, object]:
    """Return the query parameters for a check whether new events may exist."""
    # They serve any statement that includes the check.
    # `open_xids` holds the transactions of the last snapshot.
    sequence, _ = server_incarnation.incarnation_of(conn)
    return {"listed": integer_array(open_xids), "life": sequence, "bell": bell.bell_of(conn)}


def build_result(conn: Conn, columns: Row) -> IdleCheck:
    """Build the result of a check for new events from the columns that a statement returned."""
    # Raise `NewIncarnationError` or `PartialReadError`, as in `check`, if the server or the log has changed.
    drawn, age, xmax, ended, alive, ahead, log = columns
    check_unchanged(conn, alive, log)
    return IdleCheck(build_fence(proof.check_drawn(conn, drawn), age, int(xmax)), ended, flag_seconds_left(ahead))


def check_unchanged(conn: Conn, alive: int | None, log: int) -> None:
    """Raise an error if the database server or the event log was replaced since this session began."""
    # Raise `NewIncarnationError` if the server is another one, `PartialReadError` if the log is.
    _, value = server_incarnation.incarnation_of(conn)
    server_incarnation.check_incarnation(conn, alive == value)
    proof.check_same_log(conn, log)
