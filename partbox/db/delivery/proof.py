"""Prove that a session reads everything. An incomplete answer is an error, never "nothing there".

Row security is off in partbox's sessions, so PostgreSQL raises an error instead of hiding rows. Behind a pooler, which
passes no options on, the statements that move a cursor report whether the log was read whole, and all others run in
transactions with row security off. A session remembers its tables, the definition of the log, and the number of ids
drawn, which never falls. A contradiction ends the session."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import Error, OperationalError
from psycopg import sql as compose
from psycopg.errors import InsufficientPrivilege

from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, load_query
from partbox.text.wording import format_count

SESSION_ENDING_STATES = ("0A", "22023", "3F", "42", "55000", "XX")
"""SQLSTATEs or their first digits: a relation or privilege is gone, a plan does not fit, or `check_intact` has raised.

22023: a function remembers arrays of rows of a table that was dropped since.
"""


class PartialReadError(OperationalError):
    """Error: the database session may have missed events, so a new session must begin."""


@dataclass(slots=True)
class SessionBaseline:
    """The identity of the event log when a database session began, to detect a replaced or cut log."""

    log_oids: int | None = None  # the oids of the log and its sequence
    table_oids: int | None = None  # the oids of the tables that saves write to
    log_version: int | None = None  # the definition of the log as `log_now` returns it, None before the first poll
    drawn_ids: int = 0  # the number of ids drawn


def begin_baseline(conn: Conn, schema: str) -> SessionBaseline:
    """Remember the identity of the tables and the event log on the connection, to detect their replacement."""
    # These facts are the baseline of the new session.
    log, tables = conn.execute(load_query("tables_begin", schema), {}).fetchone() or (None, None)
    baseline = SessionBaseline(log, tables)
    if isinstance(conn, WatchedConnection):
        conn.baseline = baseline
    return baseline


def baseline_of(conn: Conn) -> SessionBaseline:
    """Return the identity of the tables and the log when this connection's session began."""
    # This baseline is empty if no session has begun.
    return conn.baseline if isinstance(conn, WatchedConnection) and conn.baseline is not None else SessionBaseline()


def check_intact(conn: Conn, schema: str, subscription: str | None = None) -> None:
    """Verify that every published event can be read. Raise `psycopg.Error` otherwise."""
    # The check is for this subscription, or for each if none is given.
    with without_row_security(conn):
        if conn.execute(load_query("is_shadowed", schema), {}).fetchone() == (True,):
            raise PartialReadError(
                "search_path puts pg_catalog behind other schemas: leave pg_catalog out, with `alter role`"
            )
        conn.execute(load_query("intact", schema), {"subscription": subscription})


def check_none_hidden(conn: Conn, schema: str, subscription: str) -> None:
    """Raise `PartialReadError` if readers will miss events because the id sequence was set back."""
    # The error is raised if the sequence will draw used ids, or drew ids below a cursor.
    with without_row_security(conn):
        used, ids = conn.execute(load_query("ids", schema), {}).fetchone() or (0, None)
        hidden = conn.execute(load_query("hidden", schema), {"subscription": subscription}).fetchone()
    if used > (at := check_drawn(conn, ids)):
        raise PartialReadError(
            f"the sequence record_id_seq is at {at}, and ids up to {used} are used: "
            f"raise the sequence with `{raise_sequence_sql(schema, used)}`"
        )
    if hidden is not None:
        first, last, count = hidden
        raise PartialReadError(
            f"the sequence record_id_seq was set back, and {format_count(count, 'record')} between id {first} "
            f"and {last} "
            f"got ids that cursors had passed: have workers read them with `{lower_cursors_sql(schema, first)}`"
        )


def raise_sequence_sql(schema: str, used: int) -> str:
    """Return SQL for an operator to raise the sequence of record ids to `used`, the greatest id in use."""
    sequence = compose.Identifier(schema, "record_id_seq").as_string(None)
    return compose.SQL("select setval({}, {})").format(compose.Literal(sequence), compose.Literal(used)).as_string(None)


def lower_cursors_sql(schema: str, first: int) -> str:
    """Return SQL for an operator to make subscriptions read again from the record id `first` on."""
    # The cursors go back to records that they have passed unread. The rows of the subscriptions are written for a purge
    # that runs: see `purge_records.sql`.
    lower = (
        "with changed as (update {0}.subscription set paused_at = paused_at)"
        " update {0}.partition set floor_id = {1} where floor_id > {1}"
    )
    return compose.SQL(lower).format(compose.Identifier(schema), compose.Literal(first - 1)).as_string(None)


def check_same_log(conn: Conn, log: int) -> None:
    """Raise `PartialReadError` if the log table was replaced since this session began."""
    # `log` identifies the log table and the id sequence. The connection is closed before the error is raised.
    if log != (baseline_of(conn).log_oids or log):
        conn.close()
        raise PartialReadError("the log of this session, or its sequence, is gone: another one has taken its place")


def check_log_version(conn: Conn, schema: str, log_version: int | str | bytes | None) -> bool:
    """Return True if the log's definition is unchanged since the last query, so that the result counts."""
    # Polls are frequent, so this proof must cost them nothing. PostgreSQL computes it when it plans a poll, and plans
    # again after anything of the log has changed (see the SQL function `log_planned`). A look-up in each poll took 20
    # of 75 us.
    # `log_version` is the poll's answer. After a change the new definition is noted and False is returned: the poll
    # does not count. Close the connection and raise `PartialReadError` if row security hides records or the log is
    # another one.
    if log_version is None:
        conn.close()
        raise PartialReadError("the log cannot be read completely: row security hides some records")
    baseline = baseline_of(conn)
    if int(log_version) == baseline.log_version or baseline.log_oids is None:
        return True
    with without_row_security(conn):
        log, now, _ = conn.execute(load_query("log_begin", schema), {}).fetchone() or (0, None, None)
    check_same_log(conn, log)
    baseline.log_version = now
    return False


def check_drawn(conn: Conn, ids: int | str | None) -> int:
    """Return the number of record ids issued so far. Raise `PartialReadError` if the number has fallen."""
    # The number is noted in the session's baseline. If it has fallen, the connection is closed. Raise
    # `InsufficientPrivilege` if the role cannot read the sequence.
    if ids is None:
        raise InsufficientPrivilege("permission denied for sequence record_id_seq: grant select on it to this role")
    baseline, now = baseline_of(conn), int(ids)
    if now < baseline.drawn_ids:
        conn.close()
        raise PartialReadError(
            f"the number of ids drawn fell from {baseline.drawn_ids} to {now}: the sequence record_id_seq was set back"
        )
    baseline.drawn_ids = now
    return now


@contextmanager
def without_row_security(conn: Conn) -> Iterator[None]:
    """Within the block, make PostgreSQL raise an error where row security would silently hide rows."""
    # Behind a connection pooler the block is a transaction.
    if not (isinstance(conn, WatchedConnection) and conn.is_pooled):
        yield
        return
    with conn.transaction():
        conn.execute(load_query("row_security_off", "partbox"), {})
        yield


def ends_session(error: Error) -> bool:
    """Return whether a database error makes the session unusable, so that a new session must begin."""
    # That is so if a table, privilege or plan of the session is gone.
    return isinstance(error, PartialReadError) or (error.sqlstate or "").startswith(SESSION_ENDING_STATES)
