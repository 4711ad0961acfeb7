"""The transactions that hold what is waited for, and how they are named to people."""

from collections.abc import Sequence
from typing import NamedTuple

from partbox.db.sql import Conn, own_rows
from partbox.text.wording import age, in_short, several


class Holding(NamedTuple):
    """A session that holds what is waited for, or (without a pid) a prepared transaction; `open` is its age (s)."""

    pid: int | None
    application: str
    prepared: str | None
    open: float | None


def holders(conn: Conn, name: str, schema: str) -> list[Holding]:
    """The transactions that the query `name` finds."""
    return [Holding(*row) for row in own_rows(conn, name, schema)]


def described(found: Sequence[Holding]) -> str:
    """The transactions that are waited for, in words for people, with the verb."""
    if not found:
        return "a transaction that has published, or locked a cursor, is"
    return f"{several([*map(_who, found)])} {'is' if len(found) == 1 else 'are'}"


def _who(each: Holding) -> str:
    """A session or a prepared transaction, and its age."""
    since = f"open for {age(each.open)}" if each.open is not None else "of an age that only its owner may see"
    if each.pid is None:
        name = f" {in_short(each.prepared, 60)!r}" if each.prepared else ""
        return f"the prepared transaction{name}, {since},"
    application = f" ({in_short(each.application, 60)})" if each.application else ""
    return f"the transaction of pid {each.pid}{application}, {since},"
