"""Scripts that run around the handlers of one transaction: begin an event, keep its effects, end with a save.

Handlers share a transaction and must not notice it. So the script behind each successful event resets the session: all
settings, the role, cursors and temporary tables. It travels with the release of the event's savepoint and costs no
round trip. A failed event needs no reset, because its savepoint is rolled back."""

from functools import lru_cache
from typing import NamedTuple

from psycopg import sql

from partbox.db.sql import Conn, load_script
from partbox.db.type_conversion import OwnCursor

LOCK_TIMEOUT_MS = 1
"""Milliseconds that an event may wait for a lock while finished events of the transaction hold their locks.

Four processes that increment ten rows hold nearly all of them in each transaction. With 10 ms they got through half as
many events as one process. With 50 ms they got through a twelfth, since each waited until its own turn to give up.
"""

SAVEPOINT = b"savepoint partbox_event"
RELEASE = b"release " + SAVEPOINT
ROLLBACK_EVENT = b"rollback to " + SAVEPOINT
READ_SESSION = load_script("effects_session")
BEGIN_EVENT = load_script("effects_begun", savepoint=sql.SQL(""))
BEGIN_WITH_SAVEPOINT = load_script("effects_begun", savepoint=sql.SQL(f"{SAVEPOINT.decode()};"))


class SessionDefaults(NamedTuple):
    """The default settings of a database session, which are restored after a handler has changed them.

    - `lock_timeout`: in milliseconds, 0 for none
    - `after_event`: a script for the end of each successful event, which resets changed settings and limits waits
      for locks to `LOCK_TIMEOUT_MS`"""

    lock_timeout: int
    after_event: bytes

    @classmethod
    def from_row(cls, row: tuple[str | None, ...]) -> "SessionDefaults":
        """Build the session's default settings from a row that the script `READ_SESSION` returned."""
        set_back, lock_timeout = row[0] or "", int(row[1] or 0)
        patience = sql.Literal(min(LOCK_TIMEOUT_MS, lock_timeout or LOCK_TIMEOUT_MS))
        return cls(lock_timeout, load_script("effects_kept", set_back=sql.SQL(set_back), patience=patience))

    def render_end(self, limit: float) -> bytes:
        """Return SQL that sets time limits before the progress is saved at the end of a transaction."""
        # The script runs after the last event of the transaction. A client that freezes loses the transaction after
        # `limit` seconds.
        return _render_end(int(limit * 1000), self.lock_timeout)


def render_status(xid: str) -> bytes:
    """Return SQL that reads the status of a transaction, such as `committed`."""
    return load_script("effects_fate", xid=sql.Literal(xid))


def rollback_event(conn: Conn) -> None:
    """Undo a failed event by a rollback to its savepoint."""
    # The statement goes through psycopg, which then forgets its prepared statements.
    OwnCursor(conn).execute(ROLLBACK_EVENT)


@lru_cache(maxsize=16)
def _render_end(limit: int, lock_timeout: int) -> bytes:
    return load_script("effects_end", limit=sql.Literal(limit), lock_timeout=sql.Literal(lock_timeout))
