"""Retry a migration while other transactions hold its locks, and name them.

A migration that locks the log waits for every open transaction that has published, and publishers queue behind the
migration. So each attempt gives up after two seconds (`lock_timeout` in `begin.sql`) and lets them go on."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from psycopg.errors import DeadlockDetected, LockNotAvailable

from partbox.db.sql import Conn, fetch_own_rows
from partbox.errors import SchemaError
from partbox.text.wording import format_age, format_names, shorten_text

T = TypeVar("T")

GIVE_UP_AFTER = 600.0  # seconds
RETRY_PAUSE = 1.0  # seconds in which publishers go on, between two attempts


class BlockingTransaction(NamedTuple):
    """A session or prepared transaction that may hold a lock that a migration waits for."""

    pid: int | None  # None for a prepared transaction
    application: str
    prepared: str | None
    open_seconds: float | None  # its age in seconds, None if this role may not see that
    database: str | None = None  # set if it is another database


def list_blockers(conn: Conn, name: str, schema: str) -> list[BlockingTransaction]:
    """Run the query `name` and return the transactions that hold a lock."""
    return [BlockingTransaction(*row) for row in fetch_own_rows(conn, name, schema)]


def describe_blockers(found: Sequence[BlockingTransaction]) -> str:
    """Describe in words the transactions that hold a lock."""
    # The text ends with "is" or "are".
    if not found:
        return "a transaction that has published, or locked a cursor, is"
    return f"{format_names([*map(_describe_one, found)])} {'is' if len(found) == 1 else 'are'}"


def _describe_one(each: BlockingTransaction) -> str:
    since = (
        f"open for {format_age(each.open_seconds)}"
        if each.open_seconds is not None
        else "open since a time that this role may not see"
    )
    if each.database is not None:
        since = f"in database {shorten_text(each.database, 60)!r}, {since}"
    if each.pid is None:
        name = f" {shorten_text(each.prepared, 60)!r}" if each.prepared else ""
        return f"the prepared transaction{name}, {since},"
    application = f" ({shorten_text(each.application, 60)})" if each.application else ""
    return f"the transaction of pid {each.pid}{application}, {since},"


def retry_while_locked(conn: Conn, schema: str, attempt: Callable[[], T]) -> T:
    """Repeat `attempt` while another session holds a lock that it needs. Return its result."""
    # Each attempt runs in a transaction of its own, or in a savepoint if one is open. Raise `SchemaError`, with nothing
    # changed, after `GIVE_UP_AFTER` seconds.

    def attempt_in_savepoint() -> T:
        with conn.transaction():
            return attempt()

    busy = (LockNotAvailable, DeadlockDetected)
    return retry_while_busy(
        schema,
        attempt_in_savepoint,
        lambda error: isinstance(error, busy),
        lambda: list_blockers(conn, "migrate_holders", schema),
    )


def retry_while_busy(
    schema: str,
    attempt: Callable[[], T],
    is_busy: Callable[[Exception], bool],
    list_found: Callable[[], Sequence[BlockingTransaction]],
) -> T:
    """Call `attempt` again while it fails with an error for which `is_busy` is true. Return its result."""
    # A failed attempt must have rolled back its changes. `list_found` returns the blocking transactions, which are
    # named on stderr before each repetition. Raise `SchemaError`, which names them too, after `GIVE_UP_AFTER` seconds.
    end = time.monotonic() + GIVE_UP_AFTER
    while True:
        try:
            return attempt()
        except Exception as error:
            if not is_busy(error):
                raise
        who = describe_blockers(list_found())
        left = end - time.monotonic()
        if left <= 0:
            raise SchemaError(
                f"after {format_age(GIVE_UP_AFTER)} {who} still in the way, and nothing was changed: "
                "end what blocks the migration first"
            )
        # A process without a console has no stderr.
        if sys.stderr is not None:
            text = f"schema {schema!r} is not migrated yet, {who} in the way; retrying for up to {format_age(left)}"
            sys.stderr.write(f"partbox: {text}\n")
            sys.stderr.flush()
        time.sleep(RETRY_PAUSE)
