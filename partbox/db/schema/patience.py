"""Tries a migration again while somebody has a lock that it needs, and says so.

A migration that locks the log waits for every open transaction that has published, and publishers queue behind it. So
it waits for two seconds at a time (`lock_timeout` in `sql/migrations/begin.sql`), takes everything back, and lets them
go on before it tries again.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.errors import DeadlockDetected, LockNotAvailable

from partbox.db.holders import described, holders
from partbox.errors import SchemaError
from partbox.rules.wording import age

T = TypeVar("T")

LASTS = 600.0  # seconds after which it gives up
REST = 1.0  # seconds in which publishers go on, between two attempts


def patiently(conn: Connection[Any], schema: str, attempt: Callable[[], T]) -> T:
    """Return `attempt()`, made in a transaction of its own, or in a savepoint of the one that is open.

    SchemaError, with nothing changed, if a lock is not to be had for ten minutes.
    """
    end = time.monotonic() + LASTS
    while True:
        try:
            with conn.transaction():
                return attempt()
        except (LockNotAvailable, DeadlockDetected):
            found = described(holders(conn, "migrate_holders", schema))
        left = end - time.monotonic()
        if left <= 0:
            raise SchemaError(f"after {age(LASTS)} {found} still in the way, and nothing was changed: end that first")
        _say(f"schema {schema!r} is not migrated yet, {found} in the way; tried again for up to {age(left)}")
        time.sleep(REST)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"partbox: {text}\n")
        sys.stderr.flush()
