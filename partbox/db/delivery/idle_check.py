"""The idle check of the log, which is a fence too: a statement of its own, or part of the round trip of a tick."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from partbox.db.blocking import Row, array_literal, fetch
from partbox.db.delivery import bell, proof, server_incarnation
from partbox.db.sql import Conn
from partbox.protocol.bell import flag_seconds_left
from partbox.protocol.horizon import Fence, fence


class IdleCheck(NamedTuple):
    """A fence, whether a transaction listed by the last snapshot has ended, and the seconds for which the bell's flag
    is up; 0: it is down."""

    fence: Fence
    ended: bool
    up: float


def run(conn: Conn, schema: str, listed: Iterable[int]) -> IdleCheck:
    """Check now; `listed`: the transactions of the last snapshot."""
    (row,) = fetch(conn, "fence", schema, parameters(conn, listed))
    return result(conn, row)


def parameters(conn: Conn, listed: Iterable[int] = ()) -> Mapping[str, object]:
    """The parameters of a statement that is an idle check too."""
    sequence, _ = server_incarnation.of(conn)
    return {"listed": array_literal(listed), "life": sequence, "bell": bell.of(conn)}


def result(conn: Conn, columns: Row) -> IdleCheck:
    """The check that came back in these columns. Raises as `check` does."""
    drawn, age, xmax, ended, alive, ahead, log = columns
    check(conn, alive, log)
    return IdleCheck(fence(proof.drawn(conn, drawn), age, int(xmax)), ended, flag_seconds_left(ahead))


def check(conn: Conn, alive: int | None, log: int) -> None:
    """NewIncarnationError if `alive` is of another one than the session's, UnseenError if the `log` is another."""
    _, value = server_incarnation.of(conn)
    server_incarnation.check(conn, alive == value)
    proof.check_same_log(conn, log)
