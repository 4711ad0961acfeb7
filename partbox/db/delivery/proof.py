"""Proof that a session reads everything: an answer that may be less than everything is an error, never "nothing there".

In our sessions row security is off, so PostgreSQL raises instead of hiding rows. Behind a pooler, which passes no
options on, the statements that move a cursor say themselves whether the log was read whole, and the others run in
transactions in which it is off. A session remembers which tables it began with, what the log is made of, and how many
ids were drawn, which never falls. What contradicts that ends the session, and the next one begins with the checks of
the function `intact`.

Polls are frequent, so proof of the log may cost them nothing: PostgreSQL computes it when it plans a poll, and plans
anew once anything of the log has changed (see the function `log_planned`). Looked up by each poll it cost 20 of 75 us.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import Error, OperationalError
from psycopg import sql as compose
from psycopg.errors import InsufficientPrivilege

from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, query
from partbox.text.wording import counted

SESSION_ENDING_STATES = ("0A", "22023", "3F", "42", "55000", "XX")
"""SQLSTATEs, or their first digits: a relation or a privilege is gone, a plan does not fit, or `intact` has raised.

22023: a function remembers arrays of the rows of a table that was dropped since.
"""


class PartialReadError(OperationalError):
    """A session may have read less than everything there is."""


@dataclass(slots=True)
class SessionBaseline:
    """The log with its sequence and the tables that saves write to, by oids; what the log is made of; the ids drawn.

    `made` is what `log_now` says, None before the first poll.
    """

    log: int | None = None
    tables: int | None = None
    made: int | None = None
    drawn: int = 0


def begin(conn: Conn, schema: str) -> SessionBaseline:
    """The basis of a session that begins now."""
    log, tables = conn.execute(query("tables_begin", schema), {}).fetchone() or (None, None)
    baseline = SessionBaseline(log, tables)
    if isinstance(conn, WatchedConnection):
        conn.baseline = baseline
    return baseline


def of(conn: Conn) -> SessionBaseline:
    """The basis of the session of this connection; a blank one where none has begun."""
    return conn.baseline if isinstance(conn, WatchedConnection) and conn.baseline is not None else SessionBaseline()


def intact(conn: Conn, schema: str, subscription: str | None = None) -> None:
    """Raise psycopg.Error unless everything that was published can be read, by this subscription or by each."""
    with without_row_security(conn):
        if conn.execute(query("is_shadowed", schema), {}).fetchone() == (True,):
            raise PartialReadError("search_path puts pg_catalog behind other schemas: leave it out, by `alter role`")
        conn.execute(query("intact", schema), {"subscription": subscription})


def check_none_hidden(conn: Conn, schema: str, subscription: str) -> None:
    """Raise UnseenError if the sequence will give out ids that are used, or gave out ids that cursors had passed."""
    with without_row_security(conn):
        used, ids = conn.execute(query("ids", schema), {}).fetchone() or (0, None)
        hidden = conn.execute(query("hidden", schema), {"subscription": subscription}).fetchone()
    if used > (at := drawn(conn, ids)):
        raise PartialReadError(
            f"the sequence record_id_seq is at {at}, and ids up to {used} are used: "
            f"raise it by `{raise_sequence_sql(schema, used)}`"
        )
    if hidden is not None:
        first, last, count = hidden
        raise PartialReadError(
            f"the sequence record_id_seq was set back, and {counted(count, 'record')} between id {first} and {last} "
            f"got ids that cursors had passed: have them read by `{lower_cursors_sql(schema, first)}`"
        )


def raise_sequence_sql(schema: str, used: int) -> str:
    """Return the statement that sets the sequence of record ids to the greatest id that is used."""
    sequence = compose.Identifier(schema, "record_id_seq").as_string(None)
    return compose.SQL("select setval({}, {})").format(compose.Literal(sequence), compose.Literal(used)).as_string(None)


def lower_cursors_sql(schema: str, first: int) -> str:
    """Return the statement after which cursors find the records from `first` on that they have passed unread."""
    lower = "update {}.partition set floor_id = {below} where floor_id > {below}"
    return compose.SQL(lower).format(compose.Identifier(schema), below=compose.Literal(first - 1)).as_string(None)


def check_same_log(conn: Conn, log: int) -> None:
    """Close the connection and raise UnseenError unless `log` is the log, and its sequence, of the session's begin."""
    if log != (of(conn).log or log):
        conn.close()
        raise PartialReadError("the log of this session, or its sequence, is gone: another has taken its place")


def check_log_version(conn: Conn, schema: str, made: int | str | bytes | None) -> bool:
    """True if a poll read a log that is known to be whole. Else learn what it is made of now: the poll does not count.

    `made`: what the statement has answered. UnseenError, or another psycopg.Error, if it is not whole.
    """
    if made is None:
        conn.close()
        raise PartialReadError("the log is not read whole: row security hides records of it")
    baseline = of(conn)
    if int(made) == baseline.made or baseline.log is None:
        return True
    with without_row_security(conn):
        log, now, _ = conn.execute(query("log_begin", schema), {}).fetchone() or (0, None, None)
    check_same_log(conn, log)
    baseline.made = now
    return False


def drawn(conn: Conn, ids: int | str | None) -> int:
    """The ids drawn so far, as a statement has returned them; the connection is closed if they cannot be true."""
    if ids is None:
        raise InsufficientPrivilege("permission denied for sequence record_id_seq: grant select on it to this role")
    baseline, now = of(conn), int(ids)
    if now < baseline.drawn:
        conn.close()
        raise PartialReadError(
            f"{baseline.drawn} ids were drawn and now it is {now}: the sequence record_id_seq was set back"
        )
    baseline.drawn = now
    return now


@contextmanager
def without_row_security(conn: Conn) -> Iterator[None]:
    """PostgreSQL raises in this block where row security would hide rows, also behind a pooler."""
    if not (isinstance(conn, WatchedConnection) and conn.pooled):
        yield
        return
    with conn.transaction():
        conn.execute(query("row_security_off", "partbox"), {})  # of no schema
        yield


def ends_session(error: Error) -> bool:
    """True if the error says that something which the session had is gone."""
    return isinstance(error, PartialReadError) or (error.sqlstate or "").startswith(SESSION_ENDING_STATES)
