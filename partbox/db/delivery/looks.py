"""The idle check, which is a fence too: by a statement of its own, or in the round trip of a tick."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from psycopg import Connection

from partbox.db.blocking import Row, array, fetch
from partbox.db.delivery import bell, life, proof
from partbox.protocol.bell import up_for
from partbox.protocol.horizon import Fence, fence


class Look(NamedTuple):
    """A fence, whether a transaction listed by the last snapshot has ended, and the seconds for which the bell's flag
    is up; 0: it is down."""

    fence: Fence
    ended: bool
    up: float


def look(conn: Connection[Any], schema: str, listed: Iterable[int]) -> Look:
    """Look now; `listed`: the transactions of the last snapshot."""
    (row,) = fetch(conn, "fence", schema, asked(conn, listed))
    return seen(conn, row)


def asked(conn: Connection[Any], listed: Iterable[int] = ()) -> Mapping[str, object]:
    """The parameters of a statement that looks."""
    sequence, _ = life.of(conn)
    return {"listed": array(listed), "life": sequence, "bell": bell.of(conn)}


def seen(conn: Connection[Any], columns: Row) -> Look:
    """The look that came back in these columns. NewLifeError if the server is in another life than the session."""
    drawn, age, xmax, ended, alive, ahead, log = columns
    check(conn, alive, log)
    return Look(fence(proof.drawn(conn, drawn), age, int(xmax)), ended, up_for(ahead))


def check(conn: Connection[Any], alive: int | None, log: int) -> None:
    """NewLifeError if the life `alive` is another than the session's, UnseenError if the `log` is."""
    _, value = life.of(conn)
    life.check(conn, alive == value)
    proof.same(conn, log)
