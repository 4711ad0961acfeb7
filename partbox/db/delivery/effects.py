"""The scripts that partbox sends around the handlers of a transaction.

Handlers share a transaction, and none of them is to notice. So a script behind each event that is done sets back what
belongs to the session: settings, also the local ones, the role, cursors and temporary tables. It goes with the
release of the event's savepoint, and costs no round trip. An event that fails needs none: its savepoint is rolled back.
"""

from functools import lru_cache
from typing import NamedTuple

from psycopg import sql

from partbox.db.sql import Conn, script
from partbox.db.type_conversion import OwnCursor

LOCK_TIMEOUT_MS = 1
"""Milliseconds that an event waits for a lock behind another that is done, whose locks are held meanwhile.

Four processes that count up ten rows hold nearly all of them in each transaction. With 10 ms they got through half as
many events as one process; with 50 ms through a twelfth, for each waited until it was its turn to give up.
"""

SAVEPOINT = b"savepoint partbox_event"
RELEASE = b"release " + SAVEPOINT
ROLLBACK_EVENT = b"rollback to " + SAVEPOINT
READ_SESSION = script("effects_session")
BEGIN_EVENT = script("effects_begun", savepoint=sql.SQL(""))
BEGIN_WITH_SAVEPOINT = script("effects_begun", savepoint=sql.SQL(f"{SAVEPOINT.decode()};"))


class SessionDefaults(NamedTuple):
    """What a session has by itself: its lock_timeout in milliseconds, and the script behind each event that is done.

    That sets back what the event has set. No lock is waited for longer than PATIENCE from there on.
    """

    lock_timeout: int
    kept: bytes

    @classmethod
    def of(cls, row: tuple[str | None, ...]) -> "SessionDefaults":
        """Make them of the row of `READ_SESSION`."""
        set_back, lock_timeout = row[0] or "", int(row[1] or 0)
        patience = sql.Literal(min(LOCK_TIMEOUT_MS, lock_timeout or LOCK_TIMEOUT_MS))
        return cls(lock_timeout, script("effects_kept", set_back=sql.SQL(set_back), patience=patience))

    def end(self, limit: float) -> bytes:
        """Return the script before the save: a client that freezes loses the transaction after `limit` seconds."""
        return _end(int(limit * 1000), self.lock_timeout)


def status_script(xid: str) -> bytes:
    """Return the script that tells what became of the transaction of this id, such as `committed`."""
    return script("effects_fate", xid=sql.Literal(xid))


def rollback_event(conn: Conn) -> None:
    """Roll back to the savepoint; by psycopg, which forgets then what it has prepared."""
    OwnCursor(conn).execute(ROLLBACK_EVENT)


@lru_cache(maxsize=16)
def _end(limit: int, lock_timeout: int) -> bytes:
    return script("effects_end", limit=sql.Literal(limit), lock_timeout=sql.Literal(lock_timeout))
